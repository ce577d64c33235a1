"""What lists show: a row for each job, queue, worker and line of the audit, and why a job does not start.

The rows of limits, gates, budgets and tenants are in `admission.py`, those of schedules in `schedule.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.clock import SystemClock
from windlass.model.admission import GateState, LimitRow
from windlass.model.flow import Linked, Waiting
from windlass.model.job import Job
from windlass.model.processors import PoolRow, ProcessorRow
from windlass.model.state import State

if TYPE_CHECKING:
    from windlass.model.reports.story import Life

COUNTED = 10_000
"""The most jobs that are counted for one number of a list. 10,001 means: there are more."""


class WaitKind(StrEnum):
    """What keeps a job from starting."""

    TIME = "time"  # it is not due yet
    GATE = "gate"  # an operator paused everything, its queue, its type or its tenant
    BUDGET = "budget"  # the budget of its tenant or queue is spent
    WORKER = "worker"  # no live worker serves its queue
    TYPE = "type"  # no live worker of its queue knows its type
    LIMIT = "limit"  # the slots of a limit are taken
    RATE = "rate"  # no token of a rate is free
    HOLD = "hold"  # a limit or rate is held back
    BUSY = "busy"  # the workers that would run it have other jobs
    JOBS = "jobs"  # it waits for other jobs
    SIGNAL = "signal"  # it waits for a signal
    SLEEP = "sleep"  # it sleeps


class WaitReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not start: what keeps it, in words, and the command that helps."""

    kind: WaitKind
    name: str  # of what keeps it: `queue:mail`, `tenant:acme`, the key of a limit, a signal; empty for a time
    text: str  # `queue mail is paused by ann: the server moves`
    until: datetime | None = None  # when it ends by itself, where that is known
    command: str | None = None  # `windlass gates resume --queue mail`


