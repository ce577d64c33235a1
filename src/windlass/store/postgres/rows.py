"""Converts between PostgreSQL's rows and Windlass's values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from windlass.model.flow import Advance
from windlass.model.job import COLUMNS, Job, NewJob
from windlass.model.outcome import Transition
from windlass.model.processors import decode_pools, pool_rows, processor_rows
from windlass.model.rows import JobState, WorkerRow
from windlass.model.state import State, target
from windlass.store.parts.consequences import is_simple
from windlass.store.postgres.floors import Lane

encoder = msgspec.json.Encoder()

WIDTH = len(COLUMNS)
STATUS = COLUMNS.index("status")
STATES = {state.value: state for state in State}

COPY_COLUMNS = ("id", "tenant", "queue", "type", "priority", "input", "max_attempts", "phase", "trace", "limits")


def job(record: Sequence[Any]) -> Job:
    values = list(record[:WIDTH])
    values[STATUS] = STATES[values[STATUS]]
    return Job(*values)


def job_to_show(record: Sequence[Any]) -> Job:
    """A job that is only shown. The driver returns an infinite time as the first or last there is, without a zone."""
    values = [
        value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
        for value in record[:WIDTH]
    ]
    return job(values)


def job_state(record: Sequence[Any]) -> JobState:
    """A record of the statement `states`."""
    id, tenant, status, attempt, total, processed, failed, updated_at = record
    at = updated_at if updated_at.tzinfo is not None else updated_at.replace(tzinfo=UTC)  # infinite: as in job_to_show
    return JobState(
        id=id,
        tenant=tenant,
        state=STATES[status],
        attempt=attempt,
        total=total,
        processed=processed,
        failed=failed,
        updated_at=at,
    )


def claim_order(job: Job) -> tuple[Any, ...]:
    return (job.phase_rank, -job.priority, job.run_at, job.id)


def creation_order(job: Job) -> tuple[Any, ...]:
    return (job.phase_rank, -job.priority, job.created_at, job.id)


def lane(record: Any) -> Lane:
    return Lane(record["phase_rank"], record["urgency"], record["queue"], record["tenant"], record["limited"])


def is_plain(job: NewJob) -> bool:
    """Whether COPY may insert the job: the table's defaults fill all other columns."""
    return (
        is_simple(job)
        and job.is_due_at_once
        and job.key is None
        and job.follow_ups is None
        and job.parent is None
        and job.pipeline is None
        and job.phase is None
        and job.phase_rank == 0
        and job.copied_from is None
    )


def copy_row(job: NewJob) -> tuple[Any, ...]:
    return (
        job.id, job.tenant, job.queue, job.type, job.priority, job.input, job.max_attempts, job.queue, job.trace,
        job.limits or None,
    )  # fmt: skip


async def copy(connection: Any, jobs: Sequence[NewJob], *, published: bool) -> None:
    """COPY the jobs. `published`, in a transaction: their enqueue publishes them, and the outbox needs no rows."""
    if published:  # COPY writes no computed time, and so not the mark that other enqueues write
        await connection.execute("SET LOCAL windlass.published = 'on'")
    await connection.copy_records_to_table(
        "jobs", schema_name="windlass", columns=COPY_COLUMNS, records=map(copy_row, jobs)
    )


def finish_arguments(transitions: Sequence[Transition], *, reach: int) -> tuple[Any, ...]:
    """The parameters of `finish` and `finish_with_slots`."""
    return (
        [t.lease.job for t in transitions],
        [t.lease.token for t in transitions],
        [target(t.verb) for t in transitions],
        [t.output for t in transitions],
        [t.error for t in transitions],
        [t.entry for t in transitions],
        [t.elapsed for t in transitions],
        [t.total for t in transitions],
        [t.processed for t in transitions],
        [t.failed for t in transitions],
        [t.cost_cents for t in transitions],
        [t.attempt for t in transitions],
        [t.reason for t in transitions],
        [t.action for t in transitions],
        reach,
    )


def finish_staying_arguments(transitions: Sequence[Transition], *, reach: int) -> tuple[Any, ...]:
    """The parameters of `finish_staying`."""
    return (
        [t.lease.job for t in transitions],
        [t.lease.token for t in transitions],
        [target(t.verb) for t in transitions],
        [t.delay for t in transitions],
        [t.attempt for t in transitions],
        [t.crashes for t in transitions],
        [t.error for t in transitions],
        [t.entry for t in transitions],
        [t.reason for t in transitions],
        [t.total for t in transitions],
        [t.processed for t in transitions],
        [t.failed for t in transitions],
        [t.cost_cents for t in transitions],
        [t.elapsed for t in transitions],
        [t.action for t in transitions],
        reach,
        [t.fingerprint for t in transitions],
    )


def advance_arguments(transitions: Sequence[tuple[Transition, Advance]]) -> tuple[Any, ...]:
    """The parameters of `advance`."""
    return (
        [t.lease.job for t, _ in transitions],
        [t.lease.token for t, _ in transitions],
        [to.type for _, to in transitions],
        [to.queue for _, to in transitions],
        [to.phase for _, to in transitions],
        [to.phase_rank for _, to in transitions],
        [to.max_attempts for _, to in transitions],
        [t.output for t, _ in transitions],
        [t.entry for t, _ in transitions],
        [t.total for t, _ in transitions],
        [t.processed for t, _ in transitions],
        [t.failed for t, _ in transitions],
        [t.cost_cents for t, _ in transitions],
        [t.elapsed for t, _ in transitions],
        [t.delay for t, _ in transitions],
        [encode(to.limits) if to.limits else None for _, to in transitions],
    )


def encode(value: object) -> str:
    return encoder.encode(value).decode()


def worker(record: Any) -> WorkerRow:
    values = dict(record)
    values["types"] = tuple(values["types"])
    values["queues"] = None if values["queues"] is None else tuple(values["queues"])
    pools = decode_pools(values.pop("pools"))
    return WorkerRow(**values, pools=pool_rows(pools), processors=processor_rows(pools, values["reported_at"]))
