"""The record of a job, a new job before it is stored, and the lease: the right to finish one attempt."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

import msgspec

from windlass.errors import JobNotFound
from windlass.model.state import State

DEFAULT_QUEUE = "default"
DEFAULT_TENANT = "default"

UNREADABLE = "unreadable"  # the type of an error that is not in the form Windlass writes
ABANDONED = "Abandoned"  # the type of the error of a job whose wait cannot be met any more
UNDELIVERED = "undelivered"  # the reason of a job that no delivery of the broker brought to a worker
LAST_OUTCOMES = ("raised", "timeout", "retry", "dead", "crashed")  # of attempts after which a job may be dead


class Policy(StrEnum):
    """What a bad end (dead, cancelled or gone) of an awaited job means for the job that waits."""

    COUNT = "count"  # `ctx.wait`: no success; the wait fails when its need cannot be met any more
    FAIL = "fail"  # a graph's node dies too
    SKIP = "skip"  # a graph's node is cancelled, as skipped
    CONTINUE = "continue"  # the end counts like a success


EdgePolicy = Literal["fail", "skip", "continue"]
"""The policies that a program names, for an edge of a graph and for a batch."""


class Edge(msgspec.Struct, frozen=True):
    """One awaited job."""

    awaited: UUID
    policy: Policy = Policy.COUNT


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiting job waits for. The job is woken when the need is met, or as soon as it cannot be met any more."""

    edges: tuple[Edge, ...] = ()
    need: int = 0  # number of edges that must succeed
    signal: str | None = None  # …or this signal must be sent
    delay: float | None = None  # …and after this many seconds the job is woken in any case
    batch: bool = False  # the waiting job's own counters count its edges


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key that refuses a second job. The refused enqueue returns the job that holds the key."""

    scope: str  # `unique/<tenant>/<type>`, `idempotency/<tenant>[/call]`; `*` when all tenants share it
    key: str
    states: tuple[str, ...] | None = None  # the key refuses while its job is in one of these; None: in any state
    window: float | None = None  # seconds from the enqueue for which the key refuses; None: no end
    forever: bool = False  # the key outlives its job's history
    fingerprint: str | None = None  # of type and input: the same key with another fingerprint is an error


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is not stored yet: what the enqueue decides. The store adds times, state and fence."""

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
    unique: Key | None = None
    idempotency: Key | None = None
    follow_ups: str | None = None  # JSON of `flow.FollowUps`
    wait: Wait | None = None  # a graph's node starts as `waiting`
    links: tuple[tuple[str, UUID], ...] = ()  # names of the jobs it depends on
    limits: tuple[str, ...] = ()  # keys of limits and rates that it counts against

    @property
    def is_due_at_once(self) -> bool:
        """Whether it is claimable as soon as it is written; a marked job (PUBLISHED_BY_ENQUEUE) has a delay below 0."""
        return (self.delay or 0) <= 0 and self.run_at is None and self.wait is None

    @property
    def followed(self) -> bool:
        """Whether the job's end changes other rows too."""
        return self.unique is not None or self.follow_ups is not None or self.wait is not None


