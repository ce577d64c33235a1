"""`windlass audit`: what became of jobs, and who did what to them, or to gates, budgets, tenants and schedules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.find_jobs import PAGE, find_jobs, print_ambiguous
from windlass.cli.parse.store_option import app_option, call_store, load_settings, url_option
from windlass.cli.show.output import Cell, Column, as_json, print_json, print_table, print_text

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.protocol import AuditRow, Store

USUAL = 25  # rows
SHORT = 10  # characters of an actor and a reason, before a column is left out
ENGINE = "–"  # no actor: the engine itself

COLUMNS = (
    Column("WHEN"),
    Column("ACTION"),
    Column("JOB", flexible=True),  # or what else somebody acted on
    Column("TYPE", flexible=True, spare=2),  # rows about no job have none
    Column("ACTOR", flexible=True, least=SHORT),
    Column("REASON", flexible=True, spare=1, least=SHORT),
)


@click.command(short_help="Show what became of jobs, and who did what to them.")
@click.option("--job", metavar="ID", help="Only of this job.")
@click.option("--action", metavar="WORD", help="Only this action, such as JOB_DEAD.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 100_000), default=USUAL, show_default=True, help="At most so many."
)
@click.option("--below", type=int, metavar="NUMBER", help="Begin below this row: the next page.")
@app_option
@url_option
@as_json
@click.pass_context
def audit(
    ctx: click.Context,
    job: str | None,
    action: str | None,
    limit: int,
    below: int | None,
    app: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show the audit, newest first: the end of each job, and what operators did.

    An ACTION is JOB_SUCCEEDED, JOB_EXHAUSTED_RETRIES, JOB_DEAD, JOB_CANCELLED, JOB_CANCEL_REQUESTED, JOB_RETRIED,
    JOB_REPLAYED, JOB_RESUMED, JOB_DISCARDED, or a type's own word; GATE_PAUSED, GATE_DRAINED, GATE_OPENED, LIMIT_HELD,
    LIMIT_RELEASED, BUDGET_SET, BUDGET_DROPPED, TENANT_WEIGHED and those of schedules name what they were done to
    instead of a job. Without an ACTOR it was the engine. In a pipe: one line per row, with tabs between the columns
    and the time in UTC.
    """
    settings = load_settings(url, app)
    id = None if job is None else _parse_job(ctx, settings, job)
    action = None if action is None else action.upper()
    found = call_store(settings, lambda store: _read(store, id, action, limit + 1, below))
    page, more = found[:limit], len(found) > limit
    if as_json:
        print_json({"audit": [*map(audit_document, page)], "next": page[-1].number if more else None})
        return
    if not page:
        _print_nothing_found(settings, id, action, below)
        return
    print_table(COLUMNS, [_row(row) for row in page])
    if more and sys.stdout.isatty():
        given = {"--job": job, "--action": action, "-n": None if limit == USUAL else str(limit)}
        words = [word for name, value in given.items() if value is not None for word in (name, value)]
        print_text(f"more: windlass audit {join_words([*words, '--below', str(page[-1].number)])}", style="dim")


def _parse_job(ctx: click.Context, settings: Settings, typed: str) -> UUID:
    """A whole id needs no job: the audit outlives it."""
    from windlass.errors import JobNotFound
    from windlass.model.filter import partial_id

    digits = partial_id(typed)
    if digits is not None and len(digits) == 32:
        return UUID(digits)
    try:
        found = call_store(settings, lambda store: find_jobs(store, typed))
    except JobNotFound as error:
        if digits is None:
            raise
        raise JobNotFound(f"{error}; of a job that is gone, write the whole id") from None
    if len(found) > 1:
        ctx.exit(print_ambiguous(typed, found))
    return found[0].id


async def _read(store: Store, job: UUID | None, action: str | None, limit: int, below: int | None) -> list[AuditRow]:
    found: list[AuditRow] = []
    while len(found) < limit:
        size = min(PAGE, limit - len(found))
        page = await store.audit(job=job, action=action, page=size, below=below)
        found += page
        if len(page) < size:
            break
        below = page[-1].number
    return found


def audit_document(row: AuditRow) -> dict[str, Any]:
    """A row as `--json` tells it."""
    return {
        "number": row.number,
        "at": row.at,
        "action": row.action,
        "actor": row.actor,
        "job": row.job,
        "type": row.type,
        "queue": row.queue,
        "tenant": row.tenant,
        "reason": row.reason,
        "subject": row.subject,
    }


def _row(row: AuditRow) -> list[Cell]:
    from windlass.cli.show.live_log import short_id

    return [
        Cell(f"{row.at.astimezone():%Y-%m-%d %H:%M:%S}", raw=row.at.isoformat()),
        Cell(row.action, action_style(row.action)),
        Cell(row.subject or "") if row.job is None else Cell(short_id(row.job), raw=str(row.job)),
        Cell(row.type or ""),
        Cell(row.actor or ENGINE, "" if row.actor else "dim", raw=row.actor or ""),
        Cell(row.reason or "", "dim"),
    ]


def action_style(action: str) -> str:
    from windlass.model.audit import CANCELLED, DEAD, EXHAUSTED, SUCCEEDED

    return {SUCCEEDED: "green", DEAD: "red", EXHAUSTED: "red", CANCELLED: "magenta"}.get(action, "")


def _print_nothing_found(settings: Settings, job: UUID | None, action: str | None, below: int | None) -> None:
    from windlass.clock import spell
    from windlass.store import masked

    what = " ".join(filter(None, (f"of job {job}" if job else "", f"with the action {action}" if action else "")))
    place = f" below {below}" if below is not None else ""
    print_text(
        f"the audit has no row {what}{place}".rstrip()
        + f" in {masked(settings.url)}, where it is kept for {spell(settings.audit)}",
        err=True,
    )
