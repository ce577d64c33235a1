"""Events: typed values of what happened. Logs, metrics and traces subscribe; no decision depends on them."""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.model.flow import Flow
from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.model.state import State


class JobStarted(msgspec.Struct, frozen=True):
    """A processor begins an attempt."""

    job: Job
    processor: str


class JobEnded(msgspec.Struct, frozen=True):
    """An attempt ended; its transition is not committed yet."""

    job: Job
    processor: str
    ending: Ending
    elapsed: float
    error: str | None
    delay: float | None
    flow: Flow | None = None  # what the job waits for, or its next phase


class JobFinished(msgspec.Struct, frozen=True):
    """A transition is committed: the job is now in `state`."""

    job: UUID
    state: State


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
    """A worker is registered in the store and begins to claim."""

    worker: UUID
    name: str


class WorkerStopped(msgspec.Struct, frozen=True):
    """A worker has stopped."""

    worker: UUID
    name: str


Event = JobStarted | JobEnded | JobFinished | LeasesLost | JobsRescued | WorkerStarted | WorkerStopped
