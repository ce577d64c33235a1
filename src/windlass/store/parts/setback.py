"""The database's clock was set back: how far into its future, and for how long, claims read jobs that had been due.

A job that had been due can be recognised: its run_at is not later than the time at which it was written. It now lies in
the clock's future, where a claim does not read. So claims read on, up to the latest time that the clock ever showed.
That also walks over delayed jobs, and so it ends when no job that had been due was found for a while.
"""

from __future__ import annotations

TOLERANCE = 1.0  # seconds: a smaller step back is ignored, and a due job waits for as long
SLACK = 3_600.0  # seconds beyond the latest time seen here: another process may have seen a later one
SEARCH_FOR = 600.0  # seconds after the last job that had been due was found


class SetBack:
    """What one store knows of its database's clock. Times are seconds since the epoch; `at` is monotonic time."""

    def __init__(self) -> None:
        self._clock: float | None = None
        self._reach = 0.0
        self._ends = float("-inf")

    def observe(self, clock: float, seen: float, written: float | None, at: float) -> bool:
        """Compare the clock with earlier times; returns whether it was set back.

        `clock` is what it shows now, `seen` what it once showed to a sweep, and `written` when a job was written that
        had been due then and lies in the future now.
        """
        seen = max(seen if self._clock is None else self._clock, written or 0.0)
        self._clock = clock
        if seen <= clock + TOLERANCE:
            return False
        self._reach = seen + SLACK
        self._ends = at + SEARCH_FOR
        return True

    def found(self, at: float) -> None:
        """A claim returned a job that had been due: there may be more."""
        self._ends = at + SEARCH_FOR

    def reach(self, at: float) -> float | None:
        """The time up to which a claim reads; None where the clock was not set back."""
        return self._reach if at < self._ends else None
