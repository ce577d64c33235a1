"""Blocking calls over an asynchronous core: one daemon thread with one event loop, on which the core runs.

A program without a loop calls `run()` and waits. A program with a loop awaits `arun()`, from any loop. The thread
starts at the first use, and again in a child process: threads do not survive a fork.

A public method is written once, as a coroutine `a…`; `blocking` makes the method without the `a` from it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from windlass.errors import BlockingCall
from windlass.words import explain_call

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")

JOIN_SECONDS = 5.0


class WaitsFor(Protocol):
    """Runs a coroutine for a caller that blocks: the client."""

    def wait_for(self, coroutine: Callable[[], Coroutine[Any, Any, T]], *, async_name: str) -> T: ...


class HasClient(Protocol):
    """An object whose awaited methods may be called blocking."""

    @property
    def _client(self) -> WaitsFor: ...

    @property
    def _noun(self) -> str:
        """How an error names the object: `job` in `use: await job.astatus()`."""
        ...


Owner = TypeVar("Owner", bound=HasClient)


def blocking(awaited: Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Owner, P], T]:
    """The blocking form of a method, with its parameters, result and docstring: `status = blocking(astatus)`."""

    shown = f"{awaited.__name__}({'…' if _has_parameters(awaited) else ''})"

    def call(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def begin() -> Coroutine[Any, Any, T]:
            try:
                return awaited(self, *args, **kwargs)
            except TypeError as error:  # only the call itself can raise it: the coroutine has not begun
                raise explain_call(error, awaited, f"{self._noun}.{call.__name__}", (self, *args), kwargs) from None

        return self._client.wait_for(begin, async_name=f"{self._noun}.{shown}")

    describe_like(call, awaited)
    rename(call, awaited.__name__.removeprefix("a"))
    return call


def describe_like(method: Callable[..., object], model: Callable[..., object]) -> None:
    """Give a method the docstring and the parameters of another one.

    Without `__wrapped__`: frameworks such as FastAPI follow it to see whether a function has to be awaited, and `model`
    may be a coroutine function where `method` is none.
    """
    functools.update_wrapper(method, model)
    del method.__wrapped__  # type: ignore[attr-defined]
    method.__signature__ = inspect.signature(model)  # type: ignore[attr-defined]


def rename(method: Callable[..., object], name: str) -> None:
    """Give a method that was made from another one a name of its own."""
    method.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{name}"
    method.__name__ = name


def _has_parameters(method: Callable[..., object]) -> bool:
    code = method.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    return named > 1 or bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))


class Portal:
    """The way from any thread and any loop to the one loop that owns the connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._abandoned: list[object] = []
        portal = weakref.ref(self)  # at-fork hooks are for ever; a portal is not
        os.register_at_fork(after_in_child=lambda: _forget(portal()))

    def run(self, coroutine: Callable[[], Coroutine[Any, Any, T]], *, async_name: str) -> T:
        """Wait for `coroutine()`; `async_name` is what asynchronous code awaits instead, such as `job.aenqueue(…)`.

        For a call that is not awaited it is the whole line: `async for progress in app.abulk(…)`.
        """
        self.refuse_on_a_loop(async_name)
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # when Ctrl-C ended the waiting: the coroutine has no caller any more
            raise

    async def arun(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await `coroutine()` from any loop; a cancelled caller cancels it."""
        if asyncio.get_running_loop() is self._loop:
            return await coroutine()
        return await asyncio.wrap_future(self.submit(coroutine))

    def refuse_on_a_loop(self, async_name: str) -> None:
        """Raise when waiting here would stop a loop that runs on this thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        call = async_name.partition("(")[0].rpartition(".")[2].removeprefix("a")
        line = async_name if async_name.startswith("async for ") else f"await {async_name}"
        raise BlockingCall(f"{call}() would block the running event loop; use: {line}")

    def close(self) -> None:
        """Cancel what is under way and end the thread. The next call starts a new one."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)

    def forget(self) -> None:
        """In the child of a fork: the parent's thread is not here, and the lock may be held for ever.

        The loop is kept and never closed: the parent shares its selector, and would miss every event after a close.
        """
        self._abandoned.append(self._loop)
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._pid = os.getpid()

    def submit(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start `coroutine()` on the portal's loop, and return without waiting.

        It runs in a copy of the caller's context, which asyncio makes on this thread: `acting_as` depends on it.
        """

        async def call() -> T:
            return await coroutine()

        with self._lock:  # close() runs before or after, never between the two calls
            return asyncio.run_coroutine_threadsafe(call(), self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # a fork that went past Python's hooks
            self.forget()
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="windlass-portal", daemon=True)
            self._thread.start()
        return self._loop


def _forget(portal: Portal | None) -> None:
    if portal is not None:
        portal.forget()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: run until stopped, then let every task see its cancellation."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        # Closing a loop asks its helper threads to end and does not wait; the caller of close() expects them gone.
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
