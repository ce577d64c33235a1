"""Wakes jobs whose time is up: a sleep that ends, a signal or a join that did not come. Every worker does it."""

from __future__ import annotations

from windlass.runtime.discovery import Discovery
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

PAGE = 500  # jobs woken by one statement


class Timers(Service):
    """One look per poll."""

    name = "timers"

    def __init__(self, state: WorkerState, discovery: Discovery) -> None:
        super().__init__(state.clock)
        self._state = state
        self._discovery = discovery
        self._steady = state.settings.assign_every > 0  # it scans by the clock, whatever happens in between

    async def round(self) -> float:
        woken = await self._state.store.wake_due(page=PAGE)
        if woken and not self._steady:
            self._discovery.nudge()
        return 0 if woken >= PAGE else self._state.settings.poll
