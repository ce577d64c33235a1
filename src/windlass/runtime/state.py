"""What the parts of one worker share: its settings, its store, its queue, its leases and its signals."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from windlass.clock import Clock, SystemClock
from windlass.config import Settings
from windlass.declare.registry import Registry
from windlass.observe.events import Detail, Event
from windlass.observe.subscribers import Subscribers
from windlass.runtime.duties.closures import Closures
from windlass.runtime.leases import Leases
from windlass.runtime.local_queue import LocalQueue
from windlass.runtime.pool import PhasePools
from windlass.runtime.signals import WorkerSignals
from windlass.store.contact import Contact
from windlass.store.protocol import Store

if TYPE_CHECKING:
    from windlass.runtime.processes.process_pool import ProcessPool


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
    context: contextvars.Context = field(default_factory=contextvars.copy_context)  # each attempt runs in a copy
    subscribers: Subscribers = field(default_factory=Subscribers)
    timers: set[asyncio.Task[None]] = field(default_factory=set)  # of a clock that is not the system's

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

    def emit(self, event: Event | Detail) -> None:
        """Report an event to the subscribers. They only observe: no part of the worker depends on them."""
        self.subscribers(event)

    def later(self, seconds: float, action: Callable[[], None]) -> Callable[[], object]:
        """Call `action` after so many seconds of this worker's clock; call what is returned to cancel that."""
        if isinstance(self.clock, SystemClock):
            return self.loop.call_later(seconds, action).cancel
        # From this call on: a handler may move the clock before the task below has had its first turn.
        due = self.clock.monotonic() + seconds

        async def wait() -> None:
            await self.clock.sleep(due - self.clock.monotonic())
            action()

        timer = self.loop.create_task(wait())
        self.timers.add(timer)
        timer.add_done_callback(self.timers.discard)
        return timer.cancel
