"""The screen of `windlass top`: reads the store once a second, draws what fits, and acts on keys."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from windlass.cli.show.output import format_age
from windlass.clock import format_span
from windlass.errors import WindlassError
from windlass.observe.logs import escape

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.model.figures import PhaseRow
    from windlass.model.reports.health import Health
    from windlass.model.rows import JobRow, QueueRow, WorkerRow

STYLES = {"bad": "bold red", "warning": "yellow", "well": "green", "idle": "green"}
KEYS = "Tab queues/jobs  ↑↓ row  p pause/resume queue  r retry  c cancel  q quit"
QUEUES = "QUEUES      queued running failed   dead    lag  gate"
PHASES = "PHASES         due in memory  idle  busy error  p95 run"
WORKERS = "WORKERS                  state   running   up"
JOBS = "JOBS                 state    attempt  since     id"
LEAST_JOBS = 5  # lines
SHARES = (4, 3, 3)  # lines of queues, phases and workers in 24 lines
FIXED = 7  # lines: the sentence, what it rests on, four headings, the keys
TALLEST = 200  # jobs that are read
ARROWS = {"\x1b[A": "k", "\x1b[B": "j", "\x1bOA": "k", "\x1bOB": "j"}
KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)|.", re.DOTALL)  # a read may bring several: of an arrow that is held


class Seen(msgspec.Struct, frozen=True):
    """One read of the store."""

    health: Health
    queues: Sequence[QueueRow]
    phases: Sequence[PhaseRow]
    workers: Sequence[WorkerRow]
    jobs: Sequence[JobRow]


class TopScreen:
    """Uses the terminal's alternate screen until q, Ctrl-C or the end of the input."""

    def __init__(self, app: Windlass, *, every: float) -> None:
        self._app = app
        self._every = every
        self._seen: Seen | None = None
        self._in_jobs = False  # the arrows move in the jobs, and else in the queues
        self._rows = {False: 0, True: 0}
        self._said = ""
        self._trouble = ""  # why the last read failed
        self._asked_cancel: str | None = None  # the job of the first c
        self._ended = asyncio.Event()
        self._again = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._live: Live | None = None

    async def run(self) -> None:
        loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        try:
            tty.setcbreak(terminal)
            loop.add_reader(terminal, self._receive, terminal)
            with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as self._live:
                while not self._ended.is_set():
                    await self._read()
                    self._draw()
                    await self._pause()
        finally:
            loop.remove_reader(terminal)
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    async def _pause(self) -> None:
        """Until the next read is due, a key changed something, or the end."""
        self._again.clear()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._ended, self._again)]
        await asyncio.wait(waits, timeout=self._every, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _read(self) -> None:
        app = self._app
        try:
            running = await app.ajobs("state:running", count=TALLEST)
            failed = await app.ajobs("state:failed,dead", count=TALLEST)
            seen = Seen(
                await app.ahealth(), await app.aqueues(), await app.aphases(), await app.aworkers(), [*running, *failed]
            )
        except WindlassError as error:  # what was read last stays on the screen
            self._trouble = f"the store cannot be read: {error}"
        else:
            self._trouble, self._seen = "", self._keep_choice(seen)

    def _keep_choice(self, seen: Seen) -> Seen:
        """Jobs come and go while the operator looks at one: a key acts on the job that was chosen."""
        chosen = self._chosen_job()
        if chosen is not None:
            ids = [row.id for row in seen.jobs]
            self._rows[True] = ids.index(chosen.id) if chosen.id in ids else self._rows[True]
        return seen

    # Keys

    def _receive(self, terminal: int) -> None:
        keys = os.read(terminal, 64)
        if not keys:
            self._ended.set()
        for key in KEY.findall(keys.decode("utf-8", "ignore")):
            self._press(ARROWS.get(key, key))
        self._draw()

    def _press(self, key: str) -> None:
        asked, self._asked_cancel = self._asked_cancel, None
        if key in ("q", "Q"):
            self._ended.set()
        elif key == "\t":
            self._in_jobs = not self._in_jobs
        elif key in ("j", "k"):
            self._rows[self._in_jobs] += 1 if key == "j" else -1
        elif key == "p" and (queue := self._chosen_queue()) is not None:
            self._act(lambda: self._turn(queue))
        elif key in ("r", "c"):
            job = self._chosen_job()
            if job is None:
                self._said = "choose a job first: Tab, then the arrows"
            elif key == "r":
                self._act(lambda: self._retry(job))
            elif asked == str(job.id):
                self._act(lambda: self._cancel(job))
            else:
                self._asked_cancel, self._said = str(job.id), f"cancel {job.type} {job.id}? press c again"

    def _chosen_queue(self) -> QueueRow | None:
        rows = self._seen.queues if self._seen is not None else ()
        return rows[self._place(False, len(rows))] if rows else None

    def _chosen_job(self) -> JobRow | None:
        rows = self._seen.jobs if self._seen is not None and self._in_jobs else ()
        return rows[self._place(True, len(rows))] if rows else None

    def _place(self, jobs: bool, count: int) -> int:
        place = self._rows[jobs] = max(0, min(self._rows[jobs], count - 1))
        return place

    def _act(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            try:
                self._said = str(await action())  # type: ignore[misc]
            except WindlassError as error:
                self._said = str(error)
            self._again.set()

        task = asyncio.get_running_loop().create_task(act())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turn(self, row: QueueRow) -> str:
        if row.gate.value == "open":
            await self._app.apause(queue=row.queue, reason="windlass top")
            return f"queue {row.queue} is paused"
        await self._app.aresume(queue=row.queue)
        return f"queue {row.queue} is open"

    async def _retry(self, job: JobRow) -> str:
        handle = await self._app.afind(job.id)
        await (handle.areplay() if job.status.value == "dead" else handle.aretry())
        return f"{job.type} {job.id} is due now"

    async def _cancel(self, job: JobRow) -> str:
        state = await (await self._app.afind(job.id)).acancel()
        return f"{job.type} {job.id}: {'asked to stop' if state.value == 'running' else state.value}"

    # Drawing

    def _draw(self) -> None:
        if self._live is None:
            return
        size = self._live.console.size
        lines = self.lines(size.width, size.height)
        self._live.update(Text("\n").join(lines), refresh=True)

    def lines(self, width: int, height: int) -> list[Text]:
        """As many lines as the terminal has, none longer than it is wide."""
        seen = self._seen
        if seen is None:
            return [_line(self._trouble or self._said or "reading…", width)]
        said = self._trouble or self._said
        more = max(0, height - FIXED - sum(SHARES) - LEAST_JOBS) // 3
        queues, phases, workers = (share + more // 2 for share in SHARES)
        lines = [
            _line(seen.health.sentence, width, STYLES[seen.health.level]),
            _line(said or seen.health.evidence, width, "bold" if said else "dim"),
            *_table(QUEUES, seen.queues, queues, width, _queue_line),
            *_table(PHASES, seen.phases, phases, width, _phase_line),
            *_table(WORKERS, seen.workers, workers, width, _worker_line),
        ]
        left = max(1, height - len(lines) - 2)
        lines += _table(JOBS, seen.jobs, left, width, _job_line, self._first(left))
        self._mark(lines, seen, left)
        lines += [Text("")] * (height - 1 - len(lines))
        return [*lines[: height - 1], _line(KEYS, width, "reverse")]

    def _first(self, left: int) -> int:
        """The first job that is shown: the chosen one stays on the screen."""
        return max(0, self._rows[True] - left + 1) if self._in_jobs else 0

    def _mark(self, lines: list[Text], seen: Seen, left: int) -> None:
        """Show the chosen row in reverse."""
        rows = seen.jobs if self._in_jobs else seen.queues
        if not rows:
            return
        place = self._place(self._in_jobs, len(rows))
        name = "JOBS" if self._in_jobs else "QUEUES"
        heading = next(number for number, line in enumerate(lines) if line.plain.startswith(name))
        chosen = heading + 1 + place - (self._first(left) if self._in_jobs else 0)
        if heading < chosen < len(lines):
            lines[chosen].stylize("reverse")


def _table(
    heading: str, rows: Sequence[object], most: int, width: int, line: Callable[..., str], first: int = 0
) -> list[Text]:
    shown = rows[first : first + most]
    left = len(rows) - first - len(shown)
    more = f"   (+{left} more)" if left > 0 else ""
    return [_line(heading + more, width, "dim"), *(_line(line(row), width) for row in shown)]


def _line(text: str, width: int, style: str = "") -> Text:
    line = Text(escape(text), style, no_wrap=True, overflow="ellipsis")
    line.truncate(max(1, width), overflow="ellipsis")
    return line


def _queue_line(row: QueueRow) -> str:
    lag = "–" if row.lag is None else format_span(row.lag)
    counts = f"{row.queued:>7} {row.running:>7} {row.failed:>6} {row.dead:>6}"
    return f"{row.queue[:10]:<10} {counts} {lag:>6}  {row.gate.value}{'' if row.workers else '  no worker'}"


def _phase_line(row: PhaseRow) -> str:
    p95 = "–" if row.run_p95 is None else format_span(row.run_p95)
    return f"{row.phase[:12]:<12} {row.due:>5} {row.in_memory:>9} {row.idle:>5} {row.busy:>5} {row.error:>5} {p95:>8}"


def _worker_line(row: WorkerRow) -> str:
    up = format_age(row.started_at, min(row.now, row.alive_until))
    return f"{row.name[:24]:<24} {row.state.value:<7} {row.running:>4}/{row.concurrency:<4} {up}"


def _job_line(row: JobRow) -> str:
    attempt = f"{row.attempt}/{row.max_attempts}"
    return f"{row.type[:20]:<20} {row.status.value:<8} {attempt:>7}  {row.updated_at:%H:%M:%S}  {row.id}"
