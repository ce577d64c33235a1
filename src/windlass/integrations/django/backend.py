"""A backend for `django.tasks`, which came with Django 6.0.

TASKS = {"default": {"BACKEND": "windlass.integrations.django.backend.WindlassBackend", "QUEUES": ["default", "mail"]}}

Not called `tasks`: whoever looks for the tasks of installed apps, as Celery also does, would import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

try:
    from django.tasks.backends.base import BaseTaskBackend
except ImportError as error:
    raise ImportError(
        "this Django has no django.tasks, which came with 6.0; with the backport django-tasks the backend is "
        "windlass.integrations.django.backport.WindlassBackend"
    ) from error
from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils.json import normalize_json

from windlass.integrations.django.contract import Contract
from windlass.integrations.django.flavour import Flavour


@dataclass(frozen=True, slots=True, kw_only=True)
class WindlassTask(Task):  # type: ignore[misc]  # Django has no types
    """`@task(max_attempts=4)`: a task that may be repeated after an error."""

    max_attempts: int | None = None


class WindlassBackend(Contract, BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Django's tasks as durable jobs."""

    task_class = WindlassTask
    flavour: ClassVar[Flavour] = Flavour(
        result=TaskResult,
        status=TaskResultStatus,
        error=TaskError,
        context=TaskContext,
        normalize_json=normalize_json,
        invalid=InvalidTask,
        missing=TaskResultDoesNotExist,
        enqueued=task_enqueued,
        started=task_started,
        finished=task_finished,
    )
