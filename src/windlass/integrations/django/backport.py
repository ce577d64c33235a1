"""A backend for `django-tasks`, the backport of `django.tasks`.

TASKS = {"default": {"BACKEND": "windlass.integrations.django.backport.WindlassBackend", "QUEUES": ["default", "mail"]}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django_tasks import exceptions
from django_tasks.backends.base import BaseTaskBackend
from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django_tasks.signals import task_enqueued, task_finished, task_started
from django_tasks.utils import normalize_json

from windlass.integrations.django.backend_base import BackendBase
from windlass.integrations.django.task_registry import TaskApi


def _exception(name: str) -> type[Exception]:
    """The exception under Django's own name for it, or under the one that django-tasks used up to 0.12."""
    found: type[Exception] = getattr(exceptions, name, None) or getattr(exceptions, f"{name}Error")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BackportTask(Task[..., Any]):
    """`@task(max_attempts=4)`: a task that is tried again after an error."""

    max_attempts: int | None = None


class WindlassBackend(BackendBase, BaseTaskBackend):
    """Django's tasks as durable jobs."""

    task_class = BackportTask  # type: ignore[assignment]  # a subclass without the type variables
    api: ClassVar[TaskApi] = TaskApi(
        result=TaskResult,
        status=TaskResultStatus,
        error=TaskError,
        context=TaskContext,
        normalize_json=normalize_json,
        invalid=_exception("InvalidTask"),
        invalid_backend=_exception("InvalidTaskBackend"),
        missing=exceptions.TaskResultDoesNotExist,
        enqueued=task_enqueued,
        started=task_started,
        finished=task_finished,
    )
