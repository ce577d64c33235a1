"""The parts of one worker, made in the order in which they need each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from windlass.clock import Clock
from windlass.config import Settings
from windlass.declare.pipeline import sizes
from windlass.declare.registry import Registry
from windlass.observe.events import Event
from windlass.runtime.claims.steady_discovery import SteadyDiscovery
from windlass.runtime.completer import Completer
from windlass.runtime.coordinator import Coordinator
from windlass.runtime.discovery import Discovery
from windlass.runtime.duties.gate_watcher import GateWatcher
from windlass.runtime.duties.health import HealthCheck
from windlass.runtime.duties.leader import Leader
from windlass.runtime.duties.progress import ProgressWriter
from windlass.runtime.duties.report import ProcessorReport
from windlass.runtime.duties.schedules import ScheduleTicker
from windlass.runtime.duties.sweeper import Sweeper
from windlass.runtime.duties.timers import Timers
from windlass.runtime.duties.wakeups import Cancels, WakeupListener
from windlass.runtime.local_queue import LocalQueue
from windlass.runtime.pool import PhasePools
from windlass.runtime.processes.process_pool import ProcessPool
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store import make_store
from windlass.store.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepping:
    """For a worker that is stepped by hand: no service runs by itself, and no beat renews the worker's lease.

    The completer, the coordinator and handlers run as always.
    """

    lease: float  # seconds that the worker's row lives
    make_store: Callable[[Settings, Clock], Store] = make_store
    threads: Executor | None = None  # where plain handlers run; None: on threads of the worker


class WorkerParts:
    """Everything that a started worker consists of. A part gets the parts that it calls; for news there are signals."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        clock: Clock,
        program: str | None,
        queues: tuple[str, ...] | None,
        types: tuple[str, ...],
        subscribers: list[Callable[[Event], object]],
        stepping: Stepping | None,
    ) -> None:
        threads = None if stepping is None else stepping.threads
        self.state = state = WorkerState(
            settings=settings,
            registry=registry,
            store=(make_store if stepping is None else stepping.make_store)(settings, clock),
            clock=clock,
            loop=asyncio.get_running_loop(),
            pools=PhasePools(total=settings.concurrency, size=settings.pool_size, sizes=sizes(registry)),
            local_queue=LocalQueue(capacity=settings.local_queue),
            threads=threads or ThreadPoolExecutor(max_workers=settings.concurrency, thread_name_prefix="windlass"),
            children=ProcessPool(settings, program=program),
            subscribers=subscribers,
        )
        self.completer = Completer(state)
        self.coordinator = Coordinator(state, self.completer)
        self.discovery = (Discovery if self.coordinator.assigns_at_once else SteadyDiscovery)(
            state, self.completer, self.coordinator, queues=queues, types=types
        )
        self.sweeper = Sweeper(state)
        self.report = ProcessorReport(state, queues=queues, types=types)
        services = self._make_services(queues)
        if not self.coordinator.assigns_at_once:
            services.append(self.coordinator)
        self.services = {service.name: service for service in services}

    def _make_services(self, queues: tuple[str, ...] | None) -> list[Service]:
        """Everything that a worker does again and again, in the order in which it starts."""
        state = self.state
        return [
            self.discovery,
            self.sweeper,
            Timers(state),
            ScheduleTicker(state),
            Leader(state),
            HealthCheck(state, self.completer),
            ProgressWriter(state),
            GateWatcher(state, self.completer),
            WakeupListener(state, queues=queues),
            Cancels(state),
        ]
