"""The loop, written once. A service supplies one round and how long to wait after it.

Errors of the store never end a loop: they are logged, and the next round comes after a pause with full jitter.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod

from windlass.clock import Clock, SystemClock
from windlass.errors import StoreError

log = logging.getLogger("windlass")

FIRST_PAUSE = 0.1  # seconds after the first failure in a row
LONGEST_PAUSE = 10.0  # seconds


class Service(ABC):
    """Something a worker does again and again."""

    name: str

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._nudge = asyncio.Event()
        self._ending = False
        self.resting = False  # between two rounds

    @abstractmethod
    async def round(self) -> float | None:
        """Do it once; the answer is how many seconds to wait (None: until nudged)."""

    def nudge(self) -> None:
        """Make the next round come now."""
        self._nudge.set()

    def end(self) -> None:
        """Let the round that runs finish, and begin no other."""
        self._ending = True
        self._nudge.set()

    async def run(self) -> None:
        """Round after round until it is ended or cancelled."""
        failures = 0
        while not self._ending:
            self._nudge.clear()
            try:
                pause = await self.round()
                if failures:
                    log.info("%s works again", self.name)
                failures = 0
            except StoreError as error:
                failures += 1
                pause = backoff(failures)
                level = logging.WARNING if failures in (1, 5) or failures % 20 == 0 else logging.DEBUG
                log.log(level, "%s: %s; trying again in %.1f s", self.name, error, pause)
            except Exception:
                failures += 1
                pause = backoff(failures)
                log.exception("%s failed; trying again in %.1f s", self.name, pause)
            if not self._ending:
                self.resting = True
                await wait(self.clock, self._nudge, pause)
                self.resting = False


def backoff(failures: int) -> float:
    """Full jitter: anything up to a bound that doubles, so that a fleet does not come back as one."""
    return random.uniform(0.01, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10)))


async def wait(clock: Clock, event: asyncio.Event, seconds: float | None) -> None:
    """Until the event is set, or so many seconds of this clock have passed."""
    if event.is_set() or seconds == 0:
        await asyncio.sleep(0)
        return
    if seconds is None:
        await event.wait()
        return
    if isinstance(clock, SystemClock):  # the same as below with one timer instead of two tasks
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        return
    waiters = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))}
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
