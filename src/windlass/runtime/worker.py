"""A worker: one process's share of the work. It assembles the parts, registers, and knows how to end.

    start: open the store → register → beat → discovery, coordinator, completer, sweeper, leader, health, …
    lost:  stop every handler, drop every lease, register under a new id, give back what was dropped
    stop:  claim no more → give back what has not started → wait the grace time → release the rest → say goodbye

The database may go away at any moment and for any time: parts wait and try again, and the process lives on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from uuid import UUID, uuid4

from windlass.clock import Clock
from windlass.config import Settings
from windlass.declare.pipeline import sizes
from windlass.declare.registry import Registry
from windlass.errors import ConfigError, StoreError, StoreUnavailable
from windlass.observe.events import Event, LeasesLost, WorkerStarted, WorkerStopped
from windlass.runtime.completer import Completer
from windlass.runtime.coordinator import Coordinator
from windlass.runtime.discovery import Discovery
from windlass.runtime.duties.beat import Beat
from windlass.runtime.duties.gate_watcher import GateWatcher
from windlass.runtime.duties.health import Health
from windlass.runtime.duties.leader import Leader
from windlass.runtime.duties.progress import ProgressWriter
from windlass.runtime.duties.schedules import Schedules
from windlass.runtime.duties.sweeper import Former, Sweeper
from windlass.runtime.duties.timers import Timers
from windlass.runtime.duties.wakeups import Cancels, Listener
from windlass.runtime.leases import give_back
from windlass.runtime.local_queue import LocalQueue
from windlass.runtime.pool import Pools
from windlass.runtime.processes.process_pool import ProcessPool
from windlass.runtime.processor import Stop
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store import make_store
from windlass.store.protocol import NewWorker

log = logging.getLogger("windlass")

LAST_ROUND = 5.0  # seconds a service may take to finish its round when the worker stops
LAST_WRITES = 10.0  # seconds to write what was finished, when the database does not answer


class Worker:
    """`async with app.worker(concurrency=100): …`, or `windlass worker app.py`."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        clock: Clock,
        program: str | None = None,
        queues: tuple[str, ...] | None = None,
        types: tuple[str, ...] | None = None,
    ) -> None:
        if not len(registry):
            raise ConfigError("this program has no job types; decorate a function with @app.job")
        self.settings = settings
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._registry = registry
        self._clock = clock
        self._program = program
        self._queues = queues
        self._types = registry.types if types is None else tuple(registry.require(name).type for name in types)
        self._subscribers: list[Callable[[Event], None]] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._services: list[Service] = []
        self._beat: Beat | None = None
        self._state: WorkerState | None = None
        self._stop_wanted = asyncio.Event()
        self._impatient = asyncio.Event()
        self._failure: BaseException | None = None

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Be told what happens; call before the worker starts."""
        self._subscribers.append(subscriber)

    @property
    def state(self) -> WorkerState:
        assert self._state is not None, "the worker has not been started"
        return self._state

    # Start

    async def __aenter__(self) -> Worker:
        self._state = self._assemble()
        try:
            first_try = asyncio.Event()
            self._tasks["start"] = asyncio.create_task(self._start(first_try), name="windlass-start")
            await first_try.wait()
            if self._failure is not None:
                raise self._failure
        except BaseException:
            await self._close()
            raise
        return self

    def _assemble(self) -> WorkerState:
        settings = self.settings
        state = WorkerState(
            settings=settings,
            registry=self._registry,
            store=make_store(settings, self._clock),
            clock=self._clock,
            loop=asyncio.get_running_loop(),
            pools=Pools(total=settings.concurrency, size=settings.pool_size, sizes=sizes(self._registry)),
            local_queue=LocalQueue(capacity=settings.local_queue),
            threads=ThreadPoolExecutor(max_workers=settings.concurrency, thread_name_prefix="windlass"),
            children=ProcessPool(settings, program=self._program),
            subscribers=self._subscribers,
        )
        coordinator = Coordinator(state, freed=lambda processor: discovery.room_again(processor.phase))
        discovery = Discovery(state, coordinator, queues=self._queues, types=self._types)

        def freed() -> None:
            coordinator.arrived()
            if coordinator.at_once:  # else it scans by the clock, whatever happens in between
                discovery.nudge()

        gate_watcher = GateWatcher(state, discovery)
        state.completer = Completer(
            state,
            due_again=discovery.due_again,
            may_close=gate_watcher.nudge,
            let_in=discovery.let_in,
            relieved=discovery.nudge,
        )
        state.progress = ProgressWriter(state)
        self._discovery, self._sweeper = discovery, Sweeper(state)
        self._services = [
            discovery,
            self._sweeper,
            Timers(state, discovery),
            Schedules(state, discovery),
            Leader(state),
            Health(state, freed=freed),
            state.progress,
            gate_watcher,
            Listener(state, discovery, gate_watcher, queues=self._queues),
            Cancels(state),
        ]
        if not coordinator.at_once:
            self._services.append(coordinator)
        return state

    async def _start(self, first_try: asyncio.Event) -> None:
        """Open and register, however long the database takes; then let every service run."""
        failures = 0
        try:
            while not await self._open():
                first_try.set()
                failures += 1
                await self._hold_off(failures)
            await self._register()
            self._tasks["completer"] = asyncio.create_task(self.state.completer.run(), name="windlass-completer")
            for service in self._services:
                self._tasks[service.name] = asyncio.create_task(
                    service.run(self.state.contact), name=f"windlass-{service.name}"
                )
            self.state.emit(WorkerStarted(self.state.worker, self.name))
        except Exception as error:
            self._failure = error
            self._stop_wanted.set()
        finally:
            first_try.set()

    async def _open(self) -> bool:
        try:
            await self.state.store.open()
        except StoreUnavailable as error:
            log.warning("waiting for the database: %s", error)
            return False
        return True

    async def _register(self) -> None:
        state, failures = self.state, 0
        while True:
            began = self._clock.monotonic()
            worker = NewWorker(
                id=state.worker,
                name=self.name,
                lease=self.settings.lease,
                queues=self._queues,
                types=self._types,
                concurrency=self.settings.concurrency,
                isolates=self._discovery.isolates,
            )
            try:
                await state.store.declare(self._registry.rules())  # before it claims a job that counts against them
                await state.store.register(worker)
                break
            except StoreError as error:
                failures += 1
                log.warning("cannot register: %s", error)
                state.worker = uuid4()  # the answer may be lost and the row there: never use one id twice
                await self._hold_off(failures)
        self._beat = Beat(
            state.store,
            state.worker,
            settings=self.settings,
            clock=self._clock,
            lost=self._beat_lost,
            told=self._beat_told,
            holding=lambda: len(state.leases),
        )
        self._beat.renewed = began
        self._beat.start()
        state.registered = True
        state.contact.beat(through=True)
        self._sweeper.registered()
        self._discovery.restart()

    async def _hold_off(self, failures: int) -> None:
        await self.state.contact.hold_off(self.state.contact.pause(failures))

    # A lost lease

    def _beat_lost(self, worker: UUID, why: str) -> None:
        """On the beat's thread."""
        with suppress(RuntimeError):  # the loop is closed: there is nothing to stop any more
            self.state.loop.call_soon_threadsafe(self._lost, worker, why)

    def _beat_told(self, through: bool) -> None:
        """On the beat's thread."""
        with suppress(RuntimeError):
            self.state.loop.call_soon_threadsafe(lambda: self.state.contact.beat(through=through))

    def _lost(self, worker: UUID, why: str) -> None:
        """Every lease of this incarnation is gone: stop its handlers, and begin again under a new id."""
        state = self.state
        if worker != state.worker or not state.registered:
            return
        state.registered = False
        held, attempts = state.leases.drop_all(), list(state.leases.attempts.values())
        log.error("worker %s lost its leases (%s): dropping %d jobs and starting anew", worker, why, len(held))
        state.worker = uuid4()
        unwritten = state.completer.forget()
        # Else this process stood still, perhaps by one of its handlers: a sweep gives its jobs back, with a crash.
        if self._beat is not None and self._beat.cut_off:
            self._sweeper.lost(Former(held, attempts, unwritten))
        state.local_queue.drain()
        for attempt in attempts:
            attempt.stop(Stop.LOST)
        state.emit(LeasesLost(worker, len(held)))
        if not self._stop_wanted.is_set():
            self._tasks["register"] = asyncio.create_task(self._register(), name="windlass-register")

    # Stop

    def stop(self) -> None:
        """Ask for a graceful end; from any thread."""
        self.state.loop.call_soon_threadsafe(self._stop_wanted.set)

    def kill(self) -> None:
        """Do not wait for handlers any longer; from any thread."""
        self.stop()
        self.state.loop.call_soon_threadsafe(self._impatient.set)

    async def finished(self) -> None:
        """Until somebody asked the worker to stop; raises what made it impossible to go on."""
        await self._stop_wanted.wait()
        if self._failure is not None:
            raise self._failure

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_wanted.set()
        try:
            await self._wind_down()
        finally:
            await self._close()

    async def _wind_down(self) -> None:
        """Give back what has not started, wait for what has, release what will not end."""
        state = self.state
        await self._end_claiming()
        for job in state.local_queue.drain():
            state.completer.submit(give_back(job))
        await self._until_idle(self.settings.grace)
        for attempt in list(state.leases.attempts.values()):
            attempt.stop(Stop.SHUTDOWN)
        await self._until_idle(self.settings.cancel_grace + 1)
        if "completer" in self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WRITES):
                    await state.completer.drained()

    async def _end_claiming(self) -> None:
        """A claim under way is waited for: cancelled, it might have leased jobs that nobody here knows of."""
        self._discovery.end()
        task = self._tasks.get(self._discovery.name)
        if task is not None:
            await asyncio.wait({task}, timeout=LAST_ROUND)

    async def _until_idle(self, seconds: float) -> None:
        """Until no attempt runs, the time is up, or somebody lost patience."""
        tasks = {attempt.task for attempt in self.state.leases.attempts.values() if attempt.task is not None}
        if not tasks or seconds <= 0:
            return
        impatient = asyncio.ensure_future(self._impatient.wait())
        up = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            idle = asyncio.ensure_future(asyncio.wait(tasks))
            await asyncio.wait({idle, impatient, up}, return_when=asyncio.FIRST_COMPLETED)
            idle.cancel()
        finally:
            impatient.cancel()
            up.cancel()

    async def _close(self) -> None:
        state = self.state
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._beat is not None:
            await self._beat.stop()
        await state.children.close()
        if state.registered:
            with suppress(StoreError):
                await state.store.deregister(state.worker)
            state.emit(WorkerStopped(state.worker, self.name))
        with suppress(StoreError):
            await state.store.close()
        state.threads.shutdown(wait=False, cancel_futures=True)
