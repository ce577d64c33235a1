"""A schedule as commands tell it: when it ticks in plain words, its next fires, and what became of the last ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from windlass.cli.show.live_log import short
from windlass.cli.show.output import inert, say, span, wrapped
from windlass.clock import spell
from windlass.errors import ScheduleError
from windlass.model.job import DEFAULT_TENANT
from windlass.model.schedule import ScheduleRow, TickOutcome, TickRow, Timing
from windlass.policy.cron import timetable, upcoming

FIRES = 5
LATE = 30.0  # seconds: a tick that nobody fired by then has no worker; before, one may be busy or just starting
INDENT = "  "
STYLES = {TickOutcome.FIRED: "green", TickOutcome.SKIPPED: "yellow", TickOutcome.MISSED: "red", TickOutcome.BY_HAND: ""}


def words(timing: Timing) -> str:
    """`at 03:00 every day (Europe/Berlin)`; where this machine does not know the time zone, as it is written."""
    try:
        return timetable(timing).describe()
    except ScheduleError:
        return f"cron {timing.cron} ({timing.tz})"


def fires(row: ScheduleRow, count: int = FIRES) -> list[datetime]:
    """When it fires next; of one whose time zone is unknown here, only what the store says."""
    try:
        return upcoming(row, count)
    except ScheduleError:
        return [] if row.next_at is None else [row.next_at]


def lateness(row: ScheduleRow) -> float | None:
    """For how many seconds a tick has waited that somebody should have fired; None when all is well."""
    if row.paused or row.next_at is None:
        return None
    late = (row.now - row.next_at).total_seconds()
    return late if late > LATE else None


def coming(row: ScheduleRow) -> str:
    """When its next tick is, or since when it is due: `in 14h`, `due since 9s`; nothing where none comes."""
    if row.paused or row.next_at is None:
        return ""
    waited = (row.now - row.next_at).total_seconds()
    if waited < 0:
        return relative(row.next_at, row.now)
    return f"due since {span(waited)}" if waited >= 1 else "due now"


def relative(moment: datetime, now: datetime) -> str:
    """`in 14h`, `5m ago`."""
    seconds = (moment - now).total_seconds()
    if seconds <= 0:
        return f"{span(-seconds)} ago" if seconds else "now"
    return f"in {span(seconds)}"


def local(moment: datetime, timing: Timing) -> str:
    """In the schedule's own time zone, with what it means here where that is another time."""
    here = moment.astimezone()
    try:
        there = moment.astimezone(ZoneInfo(timing.tz)) if timing.cron is not None else here
    except Exception:  # this machine does not know it
        there = here
    told = f"{there:%a %Y-%m-%d %H:%M:%S %Z}"
    return told if there.utcoffset() == here.utcoffset() else f"{told}  ({here:%a %H:%M %Z} here)"


# For a program


def document(row: ScheduleRow) -> dict[str, Any]:
    """A schedule as `--json` tells it."""
    timing, job, edited = row.timing, row.job, row.edited
    return {
        "name": row.name,
        "when": words(timing),
        "cron": timing.cron,
        "every": timing.every,
        "at": timing.at,
        "tz": timing.tz if timing.cron is not None else None,
        "catch_up": row.catch_up,
        "overlap": row.overlap,
        "type": job.type,
        "input": msgspec.Raw(job.input.encode()),
        "queue": job.queue,
        "tenant": job.tenant,
        "priority": job.priority,
        "edited": [] if edited is None else [name for name, _ in _edits(row)],
        "edited_by": row.edited_by,
        "paused": row.paused,
        "paused_by": row.paused_by,
        "paused_at": row.paused_at,
        "reason": row.reason,
        "next": fires(row),
        "late": lateness(row),
        "last_at": row.last_at,
        "last_job": row.last_job,
    }


def tick_document(tick: TickRow) -> dict[str, Any]:
    return {
        "at": tick.at,
        "outcome": tick.outcome,
        "job": tick.job,
        "noted_at": tick.noted_at,
        "reason": tick.reason,
    }


# For a person


