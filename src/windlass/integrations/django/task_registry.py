"""Which Django tasks this process may run: those that the project's own code has declared, and no others.

The type of a job is the path of its task. A worker claims the types of the tasks that are declared here. It never
imports a path that it read: a client that can write a row into the database must not be able to choose what a worker
imports or calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from windlass.integrations.django.config import Configuration

DISCOVERED = ("jobs", "tasks")  # modules of each installed app


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskApi:
    """The names that a backend needs from `django.tasks`, or from its backport `django-tasks`.

    Both modules have the same contract, and each has classes of its own.
    """

    result: Callable[..., Any]  # TaskResult
    status: Any  # TaskResultStatus
    error: Callable[..., Any]  # TaskError
    context: Callable[..., Any]  # TaskContext
    normalize_json: Callable[[Any], Any]
    invalid: type[Exception]  # InvalidTask, or InvalidTaskError in django-tasks up to 0.12
    invalid_backend: type[Exception]  # InvalidTaskBackend, or InvalidTaskBackendError
    missing: type[Exception]  # TaskResultDoesNotExist
    enqueued: Any  # the three signals
    started: Any
    finished: Any


@dataclass(frozen=True, slots=True)
class DeclaredTask:
    """A declared task, and the module it was declared with."""

    task: Any
    api: TaskApi


class TaskRegistry:
    """The declared tasks by their path."""

    def __init__(self) -> None:
        self._tasks: dict[str, DeclaredTask] = {}
        self._add_job_type: Callable[[str], None] | None = None

    def add(self, task: Any, api: TaskApi) -> None:
        """Keep the first task of a function: `task.using(…)` makes more of them."""
        path = task.module_path
        known = self._tasks.get(path)
        if known is None and self._add_job_type is not None:
            self._add_job_type(path)
        if known is None or known.task.func is not task.func:
            self._tasks[path] = DeclaredTask(task, api)

    def make_job_types(self, add_job_type: Callable[[str], None]) -> None:
        """Call `add_job_type` with the path of every task: of those that are declared now, and of each later one."""
        self._add_job_type = add_job_type
        for path in self._tasks:
            add_job_type(path)

    def find(self, path: str) -> DeclaredTask | None:
        """The task of this path. A process that has not imported the project's tasks imports them first."""
        if path not in self._tasks:
            discover()
        return self._tasks.get(path)


TASK_REGISTRY = TaskRegistry()
"""One per process. Django makes a backend per thread, so a backend cannot hold it."""


def discover() -> None:
    """Import the modules that declare jobs and tasks.

    They are `jobs.py` and `tasks.py` of every installed app, the URLconf with its views, and WINDLASS["MODULES"].
    A name that was read from a job is never imported.
    """
    autodiscover_modules(*DISCOVERED)
    if getattr(settings, "ROOT_URLCONF", None):
        import_module(settings.ROOT_URLCONF)
    for module in Configuration.read().modules:
        import_module(module)
