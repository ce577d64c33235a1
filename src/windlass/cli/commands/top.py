"""`windlass top`: a live view of the whole system in a terminal, with keys for what an operator does first."""

from __future__ import annotations

import sys

import click

from windlass.cli.parse.complete import complete_program
from windlass.cli.parse.store_option import app_option_as, url_option
from windlass.errors import ConfigError


@click.command(short_help="Watch queues, phases, workers and jobs live.")
@click.argument("target", metavar="[APP]", required=False, shell_complete=complete_program)
@app_option_as("named")
@url_option
@click.option("--every", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds between reads.")
def top(target: str | None, named: str | None, url: str | None, every: float) -> None:
    """Watch the system live: the health, queues, phases, workers, and the jobs that run or failed.

    Keys: Tab chooses between queues and jobs, the arrows (or j and k) a row. p pauses or resumes the queue, r retries
    the job (a dead one starts over), c cancels it after a second c, q ends.
    """
    import asyncio

    from windlass.cli.commands.web import load_app
    from windlass.cli.show.top_screen import TopScreen

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("windlass top needs a terminal; in a script use: windlass status --json")
    app = load_app(target or named, url)
    try:
        asyncio.run(TopScreen(app, every=every).run())
    finally:
        app.close()
