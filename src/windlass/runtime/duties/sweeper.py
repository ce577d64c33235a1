"""Releases the jobs of workers that went silent. Every worker sweeps, so that the loss of any worker is noticed in
lease + sweep + poll; sweepers never wait for each other or for any other transaction.

A worker that was cut off from the database and is registered again begins with the jobs that it held before: it stopped
them itself, so it releases them under their old tokens, and no crash is counted. The race: the sweep of
another worker may have rescued them first, and a third worker may run them by now. Their tokens are not current then,
and the fenced write changes nothing.

After an outage other workers are silent because the database was away, and not because a job killed them. A worker that
noticed an outage therefore counts no crash for as long as such a silence may last: a lease. A sweep that waited for the
database ends before it releases anything, so that this worker's own jobs come first.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict, astuple

from windlass.errors import StoreUnavailable, WindlassError
from windlass.model.job import Job
from windlass.model.outcome import Transition
from windlass.observe.events import JobsRescued
from windlass.runtime.leases import release_unstarted
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

if TYPE_CHECKING:
    from windlass.runtime.processor import Execution

log = logging.getLogger("windlass")

PAGE = 500  # transitions in one write
RETRY_UNREGISTERED = 1.0  # seconds between two rounds while the worker is not registered
PATIENCE = 1.0  # seconds: to mark a few workers takes milliseconds; a database that takes longer was away, or nearly so


class LostIncarnation(NamedTuple):
    """What this worker held when it was cut off."""

    jobs: list[Job]
    executions: list[Execution]  # they were stopped; one on a thread may still run
    unwritten: list[Transition]  # of attempts that had ended, and could not be written


class Sweeper(Service):
    """One sweep per period."""

    name = "sweeper"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state
        self._lost: list[LostIncarnation] = []
        self._late = False  # the last sweep waited for the database, and released nothing
        state.signals.registered.subscribe(self.on_registered)
        self._counts_crashes_from = 0.0  # on the monotonic clock: before, a silence may come from an outage

    def on_lost(self, lost: LostIncarnation) -> None:
        """The worker was cut off: what it held is released when it is registered again."""
        self._lost.append(lost)

    def on_registered(self) -> None:
        """The worker is registered (again): what it held before goes back now, and not at the next sweep."""
        if self._lost:
            self.nudge()

    async def round(self) -> float:
        state, settings = self._state, self._state.settings
        if not state.registered:
            return RETRY_UNREGISTERED  # its own jobs are released first, or its own sweep would count a crash
        try:
            while self._lost:
                self._record_outage()
                await self._release_held(self._lost[0])
                del self._lost[0]
            swept = await state.store.sweep(
                max_crashes=settings.max_crashes,
                crash_counts=settings.crash_counts,
                blames=self.clock.monotonic() >= self._counts_crashes_from,
                patience=None if self._late else PATIENCE,  # once, or a database that is slow would rescue nothing
            )
        except StoreUnavailable:
            self._record_outage()
            raise
        if swept.deaths or swept.rescued or swept.dead_after_crashes:
            found = JobsRescued(swept.deaths, swept.rescued, swept.dead_after_crashes)
            text, values = "swept: %d workers died, %d jobs rescued, %d dead after too many crashes", astuple(found)
            log.warning(text, *values, extra={"kind": "jobs_swept", **asdict(found)})
            state.emit(found)
        self._late = swept.late
        if swept.late:
            self._record_outage()
            return 0
        # A tenth of jitter, downwards: a fleet that started together does not sweep together.
        return settings.sweep * random.uniform(0.9, 1.0)

    def _record_outage(self) -> None:
        self._counts_crashes_from = self.clock.monotonic() + self._state.settings.lease

    async def _release_held(self, lost: LostIncarnation) -> None:
        """All but what still runs here: a sweep releases that, when the lease has ended."""
        ended = {transition.lease for transition in lost.unwritten}
        running = {execution.job.lease for execution in lost.executions if execution.still_runs}
        unstarted = [release_unstarted(job) for job in lost.jobs if job.lease not in ended | running]
        finished = await self._finish(unstarted)
        try:
            finished += await self._finish(lost.unwritten)
        except StoreUnavailable:
            raise
        except WindlassError as error:
            log.error("what %d jobs left behind cannot be stored: %s; a sweep gives them back", len(ended), error)
        log.warning("released or finished %d of %d jobs held before the outage", finished, len(lost.jobs))

    async def _finish(self, transitions: Sequence[Transition]) -> int:
        finished = 0
        for start in range(0, len(transitions), PAGE):
            finished += len((await self._state.store.finish(transitions[start : start + PAGE])).states)
        return finished
