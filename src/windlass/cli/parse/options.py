"""Options that several commands share, and their types."""

from __future__ import annotations

import click

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


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


def limits(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str] | None:
    """An option's callback: `NAME=VALUE`, as often as there are limits to name."""
    given: dict[str, str] = {}
    for word in value:
        name, apart, key = word.partition("=")
        if not apart:
            raise click.BadParameter(f"{word!r}: write it like domain=example.org", ctx, param)
        if name in given:
            raise click.BadParameter(f"{name}= is given twice", ctx, param)
        given[name] = key
    return given or None


limit = click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    callback=limits,
    help="The value of a limit's key, such as domain=example.org; again for another limit.",
)

log_level = click.option(
    "-l",
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="The least level that is logged.",
)

lifeline = click.option("--lifeline", type=int, hidden=True)
"""The read end of a pipe that the parent holds; see `cli/process/child.py`."""
