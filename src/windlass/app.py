"""`Windlass`: the one object that a program makes. It holds settings and job types; the first call opens the store."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

from windlass.admin import Operators
from windlass.blocking import blocking
from windlass.client import Client, Enqueue, awaited_enqueue, blocking_enqueue, gather
from windlass.clock import Clock, Duration, SystemClock
from windlass.config import Settings, suggest
from windlass.declare.follow_ups import check_follow_ups
from windlass.declare.jobtype import AsyncContextJob, AsyncJob, JobType, PlainContextJob, PlainJob, TypedCall
from windlass.declare.pipeline import Phase
from windlass.declare.pipeline_type import Pipeline, make_plan
from windlass.declare.registry import JobOptions, Registry, define
from windlass.errors import RegistrationError
from windlass.handler.context import Context
from windlass.handles.job import JobHandle
from windlass.model.flow import Moment
from windlass.model.job import parse_id
from windlass.model.state import State
from windlass.policy.limit import KeyBy, Limit, per, rate
from windlass.policy.retry import RetryPolicy
from windlass.policy.unique import Unique
from windlass.store import make_migrator

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from windlass.handles.batch import Batch
    from windlass.handles.graph import Graph
    from windlass.handles.schedule import Schedule
    from windlass.integrations.lifespan import Lifespan
    from windlass.model.schedule import ScheduleRow
    from windlass.runtime.worker import Worker
    from windlass.store.migrate import Migration
    from windlass.store.protocol import WorkerRow

M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Callable[[Any], object])


# A coroutine function is also a function, so the overloads below overlap: the first overload that matches applies.
AnyPhase = JobType[..., Any] | Phase[..., Any]
WithContext = Callable[Concatenate[Context, P], R]
Async = Callable[P, Coroutine[Any, Any, R]]
AsyncWithContext = Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]


class Decorator(Protocol):
    """`@app.job(…)`: the job type has the function's own parameters, without its context."""

    @overload
    def __call__(self, fn: AsyncWithContext[P, R]) -> AsyncContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: WithContext[P, R]) -> PlainContextJob[P, R]: ...
    @overload
    def __call__(self, fn: Async[P, R]) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R]) -> PlainJob[P, R]: ...


