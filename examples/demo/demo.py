"""Four systems at work on one SQLite file, beside stand-ins that are slow, fail, refuse and limit rates.

`make demo` goes on until Ctrl-C. `make demo ARGS=--once` ends by itself. Both exit with 1 unless the account holds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import httpx2
from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path += [str(EXAMPLES / name) for name in ("site_analyst", "record_linker", "atlas")]  # for their stand-ins

from mail_server import MailServer  # noqa: E402
from model_server import ModelServer  # noqa: E402
from processes import DASHBOARD, Failed, Processes  # noqa: E402
from sites import Sites  # noqa: E402
from systems import Atlas, Check, LinkLibrary, RecordLinker, SiteAnalyst, System  # noqa: E402
from wikidata_server import WikidataServer  # noqa: E402
from windlass import QueueRow, State, Windlass  # noqa: E402

VICTIM = "link_library's worker"  # the process that is killed
UP_WITHIN = 90.0  # seconds for a process to answer
KILL_AT = 100  # requests to websites
SETTLED_WITHIN = 240.0  # seconds for a turn
PAUSE = 5.0  # seconds between two turns
LOOK = 0.5  # seconds between two looks at the systems
FOREIGN = ("WINDLASS_", "ANALYST_", "LIBRARY_", "LINKER_", "ATLAS_")  # settings of the user's that are not the demo's
# Short leases, so that a dead worker's jobs are rescued within seconds.
SETTINGS = {"WINDLASS_LEASE": "4s", "WINDLASS_SWEEP": "1s", "WINDLASS_POLL": "500ms", "WINDLASS_GRACE": "2s"}


class Demo:
    """Start, play, kill a worker, play on; after each turn compare the systems' account with the stand-ins' logs."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder, self._console = folder, console
        self._began = time.monotonic()
        self._app = Windlass(f"sqlite:///{folder / 'demo.db'}")
        self._systems: dict[str, System] = {}
        self._queues: list[QueueRow] = []
        self._turns = 0

    async def run(self, *, once: bool) -> bool:
        """Whether every check holds."""
        performing = asyncio.create_task(self._perform(once=once))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, performing.cancel)
        try:
            return await performing
        except asyncio.CancelledError:
            self._say("stopped")
            return True

    async def _perform(self, *, once: bool) -> bool:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._app.aclose)
            self._processes = stack.enter_context(
                Processes(self._folder, SETTINGS | {"WINDLASS_URL": self._app.settings.url})
            )
            await self._start(stack)
            counting = asyncio.create_task(self._count())
            stack.callback(counting.cancel)
            stack.enter_context(
                Live(console=self._console, get_renderable=self._draw, refresh_per_second=2, transient=True)
            )
            while await self._play():
                if once:
                    return True
                await asyncio.sleep(PAUSE)
            return False

    # Start

    async def _start(self, stack: AsyncExitStack) -> None:
        self._say("starting four systems on one SQLite file, and stand-ins for the world outside")
        await self._app.amigrate()
        self._sites = sites = stack.enter_context(Sites())
        model, mails = stack.enter_context(ModelServer()), stack.enter_context(MailServer())
        wikidata = stack.enter_context(WikidataServer(busy=60, lost=70))
        analyses = {"WINDLASS_PACE": "eager", "ANALYST_ALLOW": "127.0.0.1", "OPENAI_BASE_URL": model.url}
        names = {"LIBRARY_ALLOW": "127.0.0.1", "LIBRARY_ANSWER": "127.0.0.1"}  # every name is this machine's
        token = {"LINKER_WIKIDATA_URL": wikidata.url, "LINKER_WIKIDATA_TOKEN": "stand-in"}
        resend = {"ATLAS_MAIL": "resend", "RESEND_URL": mails.http, "RESEND_API_KEY": "stand-in", "ATLAS_EVERY": "10s"}
        self._processes.start(VICTIM, "link_library", "-m", "windlass", "worker", "library.py", **names)
        serve = partial(self._serve, stack)
        dashboard, library, analyst, linker, atlas = await asyncio.gather(
            serve("dashboard", "-m", "windlass", "web", "--port", "{port}"),
            serve("link_library", "-m", "uvicorn", "library:api", "--port", "{port}", **names),
            serve("site_analyst", "analyst.py", **analyses),
            serve("record_linker", "linker.py", **token),
            serve("atlas", "atlas.py", **resend),
        )
        self._systems = {
            "site_analyst": SiteAnalyst(analyst, sites, model),
            "link_library": LinkLibrary(library, sites),
            "record_linker": RecordLinker(linker, wikidata),
            "atlas": Atlas(atlas, mails),
        }
        self._say(f"the dashboard is at {str(dashboard.base_url).rstrip('/')}/?range=15m", "bold green")

    async def _serve(self, stack: AsyncExitStack, name: str, *command: str, **environment: str) -> httpx2.AsyncClient:
        """Start a server; a client for it as soon as it answers."""
        port = self._processes.take_port(DASHBOARD if name == "dashboard" else None)
        words = [word.format(port=port) for word in command]
        folder = "demo" if name == "dashboard" else name
        self._processes.start(name, folder, *words, PORT=str(port), **environment)
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60))
        async with asyncio.timeout(UP_WITHIN):
            while True:
                self._processes.check()
                with suppress(httpx2.TransportError):
                    await http.get("/")
                    return http
                await asyncio.sleep(LOOK)

    # Play

    async def _play(self) -> bool:
        """One turn; whether the account holds after it."""
        self._turns += 1
        async with asyncio.TaskGroup() as group:
            for name, system in self._systems.items():
                group.create_task(self._play_system(name, system))
            if self._turns == 1:
                group.create_task(self._kill())
        found = {name: await system.check() for name, system in self._systems.items()}
        found["windlass"] = [await self._check_rescue(), await self._check_schedules()]
        table = Table("system", "", "what the stand-ins' logs and the systems say", box=box.ROUNDED)
        for name, checks in found.items():
            for check in checks:
                table.add_row(name, "[green]✔[/]" if check.holds else "[red]✖[/]", check.text)
        self._console.print(table)
        return all(check.holds for checks in found.values() for check in checks)

    async def _play_system(self, name: str, system: System) -> None:
        self._say(f"{name}: {system.turn}")
        try:
            async with asyncio.timeout(SETTLED_WITHIN):
                await system.play(self._turns)
                while not await system.is_settled():
                    self._processes.check()
                    await asyncio.sleep(LOOK)
        except httpx2.HTTPError as error:
            raise self._processes.blame(name, str(error)) from error
        except TimeoutError:
            raise self._processes.blame(name, f"its work did not end within {SETTLED_WITHIN:.0f} s") from None
        self._say(f"{name}: done", "green")

    async def _kill(self) -> None:
        while len(self._sites.log) < KILL_AT:
            self._processes.check()
            await asyncio.sleep(LOOK / 10)
        pid = self._processes.kill(VICTIM)
        self._say(f"kill -9 {pid}: {VICTIM}, at work; what it ran is rescued when its lease ends", "bold red")
        self._processes.restart(VICTIM)

    async def _check_rescue(self) -> Check:
        enrichments = await self._app.ajobs("type:enrich", count=1_000)
        rescued = [row for row in enrichments if row.crashes]
        ended = sum(row.status is State.SUCCEEDED for row in rescued)
        return Check(
            0 < len(rescued) == ended, f"{ended} of {len(rescued)} jobs of the killed worker were rescued and succeeded"
        )

    async def _check_schedules(self) -> Check:
        rows = [row for row in await self._app.aschedules() if row.name.startswith("atlas ")]
        fired = sum(row.last_at is not None for row in rows)
        return Check(0 < fired == len(rows), f"{fired} of {len(rows)} schedules of workflows fired")

    # Show

    async def _count(self) -> None:
        while True:
            self._queues = await self._app.aqueues()
            await asyncio.sleep(LOOK)

    def _draw(self) -> Table:
        """The queues as they are now, below what has happened."""
        table = Table("queue", "queued", "running", "to retry", "waiting", "dead", box=box.ROUNDED)
        for row in self._queues:
            table.add_row(row.queue, *map(str, (row.queued, row.running, row.failed, row.waiting, row.dead)))
        return table

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:5.1f} s[/]  {escape(text)}", style=style)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="one turn, without Ctrl-C")
    once = parser.parse_args().once
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    # A process that dies late may still write to the folder: a file left there is better than a traceback.
    with tempfile.TemporaryDirectory(prefix="windlass-demo-", ignore_cleanup_errors=True) as folder:
        holds = False
        try:
            holds = asyncio.run(Demo(Path(folder), Console(highlight=False)).run(once=once))
        except* Failed as failed:
            print(*failed.exceptions, sep="\n", file=sys.stderr)
        return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
