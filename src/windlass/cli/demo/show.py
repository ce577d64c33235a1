"""One run of the demo: workers under a supervisor, a script that is played on them, a stage, and a count at the end.

program.py    the jobs: one type for each way a job can go
script.py     the acts: which jobs are enqueued when, and when a worker is killed
scene.py      the state of the show, read from the store and from the workers' reports
reports.py    what each worker process reports
stage.py      where the show is shown: screen.py (with panels.py) on a terminal, plain.py elsewhere
summary.py    the check at the end, against what the store holds
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from windlass.cli.demo import program
from windlass.cli.demo.interrupts import Interrupts
from windlass.cli.demo.reports import ReportReader
from windlass.cli.demo.scene import Scene, Tone
from windlass.cli.demo.script import Script
from windlass.cli.demo.stage import Stage
from windlass.cli.demo.summary import Account, Check, Summary, check
from windlass.cli.demo.worker import arguments, log_path
from windlass.cli.process.supervisor import Supervisor
from windlass.errors import JobNotFound
from windlass.handles.job import JobHandle
from windlass.model.job import Job

PROCESSES = 2
FRAME = 0.1  # seconds between two pictures
COUNT = 0.25  # seconds between two reads of the store
LAST_PICTURE = 1.0  # seconds to see the end before the screen goes
LOG_LINES = 20  # of each worker, where a check failed


class Show:
    """Start, play, stop, count: in this order, also after Ctrl-C."""

    def __init__(self, stage: Stage, *, folder: Path, once: bool, interrupts: Interrupts) -> None:
        self._stage = stage
        self._folder = folder
        self._once = once
        self._interrupts = interrupts
        self._app = program.app
        self._scene = Scene(workers=PROCESSES)
        self._supervisor = Supervisor(lambda number: arguments(number, folder), processes=PROCESSES)
        self._script = Script(self._scene, kill=self._kill)
        self._stopping = asyncio.Event()  # after Ctrl-C, or when the terminal or pipe is closed
        self._complete = False

    async def run(self) -> bool:
        """Run the show; returns whether every check at the end holds."""
        self._interrupts.deliver_to(self._interrupt)
        self._stage.open()
        self._scene.narrate("making the database: one SQLite file in a temporary folder")
        drawing = asyncio.create_task(self._draw())
        drawing.add_done_callback(self._on_drawing_end)
        try:
            await self._app.amigrate()
            with self._dashboard(), ReportReader(self._folder, self._scene.receive):
                await self._perform()
                summary = await self._sum_up()
            self._stage.show(self._scene)
        finally:
            drawing.cancel()
            self._stage.close()
            await self._app.aclose()
        await _cancel(drawing)
        self._stage.conclude(summary)
        return summary.holds

    def _dashboard(self) -> AbstractContextManager[object]:
        """The dashboard on this machine, for as long as the demo plays; nothing without the extra `web`."""
        from windlass.cli.commands.web import LOOPBACK, is_installed, take_port

        if not is_installed():
            return nullcontext()
        from windlass.web.server import BackgroundServer, address

        listening = take_port(None)
        self._scene.dashboard = address(LOOPBACK, listening)
        self._scene.narrate(f"open the dashboard in a browser: {self._scene.dashboard}/?range=15m", Tone.GOOD)
        return BackgroundServer(self._app, listening)

    def _interrupt(self, number: int) -> None:
        """First signal: stop gracefully. Further signals: the supervisor ends the workers at once."""
        if not self._stopping.is_set():
            name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            self._scene.narrate(f"{name}: stopping; running jobs end within a second, or are released")
        self._stopping.set()
        self._supervisor.stop(number)

    # During the show

    async def _draw(self) -> None:
        while True:
            if not self._stage.show(self._scene) and not self._stopping.is_set():
                self._interrupt(signal.SIGPIPE)
            await asyncio.sleep(FRAME)

    def _on_drawing_end(self, drawing: asyncio.Task[None]) -> None:
        """An error in the drawing ends the show; `run` raises it when it awaits the task."""
        if not drawing.cancelled():
            self._interrupt(signal.SIGTERM)

    async def _perform(self) -> None:
        """Play the script on its workers, to its end or until a signal; afterwards no process is left."""
        if self._stopping.is_set():
            return
        supervising = asyncio.create_task(self._supervisor.run())
        await asyncio.sleep(0)  # the supervisor installs its signal handlers when it begins …
        self._interrupts.deliver_to(self._interrupt)  # … and the show replaces them, to report a signal first
        playing = asyncio.create_task(self._script.play(once=self._once))
        counting = asyncio.create_task(self._count())
        waiting = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({supervising, playing, counting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            self._complete = playing.done()
            if self._complete and not playing.exception():
                self._scene.narrate("every job has ended; the demo counts the store", Tone.GOOD)
                await asyncio.wait({waiting}, timeout=LAST_PICTURE)
        finally:
            if not self._stopping.is_set():
                self._supervisor.stop(signal.SIGTERM)
            playing.cancel()  # before the workers stop: the script must not kill or enqueue any more
            await supervising
            await _cancel(playing, counting, waiting)
            await self._script.wait_for_enqueue()

    async def _count(self) -> None:
        """Read the state of the jobs from the store, again and again."""
        while True:
            counts = await self._app.acounts()
            queues = await self._app._client.aask(lambda store: store.queues())
            self._scene.set_counts(counts, queues)
            self._scene.set_limits(await self._app._client.aask(lambda store: store.limits("domain")))
            await self._read_orders()
            await self._script.read_beats()
            await asyncio.sleep(COUNT)

    async def _read_orders(self) -> None:
        orders = await self._app._client.aask(lambda store: store.find_many(self._script.orders))
        self._scene.set_orders(list(orders.values()))

    def _kill(self, number: int) -> None:
        child = self._supervisor.children.get(number)
        if child is not None:
            child.signal(signal.SIGKILL)
            self._scene.mark_killed(number)

    # The end

    async def _sum_up(self) -> Summary:
        await self._script.read_beats()
        counts = await self._app.acounts()
        cast = [await self._find(handle) for handle in self._script.cast]
        account = Account(
            enqueued=self._scene.enqueued,
            counts=counts,
            cast=[job for job in cast if job is not None],
            victims=frozenset(self._script.victims),
            beats=self._scene.beats,
            complete=self._complete,
        )
        self._scene.set_counts(counts, self._scene.queues)
        await self._read_orders()
        checks = check(account)
        return Summary(
            checks=checks,
            enqueued=account.enqueued,
            ended=self._scene.ended,
            seconds=self._scene.elapsed,
            peak=self._scene.throughput.peak,
            logs=self._read_logs(checks),
        )

    async def _find(self, handle: JobHandle[Any]) -> Job | None:
        with suppress(JobNotFound):
            return await handle.arecord()
        return None

    def _read_logs(self, checks: list[Check]) -> list[str]:
        """The last log lines of each worker, where a check failed."""
        if all(check.holds for check in checks):
            return []
        files = [log_path(number, self._folder) for number in self._scene.workers]
        return [line for file in files if file.exists() for line in file.read_text().splitlines()[-LOG_LINES:]]


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks, and raise the error of one that failed."""
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
