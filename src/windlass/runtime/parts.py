"""The parts of one worker, made in the order in which they need each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from windlass.clock import Clock
from windlass.config import Settings
from windlass.declare.pipeline import sizes
from windlass.declare.registry import Registry
from windlass.errors import BrokerError
from windlass.observe.events import Event
from windlass.observe.subscribers import Subscribers
from windlass.runtime.claims.steady_discovery import SteadyDiscovery
from windlass.runtime.completer import Completer
from windlass.runtime.coordinator import Coordinator
from windlass.runtime.delivery.broker_discovery import BrokerDiscovery
from windlass.runtime.delivery.broker_link import BrokerLink
from windlass.runtime.delivery.intake import Intake
from windlass.runtime.delivery.outbox_relay import OutboxRelay
from windlass.runtime.delivery.undelivered import UndeliveredSweep
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
from windlass.transport import make_dispatcher


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
            subscribers=Subscribers(subscribers),
        )
        state.context.run(registry.instruments.start)
        self.completer = Completer(state)
        self.coordinator = Coordinator(state, self.completer)
        # A worker that is stepped by hand claims what is due: its test has no broker.
        self.broker = (
            None if settings.broker is None or stepping else BrokerLink(state, make_dispatcher(settings.broker))
        )
        self.discovery = self._make_discovery(queues, types)
        self.sweeper = Sweeper(state)
        self.report = ProcessorReport(state, queues=queues, types=types)
        services = [*self._make_services(queues), *self._make_delivery(queues, types)]
        if not self.coordinator.assigns_at_once:
            services.append(self.coordinator)
        self.services = {service.name: service for service in services}

    @property
    def claiming(self) -> list[Service]:
        """What ends first when the worker stops: nothing new is claimed, received or published."""
        return [self.services[name] for name in ("discovery", "intake", "relay") if name in self.services]

    async def close_broker(self) -> None:
        if self.broker is not None:
            with suppress(BrokerError):
                await self.broker.dispatcher.close()

    def _make_discovery(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> Discovery:
        state, completer, coordinator = self.state, self.completer, self.coordinator
        if self.broker is not None:
            return BrokerDiscovery(state, completer, coordinator, queues=queues, types=types, link=self.broker)
        kind = Discovery if coordinator.assigns_at_once else SteadyDiscovery
        return kind(state, completer, coordinator, queues=queues, types=types)

    def _make_delivery(self, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> list[Service]:
        """What a worker with a broker does beside."""
        state, link = self.state, self.broker
        if link is None:
            return []
        intake = Intake(state, self.discovery, link, queues=queues, types=types)
        relay = [OutboxRelay(state, link, self.discovery.idle_mark)] if state.settings.relay else []
        return [link, intake, *relay, UndeliveredSweep(state, link, intake.served)]

    def _make_services(self, queues: tuple[str, ...] | None) -> list[Service]:
        """Everything that a worker does again and again, in the order in which it starts."""
        state = self.state
        return [
            self.discovery,
            self.sweeper,
            Timers(state),
            ScheduleTicker(state),
            Leader(state),
            HealthCheck(state, self.completer, self.report),
            ProgressWriter(state),
            GateWatcher(state, self.completer),
            WakeupListener(state, queues=queues),
            Cancels(state),
        ]
