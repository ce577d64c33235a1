"""A worker that is stepped by hand: `work()` claims one job, processes it and writes its finish.

Registration, claim, local queue, coordinator, processor, `ctx.transaction()`, decision and completer are the worker's
own. What needs real time to pass is left out: no loop polls, and no beat is needed, for this worker's row outlives
every test.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from types import TracebackType
from typing import cast
from uuid import UUID

from windlass.clock import Clock, spell
from windlass.config import Settings
from windlass.declare.registry import Registry
from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.runtime.parts import Stepping
from windlass.runtime.processor import Execution, Stop
from windlass.runtime.state import WorkerState
from windlass.runtime.worker import Worker
from windlass.store import make_store
from windlass.store.protocol import Store
from windlass.testing.errors import AttemptFailed, HandlerStuck
from windlass.testing.recorder import Recorder
from windlass.testing.results import FAILURES, AttemptResult
from windlass.testing.single_claims import SingleClaims, SingleClaimsStore

FOREVER = 36_500 * 86_400.0  # seconds that the worker's row lives: a clock may be moved by years under a handler
PROCESSORS = 100  # more than a test leaves stuck
CANCEL_EVERY = 0.05  # seconds between two reads of requests to cancel, on the machine's clock
STOP_SECONDS = 1.0  # for a stuck coroutine to end after its cancellation

WHILE_RUNNING = ("cancels", "progress")
TO_CLAIM = ("health", "discovery")
WHEN_NOTHING_IS_DUE = ("sweeper", "timers", "schedules", "leader")


class SteppedWorker:
    """`async with SteppedWorker(…) as worker: result = await worker.work()`"""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        clock: Clock,
        claims: SingleClaims,
        patience: float,
        threads: Executor | None = None,
        limited: bool = True,
        queues: tuple[str, ...] | None = None,
        types: tuple[str, ...] | None = None,
    ) -> None:
        self._recorder = Recorder()
        self._single_claims = claims
        self._patience = patience
        self._limited = limited
        self._worker = Worker(
            _without_waiting(settings),
            self._recorder.wrap(registry),
            clock=clock,
            queues=queues,
            types=types,
            stepping=Stepping(lease=FOREVER, make_store=self._make_store, threads=threads),
        )
        self._worker.subscribe(self._recorder)

    def _make_store(self, settings: Settings, clock: Clock) -> Store:
        self._store = SingleClaimsStore(make_store(settings, clock), self._single_claims, limited=self._limited)
        return cast(Store, self._store)

    @property
    def state(self) -> WorkerState:
        return self._worker.state

    async def __aenter__(self) -> SteppedWorker:
        await self._worker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._worker.__aexit__(kind, error, trace)

    async def work(self, wanted: UUID | None = None) -> AttemptResult | None:
        """One attempt, from its claim until its finish is written; None when nothing (or not the wanted job) is due."""
        self._store.wanted = wanted
        job = await self._claim()
        if job is None:
            await self._worker.step(*WHEN_NOTHING_IS_DUE)
            job = await self._claim()
        return None if job is None else await self._process(job)

    async def _claim(self) -> Job | None:
        """A round of discovery: a processor has the job that it claims."""
        self._store.taken.clear()
        await self._worker.step(*TO_CLAIM)
        return self._store.taken[0] if self._store.taken else None

    async def _process(self, job: Job) -> AttemptResult:
        execution = self.state.leases.executions.get(job.id)
        try:
            async with asyncio.timeout(self._patience):
                if execution is not None and execution.task is not None:
                    await self._until_done(execution.task)
                await self._worker.parts.completer.drained()
        except TimeoutError:
            await self._give_up(execution)
            raise HandlerStuck(
                f"{job.type} ({job.id}) has not ended after {spell(self._patience)}; time limits count on "
                "windlass.clock, so move it while the handler runs, or give harness(…, patience=…) more"
            ) from None
        return await self._result_of(job)

    async def _until_done(self, task: asyncio.Task[None]) -> None:
        while not (await asyncio.wait({task}, timeout=CANCEL_EVERY))[0]:
            await self._worker.step(*WHILE_RUNNING)

    async def _give_up(self, execution: Execution | None) -> None:
        self._worker.kill()
        if execution is not None and execution.task is not None:
            execution.stop(Stop.SHUTDOWN)
            await asyncio.wait({execution.task}, timeout=STOP_SECONDS)

    async def _result_of(self, job: Job) -> AttemptResult:
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


def _without_waiting(settings: Settings) -> Settings:
    """The program's settings without what only spreads work over time; order and retries stay as they are."""
    return settings.with_(
        concurrency=PROCESSORS,
        untouched=0.0,
        assign_every=0.0,
        assign_most=None,
        discovery_batch=None,
        pool_size=None,
        local_queue=None,
        ageing=0,  # the oldest job's share would make the order a matter of counting
    )
