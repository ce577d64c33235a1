"""`windlass workers`: each worker with its state, queues, running jobs and lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    format_age,
    id_cell,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from windlass.model.rows import WorkerRow

COLUMNS = (
    Column("NAME"),
    Column("STATE"),
    Column("RUNNING", right=True),
    Column("QUEUES", flexible=True),
    Column("TYPES", right=True, spare=2),
    Column("LEASE", right=True),
    Column("UP", right=True, spare=1),
    Column("ID", spare=3),
)
STYLES = {"busy": "green", "idle": "green", "silent": "yellow", "dead": "red"}


@click.command(short_help="Show each worker: state, queues, running jobs, lease.")
@store_options
def workers(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each worker in the store.

    Busy and idle workers are alive. The lease of a silent worker has expired: a sweep will mark it dead. The jobs of
    a dead worker are released, and its row is removed when it holds no job.
    """
    settings = load_settings(url, app)
    rows = call_store(settings, lambda store: store.workers())
    if as_json:
        print_json({"workers": [_document(row) for row in rows]})
        return
    if not rows:
        from windlass.store import masked

        print_text(f"no worker is registered in {masked(settings.url)}; start one: windlass worker app.py", err=True)
        return
    print_table(COLUMNS, [_row(row) for row in rows])


def _row(row: WorkerRow) -> list[Cell]:
    state, now = row.state, row.now
    ends = format_age(now, row.alive_until) if row.alive else format_age(row.alive_until, now)
    queues = "all" if row.queues is None else ", ".join(row.queues)
    return [
        Cell(row.name),
        Cell(state, STYLES[state]),
        Cell(f"{row.running}/{row.concurrency}"),
        Cell(queues),
        Cell(str(len(row.types))),
        Cell(
            f"{ends} left" if row.alive else f"over for {ends}",
            "" if row.alive else STYLES[state],
            raw=row.alive_until.isoformat(),
        ),
        Cell(format_age(row.started_at, min(now, row.alive_until)), raw=row.started_at.isoformat()),
        id_cell(row.id, "dim"),
    ]


def _document(row: WorkerRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "queues": row.queues,
        "types": row.types,
        "running": row.running,
        "concurrency": row.concurrency,
        "started_at": row.started_at,
        "alive_until": row.alive_until,
    }
