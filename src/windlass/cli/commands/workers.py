"""`windlass workers`: each worker with its state, queues, running jobs and lease, or each of its processors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    age_cell,
    format_age,
    format_count,
    id_cell,
    print_json,
    print_table,
    print_text,
)
from windlass.documents import worker_document

if TYPE_CHECKING:
    from windlass.model.processors import ProcessorRow
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

PROCESSOR_COLUMNS = (
    Column("WORKER", spare=1),
    Column("PROCESSOR", flexible=True),
    Column("STATE"),
    Column("FOR", right=True),
    Column("TYPE", flexible=True, spare=2),
    Column("JOB"),
)
PROCESSOR_STYLES = {"busy": "green", "idle": "dim", "error": "red"}


@click.command(short_help="Show each worker: state, queues, running jobs, lease.")
@click.option("--processors", is_flag=True, help="Show each processor of the live workers, with its job.")
@store_options
def workers(app: str | None, url: str | None, as_json: bool, processors: bool) -> None:
    """Show each worker in the store.

    Busy and idle workers are alive. The lease of a silent worker has expired: a sweep will mark it dead. The jobs of
    a dead worker are released, and its row is removed when it holds no job.

    With --processors, each processor of the live workers is shown as it was at the last beat: idle, busy with a job, or
    in error, because its last job did not stop in time.
    """
    settings = load_settings(url, app)
    rows = call_store(settings, lambda store: store.workers(processors=processors or as_json))
    if as_json:
        print_json({"workers": [worker_document(row) for row in rows]})
        return
    if not rows:
        from windlass.store import masked

        print_text(f"no worker is registered in {masked(settings.url)}; start one: windlass worker app.py", err=True)
        return
    if processors:
        _print_processors([row for row in rows if row.alive])
    else:
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


def _print_processors(rows: Sequence[WorkerRow]) -> None:
    cells = [_processor(row, processor) for row in rows for processor in row.processors]
    if not cells:
        print_text("no live worker has reported its processors yet; workers report them with each beat", err=True)
        return
    print_table(PROCESSOR_COLUMNS, cells)
    for row in rows:
        if row.unlisted:
            print_text(f"{format_count(row.unlisted, 'processor')} more of {row.name}", style="dim", err=True)


def _processor(row: WorkerRow, processor: ProcessorRow) -> list[Cell]:
    return [
        Cell(row.name),
        Cell(processor.name),
        Cell(processor.state, PROCESSOR_STYLES[processor.state]),
        age_cell(processor.since, row.now),
        Cell(processor.type or ""),
        Cell("") if processor.job is None else id_cell(processor.job),
    ]
