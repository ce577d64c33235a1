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
R_co = TypeVar("R_co", covariant=True)


class TypedCall(Call, Generic[R_co], frozen=True):
    """A call that knows its result's type."""


class ConfiguredJob(Generic[P, R_co]):
    """A job type with options for its enqueues."""

    def __init__(self, app: Windlass, definition: Definition, options: Options) -> None:
        self._app = app
        self._definition = definition
        self._options = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TypedCall[R_co]:
        """A checked call, for `enqueue_many`."""
        input = self._definition.signature.bind(args, kwargs)
        return TypedCall(self._definition, input, self._options, self._app._registry)

    def _enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueue[JobHandle[R_co]]:
        """Enqueue a job; returns when it is stored (with conn=: written). Asynchronous code awaits `aenqueue`.

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
    ) -> ConfiguredJob[P, R_co]:
        """The same job type with options for the next enqueue.

        `key=` is the text of its unique key. `unique=` sets how it is unique (False: not at all). Enqueues with one
        `idempotency_key=` make one job. `limits=` gives the values of its limits' keys by the limits' names, as in
        `{"domain": "example.org"}`; None: the job does not count against that limit. `conn=` is your own open
        connection.
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


class JobType(ConfiguredJob[P, R_co]):
    """A function that is also a job type. Calling it just calls it."""

    def __init__(self, app: Windlass, definition: Definition) -> None:
        super().__init__(app, definition, NONE)
        functools.update_wrapper(cast(Any, self), definition.fn)

    def __repr__(self) -> str:
        return f"<job type {self._definition.type!r}>"


class PlainJob(JobType[P, R_co]):
    """`def f(a: int) -> R_co`"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        result: R_co = self._definition.fn(*args, **kwargs)
        return result


class PlainContextJob(JobType[P, R_co]):
    """`def f(ctx: SyncContext, a: int) -> R_co`"""

    def __call__(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        result: R_co = self._definition.fn(ctx, *args, **kwargs)
        return result


class AsyncJob(JobType[P, R_co]):
    """`async def f(a: int) -> R_co`"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        result: Coroutine[Any, Any, R_co] = self._definition.fn(*args, **kwargs)
        return result


class AsyncContextJob(JobType[P, R_co]):
    """`async def f(ctx: Context, a: int) -> R_co`"""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        result: Coroutine[Any, Any, R_co] = self._definition.fn(ctx, *args, **kwargs)
        return result
