"""The health check: resets processors in error, and gives back jobs that waited in memory too long."""

from __future__ import annotations

import logging
from collections.abc import Callable

from windlass.runtime.crew import Crew
from windlass.runtime.leases import give_back
from windlass.runtime.service import Service

log = logging.getLogger("windlass")


class Health(Service):
    """One check per period."""

    name = "health"

    def __init__(self, crew: Crew, *, freed: Callable[[], None]) -> None:
        super().__init__(crew.clock)
        self._crew = crew
        self._freed = freed  # told when processors can work again

    async def round(self) -> float:
        self._reset_processors()
        self._give_back_stale()
        return self._crew.settings.health

    def _reset_processors(self) -> None:
        reset = self._crew.pools.reset()
        for processor in reset:
            log.info("processor %s is idle again", processor.name)
        if reset:  # jobs may wait in memory for just these, and then nothing else would start them
            self._freed()

    def _give_back_stale(self) -> None:
        """A job that waited here longer than it may run goes back, without a retry counted (seed 001).

        Where jobs may run as long as they like, longer than a lease: this worker's processors are taken, and another's
        may be idle.
        """
        limit = self._crew.settings.timeout or self._crew.settings.lease
        now = self.clock.monotonic()
        for job in self._crew.local_queue.drain(lambda job, at: now - at > limit):
            log.warning("job %s waited %.0f s in memory and goes back", job.id, limit)
            self._crew.completer.submit(give_back(job))
