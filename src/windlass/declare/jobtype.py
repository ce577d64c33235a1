"""What a decorated function becomes: callable as before, with an enqueue that is typed by its own parameters."""

from __future__ import annotations

import functools
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, TypeVar, cast

from windlass.client import Call, Client, Enqueue, awaited_enqueue, blocking_enqueue
from windlass.clock import Duration
from windlass.declare.options import NONE, Options
from windlass.declare.registry import Definition
from windlass.handler.context import Context
from windlass.handler.sync_context import SyncContext
from windlass.handles.job import JobHandle
from windlass.policy.limit import Value
from windlass.policy.unique import Unique

if TYPE_CHECKING:
    from windlass.app import Windlass

P = ParamSpec("P")
R = TypeVar("R")


class TypedCall(Call, Generic[R], frozen=True):
    """A call that knows its result's type."""


class ConfiguredJob(Generic[P, R]):
    """A job type with options for its enqueues."""

    def __init__(self, app: Windlass, definition: Definition, options: Options) -> None:
        self._app = app
        self._definition = definition
        self._options = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TypedCall[R]:
        """A call that is checked and not made yet, for what enqueues it later: `app.enqueue_many([send.call(to)])`.

        `app.batch`, `app.schedule`, graphs and `ctx.spawn` take calls, too. Raises InvalidInput.
        """
        input = self._definition.signature.bind(args, kwargs)
        return TypedCall(self._definition, input, self._options, self._app._registry)

    def _enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueue[JobHandle[R]]:
        """Enqueue a job with the handler's own arguments: `job = send.enqueue("a@example.org")`.

        It returns when the job is stored; with `conn=`, when it is written in your transaction. Raises InvalidInput
        when an argument does not fit its type hint. Coroutines write: `await send.aenqueue(…)`.

        When another job holds its key, the handle is that job's, and `handle.existing` is true.
        """
        job, client = self.call(*args, **kwargs).new_job(self._app.settings), self._app._client
        return Enqueue(
            [job], self._options.conn, lambda existing: JobHandle._of(client, job, self._definition, existing)
        )

    enqueue = blocking_enqueue(_enqueue)
    aenqueue = awaited_enqueue(_enqueue)

    @property
    def _client(self) -> Client:
        return self._app._client

    @property
    def _noun(self) -> str:
        return self._definition.signature.name

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        max_attempts: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        key: str | None = None,
        unique: Unique | None = None,
        idempotency_key: str | None = None,
        limits: Mapping[str, Value | None] | None = None,
        conn: object | None = None,
        **misspelt: Never,
    ) -> ConfiguredJob[P, R]:
        """The same job type with options for the next enqueue: `send.options(delay="10m", tenant="acme").enqueue(…)`.

        Options:
            queue: Another queue than the job type's.
            priority: Jobs with a higher number start first.
            tenant: The tenant that the job belongs to, for fair shares, budgets and gates; "default" unless given.
            max_attempts: How often the job is tried before it is dead, the first time included.
            delay: How long the job waits before it is due, such as "10m".
            run_at: The time at which it is due, a `datetime` with a time zone; instead of `delay`.
            key: The text of its unique key, instead of one that is made of its arguments.
            unique: How the key is unique for this enqueue; False: not at all.
            idempotency_key: Enqueues with one such key make one job; one with another input is refused with
                IdempotencyConflict. It is kept for a day (setting `idempotency_window`).
            limits: The values of its limits' keys by the limits' names, as in `{"domain": "example.org"}`; None: the
                job does not count against that limit.
            conn: Your own open connection or session: the job exists if and only if its transaction commits.
        """
        given: dict[str, Any] = {
            "queue": queue,
            "priority": priority,
            "tenant": tenant,
            "max_attempts": max_attempts,
            "delay": delay,
            "run_at": run_at,
            "key": key,
            "unique": unique,
            "idempotency_key": idempotency_key,
            "limits": limits,
            "conn": conn,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return ConfiguredJob(self._app, self._definition, self._options.merge({**chosen, **misspelt}, self._definition))


class JobType(ConfiguredJob[P, R]):
    """A function that is also a job type. Calling it just calls it."""

    def __init__(self, app: Windlass, definition: Definition) -> None:
        super().__init__(app, definition, NONE)
        functools.update_wrapper(cast(Any, self), definition.fn)

    def __repr__(self) -> str:
        return f"<job type {self._definition.type!r}>"


class PlainJob(JobType[P, R]):
    """`def f(a: int) -> R`"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._definition.fn(*args, **kwargs)
        return result


class PlainContextJob(JobType[P, R]):
    """`def f(ctx: SyncContext, a: int) -> R`"""

    def __call__(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._definition.fn(ctx, *args, **kwargs)
        return result


class AsyncJob(JobType[P, R]):
    """`async def f(a: int) -> R`"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self._definition.fn(*args, **kwargs)
        return result


class AsyncContextJob(JobType[P, R]):
    """`async def f(ctx: Context, a: int) -> R`"""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self._definition.fn(ctx, *args, **kwargs)
        return result
