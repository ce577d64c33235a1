"""Something around every handler: an application context, fresh database connections.

It is laid around the definitions that a worker runs and not around the functions themselves: whoever just calls a job's
function gets just the call.
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
AroundAwaited = Callable[[], AbstractAsyncContextManager[object]]


class Surrounded(Registry):
    """A registry whose plain handlers run inside `around()`, and its coroutines inside `awaited()`."""

    def __init__(self, plain: Registry, *, around: Around, awaited: AroundAwaited) -> None:
        super().__init__()
        self._around = around
        self._awaited = awaited
        for definition in plain:
            self.add(definition)

    def add(self, definition: Definition) -> None:
        super().add(msgspec.structs.replace(definition, fn=self._surround(definition.fn)))

    def _surround(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                async with self._awaited():
                    return await fn(*args, **kwargs)

            return coroutine

        @functools.wraps(fn)
        def plain(*args: Any, **kwargs: Any) -> Any:
            with self._around():
                return fn(*args, **kwargs)

        return plain
