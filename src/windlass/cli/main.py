"""`windlass`: the command line. Each command is a file beside this one and imports what is heavy when it runs."""

from __future__ import annotations

import os
import traceback
from typing import Any

import click

from windlass.cli.demo import demo
from windlass.cli.dev import dev, dev_worker
from windlass.cli.migrate import migrate
from windlass.cli.run import run
from windlass.cli.worker import worker
from windlass.errors import WindlassError

INTERRUPTED = 130  # 128 + SIGINT

EPILOG = """\b
Exit codes:
    0  done; a worker, dev or demo that was asked to stop
    1  run: the job is dead or cancelled. migrate --check: something is missing.
       demo: the check at the end failed
    2  a wrong command, setting, program or database; stderr says which
  124  run: the time given by --timeout is up; the job goes on
  130  interrupted by Ctrl-C
  128 + n  a worker that was told twice to end, by signal n

\b
Environment:
  WINDLASS_URL      the database: postgresql://user@host/name or sqlite:///file.db
  WINDLASS_DEBUG=1  show tracebacks of errors
  NO_COLOR          no colours
"""


class Refusal(click.ClickException):
    """An error of ours as a user sees it: one clear line, and never a traceback."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        from windlass.observe.logs import escape

        click.echo(f"windlass: {escape(self.message, lines=True)}", err=True)


class Commands(click.Group):
    """Turns every `WindlassError` into a line on stderr and exit 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            if os.environ.get("WINDLASS_DEBUG", "") not in ("", "0"):
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            raise Refusal(str(error)) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(package_name="windlass", message="windlass %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Durable background jobs for Python, on the database you already have."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for command in (dev, run, worker, migrate, demo, dev_worker):
    cli.add_command(command)


def main() -> None:
    """The entry point of the `windlass` script."""
    cli.main(prog_name="windlass")
