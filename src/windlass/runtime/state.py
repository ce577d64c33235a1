"""What the parts of one worker share: its settings, its store, and each other."""

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
from windlass.runtime.duties.closures import Gates
from windlass.runtime.leases import Leases
from windlass.runtime.local_queue import LocalQueue
from windlass.runtime.pool import Pools
from windlass.store.contact import Contact
from windlass.store.protocol import Store

if TYPE_CHECKING:
    from windlass.runtime.completer import Completer
    from windlass.runtime.duties.progress import ProgressWriter
    from windlass.runtime.processes.process_pool import ProcessPool

log = logging.getLogger("windlass")


@dataclass(kw_only=True)
class WorkerState:
    """Built once by the worker; everybody reads it."""

    settings: Settings
    registry: Registry
    store: Store
    clock: Clock
    loop: asyncio.AbstractEventLoop
    pools: Pools
    local_queue: LocalQueue
    threads: Executor
    children: ProcessPool
    leases: Leases = field(default_factory=Leases)
    gates: Gates = field(default_factory=Gates)
    worker: UUID = field(default_factory=uuid4)  # this incarnation; a new one after a lost lease
    registered: bool = False  # whether the store knows this incarnation: nothing is claimed before
    subscribers: list[Callable[[Event], None]] = field(default_factory=list)
    completer: Completer = field(init=False)
    progress: ProgressWriter = field(init=False)
    contact: Contact = field(init=False)  # what all parts know of the database

    def __post_init__(self) -> None:
        self.contact = self.store.contact

    def emit(self, event: Event) -> None:
        """Tell who listens; nobody decides anything by it."""
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except Exception:
                log.exception("a subscriber failed at %s", type(event).__name__)

    def later(self, seconds: float, action: Callable[[], None]) -> Callable[[], object]:
        """Do something after a while of this worker's clock; the answer takes it back."""
        if isinstance(self.clock, SystemClock):
            return self.loop.call_later(seconds, action).cancel

        async def wait() -> None:
            await self.clock.sleep(seconds)
            action()

        return self.loop.create_task(wait()).cancel
