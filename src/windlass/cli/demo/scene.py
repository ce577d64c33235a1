"""The state of the show at a moment: from the store, from the workers' reports, and from the script.

A screen reads it at any time. Plain lines print each piece of news once: `take_news` returns what is new.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from windlass.cli.demo import program
from windlass.cli.demo.reports import Processors, Report, ReportedEnd, Rescued, Slot
from windlass.model.admission import LimitRow
from windlass.model.job import Job
from windlass.model.processors import ProcessorState
from windlass.model.rows import QueueRow
from windlass.model.schedule import TickOutcome, TickRow
from windlass.model.state import FINAL, State

KEPT = 200  # attempts, sentences and samples that are kept
UNREAD_MOST = 2_000  # pieces of news that are kept where the screen takes none
NOTHING: dict[str, Any] = {"queued": 0, "running": 0, "failed": 0, "waiting": 0, "dead": 0, "lag": None}
SAMPLE = 0.5  # seconds per column of the throughput


class Tone(StrEnum):
    """Whether a sentence is good or bad news."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"


class WorkerHealth(StrEnum):
    """The state of a worker process."""

    STARTING = "starting"
    ALIVE = "alive"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the story."""

    at: float  # seconds since the show began
    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class AttemptGroup:
    """An attempt that ended, or several in a row that succeeded: many successes must not push the others out."""

    last: ReportedEnd
    times: int = 1

    def add(self, next: ReportedEnd) -> AttemptGroup | None:
        """This group with one more attempt; None where that is of another kind."""
        same = next.type == self.last.type and next.state is self.last.state and next.is_good and self.last.is_good
        return AttemptGroup(next, self.times + 1) if same else None


@dataclass(slots=True)
class WorkerView:
    """A worker process, as its last report shows it."""

    number: int
    health: WorkerHealth = WorkerHealth.STARTING
    pid: int | None = None
    slots: Sequence[Slot] = ()

    def busy_with(self, type: str) -> str | None:
        """The id of a job of this type that the worker runs."""
        if self.health is WorkerHealth.ALIVE:
            for slot in self.slots:
                if slot.type == type and slot.state is ProcessorState.BUSY:
                    return slot.job
        return None


@dataclass(frozen=True, slots=True)
class PhaseCounts:
    """A phase of the orders' pipeline, and how many of them are in it, by state."""

    name: str
    counts: Mapping[State, int]

    @property
    def jobs(self) -> int:
        return sum(self.counts.values())


@dataclass(slots=True)
class Throughput:
    """Jobs that ended per second, sample by sample."""

    samples: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))  # jobs per second
    peak: float = 0.0
    _at: float | None = None
    _ended: int = 0

    def count(self, ended: int, now: float) -> None:
        """`ended` jobs have ended by now; at most one sample is taken per SAMPLE."""
        if self._at is None:
            self._at, self._ended = now, ended
        elif now - self._at >= SAMPLE:
            self.samples.append((ended - self._ended) / (now - self._at))
            self._at, self._ended = now, ended
            self.peak = max(self.peak, self.current)

    @property
    def current(self) -> float:
        """Over the last second, so that the figure does not jump with one sample."""
        last = list(self.samples)[-2:]
        return sum(last) / len(last) if last else 0.0


