"""The bodies of requests and answers about schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field, StrictBool

from windlass.declare.registry import PRIORITIES
from windlass.model.schedule import CatchUp, Overlap, TickOutcome
from windlass.web.schemas.base import (
    Answer,
    Body,
    Name,
    Reason,
    Span,
    both,
)


class ScheduleDocument(Answer):
    """A schedule, edits included. `next` are its next ticks."""

    name: str
    when: str
    cron: str | None
    every: float | None
    at: datetime | None
    tz: str | None
    catch_up: CatchUp
    overlap: Overlap
    type: str
    input: Any
    queue: str
    tenant: str
    priority: int
    edited: list[str]
    edited_by: str | None
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    reason: str | None
    next: list[datetime]
    late: float | None
    last_at: datetime | None
    last_job: UUID | None
    ticks: list[tuple[datetime, str]] | None = None
    coming: list[datetime] | None = None


class Schedules(Answer):
    """All schedules."""

    schedules: list[ScheduleDocument]


class Tick(Answer):
    """What became of one tick."""

    at: datetime
    outcome: TickOutcome
    job: UUID | None
    noted_at: datetime
    reason: str | None


class Ticks(Answer):
    """The last ticks of a schedule, newest first."""

    ticks: list[Tick]


class ScheduleBody(Body):
    """A schedule by its name."""

    name: Name


class PauseScheduleBody(ScheduleBody):
    """Pause a schedule."""

    reason: Reason | None = None


class ForgetBody(ScheduleBody):
    """Delete a schedule."""

    force: StrictBool = False


class EditBody(ScheduleBody):
    """Override what the program declares; a field that is left out stays. One of cron, every and at sets the time."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"anyOf": [both("cron", "every"), both("cron", "at"), both("every", "at")]}}
    )

    cron: str | None = Field(default=None, min_length=1, max_length=200)
    every: Span | None = None
    at: AwareDatetime | None = None
    tz: Name | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    queue: Name | None = None
    priority: int | None = Field(default=None, ge=PRIORITIES.start, lt=PRIORITIES.stop, strict=True)


class Fired(Answer):
    """The job that a schedule enqueued."""

    id: UUID
    url: str
    existing: bool
