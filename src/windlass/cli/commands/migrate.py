"""`windlass migrate`: bring the database's schema up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.exit_codes import REFUSED, WORKERS_OUTDATED
from windlass.cli.parse.options import json_option
from windlass.cli.parse.program_argument import program_argument, was_named_by_environment
from windlass.cli.parse.store_option import load_settings, url_option
from windlass.cli.show.output import print_json, print_note

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.migrate import Migration


@click.command(short_help="Bring the schema up to date.")
@program_argument("target")
@url_option
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL of the missing migrations; change nothing.")
@click.option("--check", is_flag=True, help="Say what a deploy needs; change nothing (exit 0, 1 or 3).")
@json_option
@click.pass_context
def migrate(ctx: click.Context, target: str | None, url: str | None, as_sql: bool, check: bool, as_json: bool) -> None:
    """Bring the schema up to date.

    The database is that of the program TARGET (app.py or package.module:app; also -a or WINDLASS_APP), or --url, or
    WINDLASS_URL, or the file windlass.db in this directory. Migrations that are applied already are skipped, so that
    this command can run before every start. Workers and producers run on meanwhile.

    --check exits with 0 when this program can start, with 1 when it needs this command first, and with 3 when workers
    of a program that is two versions behind have to be replaced or stopped before that.
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
    from windlass.store import dialect_of, make_migrator
    from windlass.store.migrate import AHEAD, missing, newest

    dialect, migrator = dialect_of(settings.url), make_migrator(settings)
    number = await migrator.current()
    steps = missing(dialect, number)
    if as_sql:
        for step in steps:
            click.echo(f"-- {step.number:04} {step.name}\n{step.sql.rstrip()}\n")
        return 0
    behind = await migrator.outdated_workers() if steps else []
    code = (WORKERS_OUTDATED if behind else REFUSED) if steps else 0
    if as_json:
        about = {"schema": number, "program": newest(dialect), "outdated_workers": behind}
        print_json({**_document(settings, applied=[], missing=steps), **about})
        return code
    for step in steps:
        click.echo(f"missing {step.label}")
    if behind:
        print_note(
            f"workers that would be two versions behind: {', '.join(behind)}; first deploy the release between, or "
            "stop them (windlass workers lists them); then run windlass migrate --check again"
        )
    elif 0 < number < newest(dialect) - AHEAD:
        print_note(
            f"first replace or stop producers that know schema {number}: they would be two versions behind, and the "
            "database knows no producers; next: windlass migrate, then start this program"
        )
    elif steps:
        print_note("workers and producers may run on; next: windlass migrate, then start this program")
    else:
        click.echo(_up_to_date(settings, number))
    return code


async def _apply(settings: Settings, *, as_json: bool) -> None:
    from windlass.store import make_migrator

    migrator = make_migrator(settings)
    steps = await migrator.migrate()
    if as_json:
        print_json(_document(settings, applied=steps, missing=[]))
        return
    for step in steps:
        click.echo(f"applied {step.label}")
    click.echo(_up_to_date(settings, await migrator.current()))


def _up_to_date(settings: Settings, number: int) -> str:
    from windlass.store import dialect_of, masked
    from windlass.store.migrate import newest

    known = newest(dialect_of(settings.url))
    ahead = f" (number {number}, one ahead of this program, which works with it)" if number > known else ""
    return f"schema is up to date: {masked(settings.url)}{ahead}"


def _document(settings: Settings, *, applied: list[Migration], missing: list[Migration]) -> dict[str, Any]:
    from windlass.store import masked

    return {
        "database": masked(settings.url),
        "applied": [{"number": step.number, "name": step.name} for step in applied],
        "missing": [{"number": step.number, "name": step.name} for step in missing],
    }
