"""A worker: how it starts, what it does when its leases are lost, and how it stops. `parts.py` has its parts.

    start: open the store → register → beat → discovery, coordinator, completer, sweeper, leader, health, …
           a broker is opened beside that: one that is away delays nothing
    lost:  stop every handler, drop every lease, register under a new id, release the jobs that were dropped
    stop:  claim no more → release what has not started → wait the grace time → release the rest → deregister

The database may go away at any moment and for any time: parts wait and try again, and the process lives on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from types import TracebackType
from typing import TYPE_CHECKING, Never
from uuid import UUID

from windlass import words
from windlass.clock import Clock
from windlass.config import Settings
from windlass.declare.announced import announced_rows
from windlass.declare.registry import Registry
from windlass.errors import ConfigError, SchemaTooNew, StoreError, StoreUnavailable
from windlass.observe.events import Event, JobsReleased, LeasesLost, ReleaseReason, WorkerStarted, WorkerStopped
from windlass.observe.logs import guard_handlers
from windlass.runtime.duties.beat import AWAY, Beat
from windlass.runtime.duties.endpoint import Observed
from windlass.runtime.duties.sweeper import LostIncarnation
from windlass.runtime.leases import release_unstarted
from windlass.runtime.parts import Stepping, WorkerParts
from windlass.runtime.processor import Stop
from windlass.runtime.state import WorkerState
from windlass.store.protocol import NewWorker
from windlass.words import answer_words

log = logging.getLogger("windlass")

LAST_ROUND = 5.0  # seconds that a service may take to finish its round when the worker stops
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
        stepping: Stepping | None = None,
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
        self._announced = announced_rows(registry, settings)
        self._subscribers: list[Callable[[Event], object]] = list(registry.subscribers)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stepping = stepping
        self._beat: Beat | None = None
        self.observed: Observed | None = None
        if settings.metrics_port is not None and stepping is None:
            self.observed = Observed(settings, find_parts=lambda: self._parts)
            if self.observed.metrics is not None:
                self._subscribers.append(self.observed.metrics)
        self._parts: WorkerParts | None = None
        self._stop_wanted = asyncio.Event()
        self._killed = asyncio.Event()
        self._failure: BaseException | None = None

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = answer_words("a worker", words.WORKER)

        def __enter__(self) -> Never:
            raise ConfigError(f"a worker runs on an event loop, and `with` has none; write: {words.WORKER['run']}")

        def __exit__(self, *error: object) -> None: ...

    def subscribe(self, subscriber: Callable[[Event], object]) -> None:
        """Call `subscriber` with every event; call this before the worker starts."""
        self._subscribers.append(subscriber)

    @property
    def parts(self) -> WorkerParts:
        assert self._parts is not None, "the worker has not been started"
        return self._parts

    @property
    def state(self) -> WorkerState:
        return self.parts.state

    async def step(self, *services: str) -> None:
        """One round of each of these services, in this order, by hand; see `Stepping`."""
        for name in services:
            await self.parts.services[name].round()

    # Start

    async def __aenter__(self) -> Worker:
        guard_handlers()
        self._parts = WorkerParts(
            self.settings,
            self._registry,
            clock=self._clock,
            program=self._program,
            queues=self._queues,
            types=self._types,
            subscribers=self._subscribers,
            stepping=self._stepping,
        )
        if self.observed is not None:
            self.observed.start()
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

    async def _start(self, first_try: asyncio.Event) -> None:
        """Open and register, however long the database takes; then let every service run."""
        failures = 0
        try:
            while not await self._open():
                first_try.set()
                failures += 1
                await self._hold_off(failures)
            await self._register()
            self._tasks["completer"] = asyncio.create_task(self.parts.completer.run(), name="windlass-completer")
            if self._stepping is None:
                for name, service in self.parts.services.items():
                    self._tasks[name] = asyncio.create_task(service.run(self.state.contact), name=f"windlass-{name}")
            self.state.emit(self._describe_start())
        except Exception as error:
            self._failure = error
            self._stop_wanted.set()
        finally:
            first_try.set()

    def _describe_start(self) -> WorkerStarted:
        settings, pools = self.settings, self.parts.report.sizes()
        return WorkerStarted(
            self.state.worker,
            self.name,
            pools=pools,
            processors=min(settings.concurrency, sum(size for _, size in pools)),
            queues=self._queues,
            pace=settings.pace,
            poll=settings.poll,
            batch=settings.discovery_batch,
            assign_every=settings.assign_every,
            assign_most=settings.assign_most,
        )

    async def _open(self) -> bool:
        try:
            await self.state.store.open()
        except StoreUnavailable as error:
            self.state.contact.failed(error, "the worker's start")
            return False
        return True

    async def _register(self) -> None:
        state, failures = self.state, 0
        while True:
            began = self._clock.monotonic()
            try:
                await state.store.declare(self._registry.rules())  # before it claims a job that counts against them
                await state.store.announce(self._announced)
                await state.store.register(self._row())
                break
            except StoreError as error:
                if self._stepping is not None or isinstance(error, SchemaTooNew):  # no later try could succeed
                    raise
                failures += 1
                if isinstance(error, StoreUnavailable):
                    state.contact.failed(error, "cannot register")
                elif failures in (1, 5) or failures % 20 == 0:
                    log.warning("cannot register: %s", error)
                state.begin_incarnation()  # the answer may be lost and the row there: never use one id twice
                await self._hold_off(failures)
        if self._stepping is None:
            self._start_beat(began)
        state.mark_registered()
        state.signals.registered()

    def _row(self) -> NewWorker:
        stepping = self._stepping
        return NewWorker(
            id=self.state.worker,
            name=self.name,
            lease=self.settings.lease if stepping is None else stepping.lease,
            queues=self._queues,
            types=self._types,
            concurrency=self.settings.concurrency if stepping is None else 1,
            isolates=self.parts.discovery.isolates,
            version=self.settings.version,
            windlass=installed_version(),
        )

    def _start_beat(self, registered_at: float) -> None:
        state = self.state
        self._beat = Beat(
            state.store,
            state.worker,
            settings=self.settings,
            clock=self._clock,
            renewed=registered_at,
            on_lost=self._beat_lost,
            on_beat=self._beat_ended,
            count_leases=lambda: len(state.leases),
            report=self.parts.report,
        )
        self._beat.start()
        state.contact.beat(through=True)

    async def _hold_off(self, failures: int) -> None:
        await self.state.contact.hold_off(self.state.contact.pause(failures))

    # A lost lease

    def _beat_lost(self, worker: UUID, why: str) -> None:
        """On the beat's thread."""
        with suppress(RuntimeError):  # the loop is closed: there is nothing to stop any more
            self.state.loop.call_soon_threadsafe(self._lost, worker, why)

    def _beat_ended(self, error: Exception | None) -> None:
        """On the beat's thread."""
        with suppress(RuntimeError):
            self.state.loop.call_soon_threadsafe(self._record_beat, error)

    def _record_beat(self, error: Exception | None) -> None:
        self.state.contact.beat(through=error is None)
        if isinstance(error, AWAY):
            self.state.contact.failed(error, "beat")

    def _lost(self, worker: UUID, why: str) -> None:
        """Every lease of this incarnation is gone: stop its handlers, and begin again under a new id."""
        state = self.state
        if worker != state.worker or not state.registered:
            return
        state.begin_incarnation()
        held, executions = state.leases.drop_all(), list(state.leases.executions.values())
        fields = {"kind": "leases_lost", "worker": worker, "reason": why, "jobs": len(held)}
        log.error(
            "worker %s lost its leases (%s): dropping %d jobs and starting anew", worker, why, len(held), extra=fields
        )
        unwritten = self.parts.completer.forget()
        # Else this process stood still, perhaps by one of its handlers: a sweep releases its jobs, with a crash.
        if self._beat is not None and self._beat.cut_off:
            self.parts.sweeper.on_lost(LostIncarnation(held, executions, unwritten))
        state.local_queue.drain()
        for execution in executions:
            execution.stop(Stop.LOST)
        state.emit(LeasesLost(worker, len(held)))
        if not self._stop_wanted.is_set():
            self._tasks["register"] = asyncio.create_task(self._come_back(), name="windlass-register")

    async def _come_back(self) -> None:
        try:
            await self._register()
        except StoreError as error:
            self._failure = error
            self._stop_wanted.set()

    # Stop

    def stop(self) -> None:
        """Ask for a graceful end; from any thread."""
        self.state.loop.call_soon_threadsafe(self._stop_wanted.set)

    def kill(self) -> None:
        """Do not wait for handlers any longer; from any thread."""
        self.stop()
        self.state.loop.call_soon_threadsafe(self._killed.set)

    async def finished(self) -> None:
        """Until the worker was asked to stop; raises what made it impossible to go on."""
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
        """Release what has not started, wait for what has, release what will not end."""
        state = self.state
        await self._end_claiming()
        unstarted = state.local_queue.drain()
        for job in unstarted:
            self.parts.completer.submit(release_unstarted(job))
        if unstarted:
            state.emit(JobsReleased(state.worker, len(unstarted), ReleaseReason.STOPPING))
        await self._until_idle(self.settings.grace)
        for execution in list(state.leases.executions.values()):
            execution.stop(Stop.SHUTDOWN)
        await self._until_idle(self.settings.cancel_grace + 1)
        if "completer" in self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WRITES):
                    await self.parts.completer.drained()

    async def _end_claiming(self) -> None:
        """A claim under way is waited for: cancelled, it might have leased jobs that this worker does not know of.

        So is the intake, which gives back what it did not claim, and a relay that has published and not settled.
        """
        for service in self.parts.claiming:
            service.end()
        tasks = {self._tasks[each.name] for each in self.parts.claiming if each.name in self._tasks}
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_ROUND)

    async def _until_idle(self, seconds: float) -> None:
        """Until no execution is left, the time is up, or `kill` was called."""
        tasks = {each.task for each in self.state.leases.executions.values() if each.task is not None}
        if not tasks or seconds <= 0:
            return
        killed = asyncio.ensure_future(self._killed.wait())
        up = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            idle = asyncio.ensure_future(asyncio.wait(tasks))
            await asyncio.wait({idle, killed, up}, return_when=asyncio.FIRST_COMPLETED)
            idle.cancel()
        finally:
            killed.cancel()
            up.cancel()

    async def _close(self) -> None:
        state = self.state
        ending = [*self._tasks.values(), *state.timers]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self.observed is not None:
            await self.observed.close()
        if self._beat is not None:
            await self._beat.stop()
        await self.parts.close_broker()
        await state.children.close()
        if state.registered:
            with suppress(StoreError):
                await state.store.deregister(state.worker)
            state.emit(WorkerStopped(state.worker, self.name))
        with suppress(StoreError):
            await state.store.close()
        state.threads.shutdown(wait=False, cancel_futures=True)


def installed_version() -> str | None:
    """The version of Windlass; None where it was copied and not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("windlass")
    return None
