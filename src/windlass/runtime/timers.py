"""Wakes jobs whose time is up: a sleep that ends, a signal or a join that did not come. Every worker does it."""

from __future__ import annotations

from windlass.runtime.crew import Crew
from windlass.runtime.discovery import Discovery
from windlass.runtime.service import Service

PAGE = 500  # jobs woken by one statement


class Timers(Service):
    """One look per poll."""

    name = "timers"

    def __init__(self, crew: Crew, discovery: Discovery) -> None:
        super().__init__(crew.clock)
        self._crew = crew
        self._discovery = discovery
        self._steady = crew.settings.assign_every > 0  # it scans by the clock, whatever happens in between

    async def round(self) -> float:
        woken = await self._crew.store.wake_due(page=PAGE)
        if woken and not self._steady:
            self._discovery.nudge()
        return 0 if woken >= PAGE else self._crew.settings.poll
