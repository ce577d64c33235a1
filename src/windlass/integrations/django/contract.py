"""What both task backends do: a Django task becomes a job, and a job's record becomes its result.

An enqueue inside `transaction.atomic` on the database that holds the jobs is part of that transaction: the task exists
if and only if it commits.
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
from windlass.integrations.django.checks import check_installed
from windlass.integrations.django.config import Configuration
from windlass.integrations.django.flavour import Flavour
from windlass.integrations.django.instance import the_app
from windlass.integrations.django.register import REGISTER
from windlass.integrations.django.results import Input, Seen, make_result, seen
from windlass.integrations.django.run import TYPE, carrier
from windlass.model.job import parse_id
from windlass.store.sql import query
from windlass.store.sqlite.rows import job as sqlite_job

OPTIONS = ("MAX_ATTEMPTS",)

UNCOMMITTED = """
SELECT type, queue, priority, CAST(input AS text), CAST(extract(epoch FROM created_at) * 1000000 AS bigint)
  FROM windlass.jobs WHERE id = CAST($1 AS uuid)
"""
"""On PostgreSQL: a job that only its own transaction sees, and that nobody has claimed therefore."""


class Contract:
    """A mixin in front of `BaseTaskBackend`."""

    flavour: ClassVar[Flavour]

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
        self._max_attempts = _attempts(self.options.get("MAX_ATTEMPTS", 1), ImproperlyConfigured)

    # A task is declared

    def validate_task(self, task: Any) -> None:
        """Called for every `Task` that is made, so that this is also where tasks become known."""
        super().validate_task(task)  # type: ignore[misc]
        if getattr(task, "max_attempts", None) is not None:
            _attempts(task.max_attempts, self.flavour.invalid)
        REGISTER.add(task, self.flavour)

    # …enqueued

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        result = self._ready(task, args, kwargs)
        options = carrier().options(
            queue=task.queue_name,
            priority=int(task.priority),
            run_at=_aware(task.run_after),
            max_attempts=getattr(task, "max_attempts", None) or self._max_attempts,
            conn=_open_transaction(),
        )
        given = {"task": task.module_path, "args": result.args, "kwargs": result.kwargs, "backend": self.alias}
        if task.run_after is not None:
            given["run_after"] = task.run_after.isoformat()
        handle = options.enqueue(**given)
        object.__setattr__(result, "id", str(handle.id))
        self.flavour.enqueued.send_robust(type(self), task_result=result)
        return result

    def _ready(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A result that nothing has come of yet; its arguments are what JSON makes of them."""
        return self.flavour.result(
            task=task,
            id="",
            status=self.flavour.status.READY,
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

    # …and asked after

    def get_result(self, result_id: str) -> Any:
        try:
            id = parse_id(result_id)
        except JobNotFound as error:
            raise self.flavour.missing(str(error)) from None
        job = _find(id)
        if job is None or job.input.backend != self.alias:
            raise self.flavour.missing(f"backend {self.alias!r} has no result {result_id}")
        known = REGISTER.look(job.input.task)
        if known is None:
            raise self.flavour.missing(
                f"result {result_id} belongs to {job.input.task!r}, and this project declares no such task any more"
            )
        return make_result(self.flavour, known.task, job)

    def check(self, **rest: Any) -> list[Any]:
        return check_installed()


def _attempts(value: object, complaint: type[Exception]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise complaint(f"max_attempts={value!r} is not a whole number from 1")
    return value


def _aware(moment: datetime | None) -> datetime | None:
    """A project without time zones means its own."""
    if moment is None or timezone.is_aware(moment):
        return moment
    aware: datetime = timezone.make_aware(moment)
    return aware


def _open_transaction() -> Any:
    """The project's connection, where a transaction on the database with the jobs is open."""
    alias = Configuration.read().database
    return connections[alias] if alias is not None and connections[alias].in_atomic_block else None


def _find(id: UUID) -> Seen | None:
    """Where a transaction is open, it may have enqueued the task a moment ago: then only it can see the job."""
    conn = _open_transaction()
    if conn is None or conn.needs_rollback:
        return _find_committed(id)
    borrowed = DjangoConnection(conn)
    if borrowed.dialect == "sqlite":
        return _find_in_file(borrowed, id)
    return _find_committed(id) or _find_uncommitted(borrowed, id)


def _find_committed(id: UUID) -> Seen | None:
    try:
        job = JobHandle[Any](the_app().client, id).record()
    except JobNotFound:
        return None
    return seen(job) if job.type == TYPE else None


def _find_in_file(borrowed: DjangoConnection, id: UUID) -> Seen | None:
    """The whole record, because the store might have to be opened first, and would wait for this transaction."""
    rows = borrowed.run(query("sqlite", "find").replace(":id", "?1"), str(id))
    jobs = [job for job in map(sqlite_job, rows) if job.type == TYPE]
    return seen(jobs[0]) if jobs else None


def _find_uncommitted(borrowed: DjangoConnection, id: UUID) -> Seen | None:
    for type, queue, priority, input, created_at in borrowed.run(UNCOMMITTED, str(id)):
        if type == TYPE:
            made = datetime.fromtimestamp(int(created_at) / 1_000_000, UTC)
            decoded = msgspec.json.decode(input, type=Input)
            return Seen(id=id, queue=queue, priority=priority, input=decoded, created_at=made)
    return None
