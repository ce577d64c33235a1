"""`ctx`, the first parameter of a handler: its job, one transaction, progress, cost, a log, and a request to stop;
steps that run once, child jobs, waits for jobs, for a signal or for a time, and calls at a rate.

A coroutine gets a `Context`, whose calls to the store are awaited. A plain function gets a `SyncContext`
(`handler/sync_context.py`), where the same names block. `BaseContext` has what takes no time, and is the same in both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

import msgspec

from windlass import words
from windlass.clock import Clock, Duration, seconds, seconds_from_now
from windlass.config import Settings
from windlass.declare.registry import Registry
from windlass.errors import FlowError
from windlass.handler.children import Child, Children
from windlass.handler.cost import Spending
from windlass.handler.log import JobLog
from windlass.handler.memory import ContextStore, RunMemory
from windlass.handler.rates import Tokens
from windlass.handler.steps import Steps, refuse_inside_a_step, step_of
from windlass.handler.transaction import AttemptTransaction, TransactionBlock
from windlass.handler.waits import Waits
from windlass.handles.job import JobHandle
from windlass.model.flow import Flow
from windlass.model.job import Job
from windlass.policy.limit import Value
from windlass.words import answer_words, explain_arguments

if TYPE_CHECKING:
    from windlass.declare.jobtype import TypedCall

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Need = Literal["all", "any"] | int


class BaseContext:
    """What both kinds of context have: the job, its transaction, progress, cost, log and children."""

    job: Job
    """The record of the job as it was claimed. `ctx.job.id` is an idempotency key for calls to other systems."""
    attempt: int
    """The number of this attempt; the first is 1."""
    fence: int
    """A number that grows with each claim of the job, as a fencing token for other systems."""
    log: JobLog
    """Lines for the attempt's record and the logger `windlass.job`: `ctx.log("fetched %s", url)`, `ctx.log.error(…)`"""
    total: int | None
    """The total that `ctx.progress` reported last, in an earlier attempt or in this one; None before."""
    processed: int
    """The number of processed items that `ctx.progress` reported last; 0 before."""
    failed: int
    """The number of failed items that `ctx.progress` reported last; 0 before."""

    def __init__(
        self,
        job: Job,
        *,
        store: ContextStore,
        settings: Settings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        transaction_limit: float,
        time_limit: float | None,
        waited: float = 0.0,
        registry: Registry | None = None,
        on_progress: Callable[[BaseContext], None] | None = None,
    ) -> None:
        self.job = job
        self.attempt = job.attempt
        self.fence = job.fence
        self.log = JobLog(job)
        self.total = job.total
        self.processed = job.processed
        self.failed = job.failed
        self._time_limit = time_limit
        self._on_progress = on_progress
        self._cancelled = False
        self._loop = loop
        self._transaction = AttemptTransaction(store, loop=loop, limit=transaction_limit)
        self._memory = RunMemory(
            job, store=store, clock=clock, waited=waited, patience=settings.lease, transaction=self._transaction
        )
        self._steps = Steps(self._memory)
        self._children = Children(self._memory, settings=settings, registry=registry)
        self._waits = Waits(self._memory, self._children)
        self._tokens = Tokens(self._memory, clock, registry)
        self._spending = Spending()

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = answer_words("ctx", words.CONTEXT)

    @property
    def cancelled(self) -> bool:
        """Whether this job was asked to stop. A handler that runs for long checks it now and then."""
        return self._cancelled

    @property
    def deadline(self) -> datetime | None:
        """When the time limit of this attempt ends, on the database's clock; None without a limit."""
        started = self.job.claimed_at
        if self._time_limit is None or started is None:
            return None
        return started + timedelta(seconds=self._time_limit)

    @property
    def previous(self) -> Any:
        """The result of the previous phase in a pipeline: `ctx.previous["title"]`; None otherwise."""
        if self.job.pipeline is None or self.job.output is None:
            return None
        return msgspec.json.decode(self.job.output)

    def transaction(self) -> TransactionBlock:
        """A transaction on the store's database that commits together with the finish of this attempt.

        `async with ctx.transaction() as tx: await tx.execute("insert … values ($1)", n)`, or `with` in a synchronous
        handler. Its writes take effect exactly once: they are committed with the success of the attempt that wrote
        them, under its lease, and rolled back with any other outcome. Put it last: it may last a third of the lease.
        In a step it is a transaction of the step, and commits together with the step's result.
        An SQL error is the driver's own: asyncpg's on PostgreSQL, a StoreError on SQLite.
        """
        step = step_of(self._memory)
        return (
            TransactionBlock(self._transaction)
            if step is None
            else TransactionBlock(step.transaction, owner=step.owner)
        )

    def progress(self, processed: int | None = None, *, total: int | None = None, failed: int | None = None) -> None:
        """Report the job's progress: `ctx.progress(3, total=10)`. Cheap: it is written at most once a second."""
        if processed is not None:
            self.processed = _count("processed", processed)
        if total is not None:
            self.total = _count("total", total)
        if failed is not None:
            self.failed = _count("failed", failed)
        self._report_progress()

    def cost(self, cents: float | Decimal) -> None:
        """Add cents to the cost of this attempt, whatever its outcome: `ctx.cost(usage.total / 1000)`.

        Written with progress and with the attempt's end; budgets of the job's tenant and queue count it.
        """
        self._spending.add(cents)
        self._report_progress()

    @property
    def spent(self) -> int:
        """The cost of this attempt so far, in cents, rounded up."""
        return self._spending.cents

    # Child jobs

    @explain_arguments("ctx.spawn")
    def spawn(self, name: str, call: TypedCall[R]) -> Child[R]:
        """Create a child job: `a = ctx.spawn("fetch", fetch.call(url))`. Not awaited.

        The child is written with the wait or the finish of this run, and with nothing else: an attempt that fails
        spawns nothing. A later run finds the child by its name and creates no second one.
        """
        refuse_inside_a_step(self._memory, "spawn")
        return self._children.spawn(name, call)

    def spawn_many(self, name: str, calls: Iterable[TypedCall[R]]) -> list[Child[R]]:
        """Create many children at once: `ctx.spawn_many("page", [fetch.call(url) for url in urls])`.

        Their names are `page[0]`, `page[1]`, …
        """
        refuse_inside_a_step(self._memory, "spawn_many")
        return self._children.spawn_many(name, calls)

    # The worker's side

    def _ask_to_stop(self) -> None:
        """Set `cancelled`; called by the worker."""
        self._cancelled = True

    async def _flow(self) -> Flow | None:
        """What the finish of a successful run writes beside its transition."""
        return await self._waits.flow()

    async def _close(self) -> None:
        """The attempt has ended: roll back open transactions, and refuse new ones."""
        try:
            await self._steps.close()
        finally:
            await self._transaction.close()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self)


