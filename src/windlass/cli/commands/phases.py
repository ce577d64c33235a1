"""`windlass phases`: the phases of each pipeline with their jobs, processors and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import Cell, Column, number_cell, print_json, print_table, print_text
from windlass.clock import seconds, spell
from windlass.documents import phase_document

if TYPE_CHECKING:
    from windlass.model.figures import PhaseRow

COLUMNS = (
    Column("PIPELINE", flexible=True, least=8),
    Column("PHASE", flexible=True),
    Column("DUE", right=True),
    Column("MEMORY", right=True, spare=4),
    Column("BUSY", right=True),
    Column("ERROR", right=True, spare=3),
    Column("PER MIN", right=True),
    Column("RUN P50", right=True, spare=7),
    Column("RUN P95", right=True, spare=2),
    Column("WAIT P95", right=True, spare=1),
    Column("RETRIES", right=True, spare=6),
    Column("DEAD", right=True, spare=5),
)


@click.command(short_help="Show each phase: jobs, processors, run time, retries.")
@click.option("--since", default="10m", show_default=True, help="The span of the figures: 90s, 10m, 1h30m or 7d.")
@store_options
def phases(app: str | None, url: str | None, as_json: bool, since: str) -> None:
    """Show each phase of a pipeline, and each queue with jobs in no pipeline.

    DUE jobs are in the database, and jobs in MEMORY wait in a worker for a processor. BUSY counts the processors of
    live workers, and those in ERROR had a job that did not stop in time. The other columns are figures of the last 10
    minutes, or of --since.
    """
    from windlass.methods.phases import read_phases
    from windlass.model.figures import SPAN

    settings = load_settings(url, app)
    back = max(float(SPAN), seconds(since, what="duration"))
    rows = call_store(settings, lambda store: read_phases(store, back))
    if as_json:
        print_json({"phases": [phase_document(row) for row in rows]})
        return
    if not rows:
        from windlass.store import masked

        print_text(f"no phase has a job, a figure or a live worker in {masked(settings.url)}", err=True)
        return
    print_table(COLUMNS, [_row(row) for row in rows])


def _row(row: PhaseRow) -> list[Cell]:
    processors = row.idle + row.busy + row.error
    return [
        Cell(row.pipeline or "–", "" if row.pipeline else "dim", raw=row.pipeline or ""),
        Cell(row.phase),
        number_cell(row.due, most=row.counted),
        number_cell(row.in_memory),
        Cell(f"{row.busy}/{processors}"),
        number_cell(row.error, "red" if row.error else "dim"),
        Cell(f"{row.per_minute:,.1f}", raw=f"{row.per_minute:.3f}"),
        _span_cell(row.run_p50),
        _span_cell(row.run_p95),
        _span_cell(row.wait_p95),
        number_cell(row.retries, "yellow" if row.retries else "dim"),
        number_cell(row.dead, "red" if row.dead else "dim"),
    ]


def _span_cell(span: float | None) -> Cell:
    return Cell("–", "dim", raw="") if span is None else Cell(spell(span), raw=f"{span:g}")
