"""The harness: an app on a throw-away database, a clock that a test moves, and a worker that a test steps.

with harness(app) as windlass:
    signup("a@example.org")
    windlass.assert_enqueued(send, to="a@example.org")
    windlass.drain()
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Never, TypeVar
from uuid import UUID, uuid4

from windlass.app import Windlass
from windlass.blocking import Portal
from windlass.client import Client
from windlass.clock import Clock, Duration, seconds
from windlass.config import Settings
from windlass.declare.jobtype import ConfiguredJob
from windlass.errors import JobNotFound
from windlass.handles.job import JobHandle
from windlass.model.filter import Filter
from windlass.model.job import Job, NewJob
from windlass.model.state import CLAIMABLE, State
from windlass.store.protocol import Claim, NewWorker, Store
from windlass.testing.asserts import ENQUEUED, ExpectedJob, Kind, complaint, due, type_of, waiting
from windlass.testing.client import HarnessClient
from windlass.testing.clock import ManualClock
from windlass.testing.databases import Database, temporary_database
from windlass.testing.errors import EndlessDrain, HarnessError, NothingDue
from windlass.testing.executor import CallerThreadExecutor
from windlass.testing.given_databases import given_database
from windlass.testing.inline import nested, run_these
from windlass.testing.results import AttemptResult, call_text, raising, to_raise
from windlass.testing.single_claims import SingleClaims
from windlass.testing.stepped_worker import SteppedWorker

T = TypeVar("T")

MOST_ATTEMPTS = 1_000  # attempts of one drain()
PATIENCE = 60.0  # seconds of real time for one attempt
PAGE = 1_000  # jobs per read of the store
EVERYTHING = Filter("", ())

Which = Kind | JobHandle[Any] | Job | UUID | None
"""What run_one() runs: any job, one of a type, or a certain one."""


class Harness:
    """`with harness(app) as windlass: …`, or `async with`. While it is open, the app is not on its own database."""

    def __init__(
        self,
        app: Windlass,
        url: str | None = None,
        *,
        inline: bool = False,
        raise_errors: bool = False,
        start: datetime | None = None,
        patience: Duration = PATIENCE,
    ) -> None:
        if not isinstance(app, Windlass):
            raise HarnessError(f"a harness takes the program's Windlass(), not {type(app).__name__}")
        self.app = app
        self._database = _database_of(app, url)
        self.clock = ManualClock(start or datetime.now(UTC), before=self._database.move)
        self._inline = inline
        self._raise_errors = raise_errors
        self._patience = seconds(patience, what="patience")
        self._own: tuple[Settings, Clock, Client] | None = None  # what the app gets back at the end
        self._runner = Portal()  # where coroutines run when a test waits

    @property
    def url(self) -> str:
        """The throw-away database: for the tables of your own that handlers write to."""
        return self._database.url

    # Open

    def __enter__(self) -> Harness:
        _on_own_thread(self._open)
        return self

    async def __aenter__(self) -> Harness:
        await asyncio.to_thread(self._open)
        return self

    def _open(self) -> None:
        """On a thread without an event loop."""
        if self._own is not None:
            raise HarnessError("this harness is open already; make another: harness(app)")
        try:
            self._database.create()
            self._database.move(self.clock.now())
        except BaseException:
            with suppress(Exception):
                self._database.drop()
            raise
        app = self.app
        self._own = (app.settings, app.clock, app._client)
        app.settings = app.settings.with_(url=self.url, direct_url=None, pooler=None)
        app.clock = self.clock
        app._client = HarnessClient(
            app, self.clock, patience=self._patience, run=self._run_inline, arun=self._arun_inline
        )
        self._claims = SingleClaims(app._client)
        try:
            self._declare_schedules()
        except BaseException:
            self._close()
            raise

    def _declare_schedules(self) -> None:
        """Ticks count from the beginning of the test, whenever it drains for the first time."""
        settings, schedules = self.app.settings, self.app._registry.schedules
        if schedules:
            declared = {name: each.declared(settings) for name, each in schedules.items()}
            self._ask(lambda store: store.declare_schedules(declared))

    # Run

    def drain(self, *, limit: int = MOST_ATTEMPTS, raise_errors: bool | None = None) -> list[AttemptResult]:
        """Run everything that is due, one job after another, here and now: `(ran,) = windlass.drain()`.

        Returns what ran, in order.

        Jobs that handlers enqueue run too. An error is recorded as in production; with `raise_errors=True` the first
        one ends the drain and is raised, with the handler's own traceback.
        """
        __tracebackhide__ = True
        strict = self._strict(raise_errors)
        return raising(self._wait(lambda threads: self._drain(limit, strict, threads), "windlass.adrain(…)"), strict)

    async def adrain(self, *, limit: int = MOST_ATTEMPTS, raise_errors: bool | None = None) -> list[AttemptResult]:
        """As `drain()`; coroutines run on the caller's own event loop."""
        __tracebackhide__ = True
        strict = self._strict(raise_errors)
        return raising(await self._drain(limit, strict, None), strict)

    def run_one(self, which: Which = None, *, raise_errors: bool | None = None) -> AttemptResult:
        """One attempt of the next job that is due, or of a type or a certain job: `windlass.run_one(send).output`."""
        __tracebackhide__ = True
        strict = self._strict(raise_errors)
        return raising([self._wait(lambda threads: self._run_one(which, threads), "windlass.arun_one(…)")], strict)[0]

    async def arun_one(self, which: Which = None, *, raise_errors: bool | None = None) -> AttemptResult:
        """As `run_one`, awaited: `await windlass.arun_one(send)`."""
        __tracebackhide__ = True
        return raising([await self._run_one(which, None)], self._strict(raise_errors))[0]

    def crash_one(self, which: Which = None) -> Job:
        """A worker claims a job and dies: `windlass.crash_one(send)`. Its lease ends when the clock has moved by it."""
        return self._ask(lambda store: self._crash(store, which))

    @contextmanager
    def inline(self, *, raise_errors: bool | None = None) -> Iterator[None]:
        """`with windlass.inline(): …` runs each job where it is enqueued; one in a transaction waits for drain()."""
        before = self._inline, self._raise_errors
        self._inline, self._raise_errors = True, self._strict(raise_errors)
        try:
            yield
        finally:
            self._inline, self._raise_errors = before

    # Read

    def jobs(self, kind: Kind | None = None, *, status: State | str | None = None) -> list[Job]:
        """All jobs, ended ones too, in the order of their enqueues: `windlass.jobs(send, status="dead")`."""
        wanted = None if kind is None else type_of(kind)
        state = None if status is None else State(status)
        return [job for job in self._ask(_all_jobs) if wanted in (None, job.type) and state in (None, job.status)]

    def assert_enqueued(self, kind: Kind, /, *, count: int | None = None, **arguments: object) -> list[Job]:
        """Jobs of this type with these arguments wait to run: `windlass.assert_enqueued(send, to="a@example.org")`.

        Other jobs may be there, too. Returns those that fit.
        """
        __tracebackhide__ = True
        expected_job, jobs = ExpectedJob(kind, arguments), self.jobs()
        found = [job for job in jobs if job.status in ENQUEUED and expected_job.fits(job)]
        if (count is None and not found) or (count is not None and len(found) != count):
            missing = "a job" if count is None else f"{count} job{'' if count == 1 else 's'} instead of {len(found)}"
            raise AssertionError(complaint(expected_job, missing, jobs))
        return found

    def assert_not_enqueued(self, kind: Kind, /, **arguments: object) -> None:
        """No job of this type with these arguments waits to run: `windlass.assert_not_enqueued(send)`."""
        __tracebackhide__ = True
        expected_job, jobs = ExpectedJob(kind, arguments), self.jobs()
        if any(job.status in ENQUEUED and expected_job.fits(job) for job in jobs):
            raise AssertionError(complaint(expected_job, "no job", jobs))

    def execute(self, sql: str, *args: object) -> None:
        """Run one statement on the throw-away database and commit it; parameters are `$1`, `$2`, … on both stores."""

        async def run(store: Store) -> None:
            async with store.transaction(limit=self._patience) as transaction:
                await transaction.execute(sql, *args)
                await transaction.commit()

        self._ask(run)

    def fetch(self, sql: str, *args: object) -> list[dict[str, Any]]:
        """The rows of one statement on the throw-away database: `windlass.fetch("select * from sent")`."""

        async def run(store: Store) -> list[dict[str, Any]]:
            async with store.transaction(limit=self._patience) as transaction:
                return await transaction.fetch(sql, *args)

        return self._ask(run)

    # Close

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _on_own_thread(self._close)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """On a thread without an event loop."""
        if self._own is None:
            return
        client = self.app._client
        (self.app.settings, self.app.clock, self.app._client), self._own = self._own, None
        try:
            client.close()
        finally:
            self._runner.close()
            self._database.drop()

    # Shared by the blocking and the awaited methods

    def _strict(self, raise_errors: bool | None) -> bool:
        return self._raise_errors if raise_errors is None else raise_errors

    def _wait(self, work: Callable[[Executor], Coroutine[Any, Any, T]], async_name: str) -> T:
        """Let coroutines run on the runner's loop, and plain handlers on this thread."""
        self._runner.refuse_on_a_loop(async_name)
        threads = CallerThreadExecutor()
        return threads.serve(self._runner.submit(lambda: work(threads)))

    def _ask(self, question: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Wait for the store, also on an event loop's thread: nothing there is needed for the answer."""
        client = self._client()
        return client.portal.submit(lambda: client.aask(question)).result()

    def _client(self) -> Client:
        if self._own is None:
            raise HarnessError("the harness is not open; use it inside: with harness(app) as windlass:")
        return self.app._client

    def _make_worker(
        self,
        threads: Executor | None,
        *,
        limited: bool = True,
        types: tuple[str, ...] | None = None,
        queues: tuple[str, ...] | None = None,
    ) -> SteppedWorker:
        self._client()
        return SteppedWorker(
            self.app.settings,
            self.app._registry,
            clock=self.clock,
            claims=self._claims,
            patience=self._patience,
            threads=threads,
            limited=limited,
            types=types,
            queues=queues,
        )

    async def _drain(self, limit: int, strict: bool, threads: Executor | None) -> list[AttemptResult]:
        done: list[AttemptResult] = []
        async with self._make_worker(threads) as worker:
            while (ran := await worker.work()) is not None:
                done.append(ran)
                if to_raise(ran, strict) is not None:
                    break
                if len(done) >= limit:
                    await self._refuse_more(done)
        return done

    async def _refuse_more(self, done: Sequence[AttemptResult]) -> None:
        """The limit is reached: that is an error when more is due."""
        now, known = self.clock.now(), self.app._registry.types
        jobs = await self._client().aask(_all_jobs)
        free = (job for job in jobs if job.status in CLAIMABLE and job.parked_on is None)
        more = [job for job in free if job.run_at <= now and job.type in known]
        if more:
            often, times = Counter(ran.type for ran in done).most_common(1)[0]
            raise EndlessDrain(
                f"drain() ran {len(done)} attempts and {call_text(more[0])} is still due; {often!r} ran {times} times: "
                f"does it enqueue itself without end? If not: drain(limit={len(done) * 10})"
            )

    async def _run_one(self, which: Which, threads: Executor | None) -> AttemptResult:
        wanted, types, queues = await self._resolve(which)
        async with self._make_worker(threads, types=types, queues=queues) as worker:
            ran = await worker.work(wanted)
        return ran or await self._refuse_idle(wanted, types)

    async def _crash(self, store: Store, which: Which) -> Job:
        wanted, types, queues = await self._resolve(which)
        worker = NewWorker(
            id=uuid4(),
            name="harness:crashed",
            lease=self.app.settings.lease,
            queues=queues,
            types=types or self.app._registry.types,
            concurrency=1,
        )
        await store.declare(self.app._registry.rules())
        await store.register(worker)
        claim = Claim(worker=worker.id, room=1, types=worker.types, queues=queues, rescan=True)
        claimed = await self._claims.claim(claim, wanted)
        return claimed.jobs[0] if claimed.jobs else await self._refuse_idle(wanted, types)

    async def _resolve(self, which: Which) -> tuple[UUID | None, tuple[str, ...] | None, tuple[str, ...] | None]:
        """The job's id where a certain one is meant, and what narrows a claim to it: types and queues."""
        if which is None:
            return None, None, None
        if isinstance(which, (ConfiguredJob, str)):
            return None, (type_of(which),), None
        wanted = which if isinstance(which, UUID) else which.id
        job = await self._client().aask(lambda store: store.find(wanted))
        if job is None:
            raise JobNotFound(f"there is no job {wanted}: has the transaction that enqueued it committed?")
        return wanted, (job.type,), (job.queue,)

    async def _refuse_idle(self, wanted: UUID | None, types: tuple[str, ...] | None) -> Never:
        jobs = await self._client().aask(_all_jobs)
        for job in jobs:
            if job.id == wanted:
                raise NothingDue(f"{call_text(job)} cannot run now: it is {due(job, self.clock.now())}")
        raise NothingDue(waiting((job for job in jobs if types is None or job.type in types), self.clock.now()))

    # Inline

    def _run_inline(self, jobs: Sequence[NewJob]) -> None:
        __tracebackhide__ = True
        if self._inline and (wanted := self._due(jobs)):
            strict = self._raise_errors
            with nested(wanted):
                ran = self._wait(lambda threads: self._run_these(wanted, strict, threads), "aenqueue(…)")
            raising(ran, strict)

    async def _arun_inline(self, jobs: Sequence[NewJob]) -> None:
        __tracebackhide__ = True
        if self._inline and (wanted := self._due(jobs)):
            strict = self._raise_errors
            with nested(wanted):
                ran = await self._run_these(wanted, strict, None)
            raising(ran, strict)

    async def _run_these(self, jobs: Sequence[NewJob], strict: bool, threads: Executor | None) -> list[AttemptResult]:
        # Without limits: an enqueue cannot wait for others to end, or for a clock that stands still.
        return await run_these(jobs, partial(self._make_worker, threads, limited=False), self.clock, strict)

    def _due(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        now = self.clock.now()
        return [job for job in jobs if not job.delay and (job.run_at is None or job.run_at <= now)]


def _database_of(app: Windlass, url: str | None) -> Database:
    """A throw-away database; for the app of a framework that makes a test database itself, that one."""
    own: Callable[[], str] | None = getattr(app, "test_url", None)
    if own is None:
        return temporary_database(url)
    if url is not None:
        raise HarnessError("this app's tests use the test database of its framework; leave url= away")
    return given_database(own())


def _on_own_thread(work: Callable[[], None]) -> None:
    """On a thread of its own, where no event loop runs."""
    with ThreadPoolExecutor(1, thread_name_prefix="windlass-harness") as thread:
        thread.submit(work).result()


async def _all_jobs(store: Store) -> list[Job]:
    jobs = page = await store.search(EVERYTHING, page=PAGE)
    while len(page) == PAGE:
        page = await store.search(EVERYTHING, page=PAGE, below=page[-1].id)
        jobs = jobs + page
    return sorted(jobs, key=lambda job: (job.created_at, job.id))