def tell(row: ScheduleRow, ticks: Sequence[TickRow]) -> None:
    """The whole story of one schedule."""
    state, style = standing(row)
    say(wrapped(f"{row.name}  {state}", hanging=INDENT), style=f"bold {style}".strip())
    say(wrapped(words(row.timing)), style="dim")
    say("")
    known = list(_facts(row))
    width = max(len(name) for name, _ in known)
    for name, value in known:
        margin = f"{INDENT}{name:<{width}}  "
        say(margin + wrapped(inert(value), " " * len(margin))[len(margin) :])
    tell_fires(row)
    _tell_ticks(ticks)


def standing(row: ScheduleRow) -> tuple[str, str]:
    """What there is to know at a glance, and its style."""
    if row.paused:
        by = f" by {row.paused_by}" if row.paused_by else ""
        since = "" if row.paused_at is None else f" since {span((row.now - row.paused_at).total_seconds())}"
        return f"paused{since}{by}" + (f": {row.reason}" if row.reason else ""), "yellow"
    if row.next_at is None:
        return "never again", "dim"
    late = lateness(row)
    if late is not None:
        return f"due since {span(late)}: no worker fires it", "red"
    if row.next_at <= row.now:
        return coming(row), "yellow"
    return f"next {coming(row)}", "green"


def _facts(row: ScheduleRow) -> Iterator[tuple[str, str]]:
    job = row.job
    yield "job", f"{job.type} {_input(job.input)}"
    yield "queue", job.queue
    if job.tenant != DEFAULT_TENANT:
        yield "tenant", job.tenant
    if job.priority:
        yield "priority", str(job.priority)
    yield "catch up", row.catch_up.value
    yield "overlap", row.overlap.value
    for name, code in _edits(row):
        by = f" by {row.edited_by}" if row.edited_by else ""
        yield "edited", f"{name}{by}; the code says: {code}"
    if row.last_at is not None:
        yield "last", f"{local(row.last_at, row.timing)}, {relative(row.last_at, row.now)}" + _job(row.last_job)


def _input(document: str) -> str:
    """At a terminal with spaces, where a line may end."""
    return msgspec.json.format(document, indent=0) if sys.stdout.isatty() else document


def _job(job: UUID | None) -> str:
    """At a terminal the short id, as in every table; `windlass jobs show` takes it."""
    return "" if job is None else f", job {short(job) if sys.stdout.isatty() else job}"


def _edits(row: ScheduleRow) -> Iterator[tuple[str, str]]:
    """The fields that were edited, and what the code says instead."""
    edited, code = row.edited, row.declared
    if edited is None:
        return
    if edited.timing is not None:
        yield "timing", words(code.timing)
    if edited.catch_up is not None:
        yield "catch_up", code.catch_up.value
    if edited.overlap is not None:
        yield "overlap", code.overlap.value
    if edited.queue is not None:
        yield "queue", code.job.queue
    if edited.priority is not None:
        yield "priority", str(code.job.priority)


def tell_fires(row: ScheduleRow) -> None:
    """The next fires, in plain words."""
    following = fires(row)
    if not following:
        return
    say("\nNext fires" + (", if it were resumed now" if row.paused else ""), style="bold")
    told = [relative(moment, row.now) for moment in following]
    width = max(map(len, told))
    for moment, when in zip(following, told, strict=True):
        say(f"{INDENT}{when:<{width}}  {local(moment, row.timing)}")


def _tell_ticks(ticks: Sequence[TickRow]) -> None:
    if not ticks:
        return
    say("\nLast ticks", style="bold")
    for tick in ticks:
        late = (tick.noted_at - tick.at).total_seconds()
        parts = [
            tick.outcome.value + _job(tick.job),
            f"{spell(round(late))} late" if late >= 1 else "",
            tick.reason or "",
        ]
        when = f"{tick.at.astimezone():%Y-%m-%d %H:%M:%S}  "
        told = wrapped(when + inert(", ".join(filter(None, parts))), INDENT, " " * len(when))
        say(told, style=STYLES[tick.outcome] or None)
