"""One job's story, as a person reads it: what it is, what happened to it when, and what can be done now."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.cli.parse.filter_args import shown
from windlass.cli.show.job_details import Surroundings, describe_park, describe_wait, facts, tell_audit, tell_links
from windlass.cli.show.job_json import attempts_of, failure_of, summary
from windlass.cli.show.live_log import COLOURS, short
from windlass.cli.show.output import inert, local, say, since, span
from windlass.clock import spell
from windlass.model.job import DEFAULT_TENANT, Attempt, Job
from windlass.model.state import State
from windlass.store.parts.refusals import OPERATIONS

if TYPE_CHECKING:
    from windlass.store.protocol import WorkerRow

SHOWN_LINES = 20  # of a document or a traceback
SHOWN_LOG = 10  # lines of an attempt's log
UNBOUNDED = 1 << 30  # characters
INDENT = "  "
STAMP = len("2026-01-01 12:00:00.000")

WORDS = {
    "raised": "failed",
    "timeout": "timed out",
    "retry": "asked for a retry",
    "released": "given back",
    "waiting": "began to wait",
}
"""Outcomes in the words of a story, where they are not the word themselves."""
STYLES = {"succeeded": "green", "failed": "yellow", "timed out": "yellow", "crashed": "red", "dead": "red"}


class Line(msgspec.Struct, frozen=True):
    """Something that happened, or will."""

    when: datetime | None
    text: str
    style: str = ""


def tell(
    job: Job, around: Surroundings, workers: Sequence[WorkerRow], now: datetime, *, label: str | None, full: bool
) -> None:
    """Print the story."""
    awaits = describe_wait(around.waiting, now) or describe_park(job, around)
    say(f"{job.type}  {_standing(job, awaits, now)}", style=f"bold {COLOURS.get(job.status) or ''}")
    say(str(job.id), style="dim")
    say("")
    known = [*_facts(job), *([("label", label)] if label else []), *facts(job, around)]
    width = max(len(name) for name, _ in known)
    for name, value in known:
        say(f"{INDENT}{name:<{width}}  {inert(value)}")
    names = {row.id: row.name for row in workers}
    _tell_times(story(job, names, now, awaits=awaits, most=None if full else SHOWN_LOG))
    tell_links(job, around)
    tell_audit(job, around)
    failure = failure_of(job)
    if failure is not None and failure.traceback and job.status is not State.SUCCEEDED:
        _tell_text(f"Traceback of attempt {failure.attempt}", failure.traceback, full=full, end=True)
    _tell_text("Input", _pretty(job.input), full=full)
    if job.output is not None:
        _tell_text("Output", _pretty(job.output), full=full)
    _tell_next(job, around)


def _standing(job: Job, awaits: str, now: datetime) -> str:
    wait = (job.run_at - now).total_seconds()
    match job.status:
        case State.QUEUED | State.FAILED if awaits and wait <= 0:
            return f"{job.status.value}, waits {awaits}"
        case State.FAILED:
            return f"failed, again in {span(wait)}" if wait > 0 else "failed, due again now"
        case State.QUEUED:
            return f"queued, due in {span(wait)}" if wait > 0 else f"queued, waits since {span(-wait)}"
        case State.RUNNING if job.started_at is not None:
            asked = ", asked to cancel" if job.cancel_requested else ""
            return f"running since {since(job.started_at, now)}{asked}"
        case State.DEAD | State.CANCELLED if job.reason:
            return f"{job.status.value} ({job.reason})"
        case State.WAITING if awaits:
            return f"waiting {awaits}"
        case _:
            return job.status.value


def _facts(job: Job) -> list[tuple[str, str]]:
    """What there is to say beyond the defaults."""
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
        facts.append(("cost", f"{job.cost_cents:,} cents"))
    return facts


def story(
    job: Job, names: Mapping[UUID, str], now: datetime, *, awaits: str = "", most: int | None = None
) -> list[Line]:
    """What happened, in order; the last line may be what will."""
    attempts = attempts_of(job)
    lines = [Line(job.created_at, "enqueued")]
    for attempt in attempts:
        lines += _attempt(attempt, names, most)
    if job.started_at is not None and not any(attempt.fence == job.fence for attempt in attempts):
        lines += _latest(job, names, now)
    lines += _ending(job, awaits, now)
    return lines


def _attempt(attempt: Attempt, names: Mapping[UUID, str], most: int | None) -> Iterator[Line]:
    outcome = WORDS.get(attempt.outcome, attempt.outcome)
    started = attempt.started_at or attempt.finished_at
    took = spell((attempt.finished_at - started).total_seconds())
    phase = f" of {attempt.phase}" if attempt.phase else ""
    text = f"attempt {attempt.attempt}{phase}  {outcome} after {took}{_on(attempt.worker, names)}"
    yield Line(started, text, STYLES.get(outcome, ""))
    if attempt.error is not None:
        yield Line(None, f"  {summary(attempt.error)}")
    log = attempt.log if most is None else attempt.log[-most:]
    if len(log) < len(attempt.log):
        yield Line(None, f"  │ … {len(attempt.log) - len(log)} lines before; see all: --full", "dim")
    for line in log:
        yield Line(None, f"  │ {line}", "dim")


def _latest(job: Job, names: Mapping[UUID, str], now: datetime) -> Iterator[Line]:
    """The attempt that nobody wrote an entry for: it runs, or it simply succeeded."""
    assert job.started_at is not None
    worker = _on(job.worker, names)
    if job.status is State.RUNNING:
        yield Line(job.started_at, f"attempt {job.attempt}  runs since {since(job.started_at, now)}{worker}", "cyan")
    elif job.status is State.SUCCEEDED and job.finished_at is not None:
        took = spell((job.finished_at - job.started_at).total_seconds())
        yield Line(job.started_at, f"attempt {job.attempt}  succeeded after {took}{worker}", "green")


def _ending(job: Job, awaits: str, now: datetime) -> Iterator[Line]:
    wait = (job.run_at - now).total_seconds()
    due = f"due in {span(wait)}" if wait > 0 else f"due since {span(-wait)}"
    match job.status:
        case State.QUEUED | State.FAILED:
            why = f", waits {awaits}" if awaits else ""
            yield Line(job.run_at, f"attempt {job.attempt + 1}  {due}{why}", "cyan")
        case State.DEAD:
            yield Line(job.finished_at or job.updated_at, f"dead: {job.reason or 'no attempt is left'}", "red")
        case State.CANCELLED:
            why = f": {job.reason}" if job.reason else ""
            yield Line(job.finished_at, f"cancelled{why}", "magenta")
        case State.WAITING:
            yield Line(job.updated_at, f"waits {awaits or 'for something'}", "cyan")
        case _:
            pass


def _on(worker: UUID | None, names: Mapping[UUID, str]) -> str:
    return "" if worker is None else f" on {names.get(worker) or f'worker {short(worker)}'}"


def _tell_times(lines: Sequence[Line]) -> None:
    """A column of times: the date only where it changes."""
    offset = datetime.now().astimezone().strftime("%z")
    say(f"\nStory  (times in UTC{offset[:3]}:{offset[3:]})", style="bold")
    room = max(40, _width() - STAMP - 2 * len(INDENT))
    date = ""
    for line in lines:
        stamp = " " * STAMP
        if line.when is not None:
            when = local(line.when)
            day = when.strftime("%Y-%m-%d")
            stamp = f"{'' if day == date else day:<10} {when:%H:%M:%S}.{when.microsecond // 1000:03}"
            date = day
        say(f"{INDENT}{stamp}  {_cut(inert(line.text), room)}", style=line.style or None)


def _width() -> int:
    """Columns; in a pipe there is always room."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _pretty(document: str) -> str:
    try:
        return msgspec.json.format(document, indent=2)
    except (msgspec.MsgspecError, ValueError):  # no JSON: as it is
        return document


