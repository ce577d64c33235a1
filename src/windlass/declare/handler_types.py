"""The types of a `JobHandler`'s `handle`, for type checkers: its parameters without its context, and its result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from windlass.declare.jobtype import ConfiguredJob, TypedCall
from windlass.handler.context import Context
from windlass.handler.sync_context import SyncContext
from windlass.handles.job import JobHandle

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class AsyncContextHandler(Protocol[P, R_co]):
    """`async def handle(self, ctx: Context, a: int) -> R`"""

    def handle(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...


class PlainContextHandler(Protocol[P, R_co]):
    """`def handle(self, ctx: SyncContext, a: int) -> R`"""

    def handle(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class AsyncHandler(Protocol[P, R_co]):
    """`async def handle(self, a: int) -> R`"""

    def handle(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...


class PlainHandler(Protocol[P, R_co]):
    """`def handle(self, a: int) -> R`"""

    def handle(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


# mypy takes a decorated class for the class itself, and not for what its decorator returned. These are the names that
# the class has as a job type, typed by its own `handle`.

if TYPE_CHECKING:

    class EnqueueOf:
        @overload
        def __get__(self, none: None, cls: type[AsyncContextHandler[P, R]], /) -> Callable[P, JobHandle[R]]: ...
        @overload
        def __get__(self, none: None, cls: type[PlainContextHandler[P, R]], /) -> Callable[P, JobHandle[R]]: ...
        @overload
        def __get__(self, none: None, cls: type[AsyncHandler[P, R]], /) -> Callable[P, JobHandle[R]]: ...
        @overload
        def __get__(self, none: None, cls: type[PlainHandler[P, R]], /) -> Callable[P, JobHandle[R]]: ...
        def __get__(self, none: None, cls: Any, /) -> Any: ...

    class AwaitedEnqueueOf:
        @overload
        def __get__(
            self, none: None, cls: type[AsyncContextHandler[P, R]], /
        ) -> Callable[P, Coroutine[Any, Any, JobHandle[R]]]: ...
        @overload
        def __get__(
            self, none: None, cls: type[PlainContextHandler[P, R]], /
        ) -> Callable[P, Coroutine[Any, Any, JobHandle[R]]]: ...
        @overload
        def __get__(
            self, none: None, cls: type[AsyncHandler[P, R]], /
        ) -> Callable[P, Coroutine[Any, Any, JobHandle[R]]]: ...
        @overload
        def __get__(
            self, none: None, cls: type[PlainHandler[P, R]], /
        ) -> Callable[P, Coroutine[Any, Any, JobHandle[R]]]: ...
        def __get__(self, none: None, cls: Any, /) -> Any: ...

    class CallOf:
        @overload
        def __get__(self, none: None, cls: type[AsyncContextHandler[P, R]], /) -> Callable[P, TypedCall[R]]: ...
        @overload
        def __get__(self, none: None, cls: type[PlainContextHandler[P, R]], /) -> Callable[P, TypedCall[R]]: ...
        @overload
        def __get__(self, none: None, cls: type[AsyncHandler[P, R]], /) -> Callable[P, TypedCall[R]]: ...
        @overload
        def __get__(self, none: None, cls: type[PlainHandler[P, R]], /) -> Callable[P, TypedCall[R]]: ...
        def __get__(self, none: None, cls: Any, /) -> Any: ...

    class OptionsOf:
        @overload
        def __get__(
            self, none: None, cls: type[AsyncContextHandler[P, R]], /
        ) -> Callable[..., ConfiguredJob[P, R]]: ...
        @overload
        def __get__(
            self, none: None, cls: type[PlainContextHandler[P, R]], /
        ) -> Callable[..., ConfiguredJob[P, R]]: ...
        @overload
        def __get__(self, none: None, cls: type[AsyncHandler[P, R]], /) -> Callable[..., ConfiguredJob[P, R]]: ...
        @overload
        def __get__(self, none: None, cls: type[PlainHandler[P, R]], /) -> Callable[..., ConfiguredJob[P, R]]: ...
        def __get__(self, none: None, cls: Any, /) -> Any: ...
