"""When a claim is a rescan, which also reads below the claim floors and finds what committed late."""

from __future__ import annotations

from windlass.clock import Clock

LARGEST_SHARE = 20  # rescans take at most one twentieth of a worker's time


class RescanPacing:
    """One rescan per poll, or fewer when rescans are slow."""

    def __init__(self, clock: Clock, *, poll: float) -> None:
        self._clock = clock
        self._poll = poll  # seconds
        self._next_at = 0.0  # on the monotonic clock
        self._plain_took = 0.0  # seconds of a claim without a rescan, lately

    def is_due(self) -> bool:
        return self._clock.monotonic() >= self._next_at

    def may_come_early(self) -> bool:
        """Whether a worker that was woken and found nothing above its floors may rescan, within the share of time."""
        return self._clock.monotonic() >= self._next_at - self._poll

    def make_due(self) -> None:
        self._next_at = 0.0

    def record(self, took: float, *, rescan: bool) -> None:
        """A claim took so many seconds.

        What a rescan takes beyond a plain claim may be a twentieth of the time: a slow one is made less often.
        """
        if not rescan:
            self._plain_took = 0.8 * self._plain_took + 0.2 * took
            return
        extra = max(0.0, took - self._plain_took)
        self._next_at = self._clock.monotonic() + max(self._poll, LARGEST_SHARE * extra)
