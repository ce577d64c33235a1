"""Blocking calls over an asynchronous core: one daemon thread with one event loop, in which the core lives.

A program without a loop calls `run()` and waits. A program with one awaits `arun()`, from whichever loop it
has. The thread starts at the first use, and anew in a child process: threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.errors import BlockingCall

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

T = TypeVar("T")

JOIN_SECONDS = 5.0


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

    def run(self, coroutine: Callable[[], Coroutine[Any, Any, T]], *, twin: str) -> T:
        """Wait for `coroutine()`; `twin` is what asynchronous code writes instead: `job.aenqueue(…)`."""
        self.refuse_on_a_loop(twin)
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # of use when it was the waiting that ended, by Ctrl-C: nobody waits any more
            raise

    async def arun(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await `coroutine()` from any loop; a cancelled caller cancels it."""
        if asyncio.get_running_loop() is self._loop:
            return await coroutine()
        return await asyncio.wrap_future(self.submit(coroutine))

    def refuse_on_a_loop(self, twin: str) -> None:
        """Raise when waiting here would stop a loop that runs on this thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        call = twin.partition("(")[0].rpartition(".")[2].removeprefix("a")
        raise BlockingCall(f"{call}() would block the running event loop; use: await {twin}")

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

        The loop is kept and never closed: its selector is shared with the parent, who would go deaf.
        """
        self._abandoned.append(self._loop)
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._pid = os.getpid()

    def submit(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start `coroutine()` over there and wait for nothing."""

        async def call() -> T:
            return await coroutine()

        with self._lock:  # so that close() comes before or after, never between
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
        # Closing a loop tells its helper threads to end and does not wait; who closes a portal expects them gone.
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