class Windlass(Operators):
    """Jobs on one database: `Windlass()` uses WINDLASS_URL, else the file windlass.db."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None, **settings: object) -> None:
        given: dict[str, Any] = settings
        self.settings = Settings.load(url=url, **given)
        self.clock = clock or SystemClock()
        self.registry = Registry()
        self.client = Client(self.settings, self.clock)
        self.program: str | None = None  # how another process loads this program; set by `windlass worker`

    # Declaring

    @overload
    def job(self, fn: AsyncWithContext[P, R], /) -> AsyncContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: WithContext[P, R], /) -> PlainContextJob[P, R]: ...
    @overload
    def job(self, fn: Async[P, R], /) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: Callable[P, R], /) -> PlainJob[P, R]: ...
    @overload
    def job(
        self,
        *,
        type: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        isolation: str | None = None,
        memory: str | int | None = None,
        permanent: Sequence[builtins.type[BaseException]] = (),
        transient: Sequence[builtins.type[BaseException]] = (),
        unique: Unique | None = None,
        unique_forever: Unique | None = None,
        limits: Sequence[Limit] = (),
        on_dead: JobType[..., Any] | str | None = None,
        on_cancelled: JobType[..., Any] | str | None = None,
        on_succeeded: JobType[..., Any] | str | None = None,
        audit: str | bool = True,
        labels: dict[str, str] | None = None,
    ) -> Decorator: ...

    def job(self, fn: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # options are checked below
        """Make a function a job type: `@app.job` or `@app.job(queue="mail", timeout="5m", …)`.

        `unique` refuses a second job: True (by all arguments), names of arguments, a function of them, or `unique(…)`
        with states, window and scope. `unique_forever` refuses it even after the job's history was deleted.

        `limits` lists what its jobs count against: `[per("domain", 2, key=domain_of), rate("api", 5, every="1s")]`.

        `on_dead`, `on_cancelled` and `on_succeeded` name a follow-up job type. The follow-up is enqueued in the
        transaction that writes the job's end. Its parameters are any of `id`, `input`, `output` and `error`.

        `audit` is the action that the audit records for a success, such as "EMAIL_SENT"; False: no row.

        `labels` are your own names for states: `{"dead": "failed"}`.
        """
        for name in options:
            if name not in JobOptions.__annotations__:
                raise RegistrationError(f"@app.job has no option {name!r}{suggest(name, JobOptions.__annotations__)}")
        local = sys._getframe(1).f_locals  # hints may name classes of the function that declares the job

        def declare(fn: Callable[..., Any]) -> JobType[..., Any]:
            definition = define(fn, context=Context, localns=dict(local), **options)
            self.registry.add(definition)
            kind: type[JobType[..., Any]]
            if inspect.iscoroutinefunction(fn):
                kind = AsyncContextJob if definition.signature.wants_context else AsyncJob
            else:
                kind = PlainContextJob if definition.signature.wants_context else PlainJob
            return kind(self, definition)

        return declare if fn is None else declare(fn)

    def limit(self, name: str, most: int, *, key: KeyBy | None = None, scope: str = "global") -> Limit:
        """A limit for the `limits=[…]` of several job types, as `per(…)`; workers declare it even if none uses it."""
        return self._declared(per(name, most, key=key, scope=scope), "app.limit(…)")

    def rate(
        self,
        name: str,
        count: int,
        *,
        every: Duration | None = None,
        burst: int | None = None,
        key: KeyBy | None = None,
        scope: str = "global",
    ) -> Limit:
        """A rate for `await ctx.acquire("api")` and `limits=[…]`: `app.rate("api", 5, every="1s")`; see `rate(…)`."""
        return self._declared(rate(name, count, every=every, burst=burst, key=key, scope=scope), "app.rate(…)")

    def _declared(self, limit: Limit, by: str) -> Limit:
        self.registry.add_rule(limit.rule, by, limit.scope, keyed=limit.is_keyed)
        return limit

    def on_event(self, subscriber: S, /) -> S:
        """Call a function with what happens in this program's workers: `@app.on_event`, or `app.on_event(fn)`.

        Its parameter's hint names the events that it gets: `def alert(event: JobEnded | LeasesLost) -> None`. Without
        a hint it gets all of them. It is called on the worker's event loop: return at once. Its errors are logged once.
        """
        from windlass.observe.subscribers import make_subscriber

        self.registry.subscribers.append(make_subscriber(subscriber, sys._getframe(1).f_locals))
        return subscriber

    # A tuple of phases keeps the types of the first one's arguments and of the last one's result; a list cannot.
    @overload
    def pipeline(  # type: ignore[overload-overlap]
        self,
        name: str,
        phases: tuple[JobType[P, Any] | Phase[P, Any], *tuple[AnyPhase, ...], JobType[..., R] | Phase[..., R]],
        *,
        labels: dict[str, str] | None = None,
        on_dead: JobType[..., Any] | str | None = None,
        on_cancelled: JobType[..., Any] | str | None = None,
        on_succeeded: JobType[..., Any] | str | None = None,
    ) -> Pipeline[P, R]: ...
    @overload
    def pipeline(
        self,
        name: str,
        phases: Sequence[AnyPhase],
        *,
        labels: dict[str, str] | None = None,
        on_dead: JobType[..., Any] | str | None = None,
        on_cancelled: JobType[..., Any] | str | None = None,
        on_succeeded: JobType[..., Any] | str | None = None,
    ) -> Pipeline[..., object]: ...

    def pipeline(
        self,
        name: str,
        phases: Sequence[Any],
        *,
        labels: dict[str, str] | None = None,
        on_dead: JobType[..., Any] | str | None = None,
        on_cancelled: JobType[..., Any] | str | None = None,
        on_succeeded: JobType[..., Any] | str | None = None,
    ) -> Pipeline[..., Any]:
        """One job that moves through phases: `site = app.pipeline("site", [analyse, phase(ask, processors=10)])`.

        Each phase has its type's handler, queue, retries and time limit. The first phase binds the input; a later
        handler gets the arguments that it has parameters for. `ctx.previous` is the result of the phase before.
        """
        follow_ups = {Moment.DEAD: on_dead, Moment.CANCELLED: on_cancelled, Moment.SUCCEEDED: on_succeeded}
        checked = make_plan(self, name, phases, labels=labels, follow_ups=follow_ups)
        self.registry.add_pipeline(checked)
        return Pipeline(self, checked)

    def schedule(
        self,
        name: str,
        call: TypedCall[R],
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | None = None,
        tz: str | ZoneInfo | None = None,
        catch_up: str = "one",
        overlap: str = "allow",
    ) -> Schedule[R]:
        """Enqueue jobs by the clock: `app.schedule("nightly", report.call(), cron="0 3 * * *", tz="Europe/Berlin")`.

        Give one of `cron`, `every="15m"` and `at=datetime(…)`. Each tick fires once, with any number of workers; a
        job's `run_at` is the time of its tick. `catch_up` is for ticks that were due while no worker ran: `skip`, `one`
        job for all of them, or `all`. `overlap` is for ticks while the last job has not ended: `allow`, `skip` the
        tick, or `cancel` the old job. An edit or a pause at run time survives a deploy.
        """
        from windlass.handles.schedule import declare

        when = {"cron": cron, "every": every, "at": at, "tz": tz}
        declaration, schedule = declare(self, name, call, catch_up=catch_up, overlap=overlap, **when)
        self.registry.add_schedule(declaration)
        return schedule

    # Enqueuing many

    def _enqueue_many(
        self, calls: Iterable[TypedCall[R]], *, conn: object | None = None
    ) -> Enqueue[list[JobHandle[R]]]:
        """Enqueue all of them or none: `app.enqueue_many(add.call(i, i) for i in range(10_000))`.

        Two calls with one key make one job, and both handles are that job's.
        """
        jobs, kept, named = gather(calls, self.settings)
        client = self.client

        def handles(existing: Mapping[UUID, UUID]) -> list[JobHandle[R]]:
            return [JobHandle.of(client, job, call.definition, existing) for job, call in zip(jobs, kept, strict=True)]

        return Enqueue(jobs, named if conn is None else conn, handles)

    enqueue_many = blocking_enqueue(_enqueue_many)
    aenqueue_many = awaited_enqueue(_enqueue_many)

    # Enqueuing jobs that depend on each other

    def graph(self) -> Graph:
        """An empty graph: `a = g.add("fetch", fetch.call(url))`, `g.add("parse", parse.call(), after=[a])`, …"""
        from windlass.handles.graph import Graph

        return Graph(self.client)

    def _batch(
        self, calls: Iterable[TypedCall[M]], *, then: TypedCall[R], policy: str = "continue", conn: object | None = None
    ) -> Enqueue[Batch[M, R]]:
        """Enqueue many jobs, and a callback that runs when they have ended: `app.batch(calls, then=notify.call())`.

        The policy decides what the bad end of a job means for the callback: `continue` (the job counts as failed, and
        the callback runs when all jobs have ended), `fail` (the callback dies at once, the other jobs go on) or `skip`
        (the callback is cancelled at once, and the other jobs with it). The callback finds the counters in `ctx.job`.
        It finds the results with `await ctx.dependencies()`, as "0", "1", … in the order of the calls.

        `then` is required because the callback is the job that counts and that is waited for. A job type of Windlass's
        own that does nothing would be registered by no program, and so claimed by no worker. To enqueue jobs without
        a callback: `app.enqueue_many(calls)`.
        """
        from windlass.handles.batch import plan

        planned, client = plan(calls, then, policy, self.settings), self.client
        return Enqueue(
            planned.jobs,
            planned.conn if conn is None else conn,
            lambda existing: planned.enqueued(client, existing),
        )

    batch = blocking_enqueue(_batch)
    abatch = awaited_enqueue(_batch)

    # Reading

    async def afind(self, id: str | UUID) -> JobHandle[object]:
        """A handle for the job with this id; raises JobNotFound when there is none."""
        wanted = parse_id(id)
        record = await JobHandle[object](self.client, wanted).arecord()
        return JobHandle(self.client, wanted, self.registry.of(record))

    async def acounts(self) -> dict[State, int]:
        """Jobs by state, history included."""
        return await self.client.aask(lambda store: store.counts())

    async def aworkers(self) -> list[WorkerRow]:
        """The workers that are registered in the store."""
        return await self.client.aask(lambda store: store.workers())

    async def aschedules(self) -> list[ScheduleRow]:
        """The schedules in the store, with their edits and the times of their next ticks."""
        return await self.client.aask(lambda store: store.schedules())

    async def awake(self, queue: str = "*") -> None:
        """Wake the workers of a queue: after your own commit of an enqueue with a bare `conn=`."""
        await self.client.aask(lambda store: store.wake(queue))

    find = blocking(afind)
    counts = blocking(acounts)
    workers = blocking(aworkers)
    schedules = blocking(aschedules)
    wake = blocking(awake)

    # Working

    def worker(
        self,
        *,
        concurrency: int | None = None,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
    ) -> Worker:
        """A worker inside this program: `async with app.worker(concurrency=100): …`"""
        from windlass.runtime.worker import Worker

        check_follow_ups(self.registry, self.settings)
        for declaration in self.registry.schedules.values():
            declaration.declared(self.settings)  # a mistake in its job raises here, and not at the first tick
        settings = self.settings if concurrency is None else self.settings.with_(concurrency=concurrency)
        return Worker(
            settings,
            self.registry,
            clock=self.clock,
            program=self.program,
            queues=None if queues is None else tuple(queues),
            types=None if types is None else tuple(types),
        )

    @property
    def lifespan(self) -> Lifespan[None]:
        """For FastAPI and Starlette: `FastAPI(lifespan=app.lifespan)`, or `app.lifespan(worker=True, migrate=True)`."""
        from windlass.integrations.lifespan import Lifespan

        return Lifespan(self)

    # The schema

    async def amigrate(self) -> list[Migration]:
        """Bring the database's schema up to date; the answer is what was applied."""
        return await self.client.portal.arun(lambda: make_migrator(self.settings).migrate())

    migrate = blocking(amigrate)

    # The end

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        self.client.close()

    async def aclose(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        await self.client.aclose()
