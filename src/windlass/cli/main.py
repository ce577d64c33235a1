"""`windlass`: the command line. Each command is a file beside this one and imports what is heavy when it runs."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import click

from windlass.cli.commands.audit import audit
from windlass.cli.commands.budgets import budgets
from windlass.cli.commands.completion import completion
from windlass.cli.commands.config import config
from windlass.cli.commands.dev import dev, dev_worker
from windlass.cli.commands.doctor import doctor
from windlass.cli.commands.enqueue import enqueue
from windlass.cli.commands.gates import gates
from windlass.cli.commands.holds import hold, release
from windlass.cli.commands.jobs import jobs
from windlass.cli.commands.limits import limits
from windlass.cli.commands.migrate import migrate
from windlass.cli.commands.queues import queues
from windlass.cli.commands.run import run
from windlass.cli.commands.schedules import schedules
from windlass.cli.commands.tenants import tenants
from windlass.cli.commands.worker import worker
from windlass.cli.commands.workers import workers
from windlass.cli.demo import demo
from windlass.cli.show.output import format_error
from windlass.errors import WindlassError

INTERRUPTED = 130  # 128 + SIGINT
NO_READER = 141  # 128 + SIGPIPE

EPILOG = """\b
Exit codes:
    0  done; a worker, dev or demo that was asked to stop
    1  run: the job is dead or cancelled. migrate --check: something is missing.
       jobs cancel, retry, …, signal: a job was refused, or you said no.
       doctor: there is a problem. demo: the check at the end failed
    2  a wrong command, filter, setting, program or database; stderr says which
  124  run: the time given by --timeout is up; the job goes on
  130  interrupted by Ctrl-C
  141  nobody reads the output any more
  128 + n  a worker that was told twice to end, by signal n

\b
Environment:
  WINDLASS_URL      the database: postgresql://user@host/name or sqlite:///file.db
  WINDLASS_APP      the program, such as app.py, for commands that take -a or APP
  WINDLASS_DEBUG=1  show tracebacks of errors
  NO_COLOR          no colours
  Every setting has such a name: windlass config
"""


class CommandError(click.ClickException):
    """An error of ours as a user sees it: one clear line, and never a traceback."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        from windlass.observe.logs import escape

        click.echo(format_error(escape(self.message, lines=True)), err=True)


class Commands(click.Group):
    """Turns every `WindlassError` into a line on stderr and exit 2, and an interrupt into nothing but its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            if os.environ.get("WINDLASS_DEBUG", "") not in ("", "0"):
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            raise CommandError(str(error)) from error
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(NO_READER)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one meets them."""
        return list(self.commands)


def _discard_output() -> None:
    """Python flushes stdout once more at its end, and would complain about the pipe that is gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


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


for command in (
    dev,
    run,
    enqueue,
    worker,
    jobs,
    queues,
    workers,
    gates,
    limits,
    budgets,
    tenants,
    schedules,
    audit,
    doctor,
    config,
    migrate,
    demo,
    completion,
    dev_worker,
):
    cli.add_command(command)
limits.add_command(hold)
limits.add_command(release)


def main() -> None:
    """The entry point of the `windlass` script."""
    from windlass.cli.commands.completion import VARIABLE

    try:
        cli.main(prog_name="windlass", complete_var=VARIABLE)
    except KeyboardInterrupt:  # before a command began, or after it ended
        _end_at_once()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _end_at_once()
        raise


def _end_at_once() -> None:
    """After Ctrl-C nobody waits for a thread that still reads a large file."""
    from windlass.cli.process.run_worker import end_at_once

    end_at_once(INTERRUPTED)
