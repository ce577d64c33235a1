"""`windlass config`: each setting, its value, and the source of the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.options import json_option
from windlass.cli.parse.program_argument import program_argument
from windlass.cli.parse.store_option import load_settings, url_option
from windlass.cli.show.output import Cell, Column, print_json, print_table

if TYPE_CHECKING:
    from dataclasses import Field

    from windlass.config import Settings

COLUMNS = (
    Column("SETTING"),
    Column("VALUE"),
    Column("FROM"),
    Column("VARIABLE", spare=1),
    Column("ABOUT", flexible=True, spare=2),
)


@click.command(short_help="Show each setting, its value and where it came from.")
@program_argument("app")
@url_option
@json_option
def config(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each setting, its value, and where the value came from.

    With APP (app.py or package.module:app) these are the settings of the program; without it, those of the environment
    and of the files in this directory. An argument in the program comes first, then a flag, WINDLASS_*, windlass.toml,
    [tool.windlass] in pyproject.toml, the pace's preset, and the default. Passwords are not shown.
    """
    from windlass.config import names, variable

    settings = load_settings(url, app)
    items = names().items()
    if as_json:
        documents = [
            {
                "name": name,
                "value": _read_value(settings, name),
                "from": _origin(settings, name),
                "variable": variable(name),
            }
            for name, _ in items
        ]
        print_json({"settings": documents})
        return
    print_table(COLUMNS, [_row(settings, name, item, variable(name)) for name, item in items])


def _row(settings: Settings, name: str, item: Field[Any], variable: str) -> list[Cell]:
    origin = _origin(settings, name)
    given = origin != "default"
    return [
        Cell(name, "bold" if given else ""),
        Cell(_format_value(settings, name, item), "bold" if given else ""),
        Cell(origin, "" if given else "dim"),
        Cell(variable, "dim"),
        Cell(str(item.metadata["about"]), "dim"),
    ]


def _origin(settings: Settings, name: str) -> str:
    return settings.origins.get(name, "default")


def _read_value(settings: Settings, name: str) -> Any:
    """The value as `--json` prints it: seconds and bytes as numbers, without passwords."""
    from windlass.broker_address import masked_broker
    from windlass.store import masked

    value = settings.acting if name == "actor" else getattr(settings, name)
    if name == "broker" and value is not None:
        return masked_broker(value)
    return masked(value) if name in ("url", "direct_url") and value is not None else value


def _format_value(settings: Settings, name: str, item: Field[Any]) -> str:
    """The value as a user would write it in a file."""
    from windlass.clock import spell
    from windlass.config import duration

    value = _read_value(settings, name)
    if value is None:
        return "–"
    if item.metadata["read"] is duration:
        return spell(value) if value else "0"
    if name == "memory":
        return f"{value / 2**20:g}M"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(value) or "–"
    return str(value)
