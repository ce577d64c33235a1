"""The beat: a thread with its own event loop and its own connection renews this worker's lease.

A handler that blocks the worker's event loop does not stop the beat, so that it is not taken for dead. When the beat
itself cannot get through, the worker must stop in time: from the *start* of the last renewal that succeeded, on the
monotonic clock, it has a lease minus a margin. After that, or when the worker is dead in the store, every lease is
given up. No single try uses all of that time: a connection that is silent is left for a new one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from uuid import UUID

from windlass import failpoints
from windlass.clock import Clock
from windlass.config import Settings
from windlass.errors import StoreError, StoreUnavailable
from windlass.store.protocol import Heartbeat, Store

log = logging.getLogger("windlass")

TRIES_LEFT = 3  # one try of a beat may take a third of the time that is left
AWAY = (StoreUnavailable, TimeoutError)  # logged once for all parts of the worker, by store/contact.py


class Beat:
    """Renews one worker's lease until it is stopped or lost. Its callbacks are called from the beat's thread."""

    def __init__(
        self,
        store: Store,
        worker: UUID,
        *,
        settings: Settings,
        clock: Clock,
        renewed: float,
        on_lost: Callable[[UUID, str], None],
        on_beat: Callable[[Exception | None], None],
        count_leases: Callable[[], int],
        report: Callable[[], str | None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._settings = settings
        self._clock = clock
        self._on_lost = on_lost  # called once
        self._on_beat = on_beat  # called after each beat, with the error of one that did not get through
        self._count_leases = count_leases
        self._report = report  # what the processors do, for the worker's row
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._main, name="windlass-beat", daemon=True)
        self.cut_off = False  # the last try failed: the database is away, and not this process
        self.renewed = renewed  # the start of the last renewal that succeeded: registration is the first

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """End the thread; waits for it without blocking this loop."""
        self._stopped.set()
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:  # its loop is closed already
                pass
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 5)

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        heartbeat = self._store.heartbeat()
        try:
            while not self._stopped.is_set():
                await self._clock.sleep(await self._renew(heartbeat))
        except _Lost as lost:
            self._on_lost(self._worker, str(lost))
        except asyncio.CancelledError:
            pass
        finally:
            await heartbeat.close()

    async def _renew(self, heartbeat: Heartbeat) -> float:
        """One beat; returns the pause until the next."""
        began = self._clock.monotonic()
        left = self._settings.lease - self._settings.margin - (began - self.renewed)
        if left <= 0:
            raise _Lost(f"no beat came through for {began - self.renewed:.1f} s")
        try:
            if failpoints.armed:
                failpoints.hit("beat.before")
            within = left / TRIES_LEFT
            async with asyncio.timeout(within):
                alive = await heartbeat.beat(
                    self._worker, self._settings.lease, self._count_leases(), self._report(), within=within
                )
        except Exception as error:  # whatever it was: without its beat a worker would work on, fenced out
            self.cut_off = True
            waited = self._clock.monotonic() - self.renewed
            why = str(error) or type(error).__name__
            if isinstance(error, AWAY):
                level, trace = logging.DEBUG, None
            elif isinstance(error, StoreError):
                level, trace = logging.WARNING, None
            else:
                level, trace = logging.ERROR, error
            log.log(level, "beat: %s; %.1f s of the lease are used", why, waited, exc_info=trace)
            self._on_beat(error)
            return min(self._settings.beat / 4, 1.0)
        self.cut_off = False
        if not alive:
            raise _Lost("it was declared dead")
        self.renewed = began
        self._on_beat(None)
        # From its start: a beat that waited long (for a locked file) has used up part of the time that it renewed.
        return max(0.0, self._settings.beat - (self._clock.monotonic() - began))


class _Lost(Exception):
    """The lease cannot be kept."""