class Scene:
    """Everything a screen can show."""

    def __init__(self, *, workers: int) -> None:
        self._began = time.monotonic()
        self.workers = {number: WorkerView(number) for number in range(1, workers + 1)}
        self.story: deque[Sentence] = deque(maxlen=KEPT)
        self.attempts: deque[AttemptGroup] = deque(maxlen=KEPT)
        self.throughput = Throughput()
        self.counts: Mapping[State, int] = {}
        self.queues: Sequence[QueueRow] = ()
        self.orders = 0  # of the latest round
        self.phases: Sequence[PhaseCounts] = [PhaseCounts(name, {}) for name in program.order.phases]
        self.limits: Sequence[LimitRow] = ()  # of domains, those in use
        self.beats: dict[datetime, UUID] = {}  # ticks that fired, and the job of each
        self.enqueued = 0
        self.dashboard: str | None = None  # its link; None without the extra `web`
        self._unread: deque[Sentence | ReportedEnd] = deque(maxlen=UNREAD_MOST)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def ended(self) -> int:
        return sum(self.counts.get(state, 0) for state in FINAL)

    @property
    def shipped(self) -> int:
        """The number of orders that have passed all phases."""
        return self.orders - sum(phase.jobs for phase in self.phases)

    def narrate(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Add a sentence about what happens now."""
        sentence = Sentence(self.elapsed, text, tone)
        self.story.append(sentence)
        self._unread.append(sentence)

    def set_counts(self, counts: Mapping[State, int], queues: Sequence[QueueRow]) -> None:
        """The jobs by state and the queues, from the store."""
        empty = {row.queue: QueueRow(queue=row.queue, **NOTHING) for row in self.queues}
        rows = empty | {row.queue: row for row in queues}  # the store does not list empty queues; the scene does
        self.counts, self.queues = counts, [rows[queue] for queue in sorted(rows)]
        self.throughput.count(self.ended, time.monotonic())

    def set_orders(self, orders: Sequence[Job]) -> None:
        """The phases of the orders, from the store."""
        under_way = Counter((job.phase, job.status) for job in orders if job.status is not State.SUCCEEDED)
        self.orders = len(orders)
        self.phases = [
            PhaseCounts(name, {state: count for (phase, state), count in under_way.items() if phase == name})
            for name in program.order.phases
        ]

    def set_limits(self, rows: Sequence[LimitRow]) -> None:
        """The limits in use, from the store."""
        self.limits = sorted((row for row in rows if row.used or row.waiting), key=lambda row: row.key)

    def add_ticks(self, ticks: Sequence[TickRow]) -> None:
        """The ticks of the schedule, from the store; each one that fired enqueued one job."""
        fired = {tick.at: tick.job for tick in ticks if tick.outcome is TickOutcome.FIRED and tick.job is not None}
        self.enqueued += len(fired.keys() - self.beats.keys())
        self.beats |= fired

    def receive(self, report: Report) -> None:
        """A report of a worker."""
        match report:
            case Processors():
                self._update_worker(self.workers[report.worker], report)
            case ReportedEnd():
                self._add_attempt(report)
                self._unread.append(report)
            case Rescued():
                self._narrate_rescue(report)

    def mark_killed(self, number: int) -> None:
        """The worker's last report shows the jobs that it held."""
        self.workers[number].health = WorkerHealth.KILLED

    def take_news(self) -> list[Sentence | ReportedEnd]:
        """The sentences and the attempts that ended since the last call."""
        unread = list(self._unread)
        self._unread.clear()
        return unread

    def _update_worker(self, view: WorkerView, report: Processors) -> None:
        if view.health is WorkerHealth.KILLED and report.pid == view.pid:
            return  # written before the worker died, read afterwards
        if view.health is not WorkerHealth.ALIVE:
            how = "is at work" if view.health is WorkerHealth.STARTING else "is replaced by a new process"
            self.narrate(f"worker {view.number} {how}, pid {report.pid}", Tone.GOOD)
        view.health, view.pid, view.slots = WorkerHealth.ALIVE, report.pid, report.slots

    def _add_attempt(self, attempt: ReportedEnd) -> None:
        both = self.attempts[-1].add(attempt) if self.attempts else None
        if both is None:
            self.attempts.append(AttemptGroup(attempt))
        else:
            self.attempts[-1] = both

    def _narrate_rescue(self, report: Rescued) -> None:
        jobs = "1 job" if report.rescued == 1 else f"{report.rescued} jobs"
        self.narrate(f"its lease has expired: {jobs} released, to run again", Tone.GOOD)
