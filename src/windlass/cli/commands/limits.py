"""`windlass limits`: the keys of limits and rates in use, the jobs that hold them, and the jobs that wait."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from windlass.model.admission import LimitRow
    from windlass.model.job import Job
    from windlass.store.protocol import Store

SHOWN_HOLDERS = 100
SHOWN_WAITERS = 10
EVEN = 1e-6  # seconds by which a whole number of periods may differ from one second

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
    rows = call_store(settings, lambda store: store.limits(name))
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
        Cell(describe_rule(row)),
        Cell(describe_use(row), raw=f"{row.used}/{capacity(row)}"),
        number_cell(row.waiting, "yellow" if row.waiting else "dim"),
        Cell(describe_room(row), "yellow" if full else "green", raw=f"{free_in(row):.3f}"),
    ]


def describe_rule(row: LimitRow) -> str:
    """`2 at a time`, `5 per second`, `1 per 10s, 3 at once`."""
    from windlass.clock import spell

    if row.period is None:
        return "no limit now" if row.most is None else f"{row.most} at a time"
    count = round(1 / row.period)
    even = count > 1 and abs(count * row.period - 1) < EVEN
    spaced = f"{count:,} per second" if even else f"1 per {spell(row.period)}"
    return spaced + (f", {row.burst} at once" if row.burst > 1 else "")


def capacity(row: LimitRow) -> str:
    if row.period is not None:
        return str(row.burst)
    return "" if row.most is None else str(row.most)


def describe_use(row: LimitRow) -> str:
    """The slots that are taken, `2 of 2`; for a rate the tokens, `3 left of 5`."""
    if row.period is not None:
        return f"{row.burst - row.used} left of {row.burst}"
    return f"{row.used} of {capacity(row)}" if capacity(row) else str(row.used)


def free_in(row: LimitRow) -> float:
    """Seconds until there may be room."""
    return max(row.free_in, row.held)


def describe_room(row: LimitRow) -> str:
    """When the next job may start."""
    from windlass.clock import spell

    if row.held > 0:
        return f"held back for {spell(round_seconds(row.held))}"
    if row.period is not None:
        return f"in {spell(round_seconds(row.free_in))}" if row.free_in > 0 else "now"
    if row.most is not None and row.used >= row.most:
        return "when one ends"
    return "now"


def round_seconds(seconds: float) -> float:
    """Rounded to a tenth of a second below ten seconds, and to a second above."""
    return round(seconds, 1) if 1 <= seconds < 10 else float(round(seconds)) if seconds >= 10 else seconds


def _print_nothing_found(name: str | None) -> None:
    if name is None:
        print_text("no key of a limit or rate is in use: no job with limits=[…] has been claimed yet", err=True)
    else:
        print_text(f"no key of {name!r} is in use; see all keys: windlass limits", err=True)


def limit_document(row: LimitRow) -> dict[str, Any]:
    """A key as `--json` prints it."""
    return {
        "key": row.key,
        "name": row.name,
        "most": row.most,
        "used": row.used,
        "period": row.period,
        "burst": row.burst if row.period is not None else None,
        "waiting": row.waiting,
        "free_in": free_in(row),
        "held": row.held,
    }


# One key


class _KeyUse:
    """A key, the jobs that hold it, and the jobs that wait for it."""

    def __init__(self, row: LimitRow, holders: Sequence[Job], waiters: Sequence[Job], names: dict[Any, str]) -> None:
        self.row = row
        self.holders = holders
        self.waiters = waiters
        self.names = names  # of workers

    def worker(self, job: Job) -> str:
        from windlass.cli.show.live_log import short_id

        return "" if job.worker is None else self.names.get(job.worker, f"worker {short_id(job.worker)}")


@limits.command("show", short_help="Show the jobs that hold a key, and those that wait.")
@click.argument("key", shell_complete=complete_name("limit"))
@store_options
def show(key: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Show the jobs that hold a slot of KEY, and the next ten jobs that wait for one, in the order they will start."""
    from windlass.clock import SystemClock

    found = call_store(load_settings(url, app), lambda store: _read(store, key))
    now = SystemClock().now()
    if as_json:
        holders = [_holder_document(found, job) for job in found.holders]
        waiters = [_waiter_document(job) for job in found.waiters]
        print_json({**limit_document(found.row), "holders": holders, "waiters": waiters})
        return
    _print_key(found.row)
    _print_holders(found, now)
    _print_waiters(found, now)


async def _read(store: Store, key: str) -> _KeyUse:
    rows = [row for row in await store.limits(key) if row.key == key]
    if not rows:
        raise await unknown_key(store, key)
    holders = await store.holders(key, page=SHOWN_HOLDERS)
    waiters = await store.waiters(key, page=SHOWN_WAITERS)
    return _KeyUse(rows[0], holders, waiters, {row.id: row.name for row in await store.workers()})


async def unknown_key(store: Store, key: str) -> Exception:
    """The error for a key that is not in use: a key exists from the first claim or call that uses it."""
    import difflib

    from windlass.errors import UnknownLimit

    known = [row.key for row in await store.limits()]
    close = difflib.get_close_matches(key, known, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "; see the keys in use: windlass limits"
    return UnknownLimit(f"the key {key!r} is not in use: no job with it has been claimed{meant}")


def _print_key(row: LimitRow) -> None:
    from windlass.clock import spell

    tokens = f"{row.burst - row.used} of {format_count(row.burst, 'token')} left"
    print_text(
        f"{row.key}  {describe_rule(row)}: {f'{describe_use(row)} in use' if row.period is None else tokens}",
        style="bold",
    )
    if row.held > 0:
        print_text(f"  held back for {spell(round_seconds(row.held))} more", style="yellow")
    elif row.period is not None and row.free_in > 0:
        print_text(f"  the next token is free in {spell(round_seconds(row.free_in))}", style="yellow")


def _print_holders(found: _KeyUse, now: datetime) -> None:
    heading = "held by" if found.row.period is None else "running jobs that took a token"
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
                Cell(found.worker(job)),
                age_cell(job.claimed_at, now),
            ]
            for job in found.holders
        ],
    )


def _print_waiters(found: _KeyUse, now: datetime) -> None:
    if not found.waiters:
        print_text("\nwaiting: no job")
        return
    hidden = found.row.waiting - len(found.waiters)
    print_text(
        f"\nwaiting: {format_count(found.row.waiting, 'job')}"
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


def _holder_document(found: _KeyUse, job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "type": job.type,
        "tenant": job.tenant,
        "queue": job.queue,
        "worker": job.worker,
        "worker_name": found.names.get(job.worker),
        "since": job.claimed_at,
    }


def _waiter_document(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "type": job.type,
        "tenant": job.tenant,
        "queue": job.queue,
        "priority": job.priority,
        "run_at": job.run_at,
    }
