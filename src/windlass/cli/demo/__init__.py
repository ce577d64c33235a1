"""`windlass demo`: two workers on a throw-away SQLite file, one of them killed on the way, and a count at the end.

declare/program.py    the jobs, with every kind of fate
script.py     what happens when
show.py       who does it: the workers, the store, the stage, and how all of it ends
scene.py      what is known of it
screen.py     how it is shown on a terminal; plain.py: anywhere else
reports.py    what each worker process tells
summary.py    what the store says in the end
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from windlass.cli.parse.options import lifeline
from windlass.config import PREFIX


@click.command(short_help="See Windlass work, with nothing to install or start.")
@click.option("--once", is_flag=True, help="End by itself, after about half a minute.")
@click.option("--worker", type=int, hidden=True, help="Be the worker of this number; only the demo itself says so.")
@click.option("--folder", type=click.Path(path_type=Path), hidden=True, help="The demo's folder, for its workers.")
@lifeline
@click.pass_context
def demo(ctx: click.Context, once: bool, worker: int | None, folder: Path | None, lifeline: int | None) -> None:
    """See Windlass work, with nothing to install or start.

    Two worker processes share a SQLite file in a temporary directory. Some jobs are urgent, some fail and are
    retried, some die, one brings its own process down, some wait at a limit, some go through three phases, one comes
    by itself every other second, and one worker is killed with kill -9 in the middle of its work. At the end the store
    is counted: exit 1 if anything was lost. Without --once it goes on until Ctrl-C.

    A terminal of 80×24 or more shows it live; elsewhere, and with NO_COLOR, it is told in plain lines.
    """
    if worker is not None and folder is not None:
        from windlass.cli.demo.worker import work

        work(worker, folder, lifeline)
    else:
        ctx.exit(0 if _play(once) else 1)


def _play(once: bool) -> bool:
    """Everything happens in a folder that is gone afterwards, and Ctrl-C is heeded from the first moment on."""
    from windlass.cli.demo.interrupts import Interrupts

    interrupts = Interrupts()
    interrupts.catch()

    import asyncio
    import tempfile

    from windlass.observe.logs import set_up

    # A process that dies late may still write beside us: better a file left in the system's folder than a traceback.
    with tempfile.TemporaryDirectory(prefix="windlass-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _use_only(f"sqlite:///{folder}/demo.db")
        with (folder / "demo.log").open("a", encoding="utf-8") as log:
            set_up("WARNING", stream=log)
            # Only now: the demo's app reads the environment when its module is imported.
            from windlass.cli.demo.show import Show
            from windlass.cli.demo.stage import choose_stage

            return asyncio.run(Show(choose_stage(), folder=folder, once=once, interrupts=interrupts).run())


def _use_only(url: str) -> None:
    """The demo's own database and settings, here and in its workers, whatever the environment says."""
    for name in [name for name in os.environ if name.startswith(PREFIX) and name != "WINDLASS_DEBUG"]:
        del os.environ[name]
    os.environ["WINDLASS_URL"] = url
