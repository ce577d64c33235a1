"""`windlass jobs`: list jobs, show one job, and change all jobs that match a filter."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import click

from windlass.cli.commands.bulk import COMMANDS
from windlass.cli.commands.rerun import rerun
from windlass.cli.commands.signal import signal
from windlass.cli.parse.complete import complete_filter
from windlass.cli.parse.filter_args import FilterCommand, filter_argument, join_words, parse_filter, parse_ids
from windlass.cli.parse.find_jobs import find_misspelt_names, find_one, read_pages
from windlass.cli.parse.mistakes import HelpfulGroup
from windlass.cli.parse.options import USUAL_ROWS, count_option
from windlass.cli.parse.store_option import (
    call_store,
    load_labels,
    load_settings,
    store_options,
)
from windlass.cli.show.output import (
    Cell,
    Column,
    age_cell,
    id_cell,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from datetime import datetime

    from click.shell_completion import CompletionItem

    from windlass.config import Settings
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.model.rows import JobDetails, JobRow
    from windlass.store.protocol import Store

QUICK = 0.5  # seconds: a search that took longer is not repeated with fewer terms

COLUMNS = (
    Column("ID"),
    Column("TYPE", flexible=True),
    Column("QUEUE", flexible=True, spare=2),
    Column("STATE"),
    Column("ATTEMPT", right=True, spare=3),
    Column("AGE", right=True, spare=1),
    Column("DETAIL", flexible=True, least=34),  # the reason for which a job does not start needs the room
)


class JobsGroup(HelpfulGroup):
    """`windlass jobs state:dead` is short for `windlass jobs list state:dead`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        asks = first in ctx.help_option_names
        if (
            not ctx.resilient_parsing
            and not asks
            and (not first or first.startswith("-") or re.search("[:=]", first) or parse_ids([first]))
        ):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """The commands, and the fields of a filter, which need no command."""
        from click.shell_completion import CompletionItem

        terms = [CompletionItem(term) for term in complete_filter(ctx, None, incomplete)]
        return [*super().shell_complete(ctx, incomplete), *terms]


@click.group(cls=JobsGroup, short_help="List, show and change jobs.")
def jobs() -> None:
    """List, show and change jobs.

    A FILTER is one or more terms, and a job must match all of them:

    \b
    queue:mail state:failed,dead 'type:send*' input.user_id:42
    error:"timed out" age:1h.. attempt:..2 cost:10..20 -tenant:acme

    age:1h.. is one hour or more, age:..1h one hour or less. In quotes, 'age:>1h' works, too; without quotes a shell
    takes > and < for itself.

    An ID may be shortened to 6 or more digits of its beginning or end. Without a command, this lists the jobs that
    match.
    """


for command in (*COMMANDS, rerun, signal):
    jobs.add_command(command)


# The list


@jobs.command("list", cls=FilterCommand, short_help="List the jobs that match, newest first.")
@filter_argument
@count_option
@click.option("--below", type=click.UUID, metavar="ID", help="Begin below this job, for the next page.")
@store_options
def list_jobs(
    words: tuple[str, ...] = (),
    limit: int = USUAL_ROWS,
    below: UUID | None = None,
    app: str | None = None,
    url: str | None = None,
    as_json: bool = False,
) -> None:
    """List the jobs that match, newest first; without a FILTER, all of them.

    In a pipe: one line per job, with the whole id first and tabs between the columns.
    """
    from windlass.clock import SystemClock
    from windlass.methods.reads import read_jobs

    filter = parse_filter(words)
    settings, label = load_settings(url, app), load_labels(app)
    now, began = SystemClock().now(), time.monotonic()

    async def read(store: Store) -> list[JobRow]:
        return await read_pages(
            lambda size, below: read_jobs(store, filter, size, below, label), limit + 1, below, lambda job: job.id
        )

    found = call_store(settings, read)
    took = time.monotonic() - began
    page, more = found[:limit], len(found) > limit
    if as_json:
        from windlass.cli.show.job_json import job_document

        jobs = [job_document(job, job.label) for job in page]
        print_json({"filter": filter.text, "jobs": jobs, "next": page[-1].id if more else None})
        return
    if not page:
        _print_nothing_found(settings, filter, words, below, took)
        return
    print_table(COLUMNS, [_row(job, now) for job in page])
    if more and sys.stdout.isatty():
        size = [] if limit == USUAL_ROWS else ["-n", str(limit)]
        print_text(f"more: windlass jobs list {join_words([*words, *size, '--below', str(page[-1].id)])}", style="dim")