def _tell_text(heading: str, text: str, *, full: bool, end: bool = False) -> None:
    """A document or a traceback: its beginning, or its end where the point is, unless all of it is wanted."""
    lines = text.rstrip("\n").split("\n")
    kept = lines if full else lines[-SHOWN_LINES:] if end else lines[:SHOWN_LINES]
    hidden = len(lines) - len(kept)
    say(f"\n{heading}", style="bold")
    if hidden and end:
        say(f"{INDENT}… {hidden} lines before; see all: --full", style="dim")
    room = UNBOUNDED if full else max(40, _width() - len(INDENT))
    for line in kept:
        say(INDENT + _cut(inert(line), room))
    if not hidden and any(len(inert(line)) > room for line in kept):
        say(f"{INDENT}(lines are cut; see all: --full)", style="dim")
    if hidden and not end:
        say(f"{INDENT}… {hidden} lines more; see all: --full", style="dim")


def _tell_next(job: Job, around: Surroundings) -> None:
    """What can be done now."""
    from windlass.model.state import Verb, allows

    verbs = [verb for verb in OPERATIONS if allows(verb, job.status)]
    if job.status is State.RUNNING and not job.cancel_requested:
        verbs = [Verb.CANCEL]
    if verbs:
        say("")
    if around.waiting is not None and around.waiting.signal is not None:
        say(f"windlass jobs signal {short(job.id)} {shown([around.waiting.signal])}", style="dim")
    for verb in verbs:
        say(f"windlass jobs {verb} {short(job.id)}", style="dim")
