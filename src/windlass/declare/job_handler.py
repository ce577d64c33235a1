"""`JobHandler`: what processes the jobs of a type, as an abstract class. A plain function adapts to it.

A worker calls functions only: `function_of` makes one of a handler, and all that follows (hints, context, isolation) is
the same for both.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from windlass.errors import RegistrationError

if TYPE_CHECKING:
    from windlass.declare.handler_types import AwaitedEnqueueOf, CallOf, EnqueueOf, OptionsOf

P = ParamSpec("P")
R = TypeVar("R")


class JobHandler(ABC):
    """A job type as a class: `handle` processes one job, whatever carried it to the worker.

        @app.job(type="entity.match")
        class Match(JobHandler):
            async def handle(self, ctx: Context, task_id: int) -> str: ...

        Match.enqueue(task_id=1)

    A class is made once, without arguments, when it is declared. For a handler with dependencies, declare an object:
    `match = app.job(type="entity.match")(Match(client))`, and then `match.enqueue(task_id=1)`. One object processes all
    jobs of its process, several at a time.

    With `isolation="process"`, each child process has a copy of its own. A class is found there by its module and name;
    an object only through its program (`windlass worker app.py`), which the child process loads.
    """

    if TYPE_CHECKING:
        enqueue = EnqueueOf()
        aenqueue = AwaitedEnqueueOf()
        call = CallOf()
        options = OptionsOf()

    @abstractmethod
    def handle(self, *args: Any, **kwargs: Any) -> Any:
        """Process one job: `async def handle(self, ctx: Context, task_id: int) -> str`, or a `def`.

        Its parameters have names and type hints of its own, as those of a function with `@app.job`, and a context first
        or none.
        """

    @staticmethod
    def of(function: Callable[P, R], /) -> FunctionHandler[P, R]:
        """A plain function as a handler: `app.job(JobHandler.of(send))` declares what `app.job(send)` does."""
        return FunctionHandler(function)


class FunctionHandler(JobHandler, Generic[P, R]):
    """A function as a `JobHandler`; `JobHandler.of` makes one."""

    if TYPE_CHECKING:

        def handle(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:
        handle = (
            None  # each object has its function under this name, so that it is a coroutine function where that is one
        )

    def __init__(self, function: Callable[P, R]) -> None:
        self.handle = function  # type: ignore[method-assign]
        self.__doc__ = function.__doc__


def function_of(given: Any, check: Callable[[Callable[..., Any]], object]) -> Any:
    """The function that a worker calls: of a `JobHandler`, its class or its object, `handle`; anything else as it is.

    `check` is called while the function is still named as the method, so that an error names `Match.handle`.
    """
    if isinstance(given, type) and issubclass(given, JobHandler):
        given = _make(given)
    if isinstance(given, FunctionHandler):
        return given.handle
    if not isinstance(given, JobHandler):
        return given
    function = _adapt(given)
    check(function)
    cls = type(given)  # by whose name the job type, its messages and its child processes know it
    function.__name__, function.__qualname__, function.__module__ = cls.__name__, cls.__qualname__, cls.__module__
    return function


def _make(cls: type[JobHandler]) -> JobHandler:
    name = f"{cls.__module__}.{cls.__qualname__}"
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        advice = "async def handle(self, ctx: Context, …) -> …" if missing == "handle" else f"define {missing}"
        raise RegistrationError(f"{name} is an abstract JobHandler without {missing}; write: {advice}")
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise RegistrationError(
            f"{name} cannot be made without arguments ({error}); declare an object of it instead: "
            f"{cls.__name__.lower()} = app.job({cls.__name__}(…))"
        ) from None
    return cls()


def _adapt(handler: JobHandler) -> Callable[..., Any]:
    """The method as a function: a job's definition has a function, which its isolation may wrap."""
    cls, method = type(handler), handler.handle
    if not inspect.ismethod(method) or method.__self__ is not handler:
        raise RegistrationError(
            f"{cls.__module__}.{cls.__qualname__}.handle is no method of an object; write: "
            "async def handle(self, ctx: Context, …) -> …"
        )
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        return method.__func__  # refused by the check of functions

    def plain(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return await method(*args, **kwargs)

    function: Callable[..., Any] = coroutine if inspect.iscoroutinefunction(method) else plain
    functools.update_wrapper(function, method)
    function.__doc__ = method.__doc__ or cls.__doc__
    return function