class Job(msgspec.Struct, frozen=True):
    """The record of a job, as `job.record()` returns it.

    `input`, `output`, `error` and `attempts` are JSON text as it is stored, with every digit of its numbers.
    `arguments()`, `result()`, `failure()` and `attempts_made()` decode them. `document()` is the whole record for JSON.
    """

    # Positional, in the order of COLUMNS, for speed: one is made for every claimed job.

    id: UUID
    tenant: str
    queue: str
    type: str
    status: State
    priority: int  # a higher number is claimed first
    input: str  # a JSON object; `arguments()` decodes it
    output: str | None  # the result as JSON
    error: str | None  # the last error, a `Failure` as JSON
    cost_cents: int  # of all attempts
    attempt: int  # counted attempts, the running one included
    max_attempts: int
    crashes: int  # deaths of a process that may be the job's fault
    rescues: int  # how often a sweep released the job of a dead worker
    run_at: datetime  # when it is due
    token: UUID | None  # of the lease
    fence: int  # grows with each claim
    worker: UUID | None  # that holds the lease
    claimed_at: datetime | None
    key: str | None  # its unique key
    parent: UUID | None  # the job that spawned it, or the callback of its batch
    pipeline: str | None
    phase: str  # of its pipeline; else the queue
    phase_rank: int  # the place of its phase in the pipeline
    total: int | None  # progress: see `ctx.progress`
    processed: int
    failed: int
    trace: str | None  # a W3C traceparent
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    cancel_requested: bool  # a cancel waits for its handler to stop
    reason: str | None  # why it is dead or cancelled
    copied_from: UUID | None
    attempts: str | None
    """A JSON array of `Attempt`s, without a first attempt that succeeded and logged nothing; None: there is none."""
    followed: bool = False  # its end changes other rows: a waiting job, a key, a follow-up, a child
    follow_ups: str | None = None  # as JSON, by `dead`, `cancelled` and `succeeded`
    limits: list[str] | None = None  # keys of limits and rates that it counts against
    parked_on: str | None = None  # the key that was full when a claim last tried the job
    fingerprint: str | None = None  # of the last error: jobs with the same one are a group of `app.errors()`

    @property
    def lease(self) -> Lease:
        """The lease under which this row was claimed."""
        assert self.token is not None, "only a claimed job has a lease"
        return Lease(self.id, self.token, self.fence)

    @property
    def suspect(self) -> bool:
        """Whether a worker died while it held this job: it runs in its own process until it has run without harm."""
        return self.crashes > 0

    @property
    def retries(self) -> int:
        """How many retries the job was given: 0 until its first attempt has failed, and 1 from then on.

        A job that is dead after four attempts had 3. Snoozes, releases and waits are no retries. A phase of a pipeline
        and a replay count from 0.
        """
        if self.status in (State.RUNNING, State.SUCCEEDED):
            return max(self.attempt - 1, 0)  # this attempt has not failed
        if self.status is not State.DEAD:
            return self.attempt  # of attempts that failed; any other attempt was taken off again
        if self.reason == UNDELIVERED:
            return self.attempt  # the last retry did not begin
        for last in reversed(self.attempts_made()):
            if last.fence == self.fence and last.outcome in LAST_OUTCOMES:
                return max(last.attempt - 1, 0)
        failure = self.failure()
        uncounted = self.reason == "crashed" or (failure is not None and failure.type == ABANDONED)
        return self.attempt if uncounted else max(self.attempt - 1, 0)

    def arguments(self) -> dict[str, Any]:
        """The input as plain JSON, without the handler's hints: `job.record().arguments()["to"]`."""
        decoded: dict[str, Any] = msgspec.json.decode(self.input)
        return decoded

    def result(self) -> Any:
        """The output, decoded without the handler's hints; `find(id).result()` decodes it by them. None: no output."""
        return None if self.output is None else msgspec.json.decode(self.output)

    def failure(self) -> Failure | None:
        """The last error; None: no attempt has failed. An error in another form becomes the message."""
        if self.error is None:
            return None
        try:
            return msgspec.json.decode(self.error, type=Failure)
        except (msgspec.MsgspecError, ValueError):
            return Failure(type=UNREADABLE, message=self.error, attempt=self.attempt, attempted_at=self.updated_at)

    def failures(self) -> list[Failure]:
        """The recorded errors, the last one first."""
        last = self.failure()
        earlier = [attempt.error for attempt in reversed(self.attempts_made()) if attempt.error is not None]
        return earlier if last is None else [last, *earlier]

    def attempts_made(self) -> list[Attempt]:
        """The recorded attempts, oldest first: without a first attempt that succeeded and logged nothing."""
        return attempts_in(self.attempts)

    def document(self) -> dict[str, Any]:
        """The job as a dict of plain JSON values, for an HTTP API: what `windlass jobs show --json` prints of it.

        Ids and times are text. The input, output, error, attempts and follow-ups are decoded. The token of the lease is
        left out. docs/cli.md lists the fields.
        """
        fields = {
            "id": self.id,
            "type": self.type,
            "state": self.status,
            "label": None,  # of a row, and of the command line
            "queue": self.queue,
            "tenant": self.tenant,
            "priority": self.priority,
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "retries": self.retries,
            "crashes": self.crashes,
            "rescues": self.rescues,
            "reason": self.reason,
            "fingerprint": self.fingerprint,
            "cancel_requested": self.cancel_requested,
            "worker": self.worker,
            "fence": self.fence,
            "key": self.key,
            "parent": self.parent,
            "copied_from": self.copied_from,
            "pipeline": self.pipeline,
            "phase": self.phase,
            "trace": self.trace,
            "cost_cents": self.cost_cents,
            "limits": self.limits or [],
            "parked_on": self.parked_on,
            "progress": {"total": self.total, "processed": self.processed, "failed": self.failed},
            "created_at": self.created_at,
            "run_at": self.run_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "updated_at": self.updated_at,
        }
        plain: dict[str, Any] = msgspec.to_builtins(fields)
        return plain | {name: _decode(text) for name, text in stored_documents(self).items()}


