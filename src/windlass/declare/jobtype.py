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
from windlass.handles.job import JobHandle
from windlass.policy.limit import Value
from windlass.policy.unique import Unique

if TYPE_CHECKING:
    from windlass.app import Windlass

P = ParamSpec("P")
R = TypeVar("R")


_ENQUEUE, _AWAIT, _LATER = "enqueue(…)", "aenqueue(…), awaited", 'options(delay="10m").enqueue(…)'
OTHER_WORDS = {
    "delay": _ENQUEUE,
    "send": _ENQUEUE,
    "defer": _ENQUEUE,
    "kiq": _AWAIT,
    "adelay": _AWAIT,
    "asend": _AWAIT,
    "defer_async": _AWAIT,
    "apply_async": _LATER,
    "send_with_options": _LATER,
    "enqueue_in": _LATER,
    "schedule": _LATER,
    "configure": _LATER,
    "using": _LATER,
    "apply": "enqueue(…).result()",
    "s": "call(…)",
    "si": "call(…)",
    "signature": "call(…)",
}
"""What the job types of other libraries are called with, and what to write here instead."""


class TypedCall(Call, Generic[R], frozen=True):
    """A call that knows its result's type."""


class ConfiguredJob(Generic[P, R]):
    """A job type with options for its enqueues."""

    def __init__(self, app: Windlass, definition: Definition, options: Options) -> None:
        self.app = app
        self.definition = definition
        self._options = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TypedCall[R]:
        """A checked call, for `enqueue_many`."""
        input = self.definition.signature.bind(args, kwargs)
        return TypedCall(self.definition, input, self._options, self.app.registry)

    def _enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueue[JobHandle[R]]:
        """Enqueue a job; returns when it is stored (with conn=: written). Asynchronous code awaits `aenqueue`.

        When another job holds its key, the handle is that job's, and `handle.existing` is true.
        """
        job, client = self.call(*args, **kwargs).new_job(self.app.settings), self.app.client
        return Enqueue([job], self._options.conn, lambda existing: JobHandle.of(client, job, self.definition, existing))

    enqueue = blocking_enqueue(_enqueue)
    aenqueue = awaited_enqueue(_enqueue)

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Never:
            """The words of other libraries are answered with the line to write."""
            if name not in OTHER_WORDS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            job = self.definition.signature.name
            raise AttributeError(f"a job type has no .{name}(); write: {job}.{OTHER_WORDS[name]}", name=None, obj=self)

    @property
    def _client(self) -> Client:
        return self.app.client

    @property
    def _noun(self) -> str:
        return self.definition.signature.name

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
        return ConfiguredJob(self.app, self.definition, self._options.merge({**chosen, **misspelt}, self.definition))


class JobType(ConfiguredJob[P, R]):
    """A function that is also a job type. Calling it just calls it."""

    def __init__(self, app: Windlass, definition: Definition) -> None:
        super().__init__(app, definition, NONE)
        functools.update_wrapper(cast(Any, self), definition.fn)

    def __repr__(self) -> str:
        return f"<job type {self.definition.type!r}>"


class PlainJob(JobType[P, R]):
    """`def f(a: int) -> R`"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.definition.fn(*args, **kwargs)
        return result


class PlainContextJob(JobType[P, R]):
    """`def f(ctx: Context, a: int) -> R`"""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.definition.fn(ctx, *args, **kwargs)
        return result


class AsyncJob(JobType[P, R]):
    """`async def f(a: int) -> R`"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self.definition.fn(*args, **kwargs)
        return result


class AsyncContextJob(JobType[P, R]):
    """`async def f(ctx: Context, a: int) -> R`"""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self.definition.fn(ctx, *args, **kwargs)
        return result
