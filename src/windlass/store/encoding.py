"""New jobs as the one JSON text that the enqueue statement takes, whichever driver carries it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.job import NewJob


class Row(msgspec.Struct, frozen=True):
    """A `NewJob` whose input is embedded as JSON instead of being quoted once more; the same fields."""

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


FIELDS = Row.__struct_fields__
INPUT, RUN_AT = FIELDS.index("input"), FIELDS.index("run_at")
ENCODER = msgspec.json.Encoder()


def encode_jobs(jobs: Sequence[NewJob]) -> str:
    """A JSON array with one object per job: ids as text, times in RFC 3339 and UTC, the input as it is."""
    return ENCODER.encode([_row(job) for job in jobs]).decode()


def _row(job: NewJob) -> Row:
    values = [getattr(job, field) for field in FIELDS]
    values[INPUT] = msgspec.Raw(job.input)
    if job.run_at is not None:
        values[RUN_AT] = job.run_at.astimezone(UTC)  # SQLite cannot read an offset and takes the time for UTC
    return Row(*values)
