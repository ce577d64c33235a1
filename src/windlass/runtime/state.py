"""What the parts of one worker share: its settings, its store, its queue, its leases and its signals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from windlass.clock import Clock, SystemClock
from windlass.config import Settings
from windlass.declare.registry import Registry
from windlass.observe.events import Event
from windlass.observe.subscribers import name_of
from windlass.runtime.duties.closures import Closures
from windlass.runtime.leases import Leases
from windlass.runtime.local_queue import LocalQueue
from windlass.runtime.pool import PhasePools
from windlass.runtime.signals import WorkerSignals
from windlass.store.contact import Contact
from windlass.store.protocol import Store

if TYPE_CHECKING:
    from windlass.runtime.processes.process_pool import ProcessPool

log = logging.getLogger("windlass")


@dataclass(kw_only=True)
class WorkerState:
    """Complete when it is constructed. Other modules read its fields and change them only through its methods."""

    settings: Settings
    registry: Registry
    store: Store
    clock: Clock
    loop: asyncio.AbstractEventLoop
    pools: PhasePools
    local_queue: LocalQueue
    threads: Executor
    children: ProcessPool
    signals: WorkerSignals = field(default_factory=WorkerSignals)
    leases: Leases = field(default_factory=Leases)
    closures: Closures = field(default_factory=Closures)
    worker: UUID = field(default_factory=uuid4)  # this incarnation; a new one after a lost lease
    registered: bool = False  # whether the store knows this incarnation: nothing is claimed before
    subscribers: list[Callable[[Event], object]] = field(default_factory=list)
    failed_subscribers: list[Callable[[Event], object]] = field(default_factory=list)  # whose error was logged

    @property
    def contact(self) -> Contact:
        """What all parts know of the database: when it last answered, and which parts wait to try again."""
        return self.store.contact

    def begin_incarnation(self) -> None:
        """Take a new worker id, which the store does not know yet. No id is ever registered twice."""
        self.worker = uuid4()
        self.registered = False

    def mark_registered(self) -> None:
        """The store has a row of this incarnation: it may claim."""
        self.registered = True

    def emit(self, event: Event) -> None:
        """Report an event to the subscribers. They only observe: no part of the worker depends on them."""
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except KeyboardInterrupt:  # meant for the process
                raise
            except BaseException as error:  # sys.exit() in a subscriber must not end an attempt half-way
                self._log_failure(subscriber, event, error)

    def _log_failure(self, subscriber: Callable[[Event], object], event: Event, error: BaseException) -> None:
        """Once for each subscriber: one that fails at every job would fill the log."""
        if subscriber not in self.failed_subscribers:
            self.failed_subscribers.append(subscriber)
            text = "the subscriber %s failed at %s; jobs go on, and its later errors are not logged"
            log.error(text, name_of(subscriber), type(event).__name__, exc_info=error)

    def later(self, seconds: float, action: Callable[[], None]) -> Callable[[], object]:
        """Call `action` after so many seconds of this worker's clock; call what is returned to cancel that."""
        if isinstance(self.clock, SystemClock):
            return self.loop.call_later(seconds, action).cancel
        # From this call on: a handler may move the clock before the task below has had its first turn.
        due = self.clock.monotonic() + seconds

        async def wait() -> None:
            await self.clock.sleep(due - self.clock.monotonic())
            action()

        return self.loop.create_task(wait()).cancel
