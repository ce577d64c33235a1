"""Which tasks there are: those that somebody declared in this process, and no others.

A job names its task by a path. The path is looked up here and never imported: who can write a row into the database
must not be able to choose what a worker imports or calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.integrations.django.discovery import discover
from windlass.integrations.django.flavour import Flavour


@dataclass(frozen=True, slots=True)
class Known:
    """A declared task, and which of the twins it belongs to."""

    task: Any
    flavour: Flavour


class Register:
    """Tasks by their path."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def add(self, task: Any, flavour: Flavour) -> None:
        """The first of a function counts: `task.using(…)` makes more of them."""
        known = self._known.get(task.module_path)
        if known is None or known.task.func is not task.func:
            self._known[task.module_path] = Known(task, flavour)

    def find(self, path: str) -> Known | None:
        return self._known.get(path)

    def look(self, path: str) -> Known | None:
        """As `find`, but a process that has not imported the project's tasks does so first."""
        if path not in self._known:
            discover()
        return self._known.get(path)


REGISTER = Register()
"""Of this process: Django makes a backend per thread, so that none of them can keep it."""
