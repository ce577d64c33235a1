"""`windlass budgets`: how much tenants and queues may spend, what they have spent, and when a spent budget opens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.gate_options import (
    SOON,
    ListGroup,
    parse_spender,
    read_known_names,
    spender_options,
    suggest_name,
)
from windlass.cli.parse.shield import NegativeNumbersCommand, remove_shield
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    format_age,
    format_count,
    number_cell,
    print_detail,
    print_json,
    print_note,
    print_table,
    print_text,
)
from windlass.documents import budget_document

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.model.admission import Budget, BudgetRow
    from windlass.store.protocol import Store

COLUMNS = (
    Column("BUDGET", flexible=True),
    Column("CENTS", right=True),
    Column("PER", right=True),
    Column("SPENT", right=True),
    Column("LEFT", right=True),
    Column("STATE"),
)
WHOLE = re.compile(r"-?\d+", re.ASCII)
EUROS = re.compile(r"(-?\d+)[.,](\d\d?)", re.ASCII)


@click.group(cls=ListGroup, short_help="Show and set how much tenants and queues may spend.")
def budgets() -> None:
    """Show and set how much tenants and queues may spend per window of time.

    Handlers report their cost (ctx.cost). When a budget is spent, no job of that tenant or queue starts until the
    next window. Running jobs finish, and their cost counts. Without a command, this lists the budgets.
    """


@budgets.command("list", short_help="Show each budget: spent, left, and when it opens.")
@store_options
def list_budgets(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each budget: its cents per window, the cents spent in the current window, the cents left, and when a spent
    budget opens again."""
    from windlass.clock import SystemClock

    settings = load_settings(url, app)
    rows = call_store(settings, lambda store: store.budgets())
    now = SystemClock().now()
    if as_json:
        print_json({"budgets": [budget_document(row) for row in rows]})
        return
    if not rows:
        print_text("there is no budget; set one: windlass budgets set --tenant acme 500 --per day", err=True)
        return
    print_table(COLUMNS, [_row(row, now) for row in rows])


def _row(row: BudgetRow, now: datetime) -> list[Cell]:
    spent = row.is_spent
    return [
        Cell(f"{row.kind} {row.name}", raw=f"{row.kind}:{row.name}"),
        number_cell(row.cents),
        Cell(format_window(row.seconds), raw="month" if row.seconds is None else f"{row.seconds:g}"),
        number_cell(row.spent),
        number_cell(row.left, "bold red" if spent else ""),
        Cell(describe_state(row, now), "bold red" if spent else "green", raw=row.until.isoformat()),
    ]


def describe_state(row: BudgetRow, now: datetime) -> str:
    """`spent, opens in 5h`."""
    if row.cents == 0:
        return "0: nothing starts"
    return (
        f"spent, opens in {format_age(now, row.until)}"
        if row.is_spent
        else f"open, new window in {format_age(now, row.until)}"
    )


def format_window(seconds: float | None) -> str:
    """`day`, or the length of the window."""
    from windlass.model.admission import spelled_window

    return spelled_window(seconds)


# Changes


@budgets.command("set", cls=NegativeNumbersCommand, short_help="Set or change a budget, in cents.")
@click.argument("cents")
@spender_options
@click.option("--per", metavar="WINDOW", help="hour, day, week, month, or a span such as 30m; required.")
@store_options
def set_budget(
    cents: str,
    tenant: str | None,
    queue: str | None,
    per: str | None,
    app: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Set how much a tenant or a queue may spend per window: `windlass budgets set --tenant acme 500 --per day`.

    CENTS is a whole number; with 0 no job starts. Windows are counted in UTC: days begin at midnight, months on the
    first, spans and weeks from the beginning of 1970. Cents already spent in the current window count.
    """
    from windlass.methods.admin import budget

    parse_spender("set", tenant, queue)
    if per is None:
        raise click.UsageError("the window is missing: --per hour, day, week, month, or a span such as --per 30m")
    given = budget(tenant, queue, _parse_cents(remove_shield(cents)), per)
    settings = load_settings(url, app)
    row, known = call_store(settings, lambda store: _set(store, given, settings.acting))
    suggest_name(given.kind, given.name, known)
    if as_json:
        print_json(budget_document(row))
    else:
        _print_budget(row)


def _parse_cents(text: str) -> int:
    """Only whole cents: 5.00 may mean five euros, and the error message shows how to write that."""
    if WHOLE.fullmatch(text):
        return int(text)
    meant = EUROS.fullmatch(text)
    if meant:
        cents = int(meant[1]) * 100 + int(meant[2].ljust(2, "0"))
        raise click.UsageError(f"{text} is no whole number of cents; for {text} of the currency, write {cents}")
    raise click.UsageError(f"{text!r} is no whole number of cents; write it like 500")


async def _set(store: Store, budget: Budget, actor: str) -> tuple[BudgetRow, set[str]]:
    from windlass.errors import AdmissionError

    known = await read_known_names(store, budget.kind)
    await store.set_budget(budget, actor=actor)
    for row in await store.budgets():
        if (row.kind, row.name) == (budget.kind, budget.name):
            return row, known
    raise AdmissionError(f"the budget of {budget.kind} {budget.name} was set, and dropped by another operator at once")


def _print_budget(row: BudgetRow) -> None:
    from windlass.clock import SystemClock

    now = SystemClock().now()
    print_text(
        f"{row.kind} {row.name} may cost {format_count(row.cents, 'cent')} per {format_window(row.seconds)}",
        style="green",
    )
    print_detail(f"{row.spent:,} spent, {row.left:,} left; {describe_state(row, now)}")
    if row.cents == 0:
        print_detail("running jobs finish; no other job starts until the budget is changed or dropped; " + SOON)
        print_detail(f"→ windlass budgets drop {join_words([f'--{row.kind}', row.name])}", style="dim")
    elif row.is_spent:
        print_detail(f"running jobs finish; no other job starts until then; {SOON}")


@budgets.command("drop", short_help="Remove a budget.")
@spender_options
@store_options
def drop_budget(tenant: str | None, queue: str | None, app: str | None, url: str | None, as_json: bool) -> None:
    """Remove a budget: the tenant or queue may spend without limit. Where there is no budget, nothing changes."""
    kind, name = parse_spender("drop", tenant, queue)
    settings = load_settings(url, app)
    dropped, known = call_store(settings, lambda store: _drop(store, kind, name, settings.acting))
    if as_json:
        print_json({"kind": kind, "name": name, "dropped": dropped})
    if dropped:
        if not as_json:
            print_text(f"{kind} {name} has no budget any more", style="green")
        return
    print_note(f"{kind} {name} has no budget")
    suggest_name(f"budget of {kind}", name, known)


async def _drop(store: Store, kind: str, name: str, actor: str) -> tuple[bool, set[str]]:
    known = {row.name for row in await store.budgets() if row.kind == kind}
    return await store.drop_budget(kind, name, actor=actor), known
