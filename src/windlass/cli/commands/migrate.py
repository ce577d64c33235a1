"""`windlass migrate`: bring the database's schema up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.options import json_option
from windlass.cli.parse.program_argument import program_argument, was_named_by_environment
from windlass.cli.parse.store_option import load_settings, url_option
from windlass.cli.show.output import print_json

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.migrate import Migration


@click.command(short_help="Bring the schema up to date.")
@program_argument("target")
@url_option
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL of the missing migrations; change nothing.")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when a migration is missing.")
@json_option
@click.pass_context
def migrate(ctx: click.Context, target: str | None, url: str | None, as_sql: bool, check: bool, as_json: bool) -> None:
    """Bring the schema up to date.

    The database is that of the program TARGET (app.py or package.module:app; also -a or WINDLASS_APP), or --url, or
    WINDLASS_URL, or the file windlass.db in this directory. Migrations that are applied already are skipped, so that
    this command can run before every start.
    """
    import asyncio

    if url is not None and was_named_by_environment(ctx, "target"):
        target = None
    if target is not None and url is not None:
        raise click.UsageError("TARGET and --url both name a database; give one of them")
    if as_sql and as_json:
        raise click.UsageError("--sql prints SQL and --json a document; give one of them")
    settings = load_settings(url, target)
    if as_sql or check:
        ctx.exit(asyncio.run(_print_missing(settings, as_sql=as_sql, as_json=as_json)))
    asyncio.run(_apply(settings, as_json=as_json))


async def _print_missing(settings: Settings, *, as_sql: bool, as_json: bool) -> int:
    from windlass.store import dialect_of, make_migrator, masked
    from windlass.store.migrate import missing

    steps = missing(dialect_of(settings.url), await make_migrator(settings).current())
    if as_sql:
        for step in steps:
            click.echo(f"-- {step.number:04} {step.name}\n{step.sql.rstrip()}\n")
        return 0
    if as_json:
        print_json(_document(settings, applied=[], missing=steps))
        return 1 if steps else 0
    for step in steps:
        click.echo(f"missing {step.number:04} {step.name}")
    if not steps:
        click.echo(f"schema is up to date: {masked(settings.url)}")
    return 1 if steps else 0


async def _apply(settings: Settings, *, as_json: bool) -> None:
    from windlass.store import make_migrator, masked

    steps = await make_migrator(settings).migrate()
    if as_json:
        print_json(_document(settings, applied=steps, missing=[]))
        return
    for step in steps:
        click.echo(f"applied {step.number:04} {step.name}")
    click.echo(f"schema is up to date: {masked(settings.url)}")


def _document(settings: Settings, *, applied: list[Migration], missing: list[Migration]) -> dict[str, Any]:
    from windlass.store import masked

    return {
        "database": masked(settings.url),
        "applied": [{"number": step.number, "name": step.name} for step in applied],
        "missing": [{"number": step.number, "name": step.name} for step in missing],
    }
