"""The live log of `windlass dev`, one line for each attempt that ended: time, id, type, outcome.

Under an attempt that failed: the frames of the user's own files, and the command that shows the whole traceback.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO
from uuid import UUID

import click

from windlass.clock import spell
from windlass.model.state import State
from windlass.observe.events import AttemptEnded, AttemptStarted, Event
from windlass.observe.log_lines import attempt_of, describe_end
from windlass.observe.logs import escape
from windlass.observe.subscribers import EndingTracker

if TYPE_CHECKING:
    from windlass.model.flow import Flow
    from windlass.model.job import Job

TYPE_WIDTH = 20  # characters
SHORT_ID = 8  # characters: the last ones; the first ones are the time, and jobs of the same millisecond share them
LONG = 1.0  # seconds after which a job that still runs is printed
MOST_FRAMES = 5  # of the user's own files, the last ones
INDENT = " " * 10  # under the id

SECTION = "Traceback (most recent call last):"
FRAME = re.compile(
    r'^[ |]*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)\n(?:[ |]{4,}(?P<code>\S.*))?', re.M
)

COLOURS = {
    State.SUCCEEDED: "green",
    State.FAILED: "yellow",
    State.DEAD: "red",
    State.CANCELLED: "magenta",
    State.WAITING: "cyan",
}


class JobLines:
    """A subscriber that prints. It never raises: when the reader has closed the pipe, it calls `on_closed` once."""

    def __init__(self, on_closed: Callable[[], object], stream: TextIO | None = None, *, options: str = "") -> None:
        """`options` are those with which `windlass jobs show` finds the jobs that are printed here."""
        self._stream = stream or sys.stdout
        self._colour = uses_colour(self._stream)
        self._on_closed: Callable[[], object] | None = on_closed
        self._options = options
        self._timers: dict[UUID, asyncio.TimerHandle] = {}
        self._tracker = EndingTracker(self._print_end)

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptStarted):
            loop = asyncio.get_running_loop()
            self._timers[event.job.id] = loop.call_later(LONG, self._print_running, event.job)
        elif isinstance(event, AttemptEnded):
            timer = self._timers.pop(event.job.id, None)
            if timer is not None:
                timer.cancel()
        self._tracker(event)

    @property
    def has_no_reader(self) -> bool:
        return self._on_closed is None

    def _print_running(self, job: Job) -> None:
        self._timers.pop(job.id, None)
        self._print(job, f"runs since {LONG:g}s ({attempt_of(job)})", "cyan")

    def _print_end(self, end: AttemptEnded, state: State | None) -> None:
        flow: Flow | None = end.flow
        more = "" if flow is None or state not in (State.WAITING, State.QUEUED) else describe_flow(flow)
        text = f"{describe_end(end, state)}: {more}" if more else describe_end(end, state)
        more_lines = self._describe_error(end) if state in (State.FAILED, State.DEAD) else []
        self._print(end.job, text, "red" if state is None else COLOURS.get(state), more_lines)

    def _describe_error(self, end: AttemptEnded) -> list[str]:
        if end.traceback is None:
            return []
        show = f"windlass jobs show {short_id(end.job.id)}{self._options}"
        return [*own_frames(end.traceback), f"the rest: {show}"]

    def _print(self, job: Job, what: str, colour: str | None, more_lines: list[str] | None = None) -> None:
        if self._on_closed is None:
            return
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        type = escape(job.type)
        text = escape(what)
        if self._colour and colour is not None:
            text = click.style(text, fg=colour)
        try:
            first = f"{now}  {short_id(job.id)}  {type:<{TYPE_WIDTH}}  {text}"
            others = (f"{INDENT}{escape(line)}" for line in more_lines or ())
            print("\n".join([first, *others]), file=self._stream, flush=True)
        except (BrokenPipeError, ValueError):
            on_closed, self._on_closed = self._on_closed, None
            on_closed()


def own_frames(traceback: str) -> list[str]:
    """The last frames of a traceback that are in the user's own files, the failing one last, each with its line of
    code. Of several tracebacks in one text (a cause, a group) the last one that has such frames is read.
    """
    sections = [list(FRAME.finditer(section)) for section in traceback.split(SECTION)]
    own = [found for found in ([frame for frame in section if is_own(frame["file"])] for section in sections) if found]
    lines: list[str] = []
    for frame in own[-1][-MOST_FRAMES:] if own else ():
        lines.append(f"{_relative(frame['file'])}:{frame['line']} in {frame['name']}")
        if frame["code"]:
            lines.append(f"  {frame['code']}")
    return lines


@cache
def is_own(file: str) -> bool:
    """Whether a file belongs to the user: not to Python, not to an installed package, not to Windlass."""
    path = Path(file)
    if file.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(__file__).parents[2])
    return not any(path.is_relative_to(library) for library in libraries)


def _relative(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def describe_flow(flow: Flow) -> str:
    """What a job waits for, or its next phase: `for 2 of 3 jobs, 1h at most`, `for the signal approved`, `form`."""
    if flow.advance is not None:
        return flow.advance.phase
    wait = flow.wait
    if wait is None:
        return ""
    parts: list[str] = []
    if wait.edges:
        of = "" if wait.need == len(wait.edges) else f"{wait.need:,} of "
        parts.append(f"for {of}{len(wait.edges):,} job{'' if len(wait.edges) == 1 else 's'}")
    if wait.signal is not None:
        parts.append(f"for the signal {wait.signal}")
    if wait.delay is not None:
        parts.append(f"{spell(wait.delay)} at most" if parts else f"for {spell(wait.delay)}")
    return ", ".join(parts)


def stop_own_process() -> None:
    """Stop this process gracefully, as no process reads its output any more."""
    os.kill(os.getpid(), signal.SIGTERM)


def short_id(job: UUID) -> str:
    return job.hex[-SHORT_ID:]


def uses_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal and NO_COLOR is not set: https://no-color.org."""
    return stream.isatty() and not os.environ.get("NO_COLOR")
