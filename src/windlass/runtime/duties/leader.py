"""Leadership by lease: duties that one worker of all has. A leader that freezes loses it when its lease runs out."""

from __future__ import annotations

from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

HOUSEKEEPING = "housekeeping"  # the leadership's name in the store
PRUNE_EVERY = 600.0  # seconds


class Leader(Service):
    """While it leads: prepares the partitions of history and audit, and drops the old ones."""

    name = "leader"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state
        self._pruned_at: float | None = None
        self.leads = False

    async def round(self) -> float:
        state = self._state
        self.leads = await state.store.lead(HOUSEKEEPING, state.worker, state.settings.lease)
        if self.leads:
            now = self.clock.monotonic()
            if self._pruned_at is None or now - self._pruned_at >= PRUNE_EVERY:
                await state.store.prune(history=state.settings.history, audit=state.settings.audit)
                self._pruned_at = now
        return state.settings.lease / 3
