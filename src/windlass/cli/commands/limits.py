"""`windlass limits`: the keys of limits and rates in use, the jobs that hold them, and the jobs that wait."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.gate_options import NamedListGroup
from windlass.cli.parse.options import count_option
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    age_cell,
    format_count,
    id_cell,
    number_cell,
    print_json,
    print_table,
    print_text,
)
from windlass.documents import limit_document, limit_use_document

if TYPE_CHECKING:
    from windlass.model.admission import LimitRow
    from windlass.model.job import Job
    from windlass.model.rows import LimitUse

COLUMNS = (
    Column("KEY", flexible=True),
    Column("LIMIT", spare=1),
    Column("IN USE", right=True),
    Column("WAITING", right=True),
    Column("ROOM"),
)
HOLDERS = (
    Column("JOB"),
    Column("TYPE", flexible=True),
    Column("TENANT", flexible=True, spare=1),
    Column("WORKER", flexible=True),
    Column("SINCE", right=True),
)
WAITERS = (
    Column("JOB"),
    Column("TYPE", flexible=True),
    Column("TENANT", flexible=True, spare=1),
    Column("QUEUE", flexible=True, spare=2),
    Column("DUE SINCE", right=True),
)


@click.group(cls=NamedListGroup, short_help="Show limits and rates: which jobs hold them, which wait.")
def limits() -> None:
    """Show limits and rates: which jobs hold them, and which jobs wait.

    A KEY is the name of a limit or rate, such as wikidata; a limit per value has a key for each value, such as
    domain:example.org. Without a command, this lists the keys in use.
    """


# The list


@limits.command("list", short_help="Show the keys in use, those with most jobs waiting first.")
@click.argument("name", required=False, shell_complete=complete_name("limit"))
@count_option
@store_options
def list_limits(name: str | None, limit: int, app: str | None, url: str | None, as_json: bool) -> None:
    """Show the keys in use, those with most jobs waiting first; with NAME, those of one limit or rate.

    IN USE is the number of slots taken and the number of slots; for a rate, the tokens left. ROOM is when the next job
    may start. In a pipe: one line per key, with tabs between the columns; for a rate the tokens that are taken (1/1:
    none is left, as in --json), and ROOM in seconds.
    """
    settings = load_settings(url, app)
    rows = call_store(settings, lambda store: store.limits(*([name] if name else [])))
    if as_json:
        print_json({"limits": [limit_document(row) for row in rows[:limit]], "total": len(rows)})
        return
    if not rows:
        _print_nothing_found(name)
        return
    print_table(COLUMNS, [_row(row) for row in rows[:limit]])
    if len(rows) > limit and sys.stdout.isatty():
        words = [*([name] if name else []), "-n", str(len(rows))]
        print_text(f"{len(rows) - limit:,} more: windlass limits list {join_words(words)}", style="dim")


def _row(row: LimitRow) -> list[Cell]:
    full = row.waiting or row.held
    return [
        Cell(row.key),
        Cell(row.describe_rule()),
        Cell(row.describe_use(), raw=f"{row.used}/{'' if row.capacity is None else row.capacity}"),
        number_cell(row.waiting, "yellow" if row.waiting else "dim"),
        Cell(row.describe_room(), "yellow" if full else "green", raw=f"{row.room_in:.3f}"),
    ]


def _print_nothing_found(name: str | None) -> None:
    if name is None:
        print_text("no key of a limit or rate is in use: no job with limits=[…] has been claimed yet", err=True)
    else:
        print_text(f"no key of {name!r} is in use; see all keys: windlass limits", err=True)


# One key


@limits.command("show", short_help="Show the jobs that hold a key, and those that wait.")
@click.argument("key", shell_complete=complete_name("limit"))
@store_options
def show(key: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Show the jobs that hold a slot of KEY, and the next ten jobs that wait for one, in the order they will start."""
    from windlass.clock import SystemClock
    from windlass.methods.reads import read_limit_use

    found = call_store(load_settings(url, app), lambda store: read_limit_use(store, key))
    now = SystemClock().now()
    if as_json:
        print_json(limit_use_document(found))
        return
    _print_key(found.limit)
    _print_holders(found, now)
    _print_waiters(found, now)


def _worker_name(found: LimitUse, job: Job) -> str:
    from windlass.cli.show.live_log import short_id

    return "" if job.worker is None else found.workers.get(job.worker, f"worker {short_id(job.worker)}")


def _print_key(row: LimitRow) -> None:
    from windlass.clock import spell
    from windlass.model.admission import round_seconds

    tokens = f"{row.burst - row.used} of {format_count(row.burst, 'token')} left"
    print_text(
        f"{row.key}  {row.describe_rule()}: {f'{row.describe_use()} in use' if row.period is None else tokens}",
        style="bold",
    )
    if row.held > 0:
        print_text(f"  held back for {spell(round_seconds(row.held))} more", style="yellow")
    elif row.period is not None and row.free_in > 0:
        print_text(f"  the next token is free in {spell(round_seconds(row.free_in))}", style="yellow")


def _print_holders(found: LimitUse, now: datetime) -> None:
    heading = "held by" if found.limit.period is None else "running jobs that took a token"
    if not found.holders:
        print_text(f"\n{heading}: no job")
        return
    print_text(f"\n{heading}:")
    print_table(
        HOLDERS,
        [
            [
                id_cell(job.id),
                Cell(job.type),
                Cell(job.tenant),
                Cell(_worker_name(found, job)),
                age_cell(job.claimed_at, now),
            ]
            for job in found.holders
        ],
    )


def _print_waiters(found: LimitUse, now: datetime) -> None:
    if not found.waiters:
        print_text("\nwaiting: no job")
        return
    hidden = found.limit.waiting - len(found.waiters)
    print_text(
        f"\nwaiting: {format_count(found.limit.waiting, 'job')}"
        + (f", the next {len(found.waiters)}:" if hidden > 0 else ":")
    )
    print_table(
        WAITERS,
        [
            [
                id_cell(job.id),
                Cell(job.type),
                Cell(job.tenant),
                Cell(job.queue),
                age_cell(job.run_at, now),
            ]
            for job in found.waiters
        ],
    )
