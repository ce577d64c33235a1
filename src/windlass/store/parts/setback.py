"""A clock that was set back: for how long, and how far ahead of it, a claim looks for jobs that had been due before.

Such a job proves it by itself: its run_at is not later than the time at which it was written. It lies in the future of
the clock, beyond the end of what a claim reads; so a claim reads on, as far as the clock has ever been seen to show.
That walks over jobs which are delayed, and ends when no such job was found for a while.
"""

from __future__ import annotations

TOLERANCE = 1.0  # seconds: so long may a job that was due sleep
SLACK = 3_600.0  # seconds beyond the last time that was seen: others may have seen a later one
LOOKED_FOR = 600.0  # seconds after the last sign


class SetBack:
    """What one store knows. Times are seconds since the epoch, `at` is of the monotonic clock."""

    def __init__(self) -> None:
        self._clock: float | None = None
        self._reach = 0.0
        self._ends = float("-inf")

    def look(self, clock: float, seen: float, written: float | None, at: float) -> bool:
        """Whether the clock was set back.

        It shows `clock`, once showed `seen` to a sweep, and `written` when a job of the future was that had been due.
        """
        seen = max(seen if self._clock is None else self._clock, written or 0.0)
        self._clock = clock
        if seen <= clock + TOLERANCE:
            return False
        self._reach = seen + SLACK
        self._ends = at + LOOKED_FOR
        return True

    def found(self, at: float) -> None:
        """A claim brought such a job: there may be more."""
        self._ends = at + LOOKED_FOR

    def reach(self, at: float) -> float | None:
        """Up to which time a claim looks for them; None where the clock was not set back."""
        return self._reach if at < self._ends else None
