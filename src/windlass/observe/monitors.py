"""Sentry's cron monitors: the job of a schedule's tick checks in when it starts and when it has ended.

A job's row does not name its schedule: the record of the tick does. Only jobs of types that a schedule enqueues are
looked up, on the thread of the app's own store, so that the worker waits for nothing. The id of a check-in is the
job's, so that any worker can end what another one began.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.model.schedule import TickOutcome
from windlass.observe.events import AttemptEnded

if TYPE_CHECKING:
    from windlass.app import Windlass

RECENT = 100  # ticks of a schedule that are searched for a job
LONGEST_SLUG = 50
ENDED = {Ending.SUCCEEDED: "ok", Ending.CANCELLED: "error"}


class Monitors:
    """The check-ins of one program's schedules."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._read = 0
        self._by_type: dict[str, list[str]] = {}
        self._begun: dict[
            UUID, asyncio.Future[str | None]
        ] = {}  # the schedule of each running job; on the store's loop

    def begin(self, job: Job) -> None:
        """The job's attempt begins: it is in progress."""
        names = self._schedules(job)
        if names:
            self._app._client.portal.submit(lambda: self._check_in(job, names))

    def end(self, end: AttemptEnded) -> None:
        """The attempt ended. After a failure with a retry to come, the job is still in progress."""
        advances = end.flow is not None and end.flow.advance is not None
        status = "error" if end.ending.is_failure and not end.will_retry else ENDED.get(end.ending)
        if self._schedules(end.job):
            last = None if advances else status
            self._app._client.portal.submit(lambda: self._check_out(end.job, last, end.elapsed))

    def _schedules(self, job: Job) -> list[str]:
        """The schedules of this program that may have enqueued the job."""
        known = self._app._registry.schedules
        if len(known) != self._read:  # by far the most jobs have no schedule: their types are compared, and no more
            self._read, self._by_type = len(known), {}
            for name, each in known.items():
                self._by_type.setdefault(each.declared(self._app.settings).job.type, []).append(name)
        return self._by_type.get(job.type, [])

    async def _check_in(self, job: Job, names: list[str]) -> None:
        found = self._begun[job.id] = asyncio.get_running_loop().create_future()
        try:
            schedule = await self._find(job, names)
        except Exception:  # the database is away: this check-in is lost, and Sentry reports it as missed
            schedule = None
        found.set_result(schedule)
        if schedule is not None:
            self._capture(schedule, job, "in_progress", None)

    async def _check_out(self, job: Job, status: str | None, elapsed: float) -> None:
        """Submitted after `_check_in` to the same loop, so that the check-in is always there."""
        begun = self._begun.pop(job.id, None)
        schedule = None if begun is None else await begun
        if schedule is not None and status is not None:
            self._capture(schedule, job, status, elapsed)

    async def _find(self, job: Job, names: list[str]) -> str | None:
        store = await self._app._client.store()
        for name in names:
            ticks = await store.ticks(name, page=RECENT)
            if any(tick.job == job.id and tick.outcome is TickOutcome.FIRED for tick in ticks):
                return name
        return None

    def _capture(self, schedule: str, job: Job, status: str, elapsed: float | None) -> None:
        from sentry_sdk.crons import capture_checkin

        timing = self._app._registry.schedules[schedule].declared(self._app.settings).timing
        kind: dict[str, Any] | None = None
        if timing.cron is not None:
            kind = {"schedule": {"type": "crontab", "value": timing.cron}, "timezone": timing.tz}
        elif timing.every is not None and timing.every >= 60:
            kind = {"schedule": {"type": "interval", "value": int(timing.every // 60), "unit": "minute"}}
        capture: Callable[..., object] = capture_checkin
        capture(slug(schedule), job.id.hex, status, elapsed, kind)


def slug(name: str) -> str:
    """The name of a schedule as Sentry's monitors have it: `nightly-report`."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:LONGEST_SLUG] or "schedule"
