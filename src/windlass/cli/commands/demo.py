"""`windlass demo`: two workers on a temporary SQLite file, one of them killed on the way, and a count at the end."""

from __future__ import annotations

import os
from pathlib import Path

import click

from windlass.cli.parse.options import lifeline_option
from windlass.config_readers import PREFIX


@click.command(short_help="See Windlass work, with nothing to install or start.")
@click.option("--once", is_flag=True, help="End after about half a minute, without Ctrl-C.")
@click.option(
    "--worker", type=int, hidden=True, help="Run as the worker of this number; only the demo itself gives this option."
)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True, help="The demo's folder, for its workers.")
@lifeline_option
@click.pass_context
def demo(ctx: click.Context, once: bool, worker: int | None, folder: Path | None, lifeline: int | None) -> None:
    """See Windlass work, with nothing to install or start.

    Two worker processes share a SQLite file in a temporary directory. Some jobs are urgent, some fail and are
    retried, some die, one crashes its own process, some wait at a limit, some go through three phases, and a schedule
    enqueues one every other second. One worker is killed with kill -9 in the middle of its work. At the end the demo
    counts the jobs in the store: exit 1 if one was lost. Without --once the demo goes on until Ctrl-C.

    A terminal of 80×24 or more shows the demo live. Elsewhere, and with NO_COLOR, it prints plain lines.
    """
    if worker is not None and folder is not None:
        from windlass.cli.demo.worker import work

        work(worker, folder, lifeline)
    else:
        ctx.exit(0 if _play(once) else 1)


def _play(once: bool) -> bool:
    """Run in a temporary folder that is removed afterwards; Ctrl-C is handled from the first moment on."""
    from windlass.cli.demo.interrupts import Interrupts

    interrupts = Interrupts()
    interrupts.catch()

    import asyncio
    import tempfile

    from windlass.observe.logs import set_up

    # A process that dies late may still write to the folder: a file left in the system's folder is better than a
    # traceback.
    with tempfile.TemporaryDirectory(prefix="windlass-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _set_environment(f"sqlite:///{folder}/demo.db")
        with (folder / "demo.log").open("a", encoding="utf-8") as log:
            set_up("WARNING", stream=log)
            # Imported only now: the demo's app reads the environment when its module is imported.
            from windlass.cli.demo.show import Show
            from windlass.cli.demo.stage import choose_stage

            return asyncio.run(Show(choose_stage(), folder=folder, once=once, interrupts=interrupts).run())


def _set_environment(url: str) -> None:
    """Use the demo's own database and settings, here and in its workers, whatever the environment sets."""
    for name in [name for name in os.environ if name.startswith(PREFIX) and name != "WINDLASS_DEBUG"]:
        del os.environ[name]
    os.environ["WINDLASS_URL"] = url
