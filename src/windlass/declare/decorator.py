"""`@app.job`: it makes a job type of a function or of a `JobHandler`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from windlass.declare.handler_types import AsyncContextHandler, AsyncHandler, PlainContextHandler, PlainHandler
from windlass.declare.job_handler import function_of
from windlass.declare.jobtype import AsyncContextJob, AsyncJob, JobType, PlainContextJob, PlainJob
from windlass.declare.options import check_declaration
from windlass.declare.registry import Definition, JobOptions, Registry, define
from windlass.handler.context import Context
from windlass.handler.sync_context import CONTEXTS, SyncContext

if TYPE_CHECKING:
    from windlass.app import Windlass

P = ParamSpec("P")
R = TypeVar("R")

WithContext = Callable[Concatenate[SyncContext, P], R]
Async = Callable[P, Coroutine[Any, Any, R]]
AsyncWithContext = Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
AsyncContextClass = type[AsyncContextHandler[P, R]] | AsyncContextHandler[P, R]
PlainContextClass = type[PlainContextHandler[P, R]] | PlainContextHandler[P, R]
AsyncClass = type[AsyncHandler[P, R]] | AsyncHandler[P, R]
PlainClass = type[PlainHandler[P, R]] | PlainHandler[P, R]

# A class is also a function, and a coroutine function is one, so the overloads below overlap: the first overload that
# matches applies.


class Decorator(Protocol):
    """`@app.job(…)`: the job type has the function's own parameters, without its context."""

    @overload
    def __call__(self, fn: AsyncContextClass[P, R]) -> AsyncContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: PlainContextClass[P, R]) -> PlainContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: AsyncClass[P, R]) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: PlainClass[P, R]) -> PlainJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: AsyncWithContext[P, R]) -> AsyncContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: WithContext[P, R]) -> PlainContextJob[P, R]: ...
    @overload
    def __call__(self, fn: Async[P, R]) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R]) -> PlainJob[P, R]: ...


class JobDeclarations:
    """The method of `Windlass` that declares job types."""

    _registry: Registry

    @overload
    def job(self, fn: AsyncContextClass[P, R], /) -> AsyncContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: PlainContextClass[P, R], /) -> PlainContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: AsyncClass[P, R], /) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: PlainClass[P, R], /) -> PlainJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: AsyncWithContext[P, R], /) -> AsyncContextJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: WithContext[P, R], /) -> PlainContextJob[P, R]: ...
    @overload
    def job(self, fn: Async[P, R], /) -> AsyncJob[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, fn: Callable[P, R], /) -> PlainJob[P, R]: ...
    @overload
    def job(self, **options: Unpack[JobOptions]) -> Decorator: ...

    def job(self, fn: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # options are checked below
        """Make a function a job type: `@app.job` or `@app.job(queue="mail", timeout="5m")`.

        The function stays callable as before. Its parameters need type hints, which check the arguments of an enqueue.
        If its first parameter is a `Context` (in an `async def`) or a `SyncContext` (in a `def`), the worker gives it,
        and an enqueue does not:

            @app.job(queue="mail", retry=exponential("10s"), timeout="5m")
            async def send(ctx: Context, to: str, subject: str = "hi") -> None: ...

            send.enqueue("a@example.org")

        A class is declared in the same way: see `JobHandler`.

        Options:
            type: The name of the job type in the database, in logs and in filters; the function's name unless given.
                It stays the same when the function is renamed or moved.
            queue: The queue of its jobs; "default" unless given.
            priority: Jobs with a higher number start first; 0 unless given. One start in ten goes to the oldest due
                job whatever its priority (setting `ageing`).
            max_attempts: How often a job is tried before it is dead, the first time included; 4 unless given (setting
                `max_attempts`).
            retry: How long a failed job waits: `exponential("10s")`, `delays("5s", "30s")` or `fixed("1m")`. Unless
                given, 10 s doubling, and 5 minutes with the pace `polite`.
            timeout: The time limit of an attempt, such as "5m"; no limit unless given (setting `timeout`). A coroutine
                and a process are stopped at it. A thread cannot be stopped: its late result is refused.
            isolation: "coroutine" for an `async def` and "thread" for a `def`, unless given; "process" runs either in a
                process of its own.
            memory: The memory limit of its process, such as "512M"; it implies `isolation="process"`.
            permanent: Exception classes after which the job is dead at once: `permanent=[ValueError]`.
            transient: Exception classes after which the job is retried, although `permanent` lists a base class.
            unique: Refuse a second job with the same key while the first is unfinished, and also after it succeeded:
                True (the key is made of all arguments), names of arguments, a function of them, or `unique(…)`.
                `unique("url", states="unfinished")` refuses only while the first is unfinished.
            unique_forever: The same, even after the job's history was deleted.
            limits: What its jobs count against: `[limit("domain", 2, key=domain_of), rate("api", 5, every="1s")]`.
            on_dead: A job type that is enqueued when a job is dead, in the transaction that writes its end. Its
                parameters are any of `id`, `input`, `output` and `error`.
            on_cancelled: The same for a job that was cancelled.
            on_succeeded: The same for a job that succeeded.
            audit: The action that the audit records for a success, such as "EMAIL_SENT"; False: no row.
            labels: Your own names for states: `{"dead": "failed"}`.

        Raises RegistrationError with what to change, when the function cannot be a job type.
        """
        check_declaration(fn, options)
        local = sys._getframe(1).f_locals  # hints may name classes of the function that declares the job

        def check(fn: Callable[..., Any]) -> Definition:
            return define(fn, contexts=CONTEXTS, localns=dict(local), **options)

        def declare(given: Any) -> JobType[..., Any]:
            definition = check(function_of(given, check))
            self._registry.add(definition)
            kind: type[JobType[..., Any]]
            if inspect.iscoroutinefunction(definition.fn):
                kind = AsyncContextJob if definition.signature.context else AsyncJob
            else:
                kind = PlainContextJob if definition.signature.context else PlainJob
            return kind(cast("Windlass", self), definition)

        return declare if fn is None else declare(fn)
