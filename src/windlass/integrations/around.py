"""Something around every handler: an application context, fresh database connections.

It is laid around the definitions that a worker runs and not around the functions themselves: whoever just calls a job's
function gets just the call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from windlass.registry import Definition, Registry

Around = Callable[[], AbstractContextManager[object]]


class Surrounded(Registry):
    """A registry whose handlers run inside `around()`."""

    def __init__(self, plain: Registry, around: Around) -> None:
        super().__init__()
        self.around = around
        for definition in plain:
            self.add(definition)

    def add(self, definition: Definition) -> None:
        super().add(msgspec.structs.replace(definition, fn=self._surround(definition.fn)))

    def _surround(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self.around():
                    return await fn(*args, **kwargs)

            return awaited

        @functools.wraps(fn)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self.around():
                return fn(*args, **kwargs)

        return called
