"""A worker whose rounds are made by hand: claim one job, see it through, write it; again when told to.

Registration, claim, local queue, coordinator, processor, `ctx.transaction()`, judgement and completer are the worker's
own. What is left out is what needs real time to pass: no loop polls, and no beat is needed, for this worker's row
outlives every test.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import cast
from uuid import UUID

from windlass.clock import Clock, spell
from windlass.config import Settings
from windlass.declare.registry import Registry
from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.runtime.processor import Execution, Stop
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.runtime.worker import Worker
from windlass.store.protocol import NewWorker, Store
from windlass.testing.errors import AttemptFailed, HandlerStuck
from windlass.testing.recorder import Recorder
from windlass.testing.results import FAILURES, AttemptResult
from windlass.testing.single_claims import SingleClaims, SingleClaimsStore

FOREVER = 36_500 * 86_400.0  # seconds that a hand-made worker lives: a clock may be moved by years under a handler
PROCESSORS = 100  # more than a test leaves stuck
GLANCE = 0.05  # seconds between two looks for a request to cancel, on the machine's clock
LAST_WORDS = 1.0  # seconds for a stuck coroutine to heed its cancellation

WHILE_RUNNING = ("cancels", "progress")
BETWEEN = ("sweeper", "timers", "schedules", "leader")


class SteppedWorker(Worker):
    """`async with HandWorker(…) as worker: ran = await worker.work()`"""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        clock: Clock,
        desk: SingleClaims,
        patience: float,
        threads: Executor | None = None,
        limited: bool = True,
        queues: tuple[str, ...] | None = None,
        types: tuple[str, ...] | None = None,
    ) -> None:
        self._recorder = Recorder()
        super().__init__(
            _without_waiting(settings), self._recorder.listen(registry), clock=clock, queues=queues, types=types
        )
        self.subscribe(self._recorder)
        self._desk = desk
        self._patience = patience
        self._here = threads
        self._limited = limited
        self._rounds: dict[str, Service] = {}

    async def __aenter__(self) -> SteppedWorker:
        await super().__aenter__()
        return self

    def _assemble(self) -> WorkerState:
        state = super()._assemble()
        self._claims = SingleClaimsStore(state.store, self._desk, limited=self._limited)
        state.store = cast(Store, self._claims)
        if self._here is not None:
            state.threads.shutdown(wait=False)
            state.threads = self._here
        # From the call on: a handler may move the clock before a timer's task has had its first turn.
        state.later = functools.partial(_later, state)  # type: ignore[method-assign]
        self._rounds = {service.name: service for service in self._services}
        self._services = []  # nobody runs by itself
        return state

    async def _register(self) -> None:
        state = self.state
        worker = NewWorker(
            id=state.worker,
            name=self.name,
            lease=FOREVER,
            queues=self._queues,
            types=self._types,
            concurrency=1,
            isolates=self._discovery.isolates,
        )
        await state.store.declare(self._registry.rules())
        await state.store.register(worker)
        state.registered = True

    async def work(self, wanted: UUID | None = None) -> AttemptResult | None:
        """One attempt, from its claim until its end is written; None when nothing (or not the wanted job) is due."""
        self._claims.wanted = wanted
        job = await self._claim()
        if job is None:
            for name in BETWEEN:
                await self._rounds[name].round()
            job = await self._claim()
        return None if job is None else await self._see_through(job)

    async def _claim(self) -> Job | None:
        """A round of discovery: a job that it claims is in a processor's hands afterwards."""
        await self._rounds["health"].round()
        self._claims.taken.clear()
        await self._discovery.round()
        return self._claims.taken[0] if self._claims.taken else None

    async def _see_through(self, job: Job) -> AttemptResult:
        attempt = self.state.leases.attempts.get(job.id)
        try:
            async with asyncio.timeout(self._patience):
                if attempt is not None and attempt.task is not None:
                    await self._until_done(attempt.task)
                await self.state.completer.drained()
        except TimeoutError:
            await self._give_up(attempt)
            raise HandlerStuck(
                f"{job.type} ({job.id}) has not ended after {spell(self._patience)}; time limits count on "
                "windlass.clock, so move it while the handler runs, or give harness(…, patience=…) more"
            ) from None
        return await self._ran(job)

    async def _until_done(self, task: asyncio.Task[None]) -> None:
        while not (await asyncio.wait({task}, timeout=GLANCE))[0]:
            for name in WHILE_RUNNING:
                await self._rounds[name].round()

    async def _give_up(self, attempt: Execution | None) -> None:
        self._impatient.set()
        if attempt is not None and attempt.task is not None:
            attempt.stop(Stop.SHUTDOWN)
            await asyncio.wait({attempt.task}, timeout=LAST_WORDS)

    async def _ran(self, job: Job) -> AttemptResult:
        found = await self.state.store.find(job.id)
        ended = self._recorder.ends.pop(job.id)
        error = self._recorder.errors.pop(job.id, None)
        if ended.ending in (Ending.TIMED_OUT, Ending.CRASHED):
            error = None  # a coroutine's CancelledError says less than the limit that led to it
        if ended.ending in FAILURES and error is None:
            error = AttemptFailed(f"{job.type} ({job.id}): {ended.error}")
        elif ended.ending not in FAILURES:
            error = None
        return AttemptResult(job=found or job, ending=ended.ending, error=error)


def _later(state: WorkerState, seconds: float, action: Callable[[], None]) -> Callable[[], object]:
    """As `WorkerState.later`, counted from now."""
    due = state.clock.monotonic() + seconds

    async def wait() -> None:
        await state.clock.sleep(due - state.clock.monotonic())
        action()

    return state.loop.create_task(wait()).cancel


def _without_waiting(settings: Settings) -> Settings:
    """The program's settings without what only spreads work over time; order and retries stay the pace's."""
    return settings.with_(
        concurrency=PROCESSORS,
        rest=0.0,
        assign_every=0.0,
        assign_most=None,
        discovery_batch=None,
        pool_size=None,
        local_queue=None,
        ageing=0,  # the oldest job's share would make the order a matter of counting
    )
