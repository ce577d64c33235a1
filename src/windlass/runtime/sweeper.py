"""Gives back the jobs of workers that went silent. Every worker sweeps, so that the loss of any one is noticed in
lease + sweep + poll; sweepers never wait for each other or for anybody else."""

from __future__ import annotations

import logging
import random

from windlass.observe.events import JobsRescued
from windlass.runtime.crew import Crew
from windlass.runtime.service import Service

log = logging.getLogger("windlass")


class Sweeper(Service):
    """One sweep per period."""

    name = "sweeper"

    def __init__(self, crew: Crew) -> None:
        super().__init__(crew.clock)
        self._crew = crew

    async def round(self) -> float:
        settings = self._crew.settings
        swept = await self._crew.store.sweep(max_crashes=settings.max_crashes)
        if swept.deaths or swept.rescued or swept.condemned:
            log.warning(
                "swept: %d workers died, %d jobs given back, %d dead after too many crashes",
                swept.deaths,
                swept.rescued,
                swept.condemned,
            )
            self._crew.emit(JobsRescued(swept.deaths, swept.rescued, swept.condemned))
        # A tenth of jitter, downwards: a fleet that started together does not sweep together.
        return settings.sweep * random.uniform(0.9, 1.0)
