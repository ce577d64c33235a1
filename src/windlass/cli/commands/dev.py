"""`windlass dev`: a worker that migrates, prints each job, and restarts when a file changes.

There are two processes. The parent watches the files and never imports the program, so that each start loads fresh
code. The child migrates and runs a worker. When the child cannot load the program, it prints the error, and the parent
waits for the next change.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.commands.web import LOOPBACK, PORT
from windlass.cli.exit_codes import NO_READER, TRY_AGAIN
from windlass.cli.parse.options import lifeline_option
from windlass.cli.parse.program_argument import find_program, program_argument
from windlass.cli.show.output import print_note
from windlass.errors import ConfigError

if TYPE_CHECKING:
    import socket

    from windlass.app import Windlass
    from windlass.declare.registry import Registry

GRACE = 2.0  # seconds for running jobs before a restart; jobs that have not ended by then are released
CANCEL_GRACE = 1.0  # seconds for a cancelled handler to end

level = click.option(
    "-l",
    "--log-level",
    type=click.Choice(("DEBUG", "INFO", "WARNING", "ERROR"), case_sensitive=False),
    default="WARNING",
    show_default=True,
    help="The lowest level that is logged, beside the lines about jobs.",
)
concurrency = click.option("--concurrency", type=click.IntRange(min=1), help="Jobs at a time.")


@click.command(short_help="Run a program while you write it, and reload on change.")
@program_argument("target")
@concurrency
@level
@click.option("--port", type=click.IntRange(1, 65_535), help=f"The dashboard's port; {PORT} or the next free one.")
@click.option(
    "--web/--no-web", default=True, show_default=True, help="Whether to serve the dashboard and the HTTP API."
)
@click.pass_context
def dev(
    ctx: click.Context, target: str | None, concurrency: int | None, log_level: str, port: int | None, web: bool
) -> None:
    """Run a program while you write it: migrate, run its jobs, print them, and restart when a file changes.

    TARGET is a file such as app.py, or package.module:app; also -a or WINDLASS_APP. Without it, the command takes the
    one file in this directory that makes a Windlass app. A restart releases running jobs and counts no attempt for
    them. Ctrl-C ends the command.
    """
    import asyncio

    from windlass.cli.process.reload import Reloader
    from windlass.declare.program import parse

    target = find_program("dev", target)
    parsed = parse(target)
    arguments = ["_dev", target, "--log-level", log_level]
    listening = _listen(port) if web else None
    if listening is not None:
        arguments += ["--listening", str(listening.fileno())]
    if concurrency is not None:
        arguments += ["--concurrency", str(concurrency)]
    watched = [Path.cwd()]
    if parsed.root is not None and not parsed.root.is_relative_to(Path.cwd()):
        watched.append(parsed.root)
    kept = () if listening is None else (listening.fileno(),)
    ctx.exit(asyncio.run(Reloader(arguments, watched, kept).run()))


@click.command("_dev", hidden=True)
@click.argument("target")
@concurrency
@level
@lifeline_option
@click.option("--listening", type=int)
@click.pass_context
def dev_worker(
    ctx: click.Context,
    target: str,
    concurrency: int | None,
    log_level: str,
    lifeline: int | None,
    listening: int | None,
) -> None:
    """The child process of `windlass dev`."""
    from windlass.cli.process.child import leave_interrupts_to_parent
    from windlass.cli.process.run_worker import run_worker
    from windlass.cli.show.live_log import JobLines, stop_own_process
    from windlass.declare.program import load
    from windlass.observe.logs import set_up

    leave_interrupts_to_parent()
    set_up(log_level)
    app = load(target)
    settings = app.settings
    app.settings = settings.with_(
        grace=min(settings.grace, GRACE), cancel_grace=min(settings.cancel_grace, CANCEL_GRACE)
    )
    if not _prepare(app, target):
        ctx.exit(TRY_AGAIN)
    lines = JobLines(stop_own_process, options=_show_options(settings.url, target))
    with _serve(app, listening):
        run_worker(
            lambda: app.worker(concurrency=concurrency),
            subscribers=(lines,),
            lifeline=lifeline,
            interrupts=False,
        )
    ctx.exit(NO_READER if lines.has_no_reader else 0)


def _listen(port: int | None) -> socket.socket | None:
    """The socket that every child serves: the link stays the same when the program restarts. None without the extra."""
    from windlass.cli.commands.web import check_installed, take_port

    try:
        check_installed()
    except ConfigError as error:
        print_note(str(error))
        return None
    return take_port(port)


def _serve(app: Windlass, inherited: int | None) -> AbstractContextManager[object]:
    """The HTTP API beside the worker, for this machine alone."""
    if inherited is None:
        return nullcontext()
    import os
    import socket

    from windlass.web.server import BackgroundServer, address

    os.set_inheritable(inherited, False)
    listening = socket.socket(fileno=inherited)
    link = address(LOOPBACK, listening)
    click.echo(f"dashboard: {link}", err=True)
    click.echo(f"HTTP API: {link}/api/v1", err=True)
    return BackgroundServer(app, listening)


def _show_options(url: str, target: str) -> str:
    """What `windlass jobs show` needs besides the id: nothing where it uses the program's database by itself."""
    from windlass.config import Settings

    return "" if Settings.load().url == url else f" --app {target}"


def _prepare(app: Windlass, target: str) -> bool:
    """Migrate and print what the program declares; False while the database cannot be reached."""
    from windlass.errors import StoreUnavailable
    from windlass.observe.logs import escape
    from windlass.store import masked

    try:
        steps = app.migrate()
    except StoreUnavailable as error:
        print_note(str(error))
        return False
    finally:
        app.close()
    if steps:
        click.echo(f"applied {len(steps)} migration{'s' if len(steps) > 1 else ''}", err=True)
    click.echo(escape(f"{target} works on {masked(app.settings.url)}; {_describe(app._registry)}"), err=True)
    return True


def _describe(registry: Registry) -> str:
    """`job types: add, send; pipelines: site; schedules: nightly`, without a list that would be empty."""
    declared = {
        "job types": sorted(registry.types) or ["none"],
        "pipelines": sorted(registry.pipelines),
        "schedules": sorted(registry.schedules),
    }
    return "; ".join(f"{noun}: {', '.join(names)}" for noun, names in declared.items() if names)
