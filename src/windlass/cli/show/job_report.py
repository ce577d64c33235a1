"""The report of `jobs show`: a job's state and fields, what happened to it and when, and the commands for it now."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.cli.show.job_details import (
    list_details,
    print_audit,
    print_links,
)
from windlass.cli.show.live_log import COLOURS, short_id
from windlass.cli.show.output import escape_text, format_age, format_count, print_text
from windlass.clock import format_span, spell, to_local
from windlass.model.job import DEFAULT_TENANT, Attempt, Job
from windlass.model.rows import JobDetails, WaitKind
from windlass.model.state import State
from windlass.policy.reports.story import story_of, summarize_failure
from windlass.store.parts.refusals import OPERATIONS

SHOWN_LINES = 20  # of a document or a traceback
SHOWN_LOG = 10  # lines of an attempt's log
UNBOUNDED = 1 << 30  # characters
INDENT = "  "
STAMP = len("2026-01-01 12:00:00.000")

OUTCOME_TEXT = {
    "raised": "failed",
    "timeout": "timed out",
    "retry": "asked for a retry",
    "released": "released",
    "waiting": "began to wait",
}
"""How a timeline names an outcome, where it does not use the outcome's own name."""
STYLES = {"succeeded": "green", "failed": "yellow", "timed out": "yellow", "crashed": "red", "dead": "red"}


class TimelineEntry(msgspec.Struct, frozen=True):
    """One line of a timeline: something that happened to the job, or will happen."""

    when: datetime | None
    text: str
    style: str = ""


def print_job(job: Job, details: JobDetails, now: datetime, *, label: str | None, full: bool) -> None:
    """Print the whole report."""
    why = describe_reason(details)
    print_text(escape_text(story_of(job, details, now).replace("\N{NO-BREAK SPACE}", " ")))
    print_text("")
    print_text(f"{job.type}  {_describe_state(job, why, now)}", style=f"bold {COLOURS.get(job.status) or ''}")
    print_text(str(job.id), style="dim")
    print_text("")
    known = [*_list_facts(job), *([("label", label)] if label else []), *list_details(job, details)]
    width = max(len(name) for name, _ in known)
    for name, value in known:
        print_text(f"{INDENT}{name:<{width}}  {escape_text(value)}")
    _print_timeline(make_timeline(job, details.workers, now, why=why, most=None if full else SHOWN_LOG))
    print_links(job, details)
    print_audit(job, details)
    failure = job.failure()
    if failure is not None and failure.traceback and job.status is not State.SUCCEEDED:
        _print_section(f"Traceback of attempt {failure.attempt}", failure.traceback, full=full, end=True)
    _print_section("Input", _indent_json(job.input), full=full)
    if job.output is not None:
        _print_section("Output", _indent_json(job.output), full=full)
    _print_commands(job, details)


def describe_reason(details: JobDetails) -> str:
    """What keeps the job from starting; empty where nothing does."""
    return details.reasons[0].text if details.reasons else ""


def _describe_state(job: Job, why: str, now: datetime) -> str:
    match job.status:
        case State.QUEUED | State.FAILED if why:
            return f"{job.status.value}, {why}"
        case State.FAILED:
            return "failed, due again now"
        case State.QUEUED:
            return f"queued, waits since {format_age(job.run_at, now)}"
        case State.RUNNING if job.started_at is not None:
            asked = ", asked to cancel" if job.cancel_requested else ""
            return f"running since {format_age(job.started_at, now)}{asked}"
        case State.DEAD | State.CANCELLED if job.reason:
            return f"{job.status.value} ({job.reason})"
        case State.WAITING if why:
            return f"waiting{why.removeprefix('waits')}"
        case _:
            return job.status.value


def _list_facts(job: Job) -> list[tuple[str, str]]:
    """Names and values of the job's fields that differ from the defaults."""
    facts = [("queue", job.queue), ("attempts", f"{job.attempt} of {job.max_attempts}")]
    for name, value, usual in (
        ("priority", job.priority, 0),
        ("tenant", job.tenant, DEFAULT_TENANT),
        ("phase", job.phase, job.queue),
        ("pipeline", job.pipeline, None),
        ("key", job.key, None),
        ("parent", job.parent, None),
        ("copied from", job.copied_from, None),
        ("crashes", job.crashes, 0),
        ("trace", job.trace, None),
    ):
        if value != usual:
            facts.append((name, str(value)))
    if job.total or job.processed or job.failed:
        of = "" if job.total is None else f" of {job.total:,}"
        facts.append(("progress", f"{job.processed:,}{of}" + (f", {job.failed:,} failed" if job.failed else "")))
    if job.cost_cents:
        facts.append(("cost", format_count(job.cost_cents, "cent")))
    return facts


def make_timeline(
    job: Job, names: Mapping[UUID, str], now: datetime, *, why: str = "", most: int | None = None
) -> list[TimelineEntry]:
    """What happened, in order; the last entry may be what comes next."""
    attempts = job.attempts_made()
    lines = [TimelineEntry(job.created_at, "enqueued")]
    for attempt in attempts:
        lines += _attempt_entries(attempt, names, most)
    if job.started_at is not None and not any(attempt.fence == job.fence for attempt in attempts):
        lines += _latest_entries(job, names, now)
    lines += _last_entries(job, why, now)
    return lines


