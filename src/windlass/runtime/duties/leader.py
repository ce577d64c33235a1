"""Leadership by lease: duties that one worker of all has. A leader that freezes loses it when its lease runs out."""

from __future__ import annotations

from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

HOUSEKEEPING = "housekeeping"  # the leadership's name in the store
PRUNE_EVERY = 600.0  # seconds
SAMPLE_EVERY = 10.0  # seconds: one sample of the depths per span of the figures


class Leader(Service):
    """While it leads: folds figures, samples depths, prepares partitions of history and audit, drops old ones."""

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
            prunes = self._pruned_at is None or now - self._pruned_at >= PRUNE_EVERY
            if prunes:
                await state.store.prune(history=state.settings.history, audit=state.settings.audit)
                self._pruned_at = now
            # After the prune: depths that cannot be read in time must not keep old rows.
            await state.store.fold_figures(minutes=prunes)
            await state.store.sample_depths()
        return min(SAMPLE_EVERY, state.settings.lease / 3)
