"""What the services of one process share about their database: when it last answered, and which of them wait to retry.

After an outage each service would wait out a pause of its own, of up to ten seconds. So the first answer that any of
them gets ends the pauses of all. While the beat succeeds, the pauses are short: the database answers, and the failure
has another reason.
"""

from __future__ import annotations

import asyncio
import math
import random

from windlass.clock import Clock, wait

FIRST_PAUSE = 0.1  # seconds after the first failure in a row
LONGEST_PAUSE = 10.0  # seconds
LONGEST_WHILE_ANSWERED = 1.0  # seconds
QUIET = 1.0  # seconds between two wake-ups of the waiting services; an older answer does not prove contact now


class Contact:
    """The store records each answer here, and the beat whether it succeeded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()
        self._woke_at = -math.inf
        self.answered_at = -math.inf  # on the monotonic clock
        self.beating = False  # the last beat got through

    def answered(self) -> None:
        """The database answered: every service that waits to retry does it now.

        At most once a second: a service that fails alone would otherwise retry as often as the others succeed.
        """
        self.answered_at = self._clock.monotonic()
        if self._waiting and self.answered_at - self._woke_at >= QUIET:
            self._wake()

    def beat(self, *, through: bool) -> None:
        """Record the last beat. The first one that succeeds again ends all pauses, however recent the last wake-up."""
        back, self.beating = through and not self.beating, through
        if through:
            self.answered()
        if back:
            self._wake()

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        answers = self.beating or self._clock.monotonic() - self.answered_at < QUIET
        return jittered(failures, LONGEST_WHILE_ANSWERED if answers else LONGEST_PAUSE)

    async def hold_off(self, seconds: float | None, event: asyncio.Event | None = None) -> None:
        """Wait so many seconds, or until the database answers another service, or until the event is set."""
        event = event or asyncio.Event()
        self._waiting.add(event)
        try:
            await wait(self._clock, event, seconds)
        finally:
            self._waiting.discard(event)

    def _wake(self) -> None:
        self._woke_at = self._clock.monotonic()
        for event in self._waiting:
            event.set()


def jittered(failures: int, longest: float) -> float:
    """Full jitter: a random pause up to a bound that doubles, so that many workers do not retry at the same moment."""
    return random.uniform(0.01, min(longest, FIRST_PAUSE * 2 ** min(failures, 10)))
