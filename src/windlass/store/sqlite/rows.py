"""Rows and parameters as SQLite has them: ids as text, times as microseconds since the epoch, JSON as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.model.flow import Waiting
from windlass.model.job import COLUMNS, Job, Lease
from windlass.model.processors import decode_pools, pool_rows, processor_rows
from windlass.model.reports.error_groups import FailedJob
from windlass.model.rows import AuditRow, JobState, WorkerRow
from windlass.model.state import State, sources, target
from windlass.store.migrate import newest
from windlass.store.protocol import NewWorker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windlass.model.flow import Advance
    from windlass.model.outcome import Progress, Transition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000  # in microseconds

IDENT, TOKEN, FENCE = (COLUMNS.index(name) for name in ("id", "token", "fence"))
UUIDS = frozenset({"id", "token", "worker", "parent", "copied_from"})
TIMES = frozenset({"run_at", "claimed_at", "created_at", "started_at", "finished_at", "updated_at"})

PARAMETER = re.compile(
    r"""
      '(?:[^']|'')*'        # a string
    | "(?:[^"]|"")*"        # a quoted name
    | `[^`]*` | \[[^\]]*\]  # …as other databases quote it
    | --[^\n]*              # a comment
    | /\*.*?(?:\*/|\Z)      # …over several lines
    | \w+\$\w*              # a name may hold a dollar
    | [$?](\d+)            # a parameter
    """,
    re.VERBOSE | re.DOTALL,
)

Parameters = dict[str, Any]

decode_keys = msgspec.json.Decoder(list[str]).decode


def micros(moment: datetime) -> int:
    """A time as it is stored. It is computed in whole numbers: a float would lose the last digits."""
    return (moment - EPOCH) // MICROSECOND


def moment(value: int) -> datetime:
    """A stored time. Outside the years 1 to 9999, which Windlass never writes, it is the first or the last possible."""
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if value > 0 else datetime.min.replace(tzinfo=UTC)


def span(seconds: float) -> int:
    """A duration in microseconds."""
    return round(seconds * SECOND)


def array(values: Iterable[object]) -> str:
    """A JSON array, as `json_each` reads it."""
    return msgspec.json.encode([str(value) for value in values]).decode()


@lru_cache(maxsize=512)
def numbered(sql: str) -> str:
    """`sql` with a name for every parameter `$n` or `?n`: handlers write `$n` for both stores.

    Names, because sqlite3 raises for a sequence of values with `?n` from Python 3.14 on.
    """
    return PARAMETER.sub(lambda token: token[0] if token[1] is None else f":p{token[1]}", sql)


def named(values: Iterable[object]) -> dict[str, object]:
    """The values by the names that `numbered` gives."""
    return {f"p{place}": value for place, value in enumerate(values, start=1)}


def job(row: Sequence[Any]) -> Job:
    """A row in the order of `COLUMNS`."""
    values: list[Any] = [
        None if value is None else convert(value) for convert, value in zip(CONVERTERS, row, strict=True)
    ]
    return Job(*values)


def lease(row: Sequence[Any]) -> Lease:
    """The lease of a claimed row; other values of the row may be unreadable."""
    return Lease(UUID(row[IDENT]), UUID(row[TOKEN]), row[FENCE])


def keys_of(limits: str | None) -> list[str] | None:
    """The limit keys of a job. A value of another shape was not written by Windlass, and is ignored."""
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
    """The parameters of `finish`, `finish_staying` and `finish_cancelled`; the states come from `state.TRANSITIONS`."""
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
        "fingerprint": transition.fingerprint,
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
    """The parameters of `advance`."""
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
        "version": worker.version,
        "windlass": worker.windlass,
        "schema_number": newest("sqlite"),
        "now": now,
    }


def worker_row(row: Sequence[Any], now: int) -> WorkerRow:
    """A row of the statement `workers`."""
    (ident, name, started_at, alive_until, dead, idle, queues, types, concurrency, running, *about, held_at, text) = row
    version, windlass = about
    pools, reported_at = decode_pools(text), None if held_at is None else moment(held_at)
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
        now=moment(now),
        version=version,
        windlass=windlass,
        reported_at=reported_at,
        pools=pool_rows(pools),
        processors=processor_rows(pools, reported_at),
    )


def job_state(row: Sequence[Any]) -> JobState:
    """A row of the statement `states`."""
    ident, tenant, status, attempt, total, processed, failed, updated_at = row
    return JobState(
        id=UUID(ident),
        tenant=tenant,
        state=State(status),
        attempt=attempt,
        total=total,
        processed=processed,
        failed=failed,
        updated_at=moment(updated_at),
    )


def failed_job(row: Sequence[Any], now: int) -> FailedJob:
    """A row of the statement `errors`."""
    ident, fingerprint, status, queue, type, tenant, worker, at = row
    return FailedJob(
        id=UUID(ident),
        fingerprint=fingerprint,
        state=State(status),
        queue=queue,
        type=type,
        tenant=tenant,
        worker=None if worker is None else UUID(worker),
        at=moment(at),
        ago=(now - at) / SECOND,
    )


def waiting(row: Sequence[Any]) -> Waiting:
    """A row of the statement `waits_of_jobs`, without the job."""
    need, pending, succeeded, signal, wake_at = row
    at = None if wake_at is None else moment(wake_at)
    return Waiting(need=need, pending=pending, succeeded=succeeded, signal=signal, wake_at=at)


def audit_row(row: Sequence[Any]) -> AuditRow:
    """A row of the statement `audit`."""
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
