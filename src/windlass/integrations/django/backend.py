"""A backend for `django.tasks`, which is part of Django since 6.0.

TASKS = {"default": {"BACKEND": "windlass.integrations.django.backend.WindlassBackend", "QUEUES": ["default", "mail"]}}

This module is not called `tasks`: Celery, for example, imports the `tasks` of every installed app.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

try:
    from django.tasks.backends.base import BaseTaskBackend
except ImportError as error:
    raise ImportError(
        "this Django has no django.tasks, which is part of Django since 6.0; the backend for the backport "
        "django-tasks is windlass.integrations.django.backport.WindlassBackend"
    ) from error
from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils.json import normalize_json

from windlass.integrations.django.backend_base import BackendBase
from windlass.integrations.django.task_registry import TaskApi


@dataclass(frozen=True, slots=True, kw_only=True)
class WindlassTask(Task):  # type: ignore[misc]  # Django has no types
    """`@task(max_attempts=4)`: a task that is tried again after an error."""

    max_attempts: int | None = None


class WindlassBackend(BackendBase, BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Django's tasks as durable jobs."""

    task_class = WindlassTask
    api: ClassVar[TaskApi] = TaskApi(
        result=TaskResult,
        status=TaskResultStatus,
        error=TaskError,
        context=TaskContext,
        normalize_json=normalize_json,
        invalid=InvalidTask,
        invalid_backend=InvalidTaskBackend,
        missing=TaskResultDoesNotExist,
        enqueued=task_enqueued,
        started=task_started,
        finished=task_finished,
    )
