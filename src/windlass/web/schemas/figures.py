"""The answers about counts, queues, workers, types and what ended over time."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from windlass.model.admission import GateState
from windlass.model.rows import Liveness
from windlass.model.state import State
from windlass.web.schemas.base import (
    Answer,
)


class CountsDocument(Answer):
    """Jobs by state. A number above `counted` means: there are more than `counted`."""

    counts: dict[State, int]
    counted: int


class Figure(Answer):
    """What ended in one step of time, in one queue and phase."""

    at: datetime
    queue: str
    phase: str
    succeeded: int
    advanced: int
    failed: int
    dead: int
    cancelled: int
    run_seconds: float
    wait_seconds: float
    runs: list[int]
    waits: list[int]
    run_p50: float | None
    run_p95: float | None
    wait_p50: float | None
    wait_p95: float | None


class Figures(Answer):
    """Figures, oldest first. `runs` and `waits` count attempts by duration; `bounds` are the ends of the buckets."""

    bounds: list[float]
    figures: list[Figure]


class Depth(Answer):
    """A queue's jobs by state at one moment."""

    at: datetime
    queue: str
    queued: int
    running: int
    failed: int
    waiting: int
    dead: int
    lag: float | None


class Depths(Answer):
    """Samples, oldest first."""

    depths: list[Depth]


class QueueDocument(Answer):
    """A queue. A number above `counted` means: there are more than `counted`."""

    queue: str
    queued: int
    running: int
    failed: int
    waiting: int
    dead: int
    lag: float | None
    workers: int
    gate: GateState
    due: int
    counted: int


class WorkerDocument(Answer):
    """A worker."""

    id: UUID
    name: str
    state: Liveness
    queues: list[str] | None
    types: list[str]
    running: int
    concurrency: int
    started_at: datetime
    alive_until: datetime


class Queues(Answer):
    """All queues."""

    queues: list[QueueDocument]


class Workers(Answer):
    """All workers with a row."""

    workers: list[WorkerDocument]


class TypeDocument(Answer):
    """A job type, and the JSON Schema of its input."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    description: str | None
    parameters: dict[str, Any]
    local_only: str | None
    workers: int
    declared_here: bool


class Types(Answer):
    """The types of this program, and those that workers announced."""

    types: list[TypeDocument]
