"""`windlass`: the command line. Each command is a file in `commands/`, and imports heavy modules only when it runs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import traceback
from typing import Any

import click

from windlass.cli.commands.audit import audit
from windlass.cli.commands.broker import broker
from windlass.cli.commands.budgets import budgets
from windlass.cli.commands.completion import completion
from windlass.cli.commands.config import config
from windlass.cli.commands.dead import dead
from windlass.cli.commands.dev import dev, dev_worker
from windlass.cli.commands.doctor import doctor
from windlass.cli.commands.enqueue import enqueue
from windlass.cli.commands.errors import errors
from windlass.cli.commands.gates import gates
from windlass.cli.commands.health import health
from windlass.cli.commands.holds import hold, release
from windlass.cli.commands.jobs import jobs
from windlass.cli.commands.limits import limits
from windlass.cli.commands.migrate import migrate
from windlass.cli.commands.phases import phases
from windlass.cli.commands.queues import queues
from windlass.cli.commands.relay import relay
from windlass.cli.commands.run import run
from windlass.cli.commands.schedules import schedules
from windlass.cli.commands.status import status
from windlass.cli.commands.tenants import tenants
from windlass.cli.commands.token import token
from windlass.cli.commands.top import top
from windlass.cli.commands.web import web
from windlass.cli.commands.worker import worker
from windlass.cli.commands.workers import workers
from windlass.cli.exit_codes import INTERRUPTED, NO_READER
from windlass.cli.parse.mistakes import TYPED, HelpfulGroup, explain_usage
from windlass.cli.process.child import COMMAND
from windlass.cli.show.output import name_command, print_note
from windlass.errors import WindlassError

EPILOG = """\b
Exit codes:
    0  done; a worker, dev or web that was asked to stop
    1  run: the job is dead or cancelled. jobs cancel, retry, …, signal: a job
       was refused, or you answered no. migrate --check: a migration is missing.
       health, status: something needs a look. doctor: there is a problem
    2  a wrong command, filter, setting, program or database; stderr names it
  3    migrate --check: workers of an older program have to go first
  124  run: the time given by --timeout is up; the job goes on
  130  interrupted by Ctrl-C
  141  the reader of the output has closed the pipe
  128 + n  a worker was ended by a second signal, with the number n

\b
Environment:
  WINDLASS_URL      the database: postgresql://user@host/db, sqlite:///file.db
  WINDLASS_APP      the program for commands with -a or APP, such as app.py
  WINDLASS_DEBUG=1  print the tracebacks of errors
  NO_COLOR          print no colours
  WINDLASS_…        every other setting; windlass config lists them
"""


class CommandError(click.ClickException):
    """A `WindlassError` as the user reads it: its message, and no traceback."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        print_note(self.message)


class Commands(HelpfulGroup):
    """Turns every `WindlassError` into a line on stderr and exit 2, and an interrupt into its exit code alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise explain_usage(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            if os.environ.get("WINDLASS_DEBUG", "") not in ("", "0"):
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            raise CommandError(name_command(str(error))) from error  # click shows it when the command has ended
        except click.UsageError as error:
            raise explain_usage(error) from error
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(NO_READER)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added: the first ones a new user needs come first."""
        return list(self.commands)


def _discard_output() -> None:
    """Python flushes stdout once more when it exits, and would report an error about the closed pipe."""
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
    relay,
    web,
    jobs,
    dead,
    errors,
    queues,
    phases,
    workers,
    gates,
    limits,
    budgets,
    tenants,
    schedules,
    token,
    broker,
    audit,
    top,
    status,
    health,
    doctor,
    config,
    migrate,
    completion,
    dev_worker,
):
    cli.add_command(command)
limits.add_command(hold)
limits.add_command(release)


def main() -> None:
    """The entry point of the `windlass` script."""
    from windlass.cli.commands.completion import VARIABLE, register_bash

    completes = VARIABLE in os.environ
    if completes:
        register_bash()
    try:
        cli.main(prog_name=os.environ.pop(COMMAND, None) or _typed_command(), complete_var=VARIABLE)
    except KeyboardInterrupt:  # before a command started, or after it ended
        _end_at_once()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _end_at_once()
        if completes:  # a tab does not wait for a database that does not answer
            _end_at_once(0)
        raise


def _typed_command() -> str:
    """How the user can start this command line again: `windlass` if a shell finds it, else as it was started."""
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py":
        return shlex.join([sys.orig_argv[0], "-m", "windlass"])
    found = shutil.which("windlass")
    if found is not None and os.path.realpath(found) == os.path.realpath(script):
        return "windlass"
    return shlex.quote(script)


def _end_at_once(code: int = INTERRUPTED) -> None:
    """The process does not wait for its threads: after Ctrl-C, one may still read a large file."""
    from windlass.cli.process.run_worker import end_at_once

    end_at_once(code)