class Context(BaseContext):
    """The context of a coroutine: `async def send(ctx: Context, to: str) -> None`.

    Its calls to the store are awaited. A plain function has a `SyncContext` instead, where the same names block.
    """

    # Calling out

    def acquire(self, name: str, *, key: Value | None = None) -> Coroutine[Any, Any, None]:
        """Wait until this run may call once at the rate `name`, which all workers share: `await ctx.acquire("wiki")`.

        A wait of more than 5 s is a snooze: the handler starts from the top after it, and no attempt is used up.
        """
        self._check_loop("acquire")
        return self._tokens.acquire(name, key)

    def hold_back(self, name: str, duration: Duration, *, key: Value | None = None) -> Coroutine[Any, Any, None]:
        """Let no worker call at this rate for this long: `await ctx.hold_back("wiki", retry_after)`.

        A day is the longest; `windlass limits release` ends it before.
        """
        self._check_loop("hold_back")
        return self._tokens.hold_back(name, seconds_from_now(duration, what="ctx.hold_back()"), key)

    @overload
    def wait(
        self,
        jobs: Iterable[Child[R] | JobHandle[R]],
        *,
        need: Literal["ended"],
        timeout: Duration | None = None,
    ) -> Coroutine[Any, Any, list[Child[R]]]: ...
    @overload
    def wait(
        self,
        jobs: Iterable[Child[object] | JobHandle[object] | UUID | str],
        *,
        need: Literal["ended"],
        timeout: Duration | None = None,
    ) -> Coroutine[Any, Any, list[Child[object]]]: ...
    @overload
    def wait(
        self, jobs: Iterable[Child[R] | JobHandle[R]], *, need: Need = "all", timeout: Duration | None = None
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def wait(
        self,
        jobs: Iterable[Child[object] | JobHandle[object] | UUID | str],
        *,
        need: Need = "all",
        timeout: Duration | None = None,
    ) -> Coroutine[Any, Any, list[object]]: ...
    def wait(
        self, jobs: Iterable[object], *, need: Need | Literal["ended"] = "all", timeout: Duration | None = None
    ) -> Coroutine[Any, Any, list[Any]]:
        """Wait for jobs (children, handles or ids): `results = await ctx.wait(children)`, in the order given.

        Until enough jobs succeeded (`need`: "all", "any" or a number) this job is `waiting` and holds no processor.
        Then its handler starts from the top, and no attempt is used up. Raises ChildrenFailed with the first job that
        makes the need impossible, while the other jobs go on, and ResultTimeout when `timeout` has passed since the
        first wait; then read `child.status` and `child.error`.

        `need="ended"` waits until every job has ended, and returns the jobs: `for child in await ctx.wait(pages,
        need="ended"): …` reads `child.status`, `child.result` and `child.error`. It raises no ChildrenFailed. A dead
        or cancelled job that is replayed or resumed before this handler runs again is waited for again.
        """
        self._check("wait")
        return self._waits.wait(jobs, need, wait_limit(timeout))

    def dependencies(self) -> Coroutine[Any, Any, dict[str, Any]]:
        """The results of the jobs that this node of a graph depends on, by name: `await ctx.dependencies()`.

        A job without a result has None.
        """
        self._check_loop("dependencies")
        return self._children.dependencies()

    def output_of(self, phase: str) -> Coroutine[Any, Any, Any]:
        """The result of any earlier phase of the job's pipeline: `page = await ctx.output_of("analyse")`.

        `ctx.previous` is that of the phase before, without asking the store. Raises FlowError when no phase of that
        name has ended.
        """
        self._check_loop("output_of")
        return self._memory.read_output(phase)

    # Steps and waits

    @overload
    def step(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...
    @explain_arguments("ctx.step")
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run `fn` once and remember its result, across attempts: `await ctx.step("charge", charge, order)`.

        The result goes through JSON, by the function's return hint. What the function writes through
        `ctx.transaction()` is committed together with the result. Its other effects happen at least once, and never
        again after the result is stored.
        """
        self._check("step")
        return self._steps.run(name, fn, args, kwargs)

    @explain_arguments("ctx.sleep")
    def sleep(self, name: str, duration: Duration) -> Coroutine[Any, Any, None]:
        """Wait without holding a processor: `await ctx.sleep("nap", "3d")`. The time counts from the first run."""
        self._check("sleep")
        return self._waits.sleep(name, seconds(duration, what="ctx.sleep()"))

    def wait_signal(self, name: str, *, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]:
        """Wait for `job.signal(name, value)` and return the value: `await ctx.wait_signal("approved", timeout="3d")`.

        A signal that was sent before the wait counts, too. Raises SignalTimeout when `timeout` has passed since the
        first run that waited here.
        """
        self._check("wait_signal")
        return self._waits.signal(name, wait_limit(timeout))

    def _check(self, method: str) -> None:
        refuse_inside_a_step(self._memory, method)
        self._check_loop(method)

    def _check_loop(self, method: str) -> None:
        """Refuse the call on another thread or loop, which could not await it: nothing would happen."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise FlowError(
                f"ctx.{method}() is awaited in the handler's own coroutine, and this code runs elsewhere; await it in "
                "the handler, or make the handler a plain function: def …(ctx: SyncContext, …)"
            )


def wait_limit(timeout: Duration | None) -> float | None:
    """A wait's timeout in seconds."""
    return None if timeout is None else seconds(timeout, what="timeout")


def _count(what: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"progress({what}={value!r}): a whole number from 0 to {2**31 - 1} is needed")
    return value
