"""A queue's health from the rows of one moment: what is due, how fast it moves, whether it grows, when it is empty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import timedelta

from windlass.clock import in_words
from windlass.model.admission import GateState
from windlass.model.figures import FigureRow, quantile
from windlass.model.reports.health import QueueHealth, Snapshot
from windlass.model.rows import DueRow

WINDOW = 600.0  # seconds of figures and depths that the present is judged by
STEP = 60.0  # seconds of one row of the snapshot's figures
YOUNG = 60.0  # seconds: where no job ended and none has waited longer, workers may only have begun
SEEN = 480.0  # seconds of samples without which no queue is said to grow


def queue_health(snapshot: Snapshot, name: str) -> QueueHealth:
    row = next(row for row in snapshot.queues if row.queue == name)
    figures = [figure for figure in recent(snapshot) if figure.queue == name]
    serving = [worker for worker in snapshot.workers if worker.serves_queue(name)]
    moved, died = sum(map(count_left, figures)), sum(figure.dead for figure in figures)
    rate = moved / _observed(snapshot)
    waiting = next((row for row in snapshot.due if row.queue == name), DueRow(name, 0))
    due, gate = waiting.due, _gate_of(snapshot, name)
    growth = growth_of(snapshot, name)
    empty_in = 0.0 if not due else due / rate if rate and gate is GateState.OPEN and serving else None
    return QueueHealth(
        queue=name,
        gate=gate,
        workers=len(serving),
        slots=sum(worker.concurrency for worker in serving),
        due=due,
        running=row.running,
        dead=row.dead,
        counted=waiting.counted,
        oldest=row.lag,
        per_second=rate,
        dead_share=died / moved if moved else None,
        wait_p95=quantile(add_up(figure.waits for figure in figures), 0.95),
        growing=growth is not None,
        empty_in=empty_in,
        empties=_say_empty(waiting, gate, empty_in, young=bool(serving) and (row.lag or 0.0) < YOUNG),
        workers_needed=math.ceil((rate + growth) / (rate / len(serving))) if growth and rate and serving else None,
    )


def _say_empty(row: DueRow, gate: GateState, empty_in: float | None, *, young: bool) -> str:
    if not row.due:
        return "empty"
    if gate is not GateState.OPEN:
        return "when opened"
    if empty_in is None:
        return "not known yet" if young else "never"
    return f"over {in_words(empty_in)}" if row.due > row.counted else in_words(empty_in)


def _gate_of(snapshot: Snapshot, queue: str) -> GateState:
    closed = {(gate.kind.value, gate.name): gate.state for gate in snapshot.gates if gate.is_closed}
    return closed.get(("queue", queue), closed.get(("all", ""), GateState.OPEN))


def growth_of(snapshot: Snapshot, queue: str) -> float | None:
    """Jobs per second by which the queue grew for ten minutes; None: it did not; 0: it is unknown by how much.

    Each third of the window was deeper than the one before. The means of thirds, because a single sample before or
    after a batch would decide otherwise. A depth is counted up to a bound: where it stays there, the lag tells.
    """
    samples = [row for row in snapshot.depths if row.queue == queue]
    if len(samples) < 6 or (samples[-1].at - samples[0].at).total_seconds() < SEEN:
        return None
    depths = [float(row.queued) for row in samples]
    if _rises(depths):
        return max(0.0, depths[-1] - depths[0]) / (samples[-1].at - samples[0].at).total_seconds()
    bounded = len(set(depths)) == 1 and depths[0] > 0
    return 0.0 if bounded and _rises([row.lag or 0.0 for row in samples]) else None


def _rises(values: Sequence[float]) -> bool:
    third = len(values) // 3
    first, middle, last = (sum(part) / len(part) for part in (values[:third], values[third:-third], values[-third:]))
    return first < middle < last


def recent(snapshot: Snapshot) -> list[FigureRow]:
    since = snapshot.now - timedelta(seconds=WINDOW)
    return [row for row in snapshot.figures if row.at >= since]


def _observed(snapshot: Snapshot) -> float:
    """Seconds that the recent figures are about: a program that began a minute ago is not divided by ten."""
    first = min((row.at for row in snapshot.figures), default=snapshot.now)
    return min(WINDOW, max(STEP, (snapshot.now - first).total_seconds()))


def count_left(row: FigureRow) -> int:
    """Jobs that left their queue: they ended, or went on to their next phase."""
    return count_ended(row) + row.advanced


def count_ended(row: FigureRow) -> int:
    return row.succeeded + row.dead + row.cancelled


def add_up(histograms: Iterable[tuple[int, ...]]) -> list[int]:
    return [sum(column) for column in zip(*filter(None, histograms), strict=True)]
