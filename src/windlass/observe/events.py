"""Events: typed values of what happened. Logs, metrics and traces subscribe; no decision depends on them.

`subscribers.py` has the way from `app.on_event(…)` to the worker. An event is made only if a subscriber wants its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.model.flow import Flow
from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.model.state import State


class AttemptStarted(msgspec.Struct, frozen=True):
    """A processor begins an attempt."""

    job: Job
    processor: str


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt ended; its transition is not committed yet: `JobChanged` follows when it is.

    The number of the attempt is `job.attempt`. An attempt without an error has no `error_type`.
    """

    job: Job
    processor: str
    ending: Ending
    elapsed: float  # seconds
    waited: float = 0.0  # seconds in this worker's memory, from the claim's answer to the start
    delay: float | None = None  # seconds until the job is due again, after a failure or a snooze
    flow: Flow | None = None  # what the job waits for, or its next phase
    error_type: str | None = None  # "ValueError", "shop.OutOfStock", "Timeout"
    message: str | None = None  # of the error
    traceback: str | None = None  # as it is stored with the job
    exception: BaseException | None = None  # where the handler ran in this process: a coroutine or a thread
    retry_at: datetime | None = None  # when the next attempt is due, by the database's clock; None: there is none

    @property
    def wait(self) -> float:
        """Seconds from when the job was due to the start of this attempt."""
        job = self.job
        due = 0.0 if job.claimed_at is None else (job.claimed_at - job.run_at).total_seconds()
        return max(0.0, due + self.waited)

    @property
    def will_retry(self) -> bool:
        """Whether the attempt failed and another one follows."""
        return self.retry_at is not None

    @property
    def error(self) -> str | None:
        """The error as one text: "ValueError: no such order"; None without an error."""
        return f"{self.error_type}: {self.message}" if self.error_type and self.message else self.error_type


class JobChanged(msgspec.Struct, frozen=True):
    """The end of an attempt is committed: the job is now in `state`.

    None: nothing was written, because the lease was lost; another worker may have the job.
    """

    id: UUID  # of the job
    state: State | None


class LeasesLost(msgspec.Struct, frozen=True):
    """This worker was declared dead, or was cut off from the store for too long; it dropped its jobs."""

    worker: UUID
    jobs: int


class JobsRescued(msgspec.Struct, frozen=True):
    """A sweep released the jobs of dead workers."""

    deaths: int
    rescued: int
    dead_after_crashes: int


class ReleaseReason(StrEnum):
    """Why jobs that had not started were released."""

    STOPPING = "the worker stops"
    CLOSED = "a gate, a budget or a hold stops them"
    STALE = "they waited in memory for too long"


class JobsReleased(msgspec.Struct, frozen=True):
    """Jobs that this worker had claimed and not started go back to their queue; no attempt is counted."""

    worker: UUID
    jobs: int
    reason: ReleaseReason


class JobRefused(msgspec.Struct, frozen=True):
    """A claimed job was not queued in memory, and goes back; no attempt is counted."""

    job: Job
    reason: str  # "it is being processed"


class PhaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a worker: its processors now, and what ended since the last report."""

    phase: str  # of a pipeline; of jobs without a pipeline, the name of their queue
    idle: int
    busy: int
    error: int
    in_memory: int  # jobs that are claimed and have not started
    succeeded: int = 0  # attempts
    failed: int = 0
    mean_run: float | None = None  # seconds; None: no attempt ended


class HealthReported(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is, each 30 s."""

    worker: UUID
    seconds: float  # since the last report, or the start
    phases: tuple[PhaseHealth, ...]
    reset: int = 0  # processors in error that became idle again, since the last report
    released: int = 0  # jobs that went back unstarted
    top_failures: tuple[tuple[str, int], ...] = ()  # limit keys (`domain:a.org`) of failed attempts, the most first

    @property
    def succeeded(self) -> int:
        """Attempts of all phases that succeeded since the last report."""
        return sum(phase.succeeded for phase in self.phases)

    @property
    def failed(self) -> int:
        """Attempts of all phases that failed since the last report."""
        return sum(phase.failed for phase in self.phases)


class WorkerStarted(msgspec.Struct, frozen=True):
    """A worker is registered and claims jobs."""

    worker: UUID
    name: str
    pools: tuple[tuple[str, int], ...] = ()  # each phase with the processors that it may use
    processors: int = 0  # that can work at the same time: the pools together, and no more than `concurrency`
    queues: tuple[str, ...] | None = None  # None: all
    pace: str = "eager"
    poll: float = 0.0  # seconds between two scans without a wake-up
    batch: int | None = None  # jobs per phase and claim at most
    assign_every: float = 0.0  # seconds; 0: at once
    assign_most: int | None = None  # per phase and round


class WorkerStopped(msgspec.Struct, frozen=True):
    """A worker has stopped: it claims nothing and runs nothing any more."""

    worker: UUID
    name: str


class BrokerLost(msgspec.Struct, frozen=True):
    """The connection to the broker broke: this worker polls the database until it is back."""

    broker: str  # its address, without a password


class BrokerBack(msgspec.Struct, frozen=True):
    """The broker answers again."""

    broker: str
    away: float  # seconds


class DeliveriesRefused(msgspec.Struct, frozen=True):
    """Deliveries that led to no claim, by reason: "finished", "owned", "not due", "undecodable", …"""

    reasons: Mapping[str, int]
    jobs: Mapping[UUID, str] = {}  # those that envelopes named, with the reason of each


class OutboxPublished(msgspec.Struct, frozen=True):
    """A relay of this worker published rows of the outbox."""

    published: int
    buried: int  # copies of dead jobs, in the broker's dead-letter queue
    unconfirmed: int  # they are published again
    dropped: int  # no envelope can be made of them; a poll claims their jobs


class UndeliveredFound(msgspec.Struct, frozen=True):
    """A sweep found jobs that were due and unclaimed for longer than the setting `undelivered`."""

    jobs: int
    action: str  # "publish" or "fail"


# Details: several per job or claim. Only a subscriber that names them gets them.


class JobsClaimed(msgspec.Struct, frozen=True, kw_only=True):
    """A claim was answered: this worker asked for `asked` jobs and got `got`."""

    worker: UUID
    types: tuple[str, ...] = ()  # of jobs, that it asked for: those of one phase, or all others
    asked: int
    got: int
    seconds: float  # until the answer
    rescan: bool
    in_memory: dict[str, int]  # jobs that wait for a processor, by phase, before these


class JobQueued(msgspec.Struct, frozen=True):
    """A claimed job waits in memory for a processor."""

    job: Job


class JobAssigned(msgspec.Struct, frozen=True):
    """A processor has the job; its attempt begins with the loop's next turn."""

    job: Job
    processor: str


Event = (
    AttemptStarted
    | AttemptEnded
    | JobChanged
    | LeasesLost
    | JobsRescued
    | JobsReleased
    | JobRefused
    | HealthReported
    | WorkerStarted
    | WorkerStopped
    | BrokerLost
    | BrokerBack
    | DeliveriesRefused
    | OutboxPublished
    | UndeliveredFound
)
Detail = JobsClaimed | JobQueued | JobAssigned
