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

from windlass.integrations.django.flavour import Flavour
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
"""Ends of what Windlass does not count as an attempt."""

ENGINES_OWN = {"Timeout": "builtins.TimeoutError"}
ENGINES_OTHER = "windlass.errors.WindlassError"


class Input(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a job carries: a task's path and its arguments."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    run_after: str | None = None


class Seen(msgspec.Struct, kw_only=True):
    """As much of a job as a result needs. The defaults are those of a job that nobody has claimed yet."""

    id: UUID
    queue: str
    priority: int
    input: Input
    created_at: datetime
    status: State = State.QUEUED
    output: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: UUID | None = None
    attempts: list[Attempt] = []


def seen(job: Job) -> Seen:
    return Seen(
        id=job.id,
        queue=job.queue,
        priority=job.priority,
        input=msgspec.json.decode(job.input, type=Input),
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


def make_result(flavour: Flavour, task: Any, job: Seen) -> Any:
    """The `TaskResult`."""
    status = flavour.status(STATUSES[job.status])
    result = flavour.result(
        task=_as_enqueued(flavour, task, job),
        id=str(job.id),
        status=status,
        enqueued_at=moment(job.created_at),
        started_at=moment(_first_start(job)),
        finished_at=moment(job.finished_at) if status in ("FAILED", "SUCCESSFUL") else None,
        last_attempted_at=moment(job.started_at),
        args=job.input.args,
        kwargs=job.input.kwargs,
        backend=job.input.backend,
        errors=[make_error(flavour, attempt.error) for attempt in job.attempts if attempt.error is not None],
        worker_ids=_workers(job),
    )
    if status == "SUCCESSFUL":
        object.__setattr__(result, "_return_value", msgspec.json.decode(job.output or "null"))
    return result


def make_error(flavour: Flavour, failure: Failure) -> Any:
    """A `TaskError` whose class can be imported, also for what the engine itself has to say."""
    kind = failure.type
    if "." in kind:
        path = kind
    elif isinstance(getattr(builtins, kind, None), type):
        path = f"builtins.{kind}"
    else:
        path = ENGINES_OWN.get(kind, ENGINES_OTHER)
    return flavour.error(exception_class_path=path, traceback=failure.traceback or f"{kind}: {failure.message}")


def moment(value: datetime | None) -> datetime | None:
    """As the project wants its times: aware, or naive in its own zone."""
    if value is None:
        return None
    aware = value.astimezone(UTC)
    naive: datetime = timezone.make_naive(aware)
    return aware if settings.USE_TZ else naive


def _first_start(job: Seen) -> datetime | None:
    return job.attempts[0].started_at if job.attempts else job.started_at


def _workers(job: Seen) -> list[str]:
    """One per attempt; the one under way, and a success without a word, have no entry of their own."""
    told = [str(attempt.worker) for attempt in job.attempts]
    silent = job.status is State.SUCCEEDED and not any(a.outcome == Ending.SUCCEEDED for a in job.attempts)
    return [*told, str(job.worker)] if silent or job.status is State.RUNNING else told


def _as_enqueued(flavour: Flavour, task: Any, job: Seen) -> Any:
    """The declared task with what its enqueue said otherwise."""
    after = job.input.run_after
    try:
        return task.using(
            priority=job.priority,
            queue_name=job.queue,
            backend=job.input.backend,
            run_after=None if after is None else datetime.fromisoformat(after),
        )
    except flavour.invalid:  # its queue has been taken out of the settings since
        return task
