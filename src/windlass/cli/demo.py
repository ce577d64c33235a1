"""`windlass demo`: two workers on a throw-away SQLite file, one of them killed on the way, and a count at the end."""

from __future__ import annotations

import os

import click

from windlass.config import PREFIX


@click.command(short_help="See Windlass work, with nothing to install or start.")
@click.option("--once", is_flag=True, help="End by itself, after about 15 seconds.")
@click.pass_context
def demo(ctx: click.Context, once: bool) -> None:
    """See Windlass work, with nothing to install or start.

    Two worker processes share a SQLite file in a temporary directory. Some jobs are urgent, some fail and are
    retried, some die, and one worker is killed with kill -9 while it holds a job. At the end the store is counted:
    exit 1 if anything was lost. Without --once it goes on until Ctrl-C.
    """
    import asyncio
    import tempfile

    from windlass.observe.logs import set_up

    set_up("WARNING")
    with tempfile.TemporaryDirectory(prefix="windlass-demo-") as directory:
        _use_only(f"sqlite:///{directory}/demo.db")
        # Only now: the demo's app reads the environment when its module is imported.
        from windlass.cli.show import Show

        ctx.exit(0 if asyncio.run(Show(once=once).run()) else 1)


def _use_only(url: str) -> None:
    """The demo's own database and settings, here and in its workers, whatever the environment says."""
    for name in [name for name in os.environ if name.startswith(PREFIX) and name != "WINDLASS_DEBUG"]:
        del os.environ[name]
    os.environ["WINDLASS_URL"] = url
