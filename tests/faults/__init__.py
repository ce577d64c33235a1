"""Faults with real worker processes: killed, frozen, cut off; what was promised must hold afterwards.

`WINDLASS_TEST_SCALE=10` makes the counts larger (20,000 jobs and not 400 for the killing of workers);
`WINDLASS_FAULT_SEED` repeats the random choices of a run that failed, though not how its processes interleaved.
"""
