"""`windlass queues`: the jobs of each queue by state, and the workers that serve it."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from windlass.cli.commands.gates import STYLES, describe_gate
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    format_age,
    format_origin,
    lag_cell,
    number_cell,
    print_json,
    print_table,
    print_text,
)
from windlass.clock import format_span
from windlass.documents import queue_document

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.model.admission import Gate
    from windlass.model.rows import QueueRow
    from windlass.store.protocol import Store

LATE = 60.0  # seconds: a queue with a due job that waits longer is shown as late

COLUMNS = (
    Column("QUEUE", flexible=True),
    Column("QUEUED", right=True),
    Column("RUNNING", right=True),
    Column("FAILED", right=True, spare=2),
    Column("WAITING", right=True, spare=3),
    Column("DEAD", right=True, spare=1),
    Column("LAG", right=True),
    Column("WORKERS", right=True),
    Column("GATE"),  # on a terminal only where a gate is closed
)


@click.command(short_help="Show each queue: jobs by state, lag, workers.")
@store_options
def queues(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each queue: its jobs by state, how long its oldest due job has waited (LAG), and the live workers that serve
    it.

    Above the table stands each queue with due jobs and no live worker, with the command that starts a worker, and each
    closed gate, with the command that opens it.
    """
    from windlass.clock import SystemClock

    settings = load_settings(url, app)
    rows, gates = call_store(settings, _read)
    now = SystemClock().now()
    if as_json:
        print_json({"queues": [queue_document(row) for row in rows]})
        return
    for gate in gates:
        _print_gate(gate, now)
    if not rows:
        from windlass.store import masked

        print_text(f"no job is queued, running, failed, waiting or dead in {masked(settings.url)}", err=True)
        return
    abandoned = [row for row in rows if row.lag is not None and not row.workers]
    for row in abandoned:
        _print_unserved(row, app)
    columns = COLUMNS if gates or not sys.stdout.isatty() else COLUMNS[:-1]
    print_table(columns, [_row(row) for row in rows])


async def _read(store: Store) -> tuple[list[QueueRow], list[Gate]]:
    """The queues, and the closed gates of queues and of everything."""
    from windlass.methods.reads import read_queues

    gates = [gate for gate in await store.gates() if gate.is_closed and gate.kind in ("all", "queue")]
    return await read_queues(store), gates


def _print_gate(gate: Gate, now: datetime) -> None:
    from windlass.model.admission import resume_command

    origin = format_origin(gate.actor, gate.reason)
    print_text(
        f"{describe_gate(gate)} is {gate.state} since {format_age(gate.since, now)}{origin}", style="yellow", err=True
    )
    print_text(f"  → {resume_command(gate.kind, gate.name)}", err=True)


def _row(row: QueueRow) -> list[Cell]:
    abandoned = row.lag is not None and not row.workers
    return [
        Cell(row.queue, "bold red" if abandoned else ""),
        number_cell(row.queued, most=row.counted),
        number_cell(row.running, most=row.counted),
        number_cell(row.failed, "yellow" if row.failed else "dim", most=row.counted),
        number_cell(row.waiting, "" if row.waiting else "dim", most=row.counted),
        number_cell(row.dead, "red" if row.dead else "dim", most=row.counted),
        lag_cell(row.lag, "yellow" if (row.lag or 0.0) > LATE else ""),
        Cell(str(row.workers), "bold red" if abandoned else ""),
        Cell(row.gate, STYLES[row.gate]),
    ]


def _print_unserved(row: QueueRow, app: str | None) -> None:
    print_text(
        f"no live worker serves {row.queue}: jobs are due since {format_span(row.lag or 0.0)}",
        style="bold red",
        err=True,
    )
    print_text(f"  → windlass worker {app or 'app.py'} --queue {shlex.quote(row.queue)}", err=True)
