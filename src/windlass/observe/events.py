"""Events: typed values of what happened. Logs, metrics and traces subscribe; no decision depends on them.

`subscribers.py` has the way from `app.on_event(…)` to the worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
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
    delay: float | None = None  # seconds until the job is due again, after a failure or a snooze
    flow: Flow | None = None  # what the job waits for, or its next phase
    error_type: str | None = None  # "ValueError", "shop.OutOfStock", "Timeout"
    message: str | None = None  # of the error
    traceback: str | None = None  # as it is stored with the job
    exception: BaseException | None = None  # where the handler ran in this process: a coroutine or a thread
    retry_at: datetime | None = None  # when the next attempt is due, by the database's clock; None: there is none

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


class WorkerStarted(msgspec.Struct, frozen=True):
    """A worker is registered and claims jobs."""

    worker: UUID
    name: str


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


Event = (
    AttemptStarted
    | AttemptEnded
    | JobChanged
    | LeasesLost
    | JobsRescued
    | WorkerStarted
    | WorkerStopped
    | BrokerLost
    | BrokerBack
    | DeliveriesRefused
    | OutboxPublished
    | UndeliveredFound
)
