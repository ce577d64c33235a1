"""What a worker process reports to the demo: its processors ten times per second, and each attempt that ended.

A named pipe in the demo's folder carries one JSON line per report. A line is at most PIPE_BUF long, so that the system
writes it whole or not at all: the lines of several workers never mix, and kill -9 cannot cut one.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from windlass.model.processors import ProcessorState
from windlass.model.state import State
from windlass.observe.events import AttemptEnded, AttemptStarted, Event, JobsRescued, WorkerStarted
from windlass.observe.log_lines import describe_end, shorten_error
from windlass.observe.logs import escape
from windlass.observe.subscribers import EndingTracker

if TYPE_CHECKING:
    from windlass.runtime.worker import Worker

PIPE = "reports"
EVERY = 0.1  # seconds between two reports of the processors
READ_MOST = 65_536  # bytes at a time


class Slot(msgspec.Struct, frozen=True):
    """A processor."""

    name: str
    state: ProcessorState
    type: str | None  # of the job it is busy with
    job: str | None  # that job's id, as 32 hex digits
    seconds: float  # since the processor took its latest job

    @property
    def phase(self) -> str:
        return self.name.rpartition("-processor-")[0]


class Processors(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """All processors of one worker, as they are now."""

    worker: int
    pid: int
    slots: list[Slot]


class ReportedEnd(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """An attempt ended, and its transition is committed."""

    worker: int
    at: float  # seconds since the epoch
    job: str
    type: str
    attempt: str  # as in "2 of 3"
    text: str  # the end of the attempt, as one line
    error: str | None
    state: State | None  # None: the lease was lost and nothing was written
    next_phase: str | None = None  # the phase of its pipeline that the job goes to

    @property
    def is_good(self) -> bool:
        return self.state is State.SUCCEEDED or (self.state is State.QUEUED and self.next_phase is not None)


class Rescued(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """This worker found dead workers and released their jobs."""

    worker: int
    deaths: int
    rescued: int
    dead_after_crashes: int


Report = Processors | ReportedEnd | Rescued


class WorkerReporter:
    """In a worker process: a subscriber that writes reports. A report is dropped where the pipe is full or closed."""

    def __init__(self, folder: Path, number: int) -> None:
        self._number = number
        self._pipe = os.open(folder / PIPE, os.O_WRONLY | os.O_NONBLOCK)
        self._since: dict[str, float] = {}  # processor → when its attempt began
        self._tracker = EndingTracker(self._report_end)
        self._worker: Worker | None = None

    def follow(self, worker: Worker) -> Worker:
        """Report this worker's processors as soon as it has started."""
        self._worker = worker
        return worker

    def __call__(self, event: Event) -> None:
        self._tracker(event)
        match event:
            case WorkerStarted():
                self._tick()
            case AttemptStarted():
                self._since[event.processor] = time.monotonic()
            case JobsRescued():
                self._send(Rescued(self._number, event.deaths, event.rescued, event.dead_after_crashes))
            case _:
                pass

    def _tick(self) -> None:
        self._send(Processors(self._number, os.getpid(), self._slots()))
        asyncio.get_running_loop().call_later(EVERY, self._tick)

    def _slots(self) -> list[Slot]:
        assert self._worker is not None
        now = time.monotonic()
        slots = []
        for processor in self._worker.state.pools:
            job, since = processor.job, self._since.get(processor.name, now)
            name, id = (None, None) if job is None else (job.type, job.id.hex)
            slots.append(Slot(processor.name, processor.state, name, id, round(now - since, 1)))
        return slots

    def _report_end(self, end: AttemptEnded, state: State | None) -> None:
        advance = None if end.flow is None or state is not State.QUEUED else end.flow.advance
        where = "" if advance is None else f": {advance.phase}"
        self._send(
            ReportedEnd(
                worker=self._number,
                at=time.time(),
                job=end.job.id.hex,
                type=end.job.type,
                attempt=f"{end.job.attempt} of {end.job.max_attempts}",
                text=escape(describe_end(end, state) + where),
                error=None if end.error is None else escape(shorten_error(end.error)),
                state=state,
                next_phase=None if advance is None else advance.phase,
            )
        )

    def _send(self, report: Report) -> None:
        line = msgspec.json.encode(report) + b"\n"
        if len(line) <= select.PIPE_BUF:
            try:
                os.write(self._pipe, line)
            except OSError:
                pass


class ReportReader:
    """In the demo: reads the reports of every worker. A context manager inside a running loop."""

    def __init__(self, folder: Path, receive: Callable[[Report], None]) -> None:
        self._path = folder / PIPE
        self._receive = receive
        self._rest = b""
        self._decoder = msgspec.json.Decoder(Report)

    def __enter__(self) -> ReportReader:
        os.mkfifo(self._path, 0o600)
        # Opened for writing, too: otherwise the pipe would stay at end-of-file once its last writer was killed.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._pipe, self._read)
        return self

    def __exit__(self, *raised: object) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)

    def _read(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._pipe, READ_MOST)).split(b"\n")
        for line in lines:
            self._receive(self._decoder.decode(line))
