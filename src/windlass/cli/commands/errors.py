"""`windlass errors`: the failures of the last hour, in groups of the same error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.options import parse_duration
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import Cell, Column, age_cell, print_json, print_table, print_text
from windlass.documents import error_document

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.config import Settings
    from windlass.model.reports.error_groups import ErrorGroup

COLUMNS = (
    Column("FINGERPRINT"),
    Column("COUNT", right=True),
    Column("ERROR", flexible=True),
    Column("STATES"),
    Column("QUEUES", flexible=True, spare=1, least=10),
    Column("LAST", right=True),
)


@click.command(short_help="Show what fails, in groups of the same error.")
@click.option(
    "--since",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=parse_duration,
    help="How far to look back, such as 10m or 2d.",
)
@click.option("--queue", metavar="QUEUE", shell_complete=complete_name("queue"), help="Only jobs of this queue.")
@click.option("--tenant", metavar="TENANT", shell_complete=complete_name("tenant"), help="Only this tenant's jobs.")
@store_options
def errors(
    since: float, queue: str | None, tenant: str | None, app: str | None, url: str | None, as_json: bool
) -> None:
    """Show the errors of the last hour, the largest group first.

    Jobs are one group if their last errors have the same type, and messages that differ only in numbers, ids, times,
    quoted texts, addresses and paths, which are shown as "…". STATES is what became of the jobs: those that "went on"
    succeeded in a later attempt. The newest 10,000 failures are counted; a number with a + may be higher.
    """
    from windlass.clock import SystemClock
    from windlass.methods.error_groups import read_errors

    settings = load_settings(url, app)
    groups = call_store(settings, lambda store: read_errors(store, since, queue=queue, tenant=tenant))
    if as_json:
        print_json({"errors": [error_document(group) for group in groups]})
        return
    if not groups:
        _print_nothing_found(settings, since, queue, tenant)
        return
    now = SystemClock().now()
    print_table(COLUMNS, [_row(group, now) for group in groups])
    if sys.stdout.isatty():
        _print_commands(groups[0])


def _row(group: ErrorGroup, now: datetime) -> list[Cell]:
    error = f"{group.type}: {group.message}" if group.message else group.type
    return [
        Cell(group.fingerprint),
        Cell(f"{group.count:,}{'+' if group.more else ''}", raw=str(group.count)),
        Cell(error),
        Cell(describe_states(group)),
        Cell(", ".join(share.name for share in group.queues)),
        age_cell(group.last, now),
    ]


def describe_states(group: ErrorGroup) -> str:
    """What became of the jobs: `276 dead, 42 failed, 23 went on`."""
    from windlass.model.state import State

    names = {State.SUCCEEDED: "went on"}
    order = [State.DEAD, State.FAILED, State.QUEUED, State.RUNNING, State.WAITING, State.SUCCEEDED, State.CANCELLED]
    counted = [(group.states[state], names.get(state, state.value)) for state in order if group.states.get(state)]
    return ", ".join(f"{count:,} {name}" for count, name in counted)


def _print_commands(group: ErrorGroup) -> None:
    """How the jobs of the first group are listed and started again."""
    from windlass.model.state import State

    term = f"fingerprint:{group.fingerprint}"
    print_text(f"its jobs: windlass jobs list {term}", style="dim")
    if group.states.get(State.FAILED):
        print_text(f"retry now what failed: windlass jobs retry {term}", style="dim")
    if group.states.get(State.DEAD):
        print_text(f"start over what is dead: windlass jobs replay {term}", style="dim")


def _print_nothing_found(settings: Settings, since: float, queue: str | None, tenant: str | None) -> None:
    from windlass.clock import spell
    from windlass.store import masked

    of = "".join(f" of {kind} {name}" for kind, name in (("queue", queue), ("tenant", tenant)) if name is not None)
    print_text(f"no job{of} failed in the last {spell(since)} in {masked(settings.url)}", err=True)
