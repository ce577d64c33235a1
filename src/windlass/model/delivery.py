"""What the outbox holds, and what became of deliveries: plain values of the delivery through a broker."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.model.job import Job, NewJob


class DeliveryMode(StrEnum):
    """How a job that becomes claimable reaches the broker."""

    OUTBOX = "outbox"  # a row of the outbox commits with it, and a relay publishes that
    DIRECT = "direct"  # an enqueue publishes jobs that are due at once after its commit; all others use the outbox


class OutboxKind(StrEnum):
    """What a row of the outbox is for."""

    DELIVER = "deliver"
    DEAD = "dead"  # a copy for the broker's dead-letter queue


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A leased row of the outbox, with what its envelope needs of the job as it is now."""

    id: int
    kind: OutboxKind
    job: UUID
    queue: str
    priority: int
    type: str
    input: str  # JSON, as it is stored
    trace: str | None
    created_at: datetime
    attempt: int  # that this delivery is for; the first is 1. Of a dead job: its last
    max_attempts: int
    reason: str | None = None  # of a dead job

    @classmethod
    def delivery_of(cls, job: Job | NewJob, *, created_at: datetime, attempt: int) -> OutboxRow:
        """The row that the outbox would have for the next delivery of a job."""
        return cls(
            id=0,
            kind=OutboxKind.DELIVER,
            job=job.id,
            queue=job.queue,
            priority=job.priority,
            type=job.type,
            input=job.input,
            trace=job.trace,
            created_at=created_at,
            attempt=attempt,
            max_attempts=job.max_attempts,
        )


class LeasedOutbox(msgspec.Struct, frozen=True, kw_only=True):
    """What a relay got. Rows of jobs that are not claimable any more were deleted by the same statement."""

    rows: list[OutboxRow]
    dropped: int = 0
    next_due: float | None = None  # seconds until the next row is due; None: there is none, or rows are due now


class RefusalReason(StrEnum):
    """Why a job that a delivery named was not claimed."""

    GONE = "gone"  # there is no such job
    FINISHED = "finished"  # succeeded, dead
    CANCELLED = "cancelled"
    OWNED = "owned"  # running
    WAITING = "waiting"
    UNKNOWN_TYPE = "unknown type"  # put back: delivered again when a worker that knows it is alive
    OTHER_QUEUE = "other queue"  # this worker does not serve the job's queue; put back as above
    CLOSED = "closed"  # a gate or a spent budget; put back: delivered again when it opens
    NOT_DUE = "not due"  # put back: delivered when it is due
    LIMITED = "limited"  # parked on a full limit or an empty bucket: unparking delivers it again
    SUSPECT = "suspect"  # held by a worker that died: claimed by the poll, which isolates it
    BUSY = "busy"  # its row or a counter is locked by another transaction; put back: delivered again soon


PUBLISHED_BY_ENQUEUE = -1e-6
"""The delay, in seconds, of a job that its enqueue publishes (`direct`). The trigger of the outbox knows by it that the
row needs no relay; jobs that are written in any other way, as by a schedule or a follow-up, have none of it."""


class DeliveredClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs that deliveries named."""

    jobs: list[Job]  # leased to this worker
    refused: dict[UUID, RefusalReason]
    next_token: float | None = None  # seconds until a bucket has a token for a job that was parked: a rescan unparks it


class UndeliveredAction(StrEnum):
    """What the sweep does with a job that has been due and undelivered for too long."""

    PUBLISH = "publish"
    FAIL = "fail"  # it is dead, with the reason `undelivered`
