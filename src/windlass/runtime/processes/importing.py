"""How a child process finds a handler: through the program the worker was given, or by the handler's module."""

from __future__ import annotations

import importlib
import inspect
import sys
from importlib.machinery import PathFinder
from typing import Any

from windlass.declare.jobtype import JobType
from windlass.declare.registry import Definition, place
from windlass.errors import ProgramError


def importable(definition: Definition) -> bool:
    """Whether another interpreter with our module path finds this very handler by its module and name."""
    name = definition.fn.__module__
    module = sys.modules.get(name)
    if module is None or not _is_found_again(name, getattr(module, "__spec__", None)):
        return False
    found = _walk(module, definition.fn.__qualname__)
    return found is not None and found._definition is definition


def _is_found_again(name: str, spec: Any) -> bool:
    """`__main__` and modules made from a file's path have names that lead nowhere, or to another file."""
    if name == "__main__" or spec is None or spec.origin is None:
        return False
    parent = sys.modules.get(name.rpartition(".")[0])
    path = list(getattr(parent, "__path__", ())) if parent is not None else None
    if "." in name and not path:
        return False
    found = PathFinder.find_spec(name, path)
    return found is not None and found.origin == spec.origin


def find(module: str, qualname: str) -> JobType[..., Any]:
    """In the child: import the module and walk to the job type."""
    found = _walk(importlib.import_module(module), qualname)
    if found is None:
        raise ProgramError(
            f"{module}.{qualname} is no job type in a child process; is it declared below a condition? Declare it at "
            "the top level of its module, or name the program: windlass worker app.py"
        )
    return found


def _walk(holder: Any, qualname: str) -> JobType[..., Any] | None:
    for step in qualname.split("."):
        holder = getattr(holder, step, None)
    return holder if isinstance(holder, JobType) else None


def refusal(definition: Definition) -> str:
    """Why a handler cannot run in a child, and what to do about it."""
    as_class = " as a class" if inspect.ismethod(getattr(definition.fn, "__wrapped__", None)) else ""  # of a JobHandler
    return (
        f"{place(definition.fn)} cannot be imported in a child process; declare it{as_class} at the top level of a "
        "module that is not the main one, or start the worker with its program: windlass worker app.py"
    )
