"""`windlass jobs`: look for jobs, read one's story, and operate on all that match."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import click

from windlass.cli.commands.bulk import COMMANDS
from windlass.cli.commands.signal import signal
from windlass.cli.parse.filter_args import Filtering, filter_argument, filter_of, ids_of, shown
from windlass.cli.parse.find_jobs import explain_ambiguous, find, look
from windlass.cli.parse.store_option import app_option, ask, labels_of, settings_of, url_option
from windlass.cli.show.output import Cell, Column, as_json, print_json, print_table, say, since, span

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.cli.show.job_details import Surroundings
    from windlass.config import Settings
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.store.protocol import Store, WorkerRow

USUAL = 25  # jobs in a list
QUICK = 0.5  # seconds: a search that took longer is not repeated to find advice

COLUMNS = (
    Column("ID"),
    Column("TYPE", flexible=True),
    Column("QUEUE", flexible=True, spare=2),
    Column("STATE"),
    Column("ATTEMPT", right=True, spare=3),
    Column("AGE", right=True, spare=1),
    Column("DETAIL", flexible=True),
)


class JobsGroup(click.Group):
    """`windlass jobs state:dead` is short for `windlass jobs list state:dead`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        asks = first in ctx.help_option_names
        if (
            not ctx.resilient_parsing
            and not asks
            and (not first or first.startswith("-") or ":" in first or ids_of([first]))
        ):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=JobsGroup, short_help="Look for jobs, and operate on them.")
def jobs() -> None:
    """Look for jobs, and operate on them.

    A FILTER is one or more terms, all of which must hold: queue:mail state:failed,dead type:send* input.user_id:42
    error:"timed out" age:>1h attempt:>2 -tenant:acme. An ID may be shortened to 6 or more digits of its beginning or
    end. Without a command, this lists the jobs that match.
    """


for command in (*COMMANDS, signal):
    jobs.add_command(command)


# The list


@jobs.command("list", cls=Filtering, short_help="List the jobs that match, newest first.")
@filter_argument
@click.option(
    "-n", "--limit", type=click.IntRange(1, 100_000), default=USUAL, show_default=True, help="At most so many."
)
@click.option("--below", type=click.UUID, metavar="ID", help="Begin below this job: the next page.")
@app_option
@url_option
@as_json
def list_jobs(
    words: tuple[str, ...] = (),
    limit: int = USUAL,
    below: UUID | None = None,
    app: str | None = None,
    url: str | None = None,
    as_json: bool = False,
) -> None:
    """List the jobs that match, newest first; without a FILTER, all of them.

    In a pipe: one line per job, with the whole id first and tabs between the columns.
    """
    from windlass.clock import SystemClock

    filter = filter_of(words)
    settings, label = settings_of(url, app), labels_of(app)
    began = time.monotonic()
    found = ask(settings, lambda store: look(store, filter, limit + 1, below))
    took = time.monotonic() - began
    page, more = found[:limit], len(found) > limit
    if as_json:
        from windlass.cli.show.job_json import record

        documents = [record(job, label(job)) for job in page]
        print_json({"filter": filter.text, "jobs": documents, "next": page[-1].id if more else None})
        return
    if not page:
        _explain_nothing(settings, filter, words, below, took)
        return
    now = SystemClock().now()
    print_table(COLUMNS, [_row(job, label(job), now) for job in page])
    if more and sys.stdout.isatty():
        size = [] if limit == USUAL else ["-n", str(limit)]
        say(f"more: windlass jobs list {shown([*words, *size, '--below', str(page[-1].id)])}", style="dim")


def _row(job: Job, label: str | None, now: datetime) -> list[Cell]:
    from windlass.cli.show.live_log import COLOURS, short

    return [
        Cell(short(job.id), raw=str(job.id)),
        Cell(job.type),
        Cell(job.queue),
        Cell(f"{job.status.value} ({label})" if label else job.status.value, COLOURS.get(job.status, "") or ""),
        Cell(f"{job.attempt}/{job.max_attempts}"),
        Cell(since(job.created_at, now), raw=job.created_at.isoformat()),
        Cell(detail(job, now), "dim"),
    ]


