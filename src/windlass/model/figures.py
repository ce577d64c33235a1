"""Figures: how many attempts ended in each way in a span of time, how long they ran, and how long they had waited.

A worker adds to its own row of the current span with the write that ends attempts. A leader folds the rows of a span
that is over into one row per queue and phase.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from windlass.model.rows import QueueRow

SPAN = 10  # seconds of one row, until the leader folds rows into minutes
BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    *(10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0),
)
"""Seconds at which the next bucket of a histogram begins. PostgreSQL has the same in windlass.histogram()."""


def bucket_of(seconds: float) -> int:
    """The bucket that a duration is counted in: 0 is below the first bound."""
    return bisect_right(BOUNDS, seconds)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The upper bound of the bucket in which this share of the durations is reached; None: there is none."""
    wanted, seen = share * sum(counts), 0
    for place, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return BOUNDS[min(place, len(BOUNDS) - 1)]
    return None


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """How long attempts ran and waited, as histograms."""

    runs: tuple[int, ...] = ()  # attempts by how long they ran, in the buckets of BOUNDS
    waits: tuple[int, ...] = ()  # by how long they had waited: from when the job was due to the start of its attempt

    @property
    def run_p50(self) -> float | None:
        """Half of the attempts ran for this many seconds at most."""
        return quantile(self.runs, 0.5)

    @property
    def run_p95(self) -> float | None:
        """Of 100 attempts, 95 ran for this many seconds at most."""
        return quantile(self.runs, 0.95)

    @property
    def wait_p50(self) -> float | None:
        """Half of the attempts had waited for this many seconds at most."""
        return quantile(self.waits, 0.5)

    @property
    def wait_p95(self) -> float | None:
        """Of 100 attempts, 95 had waited for this many seconds at most."""
        return quantile(self.waits, 0.95)


class FigureRow(Durations, frozen=True, kw_only=True):
    """What ended in one step of time, in one queue and phase."""

    at: datetime  # the start of the step
    queue: str
    phase: str
    succeeded: int
    advanced: int  # successes after which the job went on to its next phase
    failed: int  # failures after which the job is tried again
    dead: int
    cancelled: int
    run_seconds: float  # of all attempts together
    wait_seconds: float


READ = (*FigureRow.__struct_fields__[2:], "runs", "waits")
"""The columns of the statement `figures`, in its order."""


class PhaseDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one phase in the database. A number above `counted` means: there are more."""

    pipeline: str | None  # None: jobs without a pipeline, and the phase is their queue
    phase: str
    rank: int  # its place in the pipeline
    due: int
    running: int
    counted: int


class PhaseRow(Durations, frozen=True, kw_only=True):
    """A phase of a pipeline, or a queue with its jobs that are in no pipeline, with the figures of a span of time.

    Phases of one name share their processors, their jobs in memory and their figures, also in two pipelines.
    """

    pipeline: str | None  # None: jobs in no pipeline, and `phase` is their queue
    phase: str
    due: int  # queued and failed jobs that are due; a number above `counted` means that there are more
    running: int  # jobs that workers hold, in a processor or in memory
    in_memory: int  # jobs that live workers have claimed and not started
    idle: int  # processors of live workers
    busy: int
    error: int
    per_minute: float  # jobs that left the phase
    succeeded: int  # attempts, also those after which the job went on to its next phase
    failed: int  # attempts after which the job is tried again
    dead: int
    cancelled: int
    counted: int

    @property
    def retries(self) -> int:
        """Attempts that failed and are repeated."""
        return self.failed

    @property
    def success_rate(self) -> float | None:
        """The share of attempts that succeeded; None: no attempt has ended."""
        return share(self.succeeded, self.succeeded + self.failed + self.dead)

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed, whether or not a retry follows; None: no attempt has ended."""
        return share(self.failed + self.dead, self.succeeded + self.failed + self.dead)

    @property
    def error_rate(self) -> float | None:
        """The share of dead jobs among those that left the phase; None: no job has left it."""
        return share(self.dead, self.succeeded + self.dead + self.cancelled)


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


class DepthRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's jobs by state at one moment, as `app.queues()` counts them."""

    at: datetime
    queue: str
    queued: int
    running: int
    failed: int
    waiting: int
    dead: int
    lag: float | None


def merge_depths(counted: Iterable[tuple[str | None, str, int, int, int, int]]) -> list[PhaseDepth]:
    """The rows of the statement `phases`, one per phase: it counts due and running jobs apart.

    A program may have moved a phase to another place of its pipeline since: its jobs are added up at the first one.
    """
    found: dict[tuple[str | None, str], PhaseDepth] = {}
    for pipeline, phase, rank, due, running, most in counted:
        known = found.get((pipeline, phase))
        found[pipeline, phase] = PhaseDepth(
            pipeline=pipeline,
            phase=phase,
            rank=rank if known is None else min(rank, known.rank),
            due=min(most + 1, due + (0 if known is None else known.due)),
            running=min(most + 1, running + (0 if known is None else known.running)),
            counted=most,
        )
    return list(found.values())


SAMPLED = ("queue", "queued", "running", "failed", "waiting", "dead", "lag")


def depth_samples(queues: Sequence[QueueRow]) -> list[dict[str, Any]]:
    """The payload of the statement `sample_depths`."""
    rows = map(msgspec.structs.asdict, queues)
    return [{name: row[name] for name in SAMPLED} for row in rows]
