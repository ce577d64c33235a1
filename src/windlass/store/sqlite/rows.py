"""Rows as SQLite keeps them: ids as text, times as microseconds since the epoch, JSON as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.model.flow import Waiting
from windlass.model.job import COLUMNS, Failure, Job, Lease
from windlass.model.state import State, sources, target
from windlass.store.protocol import AuditRow, NewWorker, WorkerRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windlass.model.flow import Advance
    from windlass.model.outcome import Progress, Transition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000  # in microseconds

REMEMBERED = 100
"""Attempts kept on a job: one that snoozes for a year must not grow without end."""

IDENT, TOKEN, FENCE = (COLUMNS.index(name) for name in ("id", "token", "fence"))
UUIDS = frozenset({"id", "token", "worker", "parent", "copied_from"})
TIMES = frozenset({"run_at", "claimed_at", "created_at", "started_at", "finished_at", "updated_at"})

Parameters = dict[str, Any]

decode_keys = msgspec.json.Decoder(list[str]).decode


def micros(moment: datetime) -> int:
    """A moment as it is stored. Whole numbers all the way: a float would lose the last digits."""
    return (moment - EPOCH) // MICROSECOND


def moment(value: int) -> datetime:
    """A time beyond the years 1 to 9999, which only a stranger can have written, is the first or the last there is."""
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if value > 0 else datetime.min.replace(tzinfo=UTC)


def rfc3339(value: int | None) -> str | None:
    """A stored time as text for JSON, always with six digits and in UTC."""
    return None if value is None else moment(value).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def span(seconds: float) -> int:
    """A duration in microseconds."""
    return round(seconds * SECOND)


def array(values: Iterable[object]) -> str:
    """A JSON array, as `json_each` reads it."""
    return msgspec.json.encode([str(value) for value in values]).decode()


def job(row: Sequence[Any]) -> Job:
    """A row in the order of `COLUMNS`."""
    values: list[Any] = [
        None if value is None else convert(value) for convert, value in zip(CONVERTERS, row, strict=True)
    ]
    return Job(*values)


def lease(row: Sequence[Any]) -> Lease:
    """The lease of a claimed row, whatever else is in it."""
    return Lease(UUID(row[IDENT]), UUID(row[TOKEN]), row[FENCE])


def keys_of(limits: str | None) -> list[str] | None:
    """The keys that a job counts against. What is of another shape was not written here, and counts for nothing."""
    try:
        return None if limits is None else decode_keys(limits)
    except msgspec.DecodeError:
        return None


def _keep(value: Any) -> Any:
    return value


def _converter(column: str) -> Any:
    if column in UUIDS:
        return UUID
    if column in TIMES:
        return moment
    return {"status": State, "cancel_requested": bool, "followed": bool, "limits": keys_of}.get(column, _keep)


CONVERTERS = tuple(_converter(column) for column in COLUMNS)


def transition_parameters(transition: Transition, now: int) -> Parameters:
    """The parameters of finish.sql, settle.sql and settle_cancelled.sql; its states come from one table."""
    return {
        "id": str(transition.lease.job),
        "token": str(transition.lease.token),
        "sources": array(sources(transition.verb)),
        "status": target(transition.verb),
        "delay": None if transition.delay is None else span(transition.delay),
        "attempt": transition.attempt,
        "crashes": transition.crashes,
        "output": transition.output,
        "error": transition.error,
        "entry": transition.entry,
        "reason": transition.reason,
        "elapsed": span(transition.elapsed),
        "total": transition.total,
        "processed": transition.processed,
        "failed": transition.failed,
        "cost_cents": transition.cost_cents,
        "now": now,
    }


def advance_parameters(transition: Transition, to: Advance, now: int) -> Parameters:
    """The parameters of advance.sql."""
    return transition_parameters(transition, now) | {
        "type": to.type,
        "queue": to.queue,
        "phase": to.phase,
        "phase_rank": to.phase_rank,
        "max_attempts": to.max_attempts,
        "limits": array(to.limits) if to.limits else None,
    }


def progress_parameters(progress: Progress, now: int) -> Parameters:
    return {
        "id": str(progress.lease.job),
        "token": str(progress.lease.token),
        "total": progress.total,
        "processed": progress.processed,
        "failed": progress.failed,
        "now": now,
    }


def worker_parameters(worker: NewWorker, now: int) -> Parameters:
    return {
        "id": str(worker.id),
        "name": worker.name,
        "lease": span(worker.lease),
        "concurrency": worker.concurrency,
        "queues": None if worker.queues is None else array(worker.queues),
        "types": array(worker.types),
        "isolates": worker.isolates,
        "now": now,
    }


def worker_row(row: Sequence[Any]) -> WorkerRow:
    """A row of workers.sql."""
    ident, name, started_at, alive_until, dead, idle, queues, types, concurrency, running = row
    return WorkerRow(
        id=UUID(ident),
        name=name,
        started_at=moment(started_at),
        alive_until=moment(alive_until),
        dead=bool(dead),
        idle=bool(idle),
        queues=None if queues is None else msgspec.json.decode(queues, type=tuple[str, ...]),
        types=msgspec.json.decode(types, type=tuple[str, ...]),
        concurrency=concurrency,
        running=running,
    )


def waiting(row: Sequence[Any]) -> Waiting:
    """A row of waiting.sql."""
    need, pending, succeeded, signal, wake_at = row
    at = None if wake_at is None else moment(wake_at)
    return Waiting(need=need, pending=pending, succeeded=succeeded, signal=signal, wake_at=at)


def audit_row(row: Sequence[Any]) -> AuditRow:
    """A row of audit.sql."""
    number, at, action, actor, ident, type, queue, tenant, reason, subject = row
    return AuditRow(
        number=number,
        at=moment(at),
        action=action,
        actor=actor,
        job=None if ident is None else UUID(ident),
        type=type,
        queue=queue,
        tenant=tenant,
        reason=reason,
        subject=subject,
    )


def remember(attempts: str | None, entry: str | None) -> str | None:
    """SQL function: `attempts` with `entry` at its end; the oldest ones go."""
    if entry is None:
        return attempts
    past = _past(attempts)
    return msgspec.json.encode([*past, msgspec.Raw(entry.encode())][-REMEMBERED:]).decode()


def _past(attempts: str | None) -> list[msgspec.Raw]:
    """What is there already. What is of another shape was not written here: it is kept as the first of them."""
    if attempts is None:
        return []
    try:
        return msgspec.json.decode(attempts, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return [msgspec.Raw(attempts.encode())]
    except msgspec.DecodeError:  # no JSON at all
        return [msgspec.Raw(msgspec.json.encode(attempts))]


def crash(attempt: int, now: int) -> str:
    """SQL function: what a rescue writes as the error of the attempt whose worker went silent."""
    failure = Failure(
        type="WorkerDied",
        message="the worker that held this job died or lost its lease",
        attempt=attempt,
        attempted_at=moment(now),
    )
    return msgspec.json.encode(failure).decode()
