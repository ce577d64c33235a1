"""Schedules as plain values: what a program declares, what an operator edited, and what became of each tick.

A *tick* is one moment of a schedule. Its outcome (a job, no job because the last one still runs, no job because no
worker ran) is recorded once. Times are aware and in UTC.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import msgspec

from windlass.model.job import NewJob

if TYPE_CHECKING:
    from windlass.config import Settings

LATE = 30.0  # seconds: a tick that is due for longer has no worker; before that, a worker may be busy or just starting
TEMPLATE_ID = UUID(int=0)
"""The id in a schedule's template: each job gets its own."""


class CatchUp(StrEnum):
    """What becomes of ticks that were due while no worker ran."""

    SKIP = "skip"  # nothing
    ONE = "one"  # one job for all of them
    ALL = "all"  # a job for each, in order


class Overlap(StrEnum):
    """What a tick does while the job of the last tick has not ended."""

    ALLOW = "allow"
    SKIP = "skip"  # the tick makes no job
    CANCEL = "cancel"  # the old job is cancelled


class TickOutcome(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    SKIPPED = "skipped"  # by `overlap`, or because another job held the key
    MISSED = "missed"  # no worker ran in time, and `catch_up` makes no job for it
    BY_HAND = "by hand"  # no tick: an operator fired the schedule


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule ticks: exactly one of the first three."""

    cron: str | None = None
    every: float | None = None  # seconds, counted from the epoch
    at: datetime | None = None  # once
    tz: str = "UTC"  # of a cron line


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the program declares it."""

    timing: Timing
    catch_up: CatchUp = CatchUp.ONE
    overlap: Overlap = Overlap.ALLOW
    job: NewJob  # the template of its jobs


class Edited(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator changed at run time; a deploy does not change it."""

    timing: Timing | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    queue: str | None = None
    priority: int | None = None


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A requested change of a schedule; None leaves a field as it is. Checked by `handles.schedule.edit_of`."""

    cron: str | None = None
    every: float | None = None
    at: datetime | None = None
    tz: str | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    queue: str | None = None
    priority: int | None = None


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored: what is declared, overridden by what was edited."""

    name: str
    declared: Declared
    edited: Edited | None = None
    edited_by: str | None = None
    paused: bool = False
    paused_by: str | None = None
    paused_at: datetime | None = None
    reason: str | None = None  # why it is paused
    next_at: datetime | None  # None: no tick any more
    last_at: datetime | None = None  # the last tick that fired
    last_job: UUID | None = None
    now: datetime  # the store's
    when: str = ""  # the timing in plain words; only `app.schedules()` sets it
    upcoming: tuple[datetime, ...] = ()  # the next ticks; only `app.schedules()` sets them

    @property
    def late(self) -> float | None:
        """For how many seconds the next tick is overdue; None where it is not late."""
        if self.paused or self.next_at is None:
            return None
        late = (self.now - self.next_at).total_seconds()
        return late if late > LATE else None

    @property
    def timing(self) -> Timing:
        """When it ticks, edits included."""
        return (self.edited and self.edited.timing) or self.declared.timing

    @property
    def catch_up(self) -> CatchUp:
        """What becomes of missed ticks, edits included."""
        return (self.edited and self.edited.catch_up) or self.declared.catch_up

    @property
    def overlap(self) -> Overlap:
        """What a tick does while the last job has not ended, edits included."""
        return (self.edited and self.edited.overlap) or self.declared.overlap

    @property
    def job(self) -> NewJob:
        """The template of its jobs, edits included."""
        edited, job = self.edited, self.declared.job
        if edited is None:
            return job
        priority = job.priority if edited.priority is None else edited.priority
        return msgspec.structs.replace(job, queue=edited.queue or job.queue, priority=priority)


class TickRow(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded outcome of one tick, or of several missed ticks."""

    at: datetime
    outcome: TickOutcome
    job: UUID | None
    noted_at: datetime
    reason: str | None


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker did about a due schedule; nothing when another worker was faster."""

    fired: int = 0
    skipped: int = 0
    missed: int = 0
    moved: bool = False  # this worker took the ticks; there may be more


class MakesJob(Protocol):
    """A checked call, as `report.call(…)` makes it."""

    def new_job(self, settings: Settings) -> NewJob: ...


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What `app.schedule(…)` declared. The job's template needs the settings of the worker that declares it."""

    name: str
    timing: Timing
    catch_up: CatchUp
    overlap: Overlap
    call: MakesJob

    def declared(self, settings: Settings) -> Declared:
        job = msgspec.structs.replace(self.call.new_job(settings), id=TEMPLATE_ID)
        return Declared(timing=self.timing, catch_up=self.catch_up, overlap=self.overlap, job=job)
