"""What a decorated function becomes: callable as before, with an enqueue that is typed by its own parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, TypeVar, cast

from windlass import words
from windlass.client import Call, Client, Enqueue, awaited_enqueue, blocking_enqueue
from windlass.clock import Duration
from windlass.declare.options import NONE, Options
from windlass.declare.registry import Definition
from windlass.errors import RegistrationError
from windlass.handler.context import Context
from windlass.handler.sync_context import SyncContext
from windlass.handles.job import JobHandle
from windlass.policy.limit import Value
from windlass.policy.unique import Unique
from windlass.words import answer_words

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.model.job import Job

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Method = TypeVar("Method", bound=Callable[..., object])


class TypedCall(Call, Generic[R_co], frozen=True):
    """A call that knows its result's type."""

    if not TYPE_CHECKING:
        __getattr__ = answer_words("a call", words.CALL)


class DescribedMethod:
    """A method that has, on each job type, the parameters of its handler, for `inspect.signature` and `help`.

    The attribute is a bound method of a copy of the method, one copy per job type, made when it is first used.
    """

    def __init__(self, method: Callable[..., object], answer: type) -> None:
        self._method = cast(FunctionType, method)
        self._answer = answer

    def __get__(self, job: ConfiguredJob[..., Any] | None, owner: object) -> Callable[..., object]:
        if job is None:
            return self._method
        own = job._methods.get(self._method.__name__)
        if own is None:
            own = job._methods[self._method.__name__] = self._describe(job._definition)
        return MethodType(own, job)

    def _describe(self, definition: Definition) -> FunctionType:
        method = self._method
        own = FunctionType(
            method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
        )
        functools.update_wrapper(own, method)
        del own.__dict__["__wrapped__"]  # as in `describe_like`
        own.__dict__["__signature__"] = _signature_of(definition, self._answer)
        return own


def described(answer: type) -> Callable[[Method], Method]:
    """Give a method of a job type the parameters of the handler, and `answer[result of the handler]` as its result."""

    def describe(method: Method) -> Method:
        described: Any = DescribedMethod(method, answer)
        return cast(Method, described)

    return describe


class ConfiguredJob(Generic[P, R_co]):
    """A job type with options for its enqueues."""

    def __init__(
        self,
        app: Windlass,
        definition: Definition,
        options: Options,
        methods: dict[str, FunctionType] | None = None,
    ) -> None:
        self._app = app
        self._definition = definition
        self._options = options
        self._methods = {} if methods is None else methods  # see `DescribedMethod`

    @described(TypedCall)
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> TypedCall[R_co]:
        """A call that is checked and not made yet, for what enqueues it later: `app.enqueue_many([send.call(to)])`.

        `app.batch`, `app.schedule`, graphs and `ctx.spawn` take calls, too. Raises InvalidInput.
        """
        input = self._definition.signature.bind(args, kwargs)
        return TypedCall(self._definition, input, self._options, self._app._registry)

    def _enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueue[JobHandle[R_co]]:
        """Enqueue a job with the handler's own arguments: `job = send.enqueue("a@example.org")`.

        It returns when the job is stored; with `conn=`, when it is written in your transaction. Raises InvalidInput
        when an argument does not fit its type hint. Coroutines write: `await send.aenqueue(…)`.

        When another job holds its key, the handle is that job's, and `handle.existing` is true.
        """
        job, client = self.call(*args, **kwargs).new_job(self._app.settings), self._app._client
        return Enqueue(
            [job], self._options.conn, lambda existing: JobHandle._of(client, job, self._definition, existing)
        )

    enqueue = described(JobHandle)(blocking_enqueue(_enqueue))
    aenqueue = described(JobHandle)(awaited_enqueue(_enqueue))

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = answer_words("a job type", words.JOB_TYPE)

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
        merged = self._options.merge({**chosen, **misspelt}, self._definition)
        return ConfiguredJob(self._app, self._definition, merged, self._methods)

    def label(self, job: Job) -> str:
        """The state of a record as `labels=` names it: `send.label(job.record())`.

        While the job of a pipeline moves on, `site.label(…)` is the name of its phase.
        """
        return self._definition.label(job)


class JobType(ConfiguredJob[P, R_co]):
    """A function that is also a job type. Calling it just calls it."""

    def __init__(self, app: Windlass, definition: Definition) -> None:
        super().__init__(app, definition, NONE)
        functools.update_wrapper(cast(Any, self), definition.fn)

    def __repr__(self) -> str:
        return f"<job type {self._definition.type!r}>"

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """Python asks for these when a class derives from a job type, which is no class any more."""
        name = self._definition.fn.__name__
        raise RegistrationError(
            f"{name} is a job type since @app.job decorated it, and no class can derive from it; derive from a class "
            f"without @app.job: class {name}Base(JobHandler)"
        )

    if not TYPE_CHECKING:  # a type checker would bind a job type that is an attribute of a class

        def __get__(self, owner: object, kind: type | None = None) -> JobType[P, R_co]:
            """Itself. `help` takes an object with `__get__` for a function: it shows its signature and its text."""
            return self


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


def _signature_of(definition: Definition, answer: Any) -> inspect.Signature:
    """The handler's parameters without its context, and the answer for the result of the (last phase's) handler."""
    shown = _signature(definition.fn)
    parameters = list(shown.parameters.values())
    if definition.signature.context is not None:
        del parameters[0]
    last = shown if definition.plan is None else _signature(definition.plan.phases[-1].definition.fn)
    name = "self"  # a bound method's first parameter, which inspect leaves out
    while any(parameter.name == name for parameter in parameters):
        name = f"_{name}"
    first = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
    result = last.return_annotation
    return inspect.Signature(
        [first, *parameters], return_annotation=answer if result is inspect.Signature.empty else answer[result]
    )


def _signature(fn: Callable[..., object]) -> inspect.Signature:
    """With the hints themselves, where the module can resolve their names."""
    try:
        return inspect.signature(fn, eval_str=True)
    except Exception:  # a hint may name a class of the function that declares the job
        return inspect.signature(fn)
