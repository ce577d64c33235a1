"""Wakes jobs when their time is up: a sleep that ends, a signal or a join that did not come. Every worker does it."""

from __future__ import annotations

from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

PAGE = 500  # jobs woken by one statement


class Timers(Service):
    """One read per poll."""

    name = "timers"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state

    async def round(self) -> float:
        woken = await self._state.store.wake_due(page=PAGE)
        if woken:
            self._state.signals.jobs_may_be_due()
        return 0 if woken >= PAGE else self._state.settings.poll
