"""A registry that runs every handler inside a context manager: an application context, fresh database connections.

The context manager wraps the definitions that a worker runs, and not the functions themselves: a program that calls a
job's function directly gets the plain call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import msgspec

from windlass.declare.registry import Definition, Registry

Around = Callable[[], AbstractContextManager[object]]
AroundCoroutine = Callable[[], AbstractAsyncContextManager[object]]


class WrappingRegistry(Registry):
    """A registry that runs plain handlers inside `around()`, and coroutines inside `around_coroutine()`."""

    def __init__(self, plain: Registry, *, around: Around, around_coroutine: AroundCoroutine) -> None:
        super().__init__()
        self.subscribers = plain.subscribers
        self.instruments = plain.instruments
        self._around = around
        self._around_coroutine = around_coroutine
        for definition in plain:
            self.add(definition)

    def add(self, definition: Definition) -> None:
        super().add(msgspec.structs.replace(definition, fn=self._wrap(definition.fn)))

    def _wrap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                async with self._around_coroutine():
                    return await fn(*args, **kwargs)

            return coroutine

        @functools.wraps(fn)
        def plain(*args: Any, **kwargs: Any) -> Any:
            with self._around():
                return fn(*args, **kwargs)

        return plain
