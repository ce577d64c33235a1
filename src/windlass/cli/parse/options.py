"""Options that several commands share, and the callbacks that parse their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
USUAL_ROWS = 25  # of a list


def parse_duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """An option's callback: `30s`, `5m`, `1h30m` or seconds."""
    from windlass.clock import seconds
    from windlass.errors import ConfigError

    if value is None:
        return None
    try:
        return seconds(value, what=param.opts[0])
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def parse_limits(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str] | None:
    """An option's callback: `NAME=VALUE`, once for each limit."""
    given: dict[str, str] = {}
    for word in value:
        name, apart, key = word.partition("=")
        if not apart:
            raise click.BadParameter(f"{word!r}: write it like domain=example.org", ctx, param)
        if name in given:
            raise click.BadParameter(f"{name}= is given twice", ctx, param)
        given[name] = key
    return given or None


limit_option = click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    callback=parse_limits,
    help="The value of a limit's key, such as domain=example.org; may be repeated.",
)

log_level_option = click.option(
    "-l",
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="The lowest level that is logged.",
)

log_format_option = click.option(
    "--log-format",
    type=click.Choice(("text", "json"), case_sensitive=False),
    default="text",
    show_default=True,
    envvar="WINDLASS_LOG_FORMAT",
    help="Lines for people, or one JSON object per line; also WINDLASS_LOG_FORMAT.",
)

lifeline_option = click.option("--lifeline", type=int, hidden=True)
"""The read end of a pipe that the parent holds; see `cli/process/child.py`."""

count_option: Callable[[Any], Any] = click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100_000),
    default=USUAL_ROWS,
    show_default=True,
    help="The maximum number of rows.",
)

json_option: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
