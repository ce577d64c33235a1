"""Events: typed values that tell what happened. Logs, metrics and traces subscribe; no decision depends on them."""

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
    """An attempt ended; what follows is on its way to the store."""

    job: Job
    processor: str
    ending: Ending
    elapsed: float
    error: str | None
    delay: float | None
    flow: Flow | None = None  # what it waits for, or the phase it goes to


class JobFinished(msgspec.Struct, frozen=True):
    """A transition is committed: the job is now in `state`."""

    job: UUID
    state: State


class LeasesLost(msgspec.Struct, frozen=True):
    """This worker was declared dead, or cut off for too long; it dropped what it held."""

    worker: UUID
    jobs: int


class JobsRescued(msgspec.Struct, frozen=True):
    """A sweep gave back the jobs of dead workers."""

    deaths: int
    rescued: int
    dead_after_crashes: int


class WorkerStarted(msgspec.Struct, frozen=True):
    worker: UUID
    name: str


class WorkerStopped(msgspec.Struct, frozen=True):
    worker: UUID
    name: str


Event = JobStarted | JobEnded | JobFinished | LeasesLost | JobsRescued | WorkerStarted | WorkerStopped
