"""The figures on PostgreSQL: folded and sampled by the leader, and read. The finish statements write them."""

from __future__ import annotations

from windlass.model.figures import READ, SPAN, DepthRow, FigureRow, PhaseDepth, depth_samples, merge_depths
from windlass.model.rows import QueueRow
from windlass.store.parts.statements import run
from windlass.store.postgres.session import Session
from windlass.store.sql import query


class PostgresFigures(Session):
    """The part of the store that has the figures."""

    async def queues(self) -> list[QueueRow]:
        found = await self._fetch_list("the queues", query("postgres", "queues"))
        return [QueueRow(**record) for record in found]

    async def phases(self) -> list[PhaseDepth]:
        return merge_depths(await self._fetch_list("the phases", query("postgres", "phases")))

    async def oldest_snapshot(self) -> float | None:
        return float(await self._value(query("postgres", "oldest_snapshot")))

    async def fold_figures(self, *, minutes: bool = False) -> None:
        await self._value(query("postgres", "fold_figures"), minutes)

    async def sample_depths(self) -> None:
        samples = depth_samples(await self.queues())
        await self._run_in_transaction(lambda: run("sample_depths", samples))

    async def figures(self, *, since: float, step: float, queue: str | None = None) -> list[FigureRow]:
        found = await self._fetch_list("the figures", query("postgres", "figures"), since, step, queue)
        return [FigureRow(**dict(zip(READ, record, strict=True))) for record in found]

    async def depths(self, *, since: float, queue: str | None = None, step: float = SPAN) -> list[DepthRow]:
        found = await self._fetch_list("the depths", query("postgres", "depths"), since, queue, step)
        return [DepthRow(**record) for record in found]
