"""Phases for `app.phases()`: jobs in the database, what live workers report, and the figures of a span of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from windlass.model.figures import FigureRow, PhaseDepth, PhaseRow
from windlass.model.processors import PoolRow
from windlass.model.rows import COUNTED

if TYPE_CHECKING:
    from windlass.store.protocol import Store

Place = tuple[str | None, str]
"""A pipeline and a phase of it, or None and a queue."""


async def read_phases(store: Store, since: float) -> list[PhaseRow]:
    """Each phase, with the figures of the last `since` seconds."""
    depths = {(depth.pipeline, depth.phase): depth for depth in await store.phases()}
    figures = await store.figures(since=since, step=since)
    pools = [pool for row in await store.workers(processors=True) if row.alive for pool in row.pools]
    announced = {row.name: row.phases for row in await store.types() if row.phases}
    named = {row.phase for row in figures} | {pool.phase for pool in pools}
    return [
        make_row(
            place,
            depths.get(place),
            [row for row in figures if row.phase == place[1]],
            [pool for pool in pools if pool.phase == place[1]],
            since,
        )
        for place in list_places(announced, depths, named)
    ]


def list_places(
    announced: Mapping[str, Sequence[str]], depths: Mapping[Place, PhaseDepth], named: Iterable[str]
) -> list[Place]:
    """The phases of each pipeline in their order, then the queues.

    Figures and reports of workers have the name of a phase and no pipeline. A name that is a phase of no pipeline is a
    queue. An announced pipeline is listed when it has a job, a figure or a live worker.
    """
    names = set(named)
    ranks: dict[str, dict[str, int]] = {}  # pipeline → phase → place
    for pipeline, phases in announced.items():
        if not names.isdisjoint(phases) or any(known == pipeline for known, _ in depths):
            ranks[pipeline] = {phase: place for place, phase in enumerate(phases)}
    queues: set[str] = set()
    for depth in depths.values():
        if depth.pipeline is not None:
            ranks.setdefault(depth.pipeline, {}).setdefault(depth.phase, depth.rank)
        elif depth.due or depth.running:
            queues.add(depth.phase)
    staged = {phase for phases in ranks.values() for phase in phases}
    places: list[Place] = [
        (pipeline, phase)
        for pipeline in sorted(ranks)
        for phase in sorted(ranks[pipeline], key=lambda phase: (ranks[pipeline][phase], phase))
    ]
    return places + [(None, queue) for queue in sorted(queues | (names - staged))]


def make_row(
    place: Place, depth: PhaseDepth | None, figures: Sequence[FigureRow], pools: Sequence[PoolRow], since: float
) -> PhaseRow:
    succeeded = sum(row.succeeded + row.advanced for row in figures)
    dead, cancelled = sum(row.dead for row in figures), sum(row.cancelled for row in figures)
    return PhaseRow(
        pipeline=place[0],
        phase=place[1],
        due=0 if depth is None else depth.due,
        running=0 if depth is None else depth.running,
        in_memory=sum(pool.in_memory for pool in pools),
        idle=sum(pool.idle for pool in pools),
        busy=sum(pool.busy for pool in pools),
        error=sum(pool.error for pool in pools),
        per_minute=(succeeded + dead + cancelled) * 60 / since,
        succeeded=succeeded,
        failed=sum(row.failed for row in figures),
        dead=dead,
        cancelled=cancelled,
        runs=add_up(row.runs for row in figures),
        waits=add_up(row.waits for row in figures),
        counted=COUNTED if depth is None else depth.counted,
    )


def add_up(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*histograms, fillvalue=0)))
