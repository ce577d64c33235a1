"""The parts of a worker, on real processes and real stores."""
