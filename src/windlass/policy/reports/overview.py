"""The figures of a range from rows: steps for a chart, six figures with the range before, and each queue's depth."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from windlass.clock import in_words
from windlass.model.audit import GATES
from windlass.model.figures import SPAN, DepthRow, FigureRow, quantile
from windlass.model.reports.health import Health, Snapshot
from windlass.model.reports.overview import Deploy, GateChange, Overview, OverviewFigure, OverviewStep
from windlass.model.rows import AuditRow, Liveness, WorkerRow
from windlass.policy.reports.queue_health import add_up, count_ended

STEPS, POINTS, DEPTHS, QUEUE_POINTS = 60, 40, 120, 30
NEW, RECENT = 1_800.0, 86_400.0  # seconds for which figures are kept by ten seconds, and by minutes
CHANGES = 5  # actions of operators that are shown
MOST_GATES = 8  # in a chart: more would cover it

Measure = Callable[[Sequence[FigureRow], float], float | None]
"""A number from what ended, and in how many seconds."""


class Grid(msgspec.Struct, frozen=True):
    """The steps of a range: whole multiples of a step since the epoch, as the store groups its figures."""

    now: datetime
    step: float  # seconds
    count: int

    @property
    def length(self) -> float:
        """Seconds of all steps together."""
        return self.step * self.count

    @property
    def start(self) -> datetime:
        """The beginning of the first step. The last one contains the present."""
        end = (math.floor(self.now.timestamp() / self.step) + 1) * self.step
        return datetime.fromtimestamp(end - self.length, UTC)

    def times(self) -> list[datetime]:
        """The start of each step."""
        return [self.start + timedelta(seconds=self.step * place) for place in range(self.count)]

    def place(self, at: datetime) -> int:
        """The step of a moment; negative before the range."""
        return math.floor((at - self.start).total_seconds() / self.step)

    def seconds(self, place: int) -> float:
        """How much of a step is over; no less than one span, so that the first second of a step is no peak."""
        over = (self.now - self.start).total_seconds() - place * self.step
        return min(self.step, max(float(SPAN), over))


def grid_of(now: datetime, length: float) -> Grid:
    """At most 60 steps of whole spans, as the oldest figures are kept: with others, every few steps would be a peak."""
    size = SPAN if length <= NEW else 60 if length <= RECENT else 600
    step = float(math.ceil(length / STEPS / size) * size)
    return Grid(now, step, math.ceil(length / step))


def survey(
    snapshot: Snapshot,
    health: Health,
    grid: Grid,
    *,
    figures: Sequence[FigureRow],
    depths: Sequence[DepthRow],
    changes: Sequence[AuditRow],
) -> Overview:
    """The overview of a range: `figures` reach back two ranges, and `depths` one."""
    by_step: defaultdict[int, list[FigureRow]] = defaultdict(list)
    for row in figures:
        by_step[grid.place(row.at)].append(row)
    samples = _Samples(grid, depths)
    return Overview(
        at=snapshot.now,
        range=grid.length,
        step=grid.step,
        health=health,
        figures=[
            *_present(snapshot, health, samples),
            *_past(grid, by_step),
        ],
        slots=sum(worker.concurrency for worker in snapshot.workers if worker.alive),
        steps=[_step(at, by_step[place]) for place, at in enumerate(grid.times())],
        deploys=_deploys(grid, snapshot.workers),
        gates=_gates(grid, changes),
        queues=[
            msgspec.structs.replace(queue, points=samples.points(QUEUE_POINTS, _queued, queue.queue))
            for queue in health.queues
        ],
        changes=changes[:CHANGES],
    )


def _deploys(grid: Grid, workers: Sequence[WorkerRow]) -> list[Deploy]:
    firsts: dict[str, datetime] = {}
    for worker in workers:
        if worker.version is not None:
            firsts[worker.version] = min(worker.started_at, firsts.get(worker.version, worker.started_at))
    found = [Deploy(at=at, version=version) for version, at in firsts.items() if grid.place(at) >= 0]
    return sorted(found, key=lambda deploy: deploy.at)


def _gates(grid: Grid, changes: Sequence[AuditRow]) -> list[GateChange]:
    said = {action: state.value for state, action in GATES.items()}
    found = [
        GateChange(at=row.at, said=f"{(row.subject or '').partition(':')[2] or 'everything'} {said[row.action]}")
        for row in reversed(changes)
        if row.action in said and grid.place(row.at) >= 0
    ]
    return found[-MOST_GATES:]


def _step(at: datetime, rows: Sequence[FigureRow]) -> OverviewStep:
    waits = add_up(row.waits for row in rows)
    return OverviewStep(
        at=at,
        succeeded=sum(row.succeeded for row in rows),
        failed=sum(row.failed for row in rows),
        dead=sum(row.dead for row in rows),
        cancelled=sum(row.cancelled for row in rows),
        wait_p50=quantile(waits, 0.5),
        wait_p95=quantile(waits, 0.95),
    )


# Due and running jobs, from samples


class _Samples:
    """Samples of depths in equal parts of a range: the last sample of each queue in a part counts."""

    def __init__(self, grid: Grid, rows: Sequence[DepthRow]) -> None:
        self._began = grid.now - timedelta(seconds=grid.length)
        self._length = grid.length
        self._rows = rows

    def points(self, count: int, value: Callable[[DepthRow], int], queue: str | None = None) -> tuple[int, ...]:
        """One number per part; where no worker sampled, that of the part before."""
        parts: list[dict[str, int]] = [{} for _ in range(count)]
        for row in self._rows:
            if queue is None or row.queue == queue:
                place = int((row.at - self._began).total_seconds() / self._length * count)
                parts[min(max(0, place), count - 1)][row.queue] = value(row)
        known = [sum(part.values()) if part else None for part in parts]
        return tuple(_filled(known))

    def first(self, value: Callable[[DepthRow], int]) -> int | None:
        """What it was when the range began; None: no sample is as old as that."""
        begun = [row for row in self._rows if row.at < self._began + timedelta(seconds=self._length / POINTS)]
        return sum({row.queue: value(row) for row in reversed(begun)}.values()) if begun else None


def _filled(numbers: Sequence[int | None]) -> list[int]:
    """Without gaps: a part without a sample is as the part before it, and 0 at the beginning."""
    filled: list[int] = []
    for number in numbers:
        filled.append((filled[-1] if filled else 0) if number is None else number)
    return filled


def _queued(row: DepthRow) -> int:
    return row.queued


def _due(row: DepthRow) -> int:
    """A sample does not count due jobs. Without a lag none was due, and else most queued jobs were."""
    return 0 if row.lag is None else row.queued


def _running(row: DepthRow) -> int:
    return row.running


def _present(snapshot: Snapshot, health: Health, samples: _Samples) -> list[OverviewFigure]:
    oldest = max((queue.oldest or 0.0 for queue in health.queues if queue.due), default=0.0)
    alive = sum(worker.alive for worker in snapshot.workers)
    silent = sum(worker.state is Liveness.SILENT for worker in snapshot.workers)
    workers = f"{alive:,} worker{'' if alive == 1 else 's'}"
    return [
        OverviewFigure(
            name="due",
            value=sum(queue.due for queue in health.queues),
            before=samples.first(_due),
            points=samples.points(POINTS, _due),
            unit="jobs",
            said=f"the oldest waits {in_words(oldest)}" if oldest else "nothing waits",
        ),
        OverviewFigure(
            name="running",
            value=sum(queue.running for queue in health.queues),
            before=samples.first(_running),
            points=samples.points(POINTS, _running),
            unit="jobs",
            said=f"{workers}, {silent:,} silent" if silent else workers,
        ),
    ]


# What ended, from figures


def _past(grid: Grid, by_step: dict[int, list[FigureRow]]) -> list[OverviewFigure]:
    now = [row for place, rows in by_step.items() if place >= 0 for row in rows]
    before = [row for place, rows in by_step.items() if place < 0 for row in rows]
    ended, dead, failed = sum(map(count_ended, now)), sum(row.dead for row in now), sum(row.failed for row in now)
    length = in_words(grid.length)
    run = sum(grid.seconds(place) for place in range(grid.count))

    measures: list[tuple[str, str, str, Measure]] = [
        ("ended", "per second", f"{ended:,} in the last {length}", _per_second),
        ("errors", "share", f"{dead:,} dead, {failed:,} attempts failed", _dead_share),
        ("wait", "seconds", _say_median([row.waits for row in now]), _wait_p95),
        ("run", "seconds", _say_median([row.runs for row in now]), _run_p95),
    ]
    return [
        OverviewFigure(
            name=name,
            value=measure(now, run),
            before=measure(before, grid.length),
            points=_course(grid, by_step, measure),
            unit=unit,
            said=said,
        )
        for name, unit, said, measure in measures
    ]


def _course(grid: Grid, by_step: dict[int, list[FigureRow]], measure: Measure) -> tuple[float | None, ...]:
    """The measure of each of at most 40 parts of the range; a part is one step or two."""
    count = min(POINTS, grid.count)
    parts: list[list[int]] = [[] for _ in range(count)]
    for place in range(grid.count):
        parts[place * count // grid.count].append(place)
    return tuple(
        measure([row for place in part for row in by_step.get(place, ())], sum(map(grid.seconds, part)))
        for part in parts
    )


def _per_second(rows: Sequence[FigureRow], length: float) -> float | None:
    return sum(map(count_ended, rows)) / length


def _dead_share(rows: Sequence[FigureRow], length: float) -> float | None:
    ended = sum(map(count_ended, rows))
    return sum(row.dead for row in rows) / ended if ended else None


def _wait_p95(rows: Sequence[FigureRow], length: float) -> float | None:
    return quantile(add_up(row.waits for row in rows), 0.95)


def _run_p95(rows: Sequence[FigureRow], length: float) -> float | None:
    return quantile(add_up(row.runs for row in rows), 0.95)


def _say_median(histograms: Sequence[tuple[int, ...]]) -> str:
    half = quantile(add_up(histograms), 0.5)
    return "no attempt ended" if half is None else f"p50 {in_words(half)}"
