"""`windlass tenants`: who shares the queues, by which weight, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands.run import SHIELD, NegativeNumbersCommand
from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.gate_options import ListGroup, suggest_name
from windlass.cli.parse.store_option import app_option, call_store, load_settings, url_option
from windlass.cli.show.output import (
    Cell,
    Column,
    as_json,
    format_span,
    print_detail,
    print_json,
    print_table,
    print_text,
    wrap,
)

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


@click.group(cls=ListGroup, short_help="Show who shares the queues, and weigh tenants.")
def tenants() -> None:
    """Show who shares the queues, and weigh tenants.

    Tenants with jobs in a queue share it by weight: one of weight 3 gets three times as many starts as one of weight 1.
    Nobody's share stays unused while others have jobs. Without a command, this lists them.
    """


@tenants.command("list", short_help="Show each tenant: weight, jobs, lag, and cost.")
@app_option
@url_option
@as_json
def list_tenants(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each tenant that has a weight or jobs, or cost something in the last 24 hours.

    LAG is how long its oldest due job waits, AT A LIMIT how many of the queued ones wait at a limit or rate.
    """
    settings = load_settings(url, app)
    rows = call_store(settings, lambda store: store.tenants())
    if as_json:
        print_json({"tenants": [_document(row) for row in rows]})
        return
    if not rows:
        from windlass.store import masked

        place = masked(settings.url)
        advice = "say whose a job is: windlass enqueue TYPE --tenant acme"
        print_text(wrap(f"no tenant has jobs or a weight in {place}; {advice}"), err=True)
        return
    print_table(COLUMNS, [_row(row) for row in rows])


def _row(row: TenantRow) -> list[Cell]:
    return [
        Cell(row.name),
        Cell(f"{row.weight:g}"),
        Cell(f"{row.queued:,}", raw=str(row.queued)),
        Cell(f"{row.running:,}", raw=str(row.running)),
        Cell(f"{row.parked:,}", "yellow" if row.parked else "dim", raw=str(row.parked)),
        Cell("–" if row.lag is None else format_span(row.lag), raw="" if row.lag is None else f"{row.lag:.3f}"),
        Cell(f"{row.cents:,}", "" if row.cents else "dim", raw=str(row.cents)),
    ]


def _document(row: TenantRow) -> dict[str, Any]:
    return {
        "tenant": row.name,
        "weight": row.weight,
        "queued": row.queued,
        "running": row.running,
        "parked": row.parked,
        "lag": row.lag,
        "cents": row.cents,
    }


@tenants.command("weigh", cls=NegativeNumbersCommand, short_help="Give a tenant its weight.")
@click.argument("tenant")
@click.argument("weight")
@app_option
@url_option
@as_json
def weigh(tenant: str, weight: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Give TENANT its WEIGHT: a number above 0, such as 3 or 0.5. One without has weight 1."""
    from windlass.admin import check_name, checked_weight

    check_name("tenant", tenant)
    given = _parse_weight(weight.removeprefix(SHIELD))
    if given <= 0:
        pause = f"windlass gates pause {join_words(['--tenant', tenant])}"
        raise click.UsageError(f"a weight of {given}: it must be above 0; to let {tenant} start nothing: {pause}")
    given = checked_weight(given)
    settings = load_settings(url, app)
    known = call_store(settings, lambda store: _weigh(store, tenant, given, settings.acting))
    suggest_name("tenant", tenant, known)
    if as_json:
        print_json({"tenant": tenant, "weight": given})
        return
    print_text(f"tenant {tenant} has weight {given:g}", style="green")
    print_detail(
        f"where others have jobs, too, it starts {given:g} for each 1 of a tenant with weight 1; within seconds"
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
