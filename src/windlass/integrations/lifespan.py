"""`app.lifespan` for FastAPI, Starlette and every other framework that takes an ASGI lifespan.

`FastAPI(lifespan=app.lifespan)` only enqueues: the client opens nothing before its first use, and is closed at the end.
`FastAPI(lifespan=app.lifespan(worker=True, concurrency=20))` also runs a worker, on the server's own event loop.
`app.lifespan(migrate=True)` brings the schema up to date first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from windlass.errors import ConfigError
from windlass.names import list_names
from windlass.words import explain_arguments

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.runtime.worker import Worker

log = logging.getLogger("windlass")

SERVERS = ("uvicorn.error", "hypercorn.error", "gunicorn.error")
"""Loggers on which a server prints its own start, at INFO."""

S_co = TypeVar("S_co", covariant=True)
N = TypeVar("N")

CallerLifespan = Callable[[Any], AbstractAsyncContextManager[N]]
"""A lifespan of the caller's own. What it yields, the state of a request, is passed on."""


class Lifespan(Generic[S_co]):
    """Called with an ASGI app, this is a lifespan; called with options, it returns another `Lifespan`."""

    def __init__(
        self,
        windlass: Windlass,
        *,
        worker: Callable[[], Worker] | None = None,
        migrate: bool = False,
        also: CallerLifespan[S_co] | None = None,
    ) -> None:
        self._windlass = windlass
        self._worker = worker
        self._migrate = migrate
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
        migrate: bool = False,
    ) -> Lifespan[S_co]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        also: CallerLifespan[N],
        worker: bool = False,
        concurrency: int | None = None,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        migrate: bool = False,
    ) -> Lifespan[N]: ...

    @explain_arguments("app.lifespan")
    def __call__(
        self,
        asgi: object = None,
        /,
        *,
        worker: bool = False,
        concurrency: int | None = None,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        migrate: bool = False,
        also: Any = None,
    ) -> Any:
        """As a lifespan: `FastAPI(lifespan=app.lifespan)`; with options: `app.lifespan(worker=True, migrate=True)`."""
        if asgi is not None:
            return self._run(asgi)
        if not worker and (concurrency, queues, types) != (None, None, None):
            raise ConfigError(
                "concurrency, queues and types are options of a worker; write: app.lifespan(worker=True, …)"
            )
        queues, types = list_names("queues", queues), list_names("types", types)  # a lifespan may begin more than once

        def make() -> Worker:
            return self._windlass.worker(concurrency=concurrency, queues=queues, types=types)

        return Lifespan(
            self._windlass,
            worker=make if worker else self._worker,
            migrate=migrate or self._migrate,
            also=also or self._also,
        )

    @asynccontextmanager
    async def _run(self, asgi: object) -> AsyncIterator[S_co]:
        """Keep the caller's lifespan open from before the first job until after the last one; then close the client."""
        state = getattr(asgi, "state", None)
        if state is not None:
            state.windlass = self._windlass
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._windlass.aclose)
            yielded = cast(S_co, None)
            if self._migrate:
                await self._windlass.amigrate()
            if self._also is not None:
                yielded = await stack.enter_async_context(self._also(asgi))
            if self._worker is not None:
                await stack.enter_async_context(_run_worker(self._worker()))
            yield yielded


@asynccontextmanager
async def _run_worker(worker: Worker) -> AsyncIterator[None]:
    from windlass.observe.log_lines import LogSubscriber

    worker.subscribe(LogSubscriber(worker.settings.redact))
    async with worker:
        _announce(worker)
        watching = asyncio.create_task(_log_failure(worker), name="windlass-watch")
        try:
            yield
        finally:
            watching.cancel()


def _announce(worker: Worker) -> None:
    """Log the start on the server's own logger, where the logger `windlass` shows no INFO."""
    server = next((each for each in map(logging.getLogger, SERVERS) if each.hasHandlers()), None)
    if server is not None and not log.isEnabledFor(logging.INFO):
        server.info("windlass worker %s started in this process", worker.name)


async def _log_failure(worker: Worker) -> None:
    """Log that the worker has ended with an error: the server runs on without it."""
    try:
        await worker.finished()
    except Exception:
        log.exception("the worker in this process has ended, and its jobs wait for another one; restart the server")
