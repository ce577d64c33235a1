"""The loop, written once. A service supplies one round and how long to wait after it.

Errors of the store never end a loop: they are logged, and the next round comes after a pause with full jitter. That
the database is away is logged once for all services, by `store/contact.py`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from windlass.clock import Clock, wait
from windlass.errors import StoreError, StoreUnavailable
from windlass.store.contact import Contact

log = logging.getLogger("windlass")


class Service(ABC):
    """Something a worker does again and again."""

    name: str

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._nudge = asyncio.Event()
        self._ending = False
        self.is_waiting = False  # between two rounds
        self.succeeded_at: float | None = None  # the end of the last round without an error, on the monotonic clock

    @abstractmethod
    async def round(self) -> float | None:
        """Do it once; returns how many seconds to wait (None: until nudged)."""

    def nudge(self) -> None:
        """Make the next round come now."""
        self._nudge.set()

    def end(self) -> None:
        """Let the current round finish, and begin no other."""
        self._ending = True
        self._nudge.set()

    @property
    def is_ending(self) -> bool:
        return self._ending

    async def run(self, contact: Contact) -> None:
        """Round after round until it is ended or cancelled."""
        failures, failed_at, level = 0, 0.0, logging.DEBUG
        while not self._ending:
            self._nudge.clear()
            try:
                pause = await self.round()
                self.succeeded_at = self.clock.monotonic()
                # A round without a question proves nothing: the database must have answered some part since.
                if failures and pause is not None and contact.answered_at > failed_at:
                    log.log(level, "%s works again", self.name)
                    failures, level = 0, logging.DEBUG
                failed = False
            except Exception as error:
                failed, failed_at = True, self.clock.monotonic()
                failures += 1
                pause = contact.pause(failures)
                if isinstance(error, StoreUnavailable):
                    contact.failed(error, self.name)
                else:
                    level = logging.INFO
                    self._log(error, failures, pause)
            if not self._ending:
                self.is_waiting = True
                await (contact.hold_off(pause, self._nudge) if failed else wait(self.clock, self._nudge, pause))
                self.is_waiting = False

    def _log(self, error: Exception, failures: int, pause: float) -> None:
        if not isinstance(error, StoreError):
            log.error("%s failed; trying again in %.1f s", self.name, pause, exc_info=error)
            return
        level = logging.WARNING if failures in (1, 5) or failures % 20 == 0 else logging.DEBUG
        log.log(level, "%s: %s; trying again in %.1f s", self.name, error, pause)
