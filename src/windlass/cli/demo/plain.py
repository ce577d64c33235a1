"""The demo as plain lines: for a pipe, a file, or a small or simple terminal."""

from __future__ import annotations

import io
import os
import sys
from datetime import datetime
from typing import assert_never

import click

from windlass.cli.demo.reports import ReportedEnd
from windlass.cli.demo.scene import Scene, Sentence, Tone, WorkerHealth
from windlass.cli.demo.summary import Summary
from windlass.cli.show.live_log import COLOURS, SHORT_ID, uses_colour
from windlass.cli.show.output import format_count
from windlass.model.processors import ProcessorState
from windlass.model.state import State

STATUS = 2.0  # seconds between two status lines
PHASES = 1.0  # seconds between two lines about orders and about jobs at a limit
TYPE_WIDTH = 14  # characters
SHOWN = (State.QUEUED, State.RUNNING, State.FAILED, State.SUCCEEDED, State.DEAD)
TONES = {Tone.PLAIN: None, Tone.GOOD: "green", Tone.BAD: "red"}


class Plain:
    """Prints each piece of news on a line, and a status line from time to time."""

    def __init__(self) -> None:
        self._colour = uses_colour(sys.stdout)
        self._read = True  # whether the pipe or terminal is still open
        self._next_status = STATUS
        self._next_phases = 0.0

    def open(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an ASCII terminal gets question marks instead of a traceback

    def show(self, scene: Scene) -> bool:
        for piece in scene.take_news():
            match piece:
                case Sentence():
                    self._print_news(piece.text, TONES[piece.tone])
                case ReportedEnd():
                    self._print(*_attempt_line(piece))
                case _:
                    assert_never(piece)
        if scene.elapsed >= self._next_status:
            self._next_status = scene.elapsed + STATUS
            self._print_news(_status(scene), "cyan")
        if scene.elapsed >= self._next_phases and (scene.limits or scene.shipped < scene.orders):
            self._next_phases = scene.elapsed + PHASES
            for line in [*_limits(scene), *_phases(scene)]:
                self._print_news(line, "cyan")
        return self._read

    def close(self) -> None:
        pass

    def conclude(self, summary: Summary) -> None:
        self._print_news("what the store holds:")
        for check in summary.checks:
            mark, colour = ("ok    ", "green") if check.holds else ("FAILED", "red")
            self._print_news(f"  {mark}  {check.text}", colour)
        self._print_news(summary.verdict, "green" if summary.holds else "red")
        for line in summary.logs:
            self._print("", line, "red")

    def _print_news(self, text: str, colour: str | None = None) -> None:
        self._print("── ", text, colour)

    def _print(self, before: str, text: str, colour: str | None) -> None:
        if not self._read:
            return
        line = click.style(text, fg=colour) if self._colour and colour else text
        try:
            print(f"{before}{line}", flush=True)
        except OSError:  # the pipe is closed, or the terminal is gone
            self._read = False
            # Python flushes its buffer when it exits; that must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _attempt_line(attempt: ReportedEnd) -> tuple[str, str, str | None]:
    now = datetime.fromtimestamp(attempt.at).astimezone().strftime("%H:%M:%S")
    before = f"{now}  {attempt.job[-SHORT_ID:]}  {attempt.type:<{TYPE_WIDTH}}  "
    return before, attempt.text, "red" if attempt.state is None else COLOURS.get(attempt.state)


def _status(scene: Scene) -> str:
    counts = " · ".join(f"{scene.counts.get(state, 0)} {state}" for state in SHOWN)
    alive = sum(worker.health is WorkerHealth.ALIVE for worker in scene.workers.values())
    beats = f"heartbeat {len(scene.beats)}"
    return f"{counts} · {format_count(alive, 'worker')} · {scene.throughput.current:.0f} jobs/s · {beats}"


def _limits(scene: Scene) -> list[str]:
    """How many slots of each domain are in use, and how many jobs wait for one."""
    counts = "; ".join(f"{row.key} {row.used} of {row.most}, {row.waiting} waiting" for row in scene.limits)
    return [f"limits: {counts}"] if counts else []


def _phases(scene: Scene) -> list[str]:
    """How many orders are in each phase, and the processors that are busy there."""
    if scene.shipped == scene.orders:
        return []
    counts = ", ".join(f"{phase.jobs} in {phase.name}" for phase in scene.phases)
    lines = [f"orders: {counts}; {scene.shipped} of {scene.orders} shipped"]
    names = {phase.name for phase in scene.phases}
    for worker in scene.workers.values():
        busy = [slot for slot in worker.slots if slot.phase in names and slot.state is not ProcessorState.IDLE]
        if busy and worker.health is WorkerHealth.ALIVE:
            lines.append(f"worker {worker.number}: " + ", ".join(f"{slot.name} {slot.state}" for slot in busy))
    return lines
