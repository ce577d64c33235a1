"""`Windlass`: the one object that a program makes. It holds settings and job types; the first call opens the store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from windlass.blocking import blocking
from windlass.client import Client, Enqueue, awaited_enqueue, blocking_enqueue, gather
from windlass.clock import Clock, Duration, SystemClock
from windlass.config import Settings, SettingsArguments
from windlass.declare.decorator import JobDeclarations
from windlass.declare.follow_ups import check_follow_ups
from windlass.declare.jobtype import JobType, TypedCall
from windlass.declare.named_calls import NamedEnqueues
from windlass.declare.pipeline import Phase
from windlass.declare.pipeline_type import Pipeline, PipelineOptions, make_plan
from windlass.declare.registry import Registry
from windlass.handles.job import JobHandle
from windlass.methods.bulk import BulkOperators
from windlass.methods.dead_letters import DeadLetterCalls
from windlass.methods.reads import Reads
from windlass.methods.tokens import TokenCalls
from windlass.model.flow import Moment
from windlass.model.job import EdgePolicy
from windlass.names import list_names
from windlass.policy.limit import KeyBy, Limit, limit, rate
from windlass.policy.unique import Scope
from windlass.store import make_migrator
from windlass.words import APP, answer_words, explain_arguments

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from windlass.handles.batch import Batch
    from windlass.handles.graph import Graph
    from windlass.handles.schedule import Schedule
    from windlass.integrations.lifespan import Lifespan
    from windlass.model.schedule import CatchUp, Overlap
    from windlass.runtime.worker import Worker
    from windlass.store.migrate import Migration

M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Callable[[Any], object])


AnyPhase = JobType[..., Any] | Phase[..., Any]


class Windlass(JobDeclarations, Reads, BulkOperators, DeadLetterCalls, NamedEnqueues, TokenCalls):
    """Jobs on one database: declare job types, enqueue jobs, run workers, and operate them.

        app = Windlass("postgresql://localhost/shop")   # or Windlass(): WINDLASS_URL, else the file windlass.db

        @app.job
        def add(a: int, b: int) -> int:
            return a + b

        job = add.enqueue(2, 3)          # stored when this returns; in a coroutine: await add.aenqueue(2, 3)
        job.result(timeout=5)            # 5, when a worker runs: windlass dev app.py

    A plain name blocks, and the same name with an `a` in front is awaited.

    Making one reads the settings and connects to nothing. The first call opens the store, on a thread of its own that
    all threads and event loops of the process share; after a fork the child opens its own. `app.close()` closes the
    connections, and so does the end of the process. One app per program is enough; make it at the top level of a
    module, so that a worker finds it.
    """

    def __init__(
        self, url: str | None = None, *, clock: Clock | None = None, **settings: Unpack[SettingsArguments]
    ) -> None:
        """Read the settings: arguments first, then WINDLASS_*, windlass.toml, pyproject.toml, the pace, the defaults.

        `url` is the store: `postgresql://…` or `sqlite:///file.db`. The other arguments are settings by their names,
        such as `concurrency=50` or `lease="1m"`; docs/settings.md lists them. `clock` is for tests.
        """
        self.settings = Settings.load(url=url, **settings)
        """The settings, each checked: `app.settings.concurrency`."""
        self.clock = clock or SystemClock()
        self._registry = Registry()
        self._client = Client(self.settings, self.clock, self._registry.instruments)
        self._program: str | None = None  # how another process loads this program; set by `windlass worker`

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = answer_words("app", APP)

    # Declaring

    def limit(self, name: str, most: int, *, key: KeyBy | None = None, scope: Scope = "global") -> Limit:
        """A limit for the `limits=[…]` of several job types: `domain = app.limit("domain", 2, key="domain")`.

        As `limit(…)`, and workers declare it even if no job type uses it.
        """
        return self._declared(limit(name, most, key=key, scope=scope), "app.limit(…)")

    def rate(
        self,
        name: str,
        count: int,
        *,
        every: Duration | None = None,
        burst: int | None = None,
        key: KeyBy | None = None,
        scope: Scope = "global",
    ) -> Limit:
        """A rate for `await ctx.acquire("api")` and `limits=[…]`: `app.rate("api", 5, every="1s")`; see `rate(…)`."""
        return self._declared(rate(name, count, every=every, burst=burst, key=key, scope=scope), "app.rate(…)")

    def _declared(self, limit: Limit, by: str) -> Limit:
        self._registry.add_rule(limit.rule, by, limit.scope, keyed=limit.is_keyed)
        return limit

    def on_event(self, subscriber: S, /) -> S:
        """Call a function with what happens in this program's workers: `@app.on_event`, or `app.on_event(fn)`.

        Its parameter's hint names its events: `def alert(event: AttemptEnded | LeasesLost) -> None`. Without a hint it
        gets all but details. It is called on the worker's event loop: return at once. Its errors are logged once.
        """
        from windlass.observe.subscribers import make_subscriber

        self._registry.subscribers.append(make_subscriber(subscriber, sys._getframe(1).f_locals))
        return subscriber

    # The enqueue has the first phase's parameters, and the job has the last phase's result.
    @overload
    def pipeline(
        self, name: str, only: JobType[P, R] | Phase[P, R], /, **options: Unpack[PipelineOptions]
    ) -> Pipeline[P, R]: ...
    @overload
    def pipeline(
        self,
        name: str,
        first: JobType[P, Any] | Phase[P, Any],
        /,
        *later: *tuple[*tuple[AnyPhase, ...], JobType[..., R] | Phase[..., R]],
        **options: Unpack[PipelineOptions],
    ) -> Pipeline[P, R]: ...
    @overload
    def pipeline(self, name: str, /, *phases: AnyPhase, **options: Unpack[PipelineOptions]) -> Pipeline[..., Any]: ...

    def pipeline(  # type: ignore[misc]  # mypy compares no unpacked tuple with *phases
        self,
        name: str,
        /,
        *phases: Any,
        labels: dict[str, str] | None = None,
        on_dead: JobType[..., Any] | str | None = None,
        on_cancelled: JobType[..., Any] | str | None = None,
        on_succeeded: JobType[..., Any] | str | None = None,
    ) -> Pipeline[..., Any]:
        """One job that moves through phases: `site = app.pipeline("site", analyse, phase(ask, processors=10))`.

        Each phase has its type's handler, queue, retries and time limit. The first phase binds the input; a later
        handler gets the arguments that it has parameters for. `ctx.previous` is the result of the phase before.
        """
        follow_ups = {Moment.DEAD: on_dead, Moment.CANCELLED: on_cancelled, Moment.SUCCEEDED: on_succeeded}
        checked = make_plan(self, name, phases, labels=labels, follow_ups=follow_ups)
        self._registry.add_pipeline(checked)
        return Pipeline(self, checked)

    @explain_arguments("app.schedule")
    def schedule(
        self,
        name: str,
        call: TypedCall[R],
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | None = None,
        tz: str | ZoneInfo | None = None,
        catch_up: Literal["skip", "one", "all"] | CatchUp = "one",
        overlap: Literal["allow", "skip", "cancel"] | Overlap = "allow",
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
        self._registry.add_schedule(declaration)
        return schedule

    # Enqueuing many

    @explain_arguments("app.enqueue_many")
    def _enqueue_many(
        self, calls: Iterable[TypedCall[R]], *, conn: object | None = None
    ) -> Enqueue[list[JobHandle[R]]]:
        """Enqueue all of them or none: `app.enqueue_many(add.call(i, i) for i in range(10_000))`.

        Two calls with one key make one job, and both handles are that job's.
        """
        jobs, kept, named = gather(calls, self.settings)
        client = self._client

        def handles(existing: Mapping[UUID, UUID]) -> list[JobHandle[R]]:
            return [JobHandle._of(client, job, call.definition, existing) for job, call in zip(jobs, kept, strict=True)]

        return Enqueue(jobs, named if conn is None else conn, handles)

    enqueue_many = blocking_enqueue(_enqueue_many)
    aenqueue_many = awaited_enqueue(_enqueue_many)

    # Enqueuing jobs that depend on each other

    def graph(self) -> Graph:
        """An empty graph of jobs that depend on each other.

        `g = app.graph()`, `a = g.add("fetch", fetch.call(url))`, `g.add("parse", parse.call(), after=[a])`, and then
        `g.enqueue()` stores all of them or none.
        """
        from windlass.handles.graph import Graph

        return Graph(self._client)

    @explain_arguments("app.batch")
    def _batch(
        self,
        calls: Iterable[TypedCall[M]],
        *,
        then: TypedCall[R],
        policy: EdgePolicy = "continue",
        conn: object | None = None,
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

        planned, client = plan(calls, then, policy, self.settings), self._client
        return Enqueue(
            planned.jobs,
            planned.conn if conn is None else conn,
            lambda existing: planned.enqueued(client, existing),
        )

    batch = blocking_enqueue(_batch)
    abatch = awaited_enqueue(_batch)

    # Working

    @explain_arguments("app.worker")
    def worker(
        self,
        *,
        concurrency: int | None = None,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
    ) -> Worker:
        """A worker inside this program: `async with app.worker(concurrency=100): …`

        It runs until the end of the block, then waits for its running jobs (setting `grace`). `queues` and `types`
        narrow what it claims. A worker of its own process: `windlass worker app.py`.
        """
        from windlass.runtime.worker import Worker

        check_follow_ups(self._registry, self.settings)
        for declaration in self._registry.schedules.values():
            declaration.declared(self.settings)  # a mistake in its job raises here, and not at the first tick
        settings = self.settings if concurrency is None else self.settings.with_(concurrency=concurrency)
        return Worker(
            settings,
            self._registry,
            clock=self.clock,
            program=self._program,
            queues=list_names("queues", queues),
            types=list_names("types", types),
        )

    @property
    def lifespan(self) -> Lifespan[None]:
        """For FastAPI and Starlette: `FastAPI(lifespan=app.lifespan)`, or `app.lifespan(worker=True, migrate=True)`."""
        from windlass.integrations.lifespan import Lifespan

        return Lifespan(self)

    # The schema

    async def amigrate(self) -> list[Migration]:
        """Bring the database's schema up to date, as `windlass migrate` does; the answer is what was applied."""
        return await self._client.portal.arun(lambda: make_migrator(self.settings).migrate())

    migrate = blocking(amigrate)

    # The end

    def close(self) -> None:
        """Close the connections of this process: `app.close()`. The next call opens new ones."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the connections of this process: `app.close()`. The next call opens new ones."""
        await self._client.aclose()
