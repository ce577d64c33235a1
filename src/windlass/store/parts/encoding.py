"""New jobs as one JSON text: the parameter of the statement `enqueue`, the same for every driver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from windlass.model.job import NewJob


class EnqueueRow(msgspec.Struct, frozen=True):
    """The fields of a `NewJob`, with the input embedded as JSON instead of being quoted once more."""

    id: UUID
    type: str
    input: msgspec.Raw
    queue: str
    tenant: str
    priority: int
    max_attempts: int
    delay: float | None
    run_at: datetime | None
    key: str | None
    parent: UUID | None
    pipeline: str | None
    phase: str | None
    phase_rank: int
    trace: str | None
    copied_from: UUID | None
    follow_ups: msgspec.Raw | None
    followed: bool
    status: str
    key_scope: str | None
    limits: tuple[str, ...] | None


COPIED = EnqueueRow.__struct_fields__[:-5]  # fields of a NewJob that are copied unchanged
INPUT, RUN_AT, KEY = COPIED.index("input"), COPIED.index("run_at"), COPIED.index("key")
ENCODER = msgspec.json.Encoder()


def encode_jobs(jobs: Sequence[NewJob], awaited: Set[UUID] = frozenset()) -> str:
    """A JSON array with one object per job: ids as text, times in RFC 3339 and UTC, the input as it is.

    Another job waits for the end of each job in `awaited`.
    """
    return ENCODER.encode([_row(job, job.followed or job.id in awaited) for job in jobs]).decode()


def _row(job: NewJob, followed: bool) -> EnqueueRow:
    values = [getattr(job, field) for field in COPIED]
    values[INPUT] = msgspec.Raw(job.input)
    if job.unique is not None:
        values[KEY] = job.unique.key
    if job.run_at is not None:
        values[RUN_AT] = job.run_at.astimezone(UTC)  # SQLite cannot read an offset and takes the time for UTC
    follow_ups = None if job.follow_ups is None else msgspec.Raw(job.follow_ups)
    status = "queued" if job.wait is None else "waiting"
    scope = None if job.unique is None else job.unique.scope
    return EnqueueRow(*[*values, follow_ups, followed, status, scope, job.limits or None])