def detail(job: Job, now: datetime) -> str:
    """What matters most about a job in its state."""
    from windlass.cli.show.job_json import failure_of, summary
    from windlass.clock import spell
    from windlass.model.state import State

    failure = failure_of(job)
    why = "" if failure is None else summary(failure)
    wait = (job.run_at - now).total_seconds()
    parts: list[str] = [f"{job.pipeline}: {job.phase}" if job.pipeline else ""]
    parts += [f"waits for {job.parked_on}" if job.parked_on else ""]
    match job.status:
        case State.SUCCEEDED if job.started_at is not None and job.finished_at is not None:
            parts.append(f"in {spell((job.finished_at - job.started_at).total_seconds())}")
        case State.FAILED:
            parts += [f"again in {span(wait)}" if wait > 0 else "due now", why]
        case State.DEAD:
            parts += [job.reason or "", why]
        case State.QUEUED:
            parts += [f"due in {span(wait)}" if wait > 0 else "", f"after {job.crashes} crashes" if job.crashes else ""]
        case State.CANCELLED:
            parts.append(job.reason or "")
        case State.WAITING:
            parts.append(progress(job))
        case State.RUNNING:
            parts += [progress(job), "asked to cancel" if job.cancel_requested else ""]
        case _:
            pass
    return " · ".join(filter(None, parts))


def progress(job: Job) -> str:
    if not job.total and not job.processed and not job.failed:
        return ""
    of = f" of {job.total:,}" if job.total else ""
    return f"{job.processed:,}{of} done" + (f", {job.failed:,} failed" if job.failed else "")


def _explain_nothing(settings: Settings, filter: Filter, words: Sequence[str], below: UUID | None, took: float) -> None:
    """Say what was searched, and which term to leave out."""
    from windlass.clock import spell
    from windlass.store import masked

    where = f"{masked(settings.url)}, where finished jobs are kept for {spell(settings.history)}"
    if below is not None:
        say(f"no job matches below {below}; from the top: windlass jobs list {shown(words)}", err=True)
    elif filter.everything:
        say(f"there is no job in {where}; enqueue one: windlass enqueue app:add 2 3", err=True)
    else:
        say(f"no job matches {filter.text} in {where}", err=True)
        if took > QUICK:
            say("  leave a term out to search wider", err=True)
            return
        for text in _wider(settings, filter):
            say(f"  some match: windlass jobs list {shown(text)}".rstrip(), err=True)


def _wider(settings: Settings, filter: Filter) -> list[list[str]]:
    """The filter with one term left out, wherever that finds something."""
    from windlass.model.filter import parse

    terms = [term.text for term in filter.terms]
    if len(terms) == 1:
        return [[]] if ask(settings, lambda store: store.search(parse(""), page=1)) else []
    without = [terms[:place] + terms[place + 1 :] for place in range(len(terms))]

    async def search(store: Store) -> list[list[str]]:
        return [rest for rest in without if await store.search(parse(" ".join(rest)), page=1)]

    return ask(settings, search)


# One job


@jobs.command("show", short_help="Tell one job's story.")
@click.argument("id")
@click.option("--full", is_flag=True, help="The whole input, output and traceback.")
@app_option
@url_option
@as_json
@click.pass_context
def show(ctx: click.Context, id: str, full: bool, app: str | None, url: str | None, as_json: bool) -> None:
    """Tell one job's story, from its enqueue to its end or its next attempt.

    The ID may be shortened to 6 or more digits of its beginning or end, as `windlass jobs list` shows them.
    """
    settings, label = settings_of(url, app), labels_of(app)
    found, around, workers = ask(settings, lambda store: _find(store, id))
    if around is None:
        ctx.exit(explain_ambiguous(id, found))
    if as_json:
        from windlass.cli.show.job_details import documents
        from windlass.cli.show.job_json import record

        print_json({**record(found[0], label(found[0])), **documents(around)})
        return
    from windlass.cli.show.job_report import tell
    from windlass.clock import SystemClock

    tell(found[0], around, workers, SystemClock().now(), label=label(found[0]), full=full)


async def _find(store: Store, id: str) -> tuple[list[Job], Surroundings | None, list[WorkerRow]]:
    """The jobs that may be meant; when it is one, what stands around it."""
    from windlass.cli.show.job_details import look_around

    found = await find(store, id)
    if len(found) > 1:
        return found, None, []
    return found, await look_around(store, found[0]), await store.workers()
