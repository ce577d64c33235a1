"""`windlass token`: the tokens of the HTTP API, by which programs and people show who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.gate_options import ListGroup
from windlass.cli.parse.options import parse_duration
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    age_cell,
    format_age,
    id_cell,
    print_detail,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.model.token import TokenRow

COLUMNS = (
    Column("NAME", flexible=True),
    Column("ROLE"),
    Column("TENANT", flexible=True),
    Column("STATE"),
    Column("EXPIRES", right=True),
    Column("AGE", right=True, spare=1),
    Column("CREATED BY", flexible=True, spare=2),
    Column("ID", spare=3),
)
STYLES = {"live": "green", "expired": "yellow", "revoked": "dim"}
EVERY_TENANT = "all"
NEVER = "never"


@click.group(cls=ListGroup, short_help="Create, list and revoke tokens of the HTTP API.")
def token() -> None:
    """Create, list and revoke tokens of the HTTP API.

    A viewer reads, an operator also changes jobs, an admin also sees hidden values and manages tokens. Only a hash of
    a token's secret is stored. Without a command, this lists the tokens.
    """


@token.command("create", short_help="Create a token, and print its secret once.")
@click.argument("name")
@click.option("--role", default="viewer", show_default=True, metavar="ROLE", help="viewer, operator or admin.")
@click.option(
    "--tenant", metavar="TENANT", shell_complete=complete_name("tenant"), help="Only this tenant's jobs; else all."
)
@click.option("--expires", metavar="TIME", callback=parse_duration, help="Refuse it after this time, such as 90d.")
@store_options
def create(
    name: str,
    role: str,
    tenant: str | None,
    expires: float | None,
    app: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Create a token called NAME, and print its secret. The secret is not stored: it cannot be printed again.

    The audit names the token as the actor of every change that is made with it. In a pipe, stdout has the secret alone.
    """
    import sys

    from windlass.methods.tokens import creation

    settings = load_settings(url, app)
    new = call_store(settings, creation(name, role=role, tenant=tenant, expires=expires, actor=settings.acting))
    if as_json:
        print_json({"secret": new.secret, "token": new.token.document()})
        return
    print_text(new.secret)
    if sys.stdout.isatty():
        print_detail(_describe(new.token))
        print_detail("keep it now: it cannot be shown again. A request has it as: Authorization: Bearer …")


def _describe(row: TokenRow) -> str:
    reach = "all tenants" if row.tenant is None else f"tenant {row.tenant}"
    until = "it does not expire" if row.expires_at is None else f"it expires at {row.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"token {row.name}: {row.role} of {reach}; {until}"


@token.command("list", short_help="Show each token: role, tenant, state.")
@store_options
def list_tokens(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each token without its secret, live ones first: role, tenant, state, and when it expires.

    The states are live, expired and revoked.
    """
    from windlass.clock import SystemClock

    settings = load_settings(url, app)
    rows = call_store(settings, lambda store: store.tokens())
    if as_json:
        print_json({"tokens": [row.document() for row in rows]})
        return
    if not rows:
        print_text("there is no token; create one: windlass token create NAME --role operator", err=True)
        return
    now = SystemClock().now()
    print_table(COLUMNS, [_row(row, now) for row in rows])


def _row(row: TokenRow, now: datetime) -> list[Cell]:
    return [
        Cell(row.name),
        Cell(row.role.value),
        Cell(row.tenant or EVERY_TENANT, "" if row.tenant else "dim", raw=row.tenant or ""),
        Cell(row.state, STYLES[row.state]),
        _expiry_cell(row.expires_at, now),
        age_cell(row.created_at, now),
        Cell(row.created_by or ""),
        id_cell(row.id, "dim"),
    ]


def _expiry_cell(moment: datetime | None, now: datetime) -> Cell:
    if moment is None:
        return Cell(NEVER, "dim", raw="")
    text = f"in {format_age(now, moment)}" if moment > now else f"{format_age(moment, now)} ago"
    return Cell(text, raw=moment.isoformat())


@token.command("revoke", short_help="Refuse a token.")
@click.argument("token", metavar="NAME|ID")
@store_options
def revoke(token: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Refuse the token with this name or id. This cannot be undone: create a new one instead.

    A server that has just seen the token learns it within 5 seconds, and ends the token's streams within 20.
    """
    from windlass.methods.tokens import checked_reference

    named = checked_reference(token)
    settings = load_settings(url, app)
    row = call_store(settings, lambda store: store.revoke_token(named, actor=settings.acting))
    if as_json:
        print_json(row.document())
        return
    print_text(f"token {row.name} is revoked", style="green")
    print_detail("every server refuses it within 5 seconds; a new token may have its name")
