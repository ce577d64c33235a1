"""Progress and cost of running jobs, written at most once a second and job, under their leases, all together."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from windlass.model.outcome import Progress
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

if TYPE_CHECKING:
    from windlass.runtime.processor import Execution

EVERY = 1.0  # seconds


class ProgressWriter(Service):
    """Remembers who has something new to say."""

    name = "progress"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state
        self._marked: dict[UUID, Execution] = {}

    def mark(self, attempt: Execution) -> None:
        """Called from the worker's loop or from a handler's thread; a dict's item assignment is atomic."""
        self._marked[attempt.job.id] = attempt

    async def round(self) -> float:
        marked, self._marked = self._marked, {}
        current = [
            Progress(
                lease=attempt.job.lease,
                total=attempt.context.total,
                processed=attempt.context.processed,
                failed=attempt.context.failed,
                # Not only with the end: what an attempt costs whose worker is killed counts as well.
                cost_cents=attempt.job.cost_cents + spent if (spent := attempt.context.spent) else None,
            )
            for attempt in marked.values()
            if attempt.context is not None and attempt.job.id in self._state.leases.attempts
        ]
        if current:
            await self._state.store.record(current)
        return EVERY
