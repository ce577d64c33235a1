"""`app.lifespan` for FastAPI, Starlette and whatever else takes an ASGI lifespan.

`FastAPI(lifespan=app.lifespan)` enqueues only: nothing is opened before it is used, and the client is closed at the
end. `FastAPI(lifespan=app.lifespan(worker=True, concurrency=20))` also works, on the server's own event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.runtime.worker import Worker

log = logging.getLogger("windlass")

S_co = TypeVar("S_co", covariant=True)
N = TypeVar("N")

Theirs = Callable[[Any], AbstractAsyncContextManager[N]]
"""A lifespan of the caller's own; what it yields, the state of a request, is passed on."""


class Lifespan(Generic[S_co]):
    """A lifespan, and a way to make another: called with an ASGI app it is one, called with options it makes one."""

    def __init__(
        self,
        windlass: Windlass,
        *,
        worker: Callable[[], Worker] | None = None,
        also: Theirs[S_co] | None = None,
    ) -> None:
        self._windlass = windlass
        self._worker = worker
        self._also = also

    @overload
    def __call__(self, asgi: object, /) -> AbstractAsyncContextManager[S_co]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        worker: bool = False,
        concurrency: int | None = None,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
    ) -> Lifespan[S_co]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        also: Theirs[N],
        worker: bool = False,
        concurrency: int | None = None,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
    ) -> Lifespan[N]: ...

    def __call__(
        self,
        asgi: object = None,
        /,
        *,
        worker: bool = False,
        concurrency: int | None = None,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        also: Any = None,
    ) -> Any:
        if asgi is not None:
            return self._live(asgi)
        if not worker and (concurrency, queues, types) != (None, None, None):
            raise ConfigError("concurrency, queues and types are a worker's; write: app.lifespan(worker=True, …)")
        queues = None if queues is None else tuple(queues)  # a lifespan may begin more than once
        types = None if types is None else tuple(types)

        def make() -> Worker:
            return self._windlass.worker(concurrency=concurrency, queues=queues, types=types)

        return Lifespan(self._windlass, worker=make if worker else self._worker, also=also or self._also)

    @asynccontextmanager
    async def _live(self, asgi: object) -> AsyncIterator[S_co]:
        """Their resources are there before the first job and after the last; the client goes after everything."""
        state = getattr(asgi, "state", None)
        if state is not None:
            state.windlass = self._windlass
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._windlass.aclose)
            yielded = cast(S_co, None)
            if self._also is not None:
                yielded = await stack.enter_async_context(self._also(asgi))
            if self._worker is not None:
                await stack.enter_async_context(_working(self._worker()))
            yield yielded


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    from windlass.observe.logs import LogSubscriber

    worker.subscribe(LogSubscriber())
    async with worker:
        watching = asyncio.create_task(_watch(worker), name="windlass-watch")
        try:
            yield
        finally:
            watching.cancel()


async def _watch(worker: Worker) -> None:
    """The server lives on without its worker, so that somebody has to say that it ended."""
    try:
        await worker.finished()
    except Exception:
        log.exception("the worker in this process has ended, and its jobs wait for another one; restart the server")
