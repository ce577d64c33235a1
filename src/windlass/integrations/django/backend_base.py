"""What both task backends share: a Django task becomes a job, and the job's record becomes the task's result.

An enqueue inside `transaction.atomic` on the database that holds the jobs is part of that transaction: the task exists
if and only if the transaction commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone

from windlass.config import suggest
from windlass.connection.django import DjangoConnection
from windlass.errors import JobNotFound
from windlass.handles.job import JobHandle
from windlass.integrations.django.config import Configuration, check_installed
from windlass.integrations.django.instance import get_app
from windlass.integrations.django.results import TaskInput, TaskRecord, make_result, read_record
from windlass.integrations.django.task_job import TYPE, task_job_type
from windlass.integrations.django.task_registry import TASK_REGISTRY, TaskApi
from windlass.model.job import parse_id
from windlass.store.sql import query
from windlass.store.sqlite.rows import job as sqlite_job

OPTIONS = ("MAX_ATTEMPTS",)

UNCOMMITTED = """
SELECT type, queue, priority, CAST(input AS text), CAST(extract(epoch FROM created_at) * 1000000 AS bigint)
  FROM windlass.jobs WHERE id = CAST($1 AS uuid)
"""
"""On PostgreSQL: a job that only its own transaction sees. So no worker can have claimed it."""


class BackendBase:
    """A mixin that stands before `BaseTaskBackend` in a backend's bases."""

    api: ClassVar[TaskApi]

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    alias: str
    options: dict[str, Any]

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)  # type: ignore[call-arg]
        for key in self.options:
            if key not in OPTIONS:
                known = dict.fromkeys(OPTIONS)
                raise ImproperlyConfigured(f'TASKS[{alias!r}]["OPTIONS"] has no key {key!r}{suggest(key, known)}')
        self._max_attempts = _check_attempts(self.options.get("MAX_ATTEMPTS", 1), ImproperlyConfigured)

    # Declare

    def validate_task(self, task: Any) -> None:
        """Check a task and register it: Django calls this for every `Task` that is made."""
        super().validate_task(task)  # type: ignore[misc]
        if getattr(task, "max_attempts", None) is not None:
            _check_attempts(task.max_attempts, self.api.invalid)
        TASK_REGISTRY.add(task, self.api)

    # Enqueue

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        result = self._make_ready_result(task, args, kwargs)
        options = task_job_type().options(
            queue=task.queue_name,
            priority=int(task.priority),
            run_at=_make_aware(task.run_after),
            max_attempts=getattr(task, "max_attempts", None) or self._max_attempts,
            conn=_open_transaction(),
        )
        given = {"task": task.module_path, "args": result.args, "kwargs": result.kwargs, "backend": self.alias}
        if task.run_after is not None:
            given["run_after"] = task.run_after.isoformat()
        handle = options.enqueue(**given)
        object.__setattr__(result, "id", str(handle.id))
        self.api.enqueued.send_robust(type(self), task_result=result)
        return result

    def _make_ready_result(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a task that has not run yet. Its arguments are as JSON returns them."""
        return self.api.result(
            task=task,
            id="",
            status=self.api.status.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    # Read results

    def get_result(self, result_id: str) -> Any:
        try:
            id = parse_id(result_id)
        except JobNotFound as error:
            raise self.api.missing(str(error)) from None
        job = _find(id)
        if job is None or job.input.backend != self.alias:
            raise self.api.missing(f"backend {self.alias!r} has no result {result_id}")
        declared = TASK_REGISTRY.find(job.input.task)
        if declared is None:
            raise self.api.missing(
                f"result {result_id} belongs to {job.input.task!r}, and this project no longer declares such a task"
            )
        return make_result(self.api, declared.task, job)

    def check(self, **rest: Any) -> list[Any]:
        return check_installed()


def _check_attempts(value: object, error: type[Exception]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise error(f"max_attempts={value!r} is not a whole number from 1")
    return value


def _make_aware(moment: datetime | None) -> datetime | None:
    """A naive time of a project without time zones is in the project's own zone."""
    if moment is None or timezone.is_aware(moment):
        return moment
    aware: datetime = timezone.make_aware(moment)
    return aware


def _open_transaction() -> Any:
    """The project's connection to the database with the jobs, if a transaction is open on it."""
    alias = Configuration.read().database
    return connections[alias] if alias is not None and connections[alias].in_atomic_block else None


def _find(id: UUID) -> TaskRecord | None:
    """Find a job. An open transaction may have enqueued it: then only that transaction can see the job."""
    conn = _open_transaction()
    if conn is None or conn.needs_rollback:
        return _find_committed(id)
    borrowed = DjangoConnection(conn)
    if borrowed.dialect == "sqlite":
        return _find_in_file(borrowed, id)
    return _find_committed(id) or _find_uncommitted(borrowed, id)


def _find_committed(id: UUID) -> TaskRecord | None:
    try:
        job = JobHandle[Any](get_app()._client, id).record()
    except JobNotFound:
        return None
    return read_record(job) if job.type == TYPE else None


def _find_in_file(borrowed: DjangoConnection, id: UUID) -> TaskRecord | None:
    """Read the whole record here. The store may not be open yet, and its opening would wait for this transaction."""
    rows = borrowed.run(query("sqlite", "find").replace(":id", "?1"), str(id))
    jobs = [job for job in map(sqlite_job, rows) if job.type == TYPE]
    return read_record(jobs[0]) if jobs else None


def _find_uncommitted(borrowed: DjangoConnection, id: UUID) -> TaskRecord | None:
    for type, queue, priority, input, created_at in borrowed.run(UNCOMMITTED, str(id)):
        if type == TYPE:
            created = datetime.fromtimestamp(int(created_at) / 1_000_000, UTC)
            decoded = msgspec.json.decode(input, type=TaskInput)
            return TaskRecord(id=id, queue=queue, priority=priority, input=decoded, created_at=created)
    return None
