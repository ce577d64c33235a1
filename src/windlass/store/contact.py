"""What the parts of one process know of their database together: when it last answered, and who waits to try again.

After an outage each part would wait out a pause of its own, of up to ten seconds. So the first answer that any of them
gets ends the pauses of all. While the beat gets through, the pauses are short: the database is there, and what failed
was something else.
"""

from __future__ import annotations

import asyncio
import math
import random

from windlass.clock import Clock, wait

FIRST_PAUSE = 0.1  # seconds after the first failure in a row
LONGEST_PAUSE = 10.0  # seconds
LONGEST_WHILE_ANSWERED = 1.0  # seconds
QUIET = 1.0  # seconds: between two wakings, and after an answer until it says nothing of now


class Contact:
    """Told by the store of each answer, and by the beat how it went."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()
        self._woke_at = -math.inf
        self.answered_at = -math.inf  # on the monotonic clock
        self.beating = False  # the last beat got through

    def answered(self) -> None:
        """The database answered: every part that waits to try again tries now.

        Once a second at most: a part that alone fails would otherwise try as often as the others succeed.
        """
        self.answered_at = self._clock.monotonic()
        if self._waiting and self.answered_at - self._woke_at >= QUIET:
            self._wake()

    def beat(self, *, through: bool) -> None:
        """How the last beat went. The first one that gets through again wakes, whenever the last waking was."""
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
        """Wait so long, or until the database answers another part, or until the event is set."""
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
    """Full jitter: anything up to a bound that doubles, so that a fleet does not come back as one."""
    return random.uniform(0.01, min(longest, FIRST_PAUSE * 2 ** min(failures, 10)))
