"""`windlass budgets`: what tenants and queues may cost, what they have cost, and when a spent one opens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands.run import SHIELD, NegativeNumbersCommand
from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.gate_options import (
    SOON,
    ListGroup,
    parse_spender,
    read_known_names,
    spender_options,
    suggest_name,
)
from windlass.cli.parse.store_option import app_option, call_store, load_settings, url_option
from windlass.cli.show.output import (
    Cell,
    Column,
    as_json,
    format_age,
    format_count,
    print_detail,
    print_json,
    print_note,
    print_table,
    print_text,
)

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


@click.group(cls=ListGroup, short_help="Show and set what tenants and queues may cost.")
def budgets() -> None:
    """Show and set what tenants and queues may cost per window of time.

    Handlers tell what they cost (ctx.cost). When a budget is spent, nothing of that tenant or queue starts until its
    next window; what runs may finish, and is counted. Without a command, this lists the budgets.
    """


@budgets.command("list", short_help="Show each budget: spent, left, and when it opens.")
@app_option
@url_option
@as_json
def list_budgets(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each budget: what it is, what its window that is now has cost, what is left, and when a spent one opens."""
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
    spent = is_spent(row)
    return [
        Cell(f"{row.kind} {row.name}", raw=f"{row.kind}:{row.name}"),
        Cell(f"{row.cents:,}", raw=str(row.cents)),
        Cell(format_window(row.seconds), raw="month" if row.seconds is None else f"{row.seconds:g}"),
        Cell(f"{row.spent:,}", raw=str(row.spent)),
        Cell(f"{cents_left(row):,}", "bold red" if spent else "", raw=str(cents_left(row))),
        Cell(describe_state(row, now), "bold red" if spent else "green", raw=row.until.isoformat()),
    ]


def is_spent(row: BudgetRow) -> bool:
    return row.spent >= row.cents


def cents_left(row: BudgetRow) -> int:
    return max(0, row.cents - row.spent)


def describe_state(row: BudgetRow, now: datetime) -> str:
    """`spent, opens in 5h`."""
    if row.cents == 0:
        return "0: nothing starts"
    return (
        f"spent, opens in {format_age(now, row.until)}"
        if is_spent(row)
        else f"open, anew in {format_age(now, row.until)}"
    )


def format_window(seconds: float | None) -> str:
    """`day`, or how long it is."""
    from windlass.model.admission import spelled_window

    return spelled_window(seconds)


def budget_document(row: BudgetRow) -> dict[str, Any]:
    """A budget as `--json` tells it."""
    return {
        "kind": row.kind,
        "name": row.name,
        "cents": row.cents,
        "seconds": row.seconds,
        "spent": row.spent,
        "left": cents_left(row),
        "open": not is_spent(row),
        "until": row.until,
    }


# Setting one


@budgets.command("set", cls=NegativeNumbersCommand, short_help="Set or change a budget, in cents.")
@click.argument("cents")
@spender_options
@click.option("--per", metavar="WINDOW", help="hour, day, week, month, or a span such as 30m; needed.")
@app_option
@url_option
@as_json
def set_budget(
    cents: str,
    tenant: str | None,
    queue: str | None,
    per: str | None,
    app: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Set what a tenant or a queue may cost per window: `windlass budgets set --tenant acme 500 --per day`.

    CENTS is a whole number; 0 lets nothing start. Windows are counted in UTC: days begin at midnight, months on the
    first, spans and weeks from the beginning of 1970. What the window that is now has cost already counts.
    """
    from windlass.admin import budget

    parse_spender("set", tenant, queue)
    if per is None:
        raise click.UsageError("say per what: --per hour, day, week, month, or a span such as --per 30m")
    given = budget(tenant, queue, _parse_cents(cents.removeprefix(SHIELD)), per)
    settings = load_settings(url, app)
    row, known = call_store(settings, lambda store: _set(store, given, settings.acting))
    suggest_name(given.kind, given.name, known)
    if as_json:
        print_json(budget_document(row))
    else:
        _print_budget(row)


def _parse_cents(text: str) -> int:
    """Only cents: 5.00 may mean five euros, and is asked about rather than guessed."""
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
    raise AdmissionError(f"the budget of {budget.kind} {budget.name} was set, and dropped by somebody else at once")


def _print_budget(row: BudgetRow) -> None:
    from windlass.clock import SystemClock

    now = SystemClock().now()
    print_text(
        f"{row.kind} {row.name} may cost {format_count(row.cents, 'cent')} per {format_window(row.seconds)}",
        style="green",
    )
    print_detail(f"{row.spent:,} spent, {cents_left(row):,} left; {describe_state(row, now)}")
    if row.cents == 0:
        print_detail("running jobs finish; nothing new starts until it has another budget or none; " + SOON)
        print_detail(f"→ windlass budgets drop {join_words([f'--{row.kind}', row.name])}", style="dim")
    elif is_spent(row):
        print_detail(f"running jobs finish; nothing new starts until then; {SOON}")


@budgets.command("drop", short_help="Forget a budget.")
@spender_options
@app_option
@url_option
@as_json
def drop_budget(tenant: str | None, queue: str | None, app: str | None, url: str | None, as_json: bool) -> None:
    """Forget a budget: the tenant or queue may cost what it costs. Where there is none, nothing changes."""
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
