"""A job's life on the terminal, one readable line for each attempt: time, id, type, what happened."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TextIO
from uuid import UUID

import click

from windlass.clock import spell
from windlass.model.state import State
from windlass.observe.events import Event, JobEnded, JobStarted
from windlass.observe.logs import EndingTracker, attempt_of, describe_end, escape

if TYPE_CHECKING:
    from windlass.model.flow import Flow
    from windlass.model.job import Job

TYPE_WIDTH = 20  # characters
SHORT_ID = 8  # characters: the last ones, since the first ones of neighbours are the same millisecond
LONG = 1.0  # seconds after which a job that still runs gets a line of its own

COLOURS = {
    State.SUCCEEDED: "green",
    State.FAILED: "yellow",
    State.DEAD: "red",
    State.CANCELLED: "magenta",
    State.WAITING: "cyan",
}


class JobLines:
    """A subscriber that prints. It never raises: when nobody reads any more, it says so once to `closed`."""

    def __init__(self, closed: Callable[[], object], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._colour = coloured(self._stream)
        self._closed: Callable[[], object] | None = closed
        self._timers: dict[UUID, asyncio.TimerHandle] = {}
        self._narrator = EndingTracker(self._ended)

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobStarted):
            loop = asyncio.get_running_loop()
            self._timers[event.job.id] = loop.call_later(LONG, self._still_runs, event.job)
        elif isinstance(event, JobEnded):
            timer = self._timers.pop(event.job.id, None)
            if timer is not None:
                timer.cancel()
        self._narrator(event)

    @property
    def unread(self) -> bool:
        return self._closed is None

    def _still_runs(self, job: Job) -> None:
        self._timers.pop(job.id, None)
        self._print(job, f"runs since {LONG:g}s ({attempt_of(job)})", "cyan")

    def _ended(self, end: JobEnded, state: State | None) -> None:
        flow: Flow | None = end.flow
        more = "" if flow is None or state not in (State.WAITING, State.QUEUED) else describe_flow(flow)
        said = f"{describe_end(end, state)}: {more}" if more else describe_end(end, state)
        self._print(end.job, said, "red" if state is None else COLOURS.get(state))

    def _print(self, job: Job, what: str, colour: str | None) -> None:
        if self._closed is None:
            return
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        type = escape(job.type)
        said = escape(what)
        if self._colour and colour is not None:
            said = click.style(said, fg=colour)
        try:
            print(f"{now}  {short(job.id)}  {type:<{TYPE_WIDTH}}  {said}", file=self._stream, flush=True)
        except (BrokenPipeError, ValueError):
            closed, self._closed = self._closed, None
            closed()


def describe_flow(flow: Flow) -> str:
    """What a job waits for, or where it goes: `for 2 of 3 jobs, 1h at most`, `for the signal approved`, `form`."""
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


def stop_unread() -> None:
    """Nobody reads what this process prints: stop gracefully."""
    os.kill(os.getpid(), signal.SIGTERM)


def short(job: UUID) -> str:
    return job.hex[-SHORT_ID:]


def coloured(stream: TextIO) -> bool:
    """Colours only for a person at a terminal who has not said no: https://no-color.org."""
    return stream.isatty() and not os.environ.get("NO_COLOR")
