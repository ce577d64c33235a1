"""`windlass budgets`: what tenants and queues may cost, what they have cost, and when a spent one opens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands.run import SHIELD, WithNegatives
from windlass.cli.parse.filter_args import shown
from windlass.cli.parse.gate_options import SOON, Listing, hint, known_names, spender_of, spender_options
from windlass.cli.parse.store_option import app_option, ask, settings_of, url_option
from windlass.cli.show.output import Cell, Column, as_json, explain, note, plural, print_json, print_table, say, since

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


@click.group(cls=Listing, short_help="Show and set what tenants and queues may cost.")
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

    settings = settings_of(url, app)
    rows = ask(settings, lambda store: store.budgets())
    now = SystemClock().now()
    if as_json:
        print_json({"budgets": [document(row) for row in rows]})
        return
    if not rows:
        say("there is no budget; set one: windlass budgets set --tenant acme 500 --per day", err=True)
        return
    print_table(COLUMNS, [_row(row, now) for row in rows])


def _row(row: BudgetRow, now: datetime) -> list[Cell]:
    spent = is_spent(row)
    return [
        Cell(f"{row.kind} {row.name}", raw=f"{row.kind}:{row.name}"),
        Cell(f"{row.cents:,}", raw=str(row.cents)),
        Cell(window_of(row.seconds), raw="month" if row.seconds is None else f"{row.seconds:g}"),
        Cell(f"{row.spent:,}", raw=str(row.spent)),
        Cell(f"{left_of(row):,}", "bold red" if spent else "", raw=str(left_of(row))),
        Cell(standing(row, now), "bold red" if spent else "green", raw=row.until.isoformat()),
    ]


def is_spent(row: BudgetRow) -> bool:
    return row.spent >= row.cents


def left_of(row: BudgetRow) -> int:
    return max(0, row.cents - row.spent)


def standing(row: BudgetRow, now: datetime) -> str:
    """`spent, opens in 5h`."""
    if row.cents == 0:
        return "0: nothing starts"
    return f"spent, opens in {since(now, row.until)}" if is_spent(row) else f"open, anew in {since(now, row.until)}"


def window_of(seconds: float | None) -> str:
    """`day`, or how long it is."""
    from windlass.model.admission import spelled_window

    return spelled_window(seconds)


def document(row: BudgetRow) -> dict[str, Any]:
    """A budget as `--json` tells it."""
    return {
        "kind": row.kind,
        "name": row.name,
        "cents": row.cents,
        "seconds": row.seconds,
        "spent": row.spent,
        "left": left_of(row),
        "open": not is_spent(row),
        "until": row.until,
    }


# Setting one


@budgets.command("set", cls=WithNegatives, short_help="Set or change a budget, in cents.")
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

    spender_of("set", tenant, queue)
    if per is None:
        raise click.UsageError("say per what: --per hour, day, week, month, or a span such as --per 30m")
    given = budget(tenant, queue, _cents(cents.removeprefix(SHIELD)), per)
    settings = settings_of(url, app)
    row, known = ask(settings, lambda store: _set(store, given, settings.acting))
    hint(given.kind, given.name, known)
    if as_json:
        print_json(document(row))
    else:
        _tell(row)


def _cents(text: str) -> int:
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

    known = await known_names(store, budget.kind)
    await store.set_budget(budget, actor=actor)
    for row in await store.budgets():
        if (row.kind, row.name) == (budget.kind, budget.name):
            return row, known
    raise AdmissionError(f"the budget of {budget.kind} {budget.name} was set, and dropped by somebody else at once")


def _tell(row: BudgetRow) -> None:
    from windlass.clock import SystemClock

    now = SystemClock().now()
    say(f"{row.kind} {row.name} may cost {plural(row.cents, 'cent')} per {window_of(row.seconds)}", style="green")
    explain(f"{row.spent:,} spent, {left_of(row):,} left; {standing(row, now)}")
    if row.cents == 0:
        explain("running jobs finish; nothing new starts until it has another budget or none; " + SOON)
        explain(f"→ windlass budgets drop {shown([f'--{row.kind}', row.name])}", style="dim")
    elif is_spent(row):
        explain(f"running jobs finish; nothing new starts until then; {SOON}")


@budgets.command("drop", short_help="Forget a budget.")
@spender_options
@app_option
@url_option
@as_json
def drop_budget(tenant: str | None, queue: str | None, app: str | None, url: str | None, as_json: bool) -> None:
    """Forget a budget: the tenant or queue may cost what it costs. Where there is none, nothing changes."""
    kind, name = spender_of("drop", tenant, queue)
    settings = settings_of(url, app)
    dropped, known = ask(settings, lambda store: _drop(store, kind, name, settings.acting))
    if as_json:
        print_json({"kind": kind, "name": name, "dropped": dropped})
    if dropped:
        if not as_json:
            say(f"{kind} {name} has no budget any more", style="green")
        return
    note(f"{kind} {name} has no budget")
    hint(f"budget of {kind}", name, known)


async def _drop(store: Store, kind: str, name: str, actor: str) -> tuple[bool, set[str]]:
    known = {row.name for row in await store.budgets() if row.kind == kind}
    return await store.drop_budget(kind, name, actor=actor), known
