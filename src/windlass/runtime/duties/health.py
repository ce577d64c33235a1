"""The health check: resets processors in error, and releases jobs that waited in memory too long."""

from __future__ import annotations

import logging

from windlass.runtime.completer import Completer
from windlass.runtime.leases import release_unstarted
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

log = logging.getLogger("windlass")


class HealthCheck(Service):
    """One check per period."""

    name = "health"

    def __init__(self, state: WorkerState, completer: Completer) -> None:
        super().__init__(state.clock)
        self._state = state
        self._completer = completer

    async def round(self) -> float:
        self._reset_processors()
        self._release_stale()
        return self._state.settings.health

    def _reset_processors(self) -> None:
        reset = self._state.pools.reset()
        for processor in reset:
            processor.since = self.clock.monotonic()
            log.info("processor %s is idle again", processor.name)
        if reset:  # jobs may wait in memory for just these, and then nothing else would start them
            self._state.signals.processors_reset()

    def _release_stale(self) -> None:
        """A job that waited here longer than it may run goes back, without a retry counted (seed 001).

        Where jobs have no time limit, it goes back after a lease: this worker's processors are taken, and another
        worker's may be idle.
        """
        limit = self._state.settings.timeout or self._state.settings.lease
        now = self.clock.monotonic()
        for job in self._state.local_queue.drain(lambda job, at: now - at > limit):
            log.warning("job %s waited %.0f s in memory and goes back", job.id, limit)
            self._completer.submit(release_unstarted(job))
