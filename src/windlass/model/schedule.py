"""Schedules as plain values: when jobs come by themselves, what a program declares, what was edited over it.

A *tick* is one moment of a schedule. What becomes of it (a job, nothing because the last job still runs, nothing
because nobody was there) is written down once. Times are aware and in UTC.
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

TEMPLATE_ID = UUID(int=0)
"""The id in a template: each job of a schedule has its own."""


class CatchUp(StrEnum):
    """What becomes of ticks for which nobody was there in time."""

    SKIP = "skip"  # nothing
    ONE = "one"  # one job for all of them
    ALL = "all"  # a job for each, in order


class Overlap(StrEnum):
    """What a tick means while the job of the last one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"  # this tick is left out
    CANCEL = "cancel"  # the old job is cancelled


class TickOutcome(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    SKIPPED = "skipped"  # by `overlap`, or because another job held its key
    MISSED = "missed"  # nobody was there in time, and `catch_up` wants no job for it
    BY_HAND = "by hand"  # no tick at all: somebody fired it


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When: exactly one of the first three."""

    cron: str | None = None
    every: float | None = None  # seconds, counted from the epoch
    at: datetime | None = None  # once
    tz: str = "UTC"  # of a cron line


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as its program's code has it."""

    timing: Timing
    catch_up: CatchUp = CatchUp.ONE
    overlap: Overlap = Overlap.ALLOW
    job: NewJob  # what each of its jobs looks like


class Edited(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody changed at run time; a deploy does not touch it."""

    timing: Timing | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    queue: str | None = None
    priority: int | None = None


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A wish to change a schedule; None leaves a field as it is. Checked by `scheduled.edit_of`."""

    cron: str | None = None
    every: float | None = None
    at: datetime | None = None
    tz: str | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    queue: str | None = None
    priority: int | None = None


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store knows it: what is declared, with what was edited laid over it."""

    name: str
    declared: Declared
    edited: Edited | None = None
    edited_by: str | None = None
    paused: bool = False
    paused_by: str | None = None
    paused_at: datetime | None = None
    reason: str | None = None  # why it is paused
    next_at: datetime | None  # None: never again
    last_at: datetime | None = None  # the last tick that fired
    last_job: UUID | None = None
    now: datetime  # the store's

    @property
    def timing(self) -> Timing:
        return (self.edited and self.edited.timing) or self.declared.timing

    @property
    def catch_up(self) -> CatchUp:
        return (self.edited and self.edited.catch_up) or self.declared.catch_up

    @property
    def overlap(self) -> Overlap:
        return (self.edited and self.edited.overlap) or self.declared.overlap

    @property
    def job(self) -> NewJob:
        """The template of its jobs."""
        edited, job = self.edited, self.declared.job
        if edited is None:
            return job
        priority = job.priority if edited.priority is None else edited.priority
        return msgspec.structs.replace(job, queue=edited.queue or job.queue, priority=priority)


class TickRow(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one tick, or of several that were missed."""

    at: datetime
    outcome: TickOutcome
    job: UUID | None
    noted_at: datetime
    reason: str | None


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a schedule that is due came to; nothing at all, when somebody else was faster."""

    fired: int = 0
    skipped: int = 0
    missed: int = 0
    moved: bool = False  # the ticks were this worker's; there may be more


class MakesJob(Protocol):
    """A checked call, as `report.call(…)` makes it."""

    def new_job(self, settings: Settings) -> NewJob: ...


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What `app.schedule(…)` said. The job's template needs the settings of the worker that declares it."""

    name: str
    timing: Timing
    catch_up: CatchUp
    overlap: Overlap
    call: MakesJob

    def declared(self, settings: Settings) -> Declared:
        job = msgspec.structs.replace(self.call.new_job(settings), id=TEMPLATE_ID)
        return Declared(timing=self.timing, catch_up=self.catch_up, overlap=self.overlap, job=job)
