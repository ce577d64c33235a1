"""Fires what is due of the program's schedules.

Every worker reads them, and none leads: a tick belongs to the worker that moves `next_at` on
(`store/parts/ticks.py`). Two workers that try at once fire it once, and a worker that freezes does not hold a tick
back.
"""

from __future__ import annotations

import logging

from windlass.errors import StoreError, WindlassError
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

LONGEST_PAUSE = 5.0  # seconds: an edit or a resume is noticed by then, however seldom a worker polls

log = logging.getLogger("windlass")


class ScheduleTicker(Service):
    """One read per poll, and one at each tick."""

    name = "schedules"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state
        self._declared: set[str] = set()
        self._complaints: dict[str, str] = {}

    async def round(self) -> float | None:
        state = self._state
        if not state.registry.schedules:
            return None
        await self._declare()
        skipped: set[str] = set()
        while True:
            waits = await state.store.due_schedules(state.registry.schedules)
            due = [name for name, wait in waits if wait <= 0 and name not in skipped]
            if not due:
                break
            for name in due:
                if not await self._tick(name):
                    skipped.add(name)  # another worker fires it, or it cannot be served here: another time
        return min([state.settings.poll, LONGEST_PAUSE, *(wait for _, wait in waits if wait > 0)])

    async def _declare(self) -> None:
        """Once, before the first read, so that a tick is never fired as an older program had it."""
        state = self._state
        fresh = {name: each for name, each in state.registry.schedules.items() if name not in self._declared}
        if fresh:
            await state.store.declare_schedules({name: each.declared(state.settings) for name, each in fresh.items()})
            self._declared.update(fresh)

    async def _tick(self, name: str) -> bool:
        """Whether ticks were fired or passed over, and there may be more."""
        try:
            ticked = await self._state.store.tick(name)
        except StoreError:
            raise
        except WindlassError as error:  # a time zone that this machine does not know: others may
            if self._complaints.get(name) != str(error):
                self._complaints[name] = str(error)
                log.error("schedule %s: %s", name, error)
            return False
        if ticked.missed:
            log.warning("schedule %s: %d ticks were missed, and stay so", name, ticked.missed)
        if ticked.fired:
            self._state.signals.jobs_may_be_due()
        return ticked.moved
