"""Fires what is due of the program's schedules.

Every worker looks, and none leads: a tick belongs to whoever moves its schedule on (see `store/scheduling.py`), so that
two who look at once fire it once, and one that freezes keeps nobody waiting.
"""

from __future__ import annotations

import logging

from windlass.errors import StoreError, WindlassError
from windlass.runtime.crew import Crew
from windlass.runtime.discovery import Discovery
from windlass.runtime.service import Service

LONGEST_LOOK = 5.0  # seconds: an edit or a resume is noticed by then, however seldom a worker polls

log = logging.getLogger("windlass")


class Schedules(Service):
    """A look per poll, and one at each tick."""

    name = "schedules"

    def __init__(self, crew: Crew, discovery: Discovery) -> None:
        super().__init__(crew.clock)
        self._crew = crew
        self._discovery = discovery
        self._steady = crew.settings.assign_every > 0  # it scans by the clock, whatever happens in between
        self._declared: set[str] = set()
        self._complaints: dict[str, str] = {}

    async def round(self) -> float | None:
        crew = self._crew
        if not crew.registry.schedules:
            return None
        await self._declare()
        passed: set[str] = set()
        while True:
            waits = await crew.store.due_schedules(crew.registry.schedules)
            due = [name for name, wait in waits if wait <= 0 and name not in passed]
            if not due:
                break
            for name in due:
                if not await self._tick(name):
                    passed.add(name)  # somebody else is at it, or it cannot be served here: another time
        return min([crew.settings.poll, LONGEST_LOOK, *(wait for _, wait in waits if wait > 0)])

    async def _declare(self) -> None:
        """Once; before its first look, so that a tick is never fired as an older program had it."""
        crew = self._crew
        fresh = {name: each for name, each in crew.registry.schedules.items() if name not in self._declared}
        if fresh:
            await crew.store.declare_schedules({name: each.declared(crew.settings) for name, each in fresh.items()})
            self._declared.update(fresh)

    async def _tick(self, name: str) -> bool:
        """Whether ticks were fired or passed over, and there may be more."""
        try:
            ticked = await self._crew.store.tick(name)
        except StoreError:
            raise
        except WindlassError as error:  # a time zone that this machine does not know: others may
            if self._complaints.get(name) != str(error):
                self._complaints[name] = str(error)
                log.error("schedule %s: %s", name, error)
            return False
        if ticked.missed:
            log.warning("schedule %s: %d ticks were missed, and stay so", name, ticked.missed)
        if ticked.fired and not self._steady:
            self._discovery.nudge()
        return ticked.moved
