"""Leadership by lease: duties that one worker of all has. A leader that freezes loses it when its lease runs out."""

from __future__ import annotations

from windlass.runtime.crew import Crew
from windlass.runtime.service import Service

HOUSEKEEPING = "housekeeping"
HOUSEKEEPING_EVERY = 600.0  # seconds


class Leader(Service):
    """Keeps the house while it leads: prepares the partitions of history and audit, drops the old ones."""

    name = "leader"

    def __init__(self, crew: Crew) -> None:
        super().__init__(crew.clock)
        self._crew = crew
        self._kept_at: float | None = None
        self.leads = False

    async def round(self) -> float:
        crew = self._crew
        self.leads = await crew.store.lead(HOUSEKEEPING, crew.worker, crew.settings.lease)
        if self.leads:
            now = self.clock.monotonic()
            if self._kept_at is None or now - self._kept_at >= HOUSEKEEPING_EVERY:
                await crew.store.keep_house(history=crew.settings.history, audit=crew.settings.audit)
                self._kept_at = now
        return crew.settings.lease / 3
