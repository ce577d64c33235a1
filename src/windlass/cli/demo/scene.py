"""What is known of the show at a moment: from the store, from the workers' reports, and from who directs it.

A screen reads it as often as it likes. Plain lines want each piece of news once: `news` hands out what is new.
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
from windlass.cli.demo.reports import Ended, Processors, Report, Rescued, Slot
from windlass.model.admission import LimitRow
from windlass.model.job import Job
from windlass.model.schedule import TickOutcome, TickRow
from windlass.model.state import FINAL, State
from windlass.runtime.pool import ProcessorState
from windlass.store.protocol import QueueRow

KEPT = 200  # lives, sentences and samples that are remembered
UNREAD_MOST = 2_000  # pieces of news, where nobody asks for them
NOTHING: dict[str, Any] = {"queued": 0, "running": 0, "failed": 0, "waiting": 0, "dead": 0, "lag": None}
SAMPLE = 0.5  # seconds that one column of the throughput stands for


class Tone(StrEnum):
    """How a sentence is meant."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"


class Health(StrEnum):
    """How a worker process is."""

    STARTING = "starting"
    ALIVE = "alive"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece of the story."""

    at: float  # seconds since the show began
    words: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Lives:
    """An attempt that ended, or several in a row that ended well: a flood of those must not wash the others away."""

    last: Ended
    times: int = 1

    def and_(self, next: Ended) -> Lives | None:
        """Both as one; None where they are not of one kind."""
        same = next.type == self.last.type and next.state is self.last.state and next.is_good and self.last.is_good
        return Lives(next, self.times + 1) if same else None


@dataclass(slots=True)
class WorkerView:
    """A worker process, as its last report shows it."""

    number: int
    health: Health = Health.STARTING
    pid: int | None = None
    slots: Sequence[Slot] = ()

    def busy_with(self, type: str) -> str | None:
        """The id of a job of this type that it runs."""
        if self.health is Health.ALIVE:
            for slot in self.slots:
                if slot.type == type and slot.state is ProcessorState.BUSY:
                    return slot.job
        return None


@dataclass(frozen=True, slots=True)
class Phase:
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
        """So many jobs have ended by now; at most one sample per SAMPLE is taken of it."""
        if self._at is None:
            self._at, self._ended = now, ended
        elif now - self._at >= SAMPLE:
            self.samples.append((ended - self._ended) / (now - self._at))
            self._at, self._ended = now, ended
            self.peak = max(self.peak, self.current)

    @property
    def current(self) -> float:
        """Over the last second, so that one sample does not make it jump."""
        last = list(self.samples)[-2:]
        return sum(last) / len(last) if last else 0.0


class Scene:
    """Everything a screen can show."""

    def __init__(self, *, workers: int) -> None:
        self._began = time.monotonic()
        self.workers = {number: WorkerView(number) for number in range(1, workers + 1)}
        self.story: deque[Sentence] = deque(maxlen=KEPT)
        self.lives: deque[Lives] = deque(maxlen=KEPT)
        self.throughput = Throughput()
        self.counts: Mapping[State, int] = {}
        self.queues: Sequence[QueueRow] = ()
        self.orders = 0  # of the latest round
        self.phases: Sequence[Phase] = [Phase(name, {}) for name in program.order.phases]
        self.limits: Sequence[LimitRow] = ()  # of domains, those in use
        self.beats: dict[datetime, UUID] = {}  # ticks that fired, and the job of each
        self.enqueued = 0
        self._unread: deque[Sentence | Ended] = deque(maxlen=UNREAD_MOST)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def ended(self) -> int:
        return sum(self.counts.get(state, 0) for state in FINAL)

    @property
    def shipped(self) -> int:
        """Orders that are through all phases."""
        return self.orders - sum(phase.jobs for phase in self.phases)

    def tell(self, words: str, tone: Tone = Tone.PLAIN) -> None:
        """What happens now, in words."""
        sentence = Sentence(self.elapsed, words, tone)
        self.story.append(sentence)
        self._unread.append(sentence)

    def counted(self, counts: Mapping[State, int], queues: Sequence[QueueRow]) -> None:
        """What the store says."""
        empty = {row.queue: QueueRow(queue=row.queue, **NOTHING) for row in self.queues}
        rows = empty | {row.queue: row for row in queues}  # a queue that is empty is gone from the store, not from here
        self.counts, self.queues = counts, [rows[queue] for queue in sorted(rows)]
        self.throughput.count(self.ended, time.monotonic())

    def moved(self, orders: Sequence[Job]) -> None:
        """Where the orders are, says the store."""
        under_way = Counter((job.phase, job.status) for job in orders if job.status is not State.SUCCEEDED)
        self.orders = len(orders)
        self.phases = [
            Phase(name, {state: count for (phase, state), count in under_way.items() if phase == name})
            for name in program.order.phases
        ]

    def limited(self, rows: Sequence[LimitRow]) -> None:
        """Who holds and who waits at the limits, says the store."""
        self.limits = sorted((row for row in rows if row.used or row.waiting), key=lambda row: row.key)

    def ticked(self, ticks: Sequence[TickRow]) -> None:
        """What the schedule fired, says the store; each of its jobs is one more that was enqueued."""
        fired = {tick.at: tick.job for tick in ticks if tick.outcome is TickOutcome.FIRED and tick.job is not None}
        self.enqueued += len(fired.keys() - self.beats.keys())
        self.beats |= fired

    def hear(self, report: Report) -> None:
        """What a worker says."""
        match report:
            case Processors():
                self._see(self.workers[report.worker], report)
            case Ended():
                self._remember(report)
                self._unread.append(report)
            case Rescued():
                self._tell_rescue(report)

    def killed(self, number: int) -> None:
        """Whatever it reported last is what it held."""
        self.workers[number].health = Health.KILLED

    def news(self) -> list[Sentence | Ended]:
        """What was told and what ended since the last time."""
        unread = list(self._unread)
        self._unread.clear()
        return unread

    def _see(self, view: WorkerView, report: Processors) -> None:
        if view.health is Health.KILLED and report.pid == view.pid:
            return  # written before its death, read after it
        if view.health is not Health.ALIVE:
            how = "is at work" if view.health is Health.STARTING else "is replaced by a new process"
            self.tell(f"worker {view.number} {how}, pid {report.pid}", Tone.GOOD)
        view.health, view.pid, view.slots = Health.ALIVE, report.pid, report.slots

    def _remember(self, life: Ended) -> None:
        both = self.lives[-1].and_(life) if self.lives else None
        if both is None:
            self.lives.append(Lives(life))
        else:
            self.lives[-1] = both

    def _tell_rescue(self, report: Rescued) -> None:
        jobs = "1 job" if report.rescued == 1 else f"{report.rescued} jobs"
        self.tell(f"its lease ran out: {jobs} given back, to run again", Tone.GOOD)
