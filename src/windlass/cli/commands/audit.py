"""`windlass audit`: how jobs ended, and what operators did to jobs, gates, limits, budgets, tenants and schedules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from uuid import UUID

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.find_jobs import find_one, read_pages
from windlass.cli.parse.options import USUAL_ROWS, count_option
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import Cell, Column, id_cell, print_json, print_table, print_text
from windlass.documents import audit_document

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.model.rows import AuditRow
    from windlass.store.protocol import Store

SHORT = 10  # characters that an actor and a reason keep: other columns are left out before
ENGINE = "–"  # no actor: the engine itself

COLUMNS = (
    Column("WHEN"),
    Column("ACTION"),
    Column("JOB", flexible=True),  # or the gate, key, budget, tenant or schedule
    Column("TYPE", flexible=True, spare=2),  # rows about no job have none
    Column("ACTOR", flexible=True, least=SHORT),
    Column("REASON", flexible=True, spare=1, least=SHORT),
)


@click.command(short_help="Show how jobs ended, and what operators did.")
@click.option("--job", metavar="ID", help="Only rows about this job.")
@click.option("--action", metavar="ACTION", help="Only this action, such as JOB_DEAD.")
@click.option("--tenant", metavar="TENANT", shell_complete=complete_name("tenant"), help="Only this tenant's jobs.")
@click.option("--actor", metavar="ACTOR", help="Only what this actor did.")
@count_option
@click.option("--below", type=int, metavar="NUMBER", help="Begin below this row, for the next page.")
@store_options
@click.pass_context
def audit(
    ctx: click.Context,
    job: str | None,
    action: str | None,
    tenant: str | None,
    actor: str | None,
    limit: int,
    below: int | None,
    app: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show the audit, newest first: the end of each job, and what operators did.

    The actions on a job are JOB_SUCCEEDED (or the job type's own action), JOB_EXHAUSTED_RETRIES, JOB_DEAD,
    JOB_CANCELLED, JOB_CANCEL_REQUESTED, JOB_RETRIED, JOB_REPLAYED, JOB_RESUMED, JOB_DISCARDED and JOB_REVEALED. The
    rows of GATE_PAUSED, GATE_DRAINED, GATE_RESUMED, LIMIT_HELD, LIMIT_RELEASED, BUDGET_SET, BUDGET_DROPPED,
    TENANT_WEIGHED, TOKEN_…, SCHEDULE_…, DEAD_LETTER_… and DELIVERY_SET name the gate, key, budget, tenant, token,
    schedule, letter or delivery instead of a job. A row without an actor was written by the engine. In a pipe: one line
    per row, with tabs between the columns and the time in UTC.
    """
    settings = load_settings(url, app)
    id = None if job is None else _parse_job(ctx, settings, job)
    action = None if action is None else action.upper()
    chosen = {"action": action, "tenant": tenant, "actor": actor}
    found = call_store(settings, lambda store: _read(store, id, chosen, limit + 1, below))
    page, more = found[:limit], len(found) > limit
    if as_json:
        print_json({"audit": [*map(audit_document, page)], "next": page[-1].number if more else None})
        return
    if not page:
        _print_nothing_found(settings, id, chosen, below)
        return
    print_table(COLUMNS, [_row(row) for row in page])
    if more and sys.stdout.isatty():
        options = {"--job": job, "--action": action, "--tenant": tenant, "--actor": actor}
        given = options | {"-n": None if limit == USUAL_ROWS else str(limit)}
        words = [word for name, value in given.items() if value is not None for word in (name, value)]
        print_text(f"more: windlass audit {join_words([*words, '--below', str(page[-1].number)])}", style="dim")


def _parse_job(ctx: click.Context, settings: Settings, typed: str) -> UUID:
    """The id of the job. A whole id is not looked up: the audit keeps rows of jobs that no longer exist."""
    from windlass.errors import JobNotFound
    from windlass.model.filter import partial_id

    digits = partial_id(typed)
    if digits is not None and len(digits) == 32:
        return UUID(digits)
    try:
        return call_store(settings, lambda store: find_one(ctx, store, typed)).id
    except JobNotFound as error:
        if digits is None:
            raise
        raise JobNotFound(f"{error}; for a job that no longer exists, write the whole id") from None


async def _read(
    store: Store, job: UUID | None, chosen: dict[str, str | None], limit: int, below: int | None
) -> list[AuditRow]:
    return await read_pages(
        lambda size, below: store.audit(job=job, **chosen, page=size, below=below),
        limit,
        below,
        lambda row: row.number,
    )


def _row(row: AuditRow) -> list[Cell]:
    return [
        Cell(f"{row.at.astimezone():%Y-%m-%d %H:%M:%S}", raw=row.at.isoformat()),
        Cell(row.action, action_style(row.action)),
        Cell(row.subject or "") if row.job is None else id_cell(row.job),
        Cell(row.type or ""),
        Cell(row.actor or ENGINE, "" if row.actor else "dim", raw=row.actor or ""),
        Cell(row.reason or "", "dim"),
    ]


def action_style(action: str) -> str:
    from windlass.model.audit import CANCELLED, DEAD, EXHAUSTED, SUCCEEDED

    return {SUCCEEDED: "green", DEAD: "red", EXHAUSTED: "red", CANCELLED: "magenta"}.get(action, "")


def _print_nothing_found(
    settings: Settings, job: UUID | None, chosen: dict[str, str | None], below: int | None
) -> None:
    from windlass.clock import spell
    from windlass.store import masked

    terms = [f"of job {job}"] if job else []
    terms += [f"with the {name} {value}" for name, value in chosen.items() if value is not None]
    what, action = " ".join(terms), chosen["action"]
    place = f" below {below}" if below is not None else ""
    print_text(
        f"the audit has no row {what}{place}".rstrip()
        + f" in {masked(settings.url)}, where it is kept for {spell(settings.audit)}",
        err=True,
    )
    if action is not None:
        _suggest_action(action)


def _suggest_action(action: str) -> None:
    """A type's own action may have any name; one that is close to a usual one may be a misspelling."""
    import difflib

    from windlass.model import audit as actions

    known = [*vars(actions).values(), *actions.GATES.values(), *actions.OPERATIONS.values()]
    names = [name for name in known if isinstance(name, str) and name.isupper()]
    close = difflib.get_close_matches(action, names, n=1)
    if action not in names and close:
        print_text(f"  did you mean: windlass audit --action {close[0]}", err=True)