class JobRow(Job, frozen=True):
    """A job in the list of `app.jobs(…)`: its record without the token, its label, and why it does not start."""

    label: str | None = None  # as the job's type or pipeline names the state; None: it has no name of its own
    why: WaitReason | None = None  # None: it runs, it has ended, or a worker may start it now

    def document(self) -> dict[str, Any]:
        """The job as a dict of plain JSON values, for an HTTP API: a job of `windlass jobs list --json`.

        Ids and times are text. The input, output, error, attempts and follow-ups are decoded. docs/cli.md lists the
        fields.
        """
        return super().document() | {"label": self.label, "why": msgspec.to_builtins(self.why)}

    def life(self, now: datetime | None = None) -> Life:
        """Where its time went, as this row tells it: `row.life().sums` has seconds by kind. It reads nothing.

        `now` is the end of the last part of a job that has not ended; without it, it is this machine's time.
        """
        from windlass.policy.reports.life import life_of

        return life_of(self, SystemClock().now() if now is None else now, self.why)


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is, without its input and output: one of the values of `app.states(ids)`."""

    id: UUID
    tenant: str
    state: State
    attempt: int  # counted attempts, the running one included
    total: int | None  # progress: see `ctx.progress`
    processed: int
    failed: int
    updated_at: datetime


class FoundJob(msgspec.Struct, frozen=True):
    """A job that a bulk action chose: what it needs of the record, so that 100,000 of them fit into memory."""

    id: UUID
    queue: str
    type: str
    status: State  # when it was chosen
    followed: bool = False  # its end changes other rows: a waiting job, a key, a follow-up, a child


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds about a job beside its own row."""

    reasons: Sequence[WaitReason]  # everything that keeps it from starting; what has to end first comes first
    waits: Waiting | None  # of a waiting job: the jobs, signal and time that it waits for
    links: Sequence[Linked]  # the first 1,000 jobs that it knows by name: its children, and the jobs it depends on
    foreign: frozenset[UUID]  # of the first links, the jobs that it did not create
    steps: Sequence[str]  # names of the steps, sleeps and waits for signals that it has behind it
    signals: Sequence[str]  # names of the signals that were sent to it
    audit: Sequence[AuditRow]  # newest first
    workers: Mapping[UUID, str]  # the names of the workers that still have a row
    linked: Mapping[State | None, int] = {}  # how many links are in each state, of 10,001 at most; None: gone


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a limit or rate, and the jobs at it."""

    limit: LimitRow
    holders: Sequence[Job]  # running jobs with a slot or token of it; those that hold it longest first
    waiters: Sequence[Job]  # parked jobs, in the order in which they become claimable
    workers: Mapping[UUID, str]  # the names of the workers that run the holders


class Liveness(StrEnum):
    """Whether a worker is alive, and whether it has jobs."""

    BUSY = "busy"
    IDLE = "idle"
    SILENT = "silent"  # its lease has expired, and no sweep has marked it dead yet
    DEAD = "dead"


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's row."""

    id: UUID
    name: str
    started_at: datetime
    alive_until: datetime
    dead: bool
    idle: bool
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    concurrency: int
    running: int  # leases it holds
    now: datetime  # the store's
    version: str | None = None  # of its program: the setting `version`
    windlass: str | None = None  # the version of Windlass
    reported_at: datetime | None = None  # its last beat: the time of what follows
    pools: tuple[PoolRow, ...] = ()  # only `app.workers()` reads these and the processors
    processors: tuple[ProcessorRow, ...] = ()  # 200 at most

    @property
    def in_memory(self) -> dict[str, int]:
        """The jobs that it has claimed and not started, by phase; phases without such jobs are left out."""
        return {pool.phase: pool.in_memory for pool in self.pools if pool.in_memory}

    @property
    def unlisted(self) -> int:
        """How many of its processors `processors` leaves out."""
        return sum(pool.idle + pool.busy + pool.error for pool in self.pools) - len(self.processors)

    @property
    def alive(self) -> bool:
        """Whether its lease is current."""
        return not self.dead and self.alive_until > self.now

    @property
    def state(self) -> Liveness:
        """Busy and idle workers are alive."""
        if self.dead:
            return Liveness.DEAD
        if not self.alive:
            return Liveness.SILENT
        return Liveness.BUSY if self.running or not self.idle else Liveness.IDLE

    def serves_queue(self, queue: str) -> bool:
        """Whether it is alive and claims jobs of this queue."""
        return self.alive and (self.queues is None or queue in self.queues)

    def serves(self, job: Job) -> bool:
        """Whether it is alive and claims jobs of this job's queue and type."""
        return self.serves_queue(job.queue) and job.type in self.types


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its jobs by state. A number above `counted` means: there are more."""

    queue: str
    queued: int
    running: int
    failed: int
    waiting: int
    dead: int
    lag: float | None  # seconds for which its oldest due job could have started
    workers: int = 0  # live ones that serve it; only `app.queues()` counts them
    gate: GateState = GateState.OPEN  # of the queue, or of everything; only `app.queues()` reads it
    due: int = 0  # jobs that could start now, parked ones included; only `app.queues()` counts them
    counted: int = COUNTED  # the most jobs that were counted for a number: 10,000 by the number of queues


class DueRow(msgspec.Struct, frozen=True):
    """How many jobs of a queue are due. A number above `counted` means: there are more."""

    queue: str
    due: int
    counted: int = COUNTED


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """A final transition, or an operation."""

    number: int
    at: datetime
    action: str  # JOB_SUCCEEDED, JOB_DEAD, …, or the action that a job's type declares
    actor: str | None  # None: the engine
    job: UUID | None
    type: str | None
    queue: str | None
    tenant: str | None
    reason: str | None
    subject: str | None = None  # what an operation changed, where it is no job: `queue:mail`, `schedule:nightly`


# Dead letters


class DeadKind(StrEnum):
    """What a dead letter is: a dead job of the store, or a message in the broker's dead-letter queue."""

    JOB = "job"
    LETTER = "letter"


class DeadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter: a dead job, or a message in the broker's dead-letter queue."""

    kind: DeadKind
    id: str  # the job's, or `letter:` and what the broker calls the message
    reason: str | None  # of a job, why it is dead; of a letter, why it was put aside
    error: str | None = None  # the last error of a job
    state: str  # of its job: dead, queued, …; gone: there is no such job; unreadable: the message is no envelope
    type: str | None = None
    queue: str | None = None
    at: datetime | None = None
    job: UUID | None = None  # that it is, or that its envelope names
    payload: str | None = None  # of a letter; bytes that are no UTF-8 are escaped


class DeadView(msgspec.Struct, frozen=True, kw_only=True):
    """What `app.dead_letters(…)` found."""

    rows: tuple[DeadRow, ...]
    problem: str | None = None  # why the broker's letters are not among them, where a broker is set

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.rows)


class DeadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay or a discard of dead letters did; after a dry run, what it would have done."""

    matched: int  # jobs and letters that were chosen
    changed: int = 0  # jobs that were replayed or discarded
    delivered: int = 0  # letters with jobs that could be claimed: the jobs were delivered again
    removed: int = 0  # messages that were removed from the broker, copies of changed jobs among them
    refused: tuple[tuple[str, str], ...] = ()  # ids, each with its reason
    problem: str | None = None  # why the broker's copies of changed jobs were not removed
