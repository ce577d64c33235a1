"""From a job's record to Django's `TaskResult`.

queued, failed, waiting → READY    running → RUNNING    succeeded → SUCCESSFUL    dead, cancelled → FAILED

A failed attempt that will be repeated leaves the task READY, with its error in `errors`.
"""

from __future__ import annotations

import builtins
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.utils import timezone

from windlass.integrations.django.task_registry import TaskApi
from windlass.model.job import Attempt, Failure, Job, attempts_in
from windlass.model.outcome import Ending
from windlass.model.state import State

STATUSES = {
    State.QUEUED: "READY",
    State.FAILED: "READY",
    State.WAITING: "READY",
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "SUCCESSFUL",
    State.DEAD: "FAILED",
    State.CANCELLED: "FAILED",
}
NO_ATTEMPT = frozenset({Ending.SNOOZED.value, Ending.RELEASED.value})
"""Endings that Windlass does not count as attempts."""

ENGINE_ERRORS = {"Timeout": "builtins.TimeoutError"}  # errors that no handler raised: the engine recorded them
OTHER_ENGINE_ERROR = "windlass.errors.WindlassError"


class TaskInput(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The input of a job: a task's arguments, and what its result needs. The job's type is the task's path."""

    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    run_after: str | None = None


class TaskRecord(msgspec.Struct, kw_only=True):
    """The part of a job that a result needs. The defaults are those of a job that no worker has claimed yet."""

    id: UUID
    type: str
    queue: str
    priority: int
    input: TaskInput
    created_at: datetime
    status: State = State.QUEUED
    output: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: UUID | None = None
    attempts: list[Attempt] = []


def read_record(job: Job) -> TaskRecord:
    return TaskRecord(
        id=job.id,
        type=job.type,
        queue=job.queue,
        priority=job.priority,
        input=msgspec.json.decode(job.input, type=TaskInput),
        created_at=job.created_at,
        status=job.status,
        output=job.output,
        started_at=job.started_at,
        finished_at=job.finished_at,
        worker=job.worker,
        attempts=_attempts(job),
    )


def _attempts(job: Job) -> list[Attempt]:
    return [attempt for attempt in attempts_in(job.attempts) if attempt.outcome not in NO_ATTEMPT]


def make_result(api: TaskApi, task: Any, job: TaskRecord) -> Any:
    """The `TaskResult`."""
    status = api.status(STATUSES[job.status])
    starts = _starts(job)
    result = api.result(
        task=_as_enqueued(api, task, job),
        id=str(job.id),
        status=status,
        enqueued_at=to_project_time(job.created_at),
        started_at=to_project_time(starts[0] if starts else None),
        finished_at=to_project_time(job.finished_at) if status in ("FAILED", "SUCCESSFUL") else None,
        last_attempted_at=to_project_time(starts[-1] if starts else None),
        args=job.input.args,
        kwargs=job.input.kwargs,
        backend=job.input.backend,
        errors=[make_error(api, attempt.error) for attempt in job.attempts if attempt.error is not None],
        worker_ids=_workers(job),
    )
    if status == "SUCCESSFUL":
        object.__setattr__(result, "_return_value", msgspec.json.decode(job.output or "null"))
    return result


def make_error(api: TaskApi, failure: Failure) -> Any:
    """A `TaskError` with an importable class, also for an error that the engine itself recorded."""
    kind = failure.type
    if "." in kind:
        path = kind
    elif isinstance(getattr(builtins, kind, None), type):
        path = f"builtins.{kind}"
    else:
        path = ENGINE_ERRORS.get(kind, OTHER_ENGINE_ERROR)
    return api.error(exception_class_path=path, traceback=failure.traceback or f"{kind}: {failure.message}")


def to_project_time(value: datetime | None) -> datetime | None:
    """A time as the project's USE_TZ asks for it: aware, or naive in the project's zone."""
    if value is None:
        return None
    aware = value.astimezone(UTC)
    naive: datetime = timezone.make_naive(aware)
    return aware if settings.USE_TZ else naive


def _starts(job: TaskRecord) -> list[datetime | None]:
    starts = [attempt.started_at for attempt in job.attempts]
    return [*starts, job.started_at] if _has_unrecorded_attempt(job) else starts


def _workers(job: TaskRecord) -> list[str]:
    workers = [str(attempt.worker) for attempt in job.attempts]
    return [*workers, str(job.worker)] if _has_unrecorded_attempt(job) else workers


def _has_unrecorded_attempt(job: TaskRecord) -> bool:
    """A running attempt, and a success that logged nothing, are known from the job itself."""
    unrecorded = job.status is State.SUCCEEDED and not any(a.outcome == Ending.SUCCEEDED for a in job.attempts)
    return unrecorded or job.status is State.RUNNING


def _as_enqueued(api: TaskApi, task: Any, job: TaskRecord) -> Any:
    """The declared task with the options of its enqueue."""
    after = job.input.run_after
    try:
        return task.using(
            priority=job.priority,
            queue_name=job.queue,
            backend=job.input.backend,
            run_after=None if after is None else datetime.fromisoformat(after),
        )
    except api.invalid:  # its queue has been removed from the settings since
        return task
