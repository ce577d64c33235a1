"""Progress and cost of running jobs, written at most once a second and job, under their leases, all together."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from windlass.model.outcome import Progress
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

if TYPE_CHECKING:
    from windlass.runtime.processor import Execution

WRITE_EVERY = 1.0  # seconds


class ProgressWriter(Service):
    """Remembers which executions have new progress or cost."""

    name = "progress"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state
        self._marked: dict[UUID, Execution] = {}
        state.signals.progress_made.subscribe(self.mark)

    def mark(self, execution: Execution) -> None:
        """Called from the worker's loop or from a handler's thread; a dict's item assignment is atomic."""
        self._marked[execution.job.id] = execution

    async def round(self) -> float:
        marked, self._marked = self._marked, {}
        current = [
            Progress(
                lease=execution.job.lease,
                total=execution.context.total,
                processed=execution.context.processed,
                failed=execution.context.failed,
                # Not only with the finish: the cost of an attempt counts also when its worker is killed.
                cost_cents=execution.job.cost_cents + spent if (spent := execution.context.spent) else None,
            )
            for execution in marked.values()
            if execution.context is not None and execution.job.id in self._state.leases.executions
        ]
        if current:
            await self._state.store.record(current)
        return WRITE_EVERY