def _row(job: JobRow, now: datetime) -> list[Cell]:
    from windlass.cli.show.live_log import COLOURS

    return [
        id_cell(job.id),
        Cell(job.type),
        Cell(job.queue),
        Cell(f"{job.status.value} ({job.label})" if job.label else job.status.value, COLOURS.get(job.status, "") or ""),
        Cell(f"{job.attempt}/{job.max_attempts}"),
        age_cell(job.created_at, now),
        Cell(describe_job(job), "dim"),
    ]


def describe_job(job: JobRow) -> str:
    """The most important facts about a job in its state; of a job that does not start, the reason."""
    from windlass.clock import spell
    from windlass.model.state import State
    from windlass.policy.reports.story import summarize_failure

    failure, held = job.failure(), "" if job.why is None else job.why.text
    error = "" if failure is None else summarize_failure(failure)
    parts: list[str] = [f"{job.pipeline}: {job.phase}" if job.pipeline else ""]
    match job.status:
        case State.SUCCEEDED if job.started_at is not None and job.finished_at is not None:
            parts.append(f"in {spell((job.finished_at - job.started_at).total_seconds())}")
        case State.FAILED:
            parts += [held or "due now", error]
        case State.DEAD:
            parts += [job.reason or "", error]
        case State.QUEUED:
            parts += [held, f"after {job.crashes} crash{'' if job.crashes == 1 else 'es'}" if job.crashes else ""]
        case State.CANCELLED:
            parts.append(job.reason or "")
        case State.WAITING:
            parts += [held, format_progress(job)]
        case State.RUNNING:
            parts += [format_progress(job), "asked to cancel" if job.cancel_requested else ""]
        case _:
            pass
    return " · ".join(filter(None, parts))


def format_progress(job: Job) -> str:
    if not job.total and not job.processed and not job.failed:
        return ""
    of = f" of {job.total:,}" if job.total else ""
    return f"{job.processed:,}{of} done" + (f", {job.failed:,} failed" if job.failed else "")


def _print_nothing_found(
    settings: Settings, filter: Filter, words: Sequence[str], below: UUID | None, took: float
) -> None:
    """Print what was searched, and which term to leave out."""
    from windlass.clock import spell
    from windlass.store import masked

    where = f"{masked(settings.url)}, where finished jobs are kept for {spell(settings.history)}"
    if below is not None:
        print_text(f"no job matches below {below}; from the top: windlass jobs list {join_words(words)}", err=True)
    elif filter.everything:
        print_text(f"there is no job in {where}; enqueue one: windlass enqueue app:add 2 3", err=True)
    else:
        print_text(f"no job matches {filter.text} in {where}", err=True)
        for remark in call_store(settings, lambda store: find_misspelt_names(store, filter)):
            print_text(f"  {remark}", err=True)
        if took > QUICK:
            print_text("  leave a term out to search wider", err=True)
            return
        for text in _find_wider_filters(settings, filter):
            print_text(f"  some match: windlass jobs list {join_words(text)}".rstrip(), err=True)


def _find_wider_filters(settings: Settings, filter: Filter) -> list[list[str]]:
    """The filters with one term left out that match at least one job."""
    from windlass.model.filter import parse

    terms = [term.text for term in filter.terms]
    if len(terms) == 1:
        return [[]] if call_store(settings, lambda store: store.search(parse(""), page=1)) else []
    without = [terms[:place] + terms[place + 1 :] for place in range(len(terms))]

    async def search(store: Store) -> list[list[str]]:
        return [rest for rest in without if await store.search(parse(" ".join(rest)), page=1)]

    return call_store(settings, search)


# One job


@jobs.command("show", short_help="Show one job, and what happened to it.")
@click.argument("id")
@click.option("--full", is_flag=True, help="The whole input, output and traceback.")
@store_options
@click.pass_context
def show(ctx: click.Context, id: str, full: bool, app: str | None, url: str | None, as_json: bool) -> None:
    """Show one job, and what happened to it from its enqueue to its end or its next attempt.

    The ID may be shortened to 6 or more digits of its beginning or end, as `windlass jobs list` shows them.
    """
    settings, label = load_settings(url, app), load_labels(app)
    job, details = call_store(settings, lambda store: _read_job(ctx, store, id))
    if as_json:
        from windlass.cli.show.job_json import job_document
        from windlass.documents import details_document

        print_json({**job_document(job, label(job)), **details_document(details)})
        return
    from windlass.cli.show.job_report import print_job
    from windlass.clock import SystemClock

    print_job(job, details, SystemClock().now(), label=label(job), full=full)


async def _read_job(ctx: click.Context, store: Store, id: str) -> tuple[Job, JobDetails]:
    from windlass.methods.story import read_details

    job = await find_one(ctx, store, id)
    return job, await read_details(store, job)
