"""What a store counts for people: the queues, the figures and depths over time, and the newest failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from windlass.model.figures import DepthRow, FigureRow, PhaseDepth
from windlass.model.reports.error_groups import ErrorText, FailedJob
from windlass.model.rows import COUNTED, QueueRow


class FigureStore(Protocol):
    """Reads that are bounded, whatever the number of jobs, and what the leader writes for them."""

    async def queues(self) -> list[QueueRow]: ...

    async def phases(self) -> list[PhaseDepth]:
        """The due and the running jobs of each phase of a pipeline, and of each queue's jobs in no pipeline."""
        ...

    async def oldest_snapshot(self) -> float | None:
        """Seconds for which the oldest transaction of the database keeps dead rows; None: a file has no such thing."""
        ...

    async def fold_figures(self, *, minutes: bool = False) -> None:
        """Fold the figures of spans that are over; with `minutes`, old ones into minutes and ten minutes."""
        ...

    async def sample_depths(self) -> None:
        """Write the depth of each queue; once per span of ten seconds, however often it is called."""
        ...

    async def figures(self, *, since: float, step: float, queue: str | None = None) -> list[FigureRow]: ...

    async def depths(self, *, since: float, queue: str | None = None, step: float = 10.0) -> list[DepthRow]: ...

    async def errors(
        self, *, since: float, queue: str | None = None, tenant: str | None = None, page: int = COUNTED + 1
    ) -> list[FailedJob]:
        """The jobs whose last failure is not older than `since` seconds, the newest failure first."""
        ...

    async def error_texts(self, jobs: Sequence[UUID]) -> dict[UUID, ErrorText]:
        """The errors of these jobs; jobs that do not exist are left out."""
        ...
