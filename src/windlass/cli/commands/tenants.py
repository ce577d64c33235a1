"""`windlass tenants`: the tenants that share the queues, their weights, jobs and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.gate_options import ListGroup, suggest_name
from windlass.cli.parse.shield import NegativeNumbersCommand, remove_shield
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    lag_cell,
    number_cell,
    print_detail,
    print_json,
    print_table,
    print_text,
    wrap,
)
from windlass.documents import tenant_document

if TYPE_CHECKING:
    from windlass.model.admission import TenantRow
    from windlass.store.protocol import Store

COLUMNS = (
    Column("TENANT", flexible=True),
    Column("WEIGHT", right=True),
    Column("QUEUED", right=True),
    Column("RUNNING", right=True),
    Column("AT A LIMIT", right=True, spare=2),
    Column("LAG", right=True),
    Column("CENTS IN 24H", right=True, spare=1),
)


@click.group(cls=ListGroup, short_help="Show tenants, and set their weights.")
def tenants() -> None:
    """Show tenants, and set their weights.

    Tenants with jobs in a queue share it by weight: of a tenant with weight 3, three times as many jobs start as of one
    with weight 1. No share stays unused while other tenants have jobs. Without a command, this lists the tenants.
    """


@tenants.command("list", short_help="Show each tenant: weight, jobs, lag, and cost.")
@store_options
def list_tenants(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each tenant that has a weight or jobs, or that spent cents in the last 24 hours.

    LAG is how long the tenant's oldest due job has waited. AT A LIMIT is how many of its queued jobs wait at a limit or
    rate.
    """
    settings = load_settings(url, app)
    rows = call_store(settings, lambda store: store.tenants())
    if as_json:
        print_json({"tenants": [tenant_document(row) for row in rows]})
        return
    if not rows:
        from windlass.store import masked

        place = masked(settings.url)
        advice = "give a job a tenant: windlass enqueue TYPE --tenant acme"
        print_text(wrap(f"no tenant has jobs or a weight in {place}; {advice}"), err=True)
        return
    print_table(COLUMNS, [_row(row) for row in rows])


def _row(row: TenantRow) -> list[Cell]:
    return [
        Cell(row.name),
        Cell(f"{row.weight:g}"),
        number_cell(row.queued, most=row.counted),
        number_cell(row.running, most=row.counted),
        number_cell(row.parked, "yellow" if row.parked else "dim", most=row.counted),
        lag_cell(row.lag),
        number_cell(row.cents, "" if row.cents else "dim"),
    ]


@tenants.command("weigh", cls=NegativeNumbersCommand, short_help="Set the weight of a tenant.")
@click.argument("tenant", shell_complete=complete_name("tenant"))
@click.argument("weight")
@store_options
def weigh(tenant: str, weight: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Set the weight of TENANT: a number above 0, such as 3 or 0.5. Without one, a tenant has weight 1."""
    from windlass.methods.admin import check_name, checked_weight

    check_name("tenant", tenant)
    given = _parse_weight(remove_shield(weight))
    if given <= 0:
        pause = f"windlass gates pause {join_words(['--tenant', tenant])}"
        raise click.UsageError(f"a weight of {given}: it must be above 0; to start no job of {tenant}: {pause}")
    given = checked_weight(given)
    settings = load_settings(url, app)
    known = call_store(settings, lambda store: _weigh(store, tenant, given, settings.acting))
    suggest_name("tenant", tenant, known)
    if as_json:
        print_json({"tenant": tenant, "weight": given})
        return
    print_text(f"tenant {tenant} has weight {given:g}", style="green")
    print_detail(
        f"while others have jobs, {given:g} of its jobs start for each 1 of a tenant with weight 1; within seconds"
    )


async def _weigh(store: Store, tenant: str, weight: float, actor: str) -> set[str]:
    known = {row.name for row in await store.tenants()}
    await store.weigh(tenant, weight, actor=actor)
    return known


def _parse_weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"a weight of {text!r}: it is a number above 0, such as 3 or 0.5") from None
