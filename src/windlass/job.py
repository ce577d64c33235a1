"""The record of a job, the new job on its way in, and the lease that lets one worker finish one attempt."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from windlass.errors import JobNotFound
from windlass.state import State

DEFAULT_QUEUE = "default"
DEFAULT_TENANT = "default"


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job on its way in: what the enqueue decides. The store adds times, state and fence."""

    id: UUID
    type: str
    input: str  # a JSON object, already checked against the profile
    queue: str = DEFAULT_QUEUE
    tenant: str = DEFAULT_TENANT
    priority: int = 0
    max_attempts: int = 4
    delay: float | None = None  # seconds from the statement's time; excludes run_at
    run_at: datetime | None = None
    key: str | None = None
    parent: UUID | None = None
    pipeline: str | None = None
    phase: str | None = None  # None: the queue is the phase
    phase_rank: int = 0  # an earlier phase is served first
    trace: str | None = None  # a W3C traceparent
    copied_from: UUID | None = None


class Job(msgspec.Struct, frozen=True):
    """One row, as a store tells it. Positional, in the order of `COLUMNS`: it is built for every claimed job."""

    id: UUID
    tenant: str
    queue: str
    type: str
    status: State
    priority: int
    input: str
    output: str | None
    error: str | None
    cost_cents: int
    attempt: int
    max_attempts: int
    crashes: int
    rescues: int
    run_at: datetime
    token: UUID | None
    fence: int
    worker: UUID | None
    claimed_at: datetime | None
    key: str | None
    parent: UUID | None
    pipeline: str | None
    phase: str
    phase_rank: int
    total: int | None
    processed: int
    failed: int
    trace: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    cancel_requested: bool
    reason: str | None
    copied_from: UUID | None
    attempts: str | None
    """A JSON array of `Attempt`s that ended otherwise than by a silent first success; None where there is none."""

    @property
    def lease(self) -> Lease:
        """The lease under which this row was claimed."""
        assert self.token is not None, "only a claimed job has a lease"
        return Lease(self.id, self.token, self.fence)

    @property
    def suspect(self) -> bool:
        """A worker died while it held this job: it runs in a process of its own until it clears itself."""
        return self.crashes > 0

    def arguments(self) -> dict[str, Any]:
        """The input, decoded without the handler's hints."""
        decoded: dict[str, Any] = msgspec.json.decode(self.input)
        return decoded


COLUMNS = Job.__struct_fields__


class Lease(msgspec.Struct, frozen=True):
    """The right to finish one attempt: the token is compared for equality, the fence only orders."""

    job: UUID
    token: UUID
    fence: int


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"attempted_at": "attemptedAt"}):
    """An error as it is stored: on the job the last one, on each attempt its own."""

    type: str
    message: str
    attempt: int
    attempted_at: datetime
    traceback: str | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is told afterwards of one attempt."""

    attempt: int
    fence: int
    worker: UUID | None
    started_at: datetime | None
    finished_at: datetime
    outcome: str
    error: Failure | None = None
    log: list[str] = []


def new_id() -> UUID:
    """A UUIDv7: 48 bits of milliseconds, 12 of their fraction, 62 random ones.

    The fraction is a quarter of a microsecond, so that the jobs of one enqueue_many sort in the order of their calls.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    noise = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1
    return UUID(int=(milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | noise)


def parse_id(text: str | UUID) -> UUID:
    """A job id as somebody typed it."""
    if isinstance(text, UUID):
        return text
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError):
        raise JobNotFound(
            f"{text!r} is not a job id: expected a UUID such as {new_id()}, as an enqueue returns it"
        ) from None