def _attempt_entries(attempt: Attempt, names: Mapping[UUID, str], most: int | None) -> Iterator[TimelineEntry]:
    outcome = OUTCOME_TEXT.get(attempt.outcome, attempt.outcome)
    started = attempt.started_at or attempt.finished_at
    took = spell((attempt.finished_at - started).total_seconds())
    phase = f" of {attempt.phase}" if attempt.phase else ""
    text = f"attempt {attempt.attempt}{phase}  {outcome} after {took}{_on_worker(attempt.worker, names)}"
    yield TimelineEntry(started, text, STYLES.get(outcome, ""))
    if attempt.error is not None:
        yield TimelineEntry(None, f"  {summarize_failure(attempt.error)}")
    log = attempt.log if most is None else attempt.log[-most:]
    if len(log) < len(attempt.log):
        hidden = format_count(len(attempt.log) - len(log), "line")
        yield TimelineEntry(None, f"  │ … {hidden} before; see all: --full", "dim")
    for line in log:
        yield TimelineEntry(None, f"  │ {line}", "dim")


def _latest_entries(job: Job, names: Mapping[UUID, str], now: datetime) -> Iterator[TimelineEntry]:
    """The attempt without an entry in `attempts`: it still runs, or it succeeded."""
    assert job.started_at is not None
    worker = _on_worker(job.worker, names)
    if job.status is State.RUNNING:
        yield TimelineEntry(
            job.started_at, f"attempt {job.attempt}  runs since {format_age(job.started_at, now)}{worker}", "cyan"
        )
    elif job.status is State.SUCCEEDED and job.finished_at is not None:
        took = spell((job.finished_at - job.started_at).total_seconds())
        yield TimelineEntry(job.started_at, f"attempt {job.attempt}  succeeded after {took}{worker}", "green")


def _last_entries(job: Job, why: str, now: datetime) -> Iterator[TimelineEntry]:
    wait = (job.run_at - now).total_seconds()
    due = f"due in {format_span(wait)}" if wait > 0 else f"due since {format_span(-wait)}"
    match job.status:
        case State.QUEUED | State.FAILED:
            held = f", {why}" if why and wait <= 0 else ""
            yield TimelineEntry(job.run_at, f"attempt {job.attempt + 1}  {due}{held}", "cyan")
        case State.DEAD:
            yield TimelineEntry(job.finished_at or job.updated_at, f"dead: {job.reason or 'no attempt is left'}", "red")
        case State.CANCELLED:
            ended = f": {job.reason}" if job.reason else ""
            yield TimelineEntry(job.finished_at, f"cancelled{ended}", "magenta")
        case State.WAITING:
            yield TimelineEntry(job.updated_at, why or "waits for a reason that is not recorded", "cyan")
        case _:
            pass


def _on_worker(worker: UUID | None, names: Mapping[UUID, str]) -> str:
    return "" if worker is None else f" on {names.get(worker) or f'worker {short_id(worker)}'}"


def _print_timeline(lines: Sequence[TimelineEntry]) -> None:
    """Print the entries with a column of times; the date only where it changes."""
    offset = datetime.now().astimezone().strftime("%z")
    print_text(f"\nTimeline  (times in UTC{offset[:3]}:{offset[3:]})", style="bold")
    room = max(40, _width() - STAMP - 2 * len(INDENT))
    date = ""
    for line in lines:
        stamp = " " * STAMP
        if line.when is not None:
            when = to_local(line.when)
            day = when.strftime("%Y-%m-%d")
            stamp = f"{'' if day == date else day:<10} {when:%H:%M:%S}.{when.microsecond // 1000:03}"
            date = day
        print_text(f"{INDENT}{stamp}  {_cut(escape_text(line.text), room)}", style=line.style or None)


def _width() -> int:
    """The columns of the terminal; unlimited in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _indent_json(document: str) -> str:
    try:
        return msgspec.json.format(document, indent=2)
    except (msgspec.MsgspecError, ValueError):  # no JSON: unchanged
        return document


def _print_section(heading: str, text: str, *, full: bool, end: bool = False) -> None:
    """Print a document's beginning or a traceback's end; all of it with `full`."""
    lines = text.rstrip("\n").split("\n")
    kept = lines if full else lines[-SHOWN_LINES:] if end else lines[:SHOWN_LINES]
    hidden = len(lines) - len(kept)
    print_text(f"\n{heading}", style="bold")
    if hidden and end:
        print_text(f"{INDENT}… {format_count(hidden, 'line')} before; see all: --full", style="dim")
    room = UNBOUNDED if full else max(40, _width() - len(INDENT))
    for line in kept:
        print_text(INDENT + _cut(escape_text(line), room))
    if not hidden and any(len(escape_text(line)) > room for line in kept):
        print_text(f"{INDENT}(lines are cut; see all: --full)", style="dim")
    if hidden and not end:
        print_text(f"{INDENT}… {format_count(hidden, 'line')} more; see all: --full", style="dim")


def _print_commands(job: Job, details: JobDetails) -> None:
    """Print the commands that are possible in the job's state."""
    from windlass.model.state import Verb, allows

    verbs = [verb for verb in OPERATIONS if allows(verb, job.status)]
    if job.status is State.RUNNING and not job.cancel_requested:
        verbs = [Verb.CANCEL]
    own = (WaitKind.TIME, WaitKind.JOBS)  # their commands are among the verbs, or this one
    helps = [reason.command for reason in details.reasons if reason.command and reason.kind not in own]
    if verbs or helps:
        print_text("")
    for command in dict.fromkeys(helps):
        print_text(command.replace(str(job.id), short_id(job.id)), style="dim")
    for verb in verbs:
        print_text(f"windlass jobs {verb} {short_id(job.id)}", style="dim")
