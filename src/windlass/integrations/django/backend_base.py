"""What both task backends share: a Django task becomes a job, and the job's record becomes the task's result.

An enqueue inside `transaction.atomic` on the database that holds the jobs is part of that transaction: the task exists
if and only if the transaction commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import msgspec
from django.db import connections
from django.utils import timezone
from django.utils.asyncio import async_unsafe

from windlass.config import suggest
from windlass.connection.django import DjangoConnection
from windlass.declare.jobtype import ConfiguredJob
from windlass.declare.options import NONE
from windlass.errors import DuplicateType, InvalidOption, JobNotFound
from windlass.handler.transaction import current_transaction
from windlass.handles.job import JobHandle
from windlass.integrations.django.config import Configuration, check_installed
from windlass.integrations.django.instance import get_app
from windlass.integrations.django.results import TaskInput, TaskRecord, make_result, read_record, to_project_time
from windlass.integrations.django.task_registry import TASK_REGISTRY, TaskApi
from windlass.model.job import Job, parse_id
from windlass.names import name_problem
from windlass.store.sql import query
from windlass.store.sqlite.rows import job as sqlite_job

OPTIONS = ("MAX_ATTEMPTS",)
EPOCH = datetime.fromtimestamp(0, UTC)

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
                raise self.api.invalid_backend(f'TASKS[{alias!r}]["OPTIONS"] has no key {key!r}{suggest(key, known)}')
        self._max_attempts: int = self.options.get("MAX_ATTEMPTS", 1)
        if not _is_count(self._max_attempts):
            what = f'TASKS[{alias!r}]["OPTIONS"]["MAX_ATTEMPTS"]'
            raise self.api.invalid_backend(f"{what} is {self._max_attempts!r}, and not a whole number from 1")

    # Declare

    def validate_task(self, task: Any) -> None:
        """Check a task and register it: Django calls this for every `Task` that is made."""
        super().validate_task(task)  # type: ignore[misc]
        path, attempts = task.module_path, getattr(task, "max_attempts", None)
        if attempts is not None and not _is_count(attempts):
            raise self.api.invalid(f"{path}: @task(max_attempts={attempts!r}) is not a whole number from 1")
        problem = name_problem(path)
        if problem is not None:
            raise self.api.invalid(f"the path of the task, {path!r}, is the type of its jobs and {problem}")
        try:
            TASK_REGISTRY.add(task, self.api)
        except DuplicateType:
            why = f'{path!r} is also the type of a job; give that job another one: @app.job(type="…")'
            raise self.api.invalid(why) from None

    # Enqueue

    @async_unsafe("enqueue() would block the running event loop; use: await task.aenqueue(…)")  # type: ignore[untyped-decorator]
    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        result = self._make_ready_result(task, args, kwargs)
        given = {"args": result.args, "kwargs": result.kwargs, "backend": self.alias}
        if task.run_after is not None:
            given["run_after"] = task.run_after.isoformat()
        conn = _open_transaction()
        handle = self._job_of(task, conn).enqueue(**given)
        object.__setattr__(result, "id", str(handle.id))
        object.__setattr__(result, "enqueued_at", to_project_time(_read_creation(handle.id, conn)))
        self.api.enqueued.send_robust(type(self), task_result=result)
        return result

    def _job_of(self, task: Any, conn: Any) -> ConfiguredJob[..., Any]:
        app = get_app()
        job = ConfiguredJob[..., Any](app, app._registry.require(task.module_path), NONE)
        try:
            return job.options(
                queue=task.queue_name,
                priority=int(task.priority),
                run_at=_make_aware(task.run_after),
                max_attempts=getattr(task, "max_attempts", None) or self._max_attempts,
                conn=conn,
            )
        except InvalidOption as error:  # what Django lets through: a queue of 300 letters, a time in the year 5000
            raise self.api.invalid(f"{task.module_path}: {error}") from None

    def _make_ready_result(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a task that has not run yet. Its arguments are as JSON returns them."""
        return self.api.result(
            task=task,
            id="",
            status=self.api.status.READY,
            enqueued_at=None,
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
        if job is None:
            raise self.api.missing(f"backend {self.alias!r} has no result {result_id}")
        if job.input.backend != self.alias:
            other = job.input.backend
            raise self.api.missing(
                f"result {result_id} belongs to the backend {other!r}: task_backends[{other!r}].get_result(…)"
            )
        declared = TASK_REGISTRY.find(job.type)
        if declared is None:
            raise self.api.missing(
                f"result {result_id} belongs to the task {job.type!r}, which this process has not imported; if the "
                f'project still has it: WINDLASS = {{"MODULES": ["{job.type.rpartition(".")[0]}"]}}'
            )
        return make_result(self.api, declared.task, job)

    def check(self, **rest: Any) -> list[Any]:
        return check_installed()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


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


def _read_creation(id: UUID, conn: Any) -> datetime:
    """When the job was created, as the store has written it."""
    if conn is None and current_transaction.get() is not None:
        return datetime.now(UTC)  # written by a Windlass job's own transaction, and no other connection sees it
    job = _find_committed(id) if conn is None else _find_own(DjangoConnection(conn), id)
    return datetime.now(UTC) if job is None else job.created_at


def _find(id: UUID) -> TaskRecord | None:
    """Find a job. An open transaction may have enqueued it: then only that transaction can see the job."""
    conn = _open_transaction()
    if conn is None or conn.needs_rollback:
        return _find_committed(id)
    borrowed = DjangoConnection(conn)
    if borrowed.dialect == "sqlite":
        return _find_own(borrowed, id)
    return _find_committed(id) or _find_own(borrowed, id)


def _find_committed(id: UUID) -> TaskRecord | None:
    client = get_app()._client
    try:
        # Not record(): Django lets asynchronous code call refresh(), which stops its loop for the time of one read.
        job = client.portal.submit(JobHandle[Any](client, id).arecord).result()
    except JobNotFound:
        return None
    return _read_task(job)


def _find_own(borrowed: DjangoConnection, id: UUID) -> TaskRecord | None:
    """Find a job on the project's own connection. In a SQLite file that is any job; the store may not be open yet, and
    its opening would wait for this transaction."""
    if borrowed.dialect == "sqlite":
        rows = borrowed.run(query("sqlite", "find").replace(":id", "?1"), str(id))
        return next(map(_read_task, map(sqlite_job, rows)), None)
    for type, queue, priority, input, created_at in borrowed.run(UNCOMMITTED, str(id)):
        created = EPOCH + timedelta(microseconds=int(created_at))
        with suppress(msgspec.ValidationError):
            decoded = msgspec.json.decode(input, type=TaskInput)
            return TaskRecord(id=id, type=type, queue=queue, priority=priority, input=decoded, created_at=created)
    return None


def _read_task(job: Job) -> TaskRecord | None:
    """The record of a task; None for a job of another kind."""
    try:
        return read_record(job)
    except msgspec.ValidationError:
        return None
