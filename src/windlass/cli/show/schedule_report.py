"""A schedule as commands print it: its timing in plain words, its next fires, and its last ticks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from windlass.cli.show.live_log import short_id
from windlass.cli.show.output import escape_text, format_origin, print_text, wrap
from windlass.clock import format_span, spell
from windlass.model.job import DEFAULT_TENANT
from windlass.model.schedule import ScheduleRow, TickOutcome, TickRow, Timing
from windlass.policy.cron import describe, list_fires

INDENT = "  "
STYLES = {TickOutcome.FIRED: "green", TickOutcome.SKIPPED: "yellow", TickOutcome.MISSED: "red", TickOutcome.BY_HAND: ""}


def describe_next(row: ScheduleRow) -> str:
    """When the next tick is, or since when it is due: `in 14h`, `due since 9s`; empty where no tick comes."""
    if row.paused or row.next_at is None:
        return ""
    waited = (row.now - row.next_at).total_seconds()
    if waited < 0:
        return format_relative(row.next_at, row.now)
    return f"due since {format_span(waited)}" if waited >= 1 else "due now"


def format_relative(moment: datetime, now: datetime) -> str:
    """`in 14h`, `5m ago`."""
    seconds = (moment - now).total_seconds()
    if seconds <= 0:
        return f"{format_span(-seconds)} ago" if seconds else "now"
    return f"in {format_span(seconds)}"


def format_moment(moment: datetime, timing: Timing) -> str:
    """The moment in the schedule's time zone, and in this machine's where that is another time."""
    here = moment.astimezone()
    try:
        there = moment.astimezone(ZoneInfo(timing.tz)) if timing.cron is not None else here
    except Exception:  # this machine does not know the time zone
        there = here
    text = f"{there:%a %Y-%m-%d %H:%M:%S %Z}"
    return text if there.utcoffset() == here.utcoffset() else f"{text}  ({here:%a %H:%M %Z} here)"


# JSON


# Text


def print_schedule(row: ScheduleRow, ticks: Sequence[TickRow]) -> None:
    """Print the whole report of one schedule."""
    state, style = describe_state(row)
    print_text(wrap(f"{row.name}  {state}", hanging=INDENT), style=f"bold {style}".strip())
    print_text(wrap(describe(row.timing)), style="dim")
    print_text("")
    known = list(_list_facts(row))
    width = max(len(name) for name, _ in known)
    for name, value in known:
        margin = f"{INDENT}{name:<{width}}  "
        print_text(margin + wrap(escape_text(value), " " * len(margin))[len(margin) :])
    print_fires(row)
    _print_ticks(ticks)


def describe_state(row: ScheduleRow) -> tuple[str, str]:
    """The schedule's state in a few words, and its style."""
    if row.paused:
        since = "" if row.paused_at is None else f" since {format_span((row.now - row.paused_at).total_seconds())}"
        return f"paused{since}{format_origin(row.paused_by, row.reason)}", "yellow"
    if row.next_at is None:
        return "does not fire again", "dim"
    late = row.late
    if late is not None:
        return f"due since {format_span(late)}: no worker fires it", "red"
    if row.next_at <= row.now:
        return describe_next(row), "yellow"
    return f"next {describe_next(row)}", "green"


def _list_facts(row: ScheduleRow) -> Iterator[tuple[str, str]]:
    job = row.job
    yield "job", f"{job.type} {_format_input(job.input)}"
    yield "queue", job.queue
    if job.tenant != DEFAULT_TENANT:
        yield "tenant", job.tenant
    if job.priority:
        yield "priority", str(job.priority)
    yield "catch up", row.catch_up.value
    yield "overlap", row.overlap.value
    for name, code in _list_edits(row):
        by = f" by {row.edited_by}" if row.edited_by else ""
        yield "edited", f"{name}{by}; in the code: {code}"
    if row.last_at is not None:
        yield (
            "last",
            f"{format_moment(row.last_at, row.timing)}, {format_relative(row.last_at, row.now)}"
            + _format_job(row.last_job),
        )


def _format_input(schedule_document: str) -> str:
    """On a terminal with spaces, where a line can be wrapped."""
    return msgspec.json.format(schedule_document, indent=0) if sys.stdout.isatty() else schedule_document


def _format_job(job: UUID | None) -> str:
    """On a terminal the short id, as in every table; `windlass jobs show` accepts it."""
    return "" if job is None else f", job {short_id(job) if sys.stdout.isatty() else job}"


def _list_edits(row: ScheduleRow) -> Iterator[tuple[str, str]]:
    """The fields that were edited, and their values in the code."""
    edited, code = row.edited, row.declared
    if edited is None:
        return
    if edited.timing is not None:
        yield "timing", describe(code.timing)
    if edited.catch_up is not None:
        yield "catch_up", code.catch_up.value
    if edited.overlap is not None:
        yield "overlap", code.overlap.value
    if edited.queue is not None:
        yield "queue", code.job.queue
    if edited.priority is not None:
        yield "priority", str(code.job.priority)


def print_fires(row: ScheduleRow) -> None:
    """Print the next fires."""
    following = list_fires(row)
    if not following:
        return
    print_text("\nNext fires" + (", if it were resumed now" if row.paused else ""), style="bold")
    text = [format_relative(moment, row.now) for moment in following]
    width = max(map(len, text))
    for moment, when in zip(following, text, strict=True):
        print_text(f"{INDENT}{when:<{width}}  {format_moment(moment, row.timing)}")


def _print_ticks(ticks: Sequence[TickRow]) -> None:
    if not ticks:
        return
    print_text("\nLast ticks", style="bold")
    for tick in ticks:
        late = (tick.noted_at - tick.at).total_seconds()
        parts = [
            tick.outcome.value + _format_job(tick.job),
            f"{spell(round(late))} late" if late >= 1 else "",
            tick.reason or "",
        ]
        when = f"{tick.at.astimezone():%Y-%m-%d %H:%M:%S}  "
        text = wrap(when + escape_text(", ".join(filter(None, parts))), INDENT, " " * len(when))
        print_text(text, style=STYLES[tick.outcome] or None)
