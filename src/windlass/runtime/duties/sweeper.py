"""Gives back the jobs of workers that went silent. Every worker sweeps, so that the loss of any one is noticed in
lease + sweep + poll; sweepers never wait for each other or for anybody else.

A worker that was cut off from the database and is registered again begins with the jobs that it held before: it stopped
them itself, so it gives them back under their old tokens, and nothing speaks against them. The race: the sweep of
another worker may have rescued them first, and a third worker may run them by now. Their tokens are not current then,
and the fenced write changes nothing.

After an outage other workers are silent because the database was away, and not because a job killed them. A worker that
noticed an outage therefore counts no crash for as long as such a silence may last: a lease. A sweep that waited for the
database ends before it gives anything back, so that this worker's own jobs come first.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from windlass.errors import StoreUnavailable, WindlassError
from windlass.model.job import Job
from windlass.model.outcome import Transition
from windlass.observe.events import JobsRescued
from windlass.runtime.leases import give_back
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

if TYPE_CHECKING:
    from windlass.runtime.processor import Execution

log = logging.getLogger("windlass")

PAGE = 500  # transitions in one write
LOOK_AGAIN = 1.0  # seconds, while the worker is not registered
PATIENCE = 1.0  # seconds: to mark a few workers takes milliseconds; a database that takes longer was away, or nearly so


class Former(NamedTuple):
    """What this worker held when it was cut off."""

    jobs: list[Job]
    attempts: list[Execution]  # they were stopped; one on a thread may still run
    unwritten: list[Transition]  # attempts that had ended, and that nobody could write


class Sweeper(Service):
    """One sweep per period."""

    name = "sweeper"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state
        self._formers: list[Former] = []
        self._late = False  # the last sweep waited for the database, and gave nothing back
        self._blames_from = 0.0  # on the monotonic clock: until then a silence may come from an outage

    def lost(self, former: Former) -> None:
        """The worker was cut off: what it held is given back when it is registered again."""
        self._formers.append(former)

    def registered(self) -> None:
        """The worker is registered (again): what it held before goes back now, and not at the next sweep."""
        if self._formers:
            self.nudge()

    async def round(self) -> float:
        state, settings = self._state, self._state.settings
        if not state.registered:
            return LOOK_AGAIN  # its own jobs are given back before it sweeps, or its own sweep would count a crash
        try:
            while self._formers:
                self._noticed_outage()
                await self._give_back(self._formers[0])
                del self._formers[0]
            swept = await state.store.sweep(
                max_crashes=settings.max_crashes,
                crash_counts=settings.crash_counts,
                blames=self.clock.monotonic() >= self._blames_from,
                patience=None if self._late else PATIENCE,  # once, or a database that is slow would rescue nothing
            )
        except StoreUnavailable:
            self._noticed_outage()
            raise
        if swept.deaths or swept.rescued or swept.dead_after_crashes:
            log.warning(
                "swept: %d workers died, %d jobs given back, %d dead after too many crashes",
                swept.deaths,
                swept.rescued,
                swept.dead_after_crashes,
            )
            state.emit(JobsRescued(swept.deaths, swept.rescued, swept.dead_after_crashes))
        self._late = swept.late
        if swept.late:
            self._noticed_outage()
            return 0
        # A tenth of jitter, downwards: a fleet that started together does not sweep together.
        return settings.sweep * random.uniform(0.9, 1.0)

    def _noticed_outage(self) -> None:
        self._blames_from = self.clock.monotonic() + self._state.settings.lease

    async def _give_back(self, former: Former) -> None:
        """All but what still runs here: that goes back with a sweep, when the lease has ended."""
        ended = {transition.lease for transition in former.unwritten}
        running = {attempt.job.lease for attempt in former.attempts if attempt.still_runs}
        back = [give_back(job) for job in former.jobs if job.lease not in ended | running]
        settled = await self._settle(back)
        try:
            settled += await self._settle(former.unwritten)
        except StoreUnavailable:
            raise
        except WindlassError as error:
            log.error("what %d jobs left behind cannot be stored: %s; a sweep gives them back", len(ended), error)
        log.warning("gave back or finished %d of %d jobs held before the outage", settled, len(former.jobs))

    async def _settle(self, transitions: Sequence[Transition]) -> int:
        settled = 0
        for start in range(0, len(transitions), PAGE):
            settled += len((await self._state.store.finish(transitions[start : start + PAGE])).states)
        return settled