COLUMNS = Job.__struct_fields__


def stored_documents(job: Job) -> dict[str, str | None]:
    """The texts of a record that are JSON, by their names in `job.document()`."""
    return {
        "input": job.input,
        "output": job.output,
        "error": job.error,
        "attempts": job.attempts or "[]",
        "follow_ups": job.follow_ups or "{}",
    }


def _decode(text: str | None) -> Any:
    """What a stored text contains; a text that is no JSON, or has a number that Python cannot hold, stays a text."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return text


class Lease(msgspec.Struct, frozen=True):
    """The right to finish one attempt: the token is compared for equality, the fence only orders attempts."""

    job: UUID
    token: UUID
    fence: int


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"attempted_at": "attemptedAt"}):
    """An error as it is stored: the last error on the job, and each attempt's own error on the attempt."""

    type: str
    message: str
    attempt: int
    attempted_at: datetime
    traceback: str | None = None

    def __str__(self) -> str:
        """The type and the message: `ValueError: no`; the type alone when there is no message."""
        return f"{self.type}: {self.message}" if self.message else self.type


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one ended attempt."""

    attempt: int
    fence: int
    worker: UUID | None
    started_at: datetime | None
    finished_at: datetime
    outcome: str
    phase: str | None = None  # of a pipeline
    trace: str | None = None  # the W3C traceparent of this attempt, where it was traced
    error: Failure | None = None
    log: list[str] = []


def attempts_in(text: str | None) -> list[Attempt]:
    """The attempts in a job's row. A value of another shape was not written by Windlass, and is left out."""
    attempts: list[Attempt] = []
    with suppress(msgspec.DecodeError):
        for entry in msgspec.json.decode(text or "[]", type=list[msgspec.Raw]):
            with suppress(msgspec.DecodeError):
                attempts.append(msgspec.json.decode(entry, type=Attempt))
    return attempts


def new_id() -> UUID:
    """A UUIDv7: 48 bits of milliseconds, 12 of their fraction, 62 random ones.

    The fraction's unit is a quarter of a microsecond, so the jobs of one enqueue_many sort in the order of their calls.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    noise = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1
    return UUID(int=(milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | noise)


def parse_id(text: str | UUID) -> UUID:
    """The id that a user typed, as a UUID."""
    if isinstance(text, UUID):
        return text
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError):
        hint = "; write: app.find(job.id)" if isinstance(getattr(text, "id", None), UUID) else ""
        raise JobNotFound(
            f"{text!r} is not a job id: expected a UUID such as {new_id()}, as an enqueue returns it{hint}"
        ) from None
