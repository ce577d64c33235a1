"""Options that several commands share, and their types."""

from __future__ import annotations

import click

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """An option's callback: `30s`, `5m`, `1h30m` or seconds."""
    from windlass.clock import seconds
    from windlass.errors import ConfigError

    if value is None:
        return None
    try:
        return seconds(value, what=param.opts[0])
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from None


log_level = click.option(
    "-l",
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="The least level that is logged.",
)

lifeline = click.option("--lifeline", type=int, hidden=True)
"""The read end of a pipe that the parent holds; see `cli/child.py`."""
