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

from windlass.observe.events import Event, JobEnded, JobStarted
from windlass.observe.logs import Narrator, attempt_of, describe_end, escape
from windlass.state import State

if TYPE_CHECKING:
    from windlass.job import Job

TYPE_WIDTH = 20  # characters
SHORT_ID = 8  # characters: the last ones, since the first ones of neighbours are the same millisecond
LONG = 1.0  # seconds after which a job that still runs gets a line of its own

COLOURS = {State.SUCCEEDED: "green", State.FAILED: "yellow", State.DEAD: "red", State.CANCELLED: "magenta"}


class JobLines:
    """A subscriber that prints. It never raises: when nobody reads any more, it says so once to `closed`."""

    def __init__(self, closed: Callable[[], object], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._colour = coloured(self._stream)
        self._closed: Callable[[], object] | None = closed
        self._timers: dict[UUID, asyncio.TimerHandle] = {}
        self._narrator = Narrator(self._ended)

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
        self._print(end.job, describe_end(end, state), "red" if state is None else COLOURS.get(state))

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


def stop_unread() -> None:
    """Nobody reads what this process prints: stop gracefully."""
    os.kill(os.getpid(), signal.SIGTERM)


def short(job: UUID) -> str:
    return job.hex[-SHORT_ID:]


def coloured(stream: TextIO) -> bool:
    """Colours only for a person at a terminal who has not said no: https://no-color.org."""
    return stream.isatty() and not os.environ.get("NO_COLOR")
