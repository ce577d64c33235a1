"""An executor on the calling thread: plain handlers run where `drain()` or an inline enqueue was called.

A connection, a session or a monkeypatched thread-local that belongs to the test's thread works in the handler, and a
debugger stops where it should. The event loop that drives the attempt lives on another thread meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class CallerThreadExecutor(Executor):
    """Calls wait in a queue until the thread in `serve` takes them."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(call)
        return future

    def serve(self, until: Future[T]) -> T:
        """Make the calls that come, on this thread, until `until` is done; returns its result."""
        until.add_done_callback(lambda _: self._calls.put(None))
        try:
            while (call := self._calls.get()) is not None:
                call()
        except BaseException:  # Ctrl-C between two handlers
            until.cancel()
            raise
        return until.result()
