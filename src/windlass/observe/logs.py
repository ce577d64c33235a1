"""Logs of the command line, and a subscriber that logs the starts and ends of attempts.

A record begins with its time, at the left edge. Further lines of it, such as a traceback, are indented. Text of a
handler, a job's type or an error message may come from any source: each newline in it begins an indented line, and
terminal codes and characters that change the reading direction are written as escapes. So no value can imitate a
record, and a log collector can join the lines of one record: a line that begins with a space belongs to the one above.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO
from uuid import UUID

from windlass.clock import spell
from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    JobChanged,
    LeasesLost,
    WorkerStarted,
    WorkerStopped,
)

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MOST_UNCOMMITTED = 10_000  # ended attempts that wait for their commit; beyond this number the oldest is dropped
LONGEST_ERROR = 300  # characters of an error in a line
LONGEST_RECORD = 32 * 1024  # characters; the middle of a longer one is cut
INDENT = "    "  # of the further lines of a record

# Control characters, lone surrogates, line and paragraph separators, invisible characters and changes of direction.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

log = logging.getLogger("windlass")


def set_up(level: str, *, name: str | None = None, stream: TextIO | None = None) -> None:
    """Send every record of this process to stderr. `name` marks the lines of one of several processes."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(name))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # asyncio logs at DEBUG which selector it uses; that is noise.
    logging.getLogger("asyncio").setLevel(max(root.level, logging.WARNING))


class LineFormatter(logging.Formatter):
    """`2026-01-01T12:00:00.000Z INFO  [2] what happened job=…`, then indented lines if the record has more."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._prefix = f"[{escape(name)}] " if name else ""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        first, *others = escape(shorten(text), lines=True).split("\n")
        job = escape(str(getattr(record, "job", "")))
        tail = f" job={job}" if job and f"job={job}" not in first else ""
        lines = [f"{when}Z {record.levelname:<7} {self._prefix}{first}{tail}"]
        return "\n".join([*lines, *(f"{INDENT}{self._prefix}{line}" for line in others if line.strip())])


def shorten(text: str) -> str:
    """A text of any size without its middle: its beginning and its end name the error."""
    cut = len(text) - LONGEST_RECORD
    if cut <= 0:
        return text
    half = LONGEST_RECORD // 2
    return f"{text[:half]}\n… [{cut:,} characters cut] …\n{text[-half:]}"


def escape(text: str, *, lines: bool = False) -> str:
    """The text with escapes for unprintable characters; with `lines`, newlines stay."""
    return UNPRINTABLE.sub(lambda found: found[0] if lines and found[0] == "\n" else _escape_character(found[0]), text)


def _escape_character(character: str) -> str:
    code = ord(character)
    return SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


class EndingTracker:
    """A subscriber that joins the end of an attempt with its commit.

    `report(end, state)` is called when the transition is committed, with the job's new state. The state is None when
    nothing was written, because the lease was lost.
    """

    def __init__(self, report: Callable[[AttemptEnded, State | None], None]) -> None:
        self._report = report
        self._ended: dict[UUID, AttemptEnded] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case AttemptEnded(ending=Ending.LOST):
                self._report(event, None)
            case AttemptEnded():
                self._ended[event.job.id] = event
                if len(self._ended) > MOST_UNCOMMITTED:
                    del self._ended[next(iter(self._ended))]
            case JobChanged():
                end = self._ended.pop(event.id, None)
                if end is not None:
                    self._report(end, event.state)
            case AttemptStarted():
                self._ended.pop(event.job.id, None)
            case LeasesLost():
                for end in self._ended.values():
                    self._report(end, None)
                self._ended.clear()
            case _:
                pass


LEVEL_OF = {State.FAILED: logging.WARNING, State.DEAD: logging.ERROR, None: logging.WARNING}
"""The level of an attempt's end by the job's new state, None for a lost lease; INFO for all others."""


class LogSubscriber:
    """Logs events as lines. Lost leases and rescues are logged as warnings where they happen."""

    def __init__(self) -> None:
        self._endings = EndingTracker(self._log_end)

    def __call__(self, event: Event) -> None:
        self._endings(event)
        match event:
            case AttemptStarted():
                job = event.job
                log.info("%s started, %s job=%s", job.type, attempt_of(job), job.id, extra={"job": job.id})
            case WorkerStarted():
                log.info("worker %s started as %s", event.name, event.worker)
            case WorkerStopped():
                log.info("worker %s stopped", event.name)
            case _:
                pass

    def _log_end(self, end: AttemptEnded, state: State | None) -> None:
        """A failure has its traceback: as exc_info, which error trackers read, or as the text that a child sent."""
        job, level = end.job, LEVEL_OF.get(state, logging.INFO)
        text, values = "%s %s job=%s", (job.type, describe_end(end, state), job.id)
        failed = state in (State.FAILED, State.DEAD)
        if failed and end.exception is None and end.traceback is not None:
            log.log(level, f"{text}\n%s", *values, end.traceback, extra={"job": job.id})
        else:
            log.log(level, text, *values, exc_info=end.exception if failed else None, extra={"job": job.id})


def describe_end(end: AttemptEnded, state: State | None) -> str:
    """`succeeded in 12ms`, `failed in 3ms (attempt 1 of 4), again in 10s: ValueError: …`."""
    took, why = f"in {spell(end.elapsed)}", f": {shorten_error(end.error)}" if end.error else ""
    match state:
        case None:
            return f"lost its lease after {spell(end.elapsed)}; nothing was written"
        case State.SUCCEEDED:
            return f"succeeded {took}"
        case State.FAILED:
            return f"failed {took} ({attempt_of(end.job)}), again in {spell(end.delay or 0.0)}{why}"
        case State.DEAD:
            return f"dead {took} ({attempt_of(end.job)}){why}"
        case State.CANCELLED:
            return f"cancelled after {spell(end.elapsed)}"
        case State.WAITING:
            return f"waiting, after {spell(end.elapsed)}"
        case State.QUEUED if end.ending is Ending.WAITING:
            return f"has what it waited for, after {spell(end.elapsed)}"
        case State.QUEUED if end.ending is Ending.SUCCEEDED:
            return f"goes on to its next phase, after {spell(end.elapsed)}"
        case State.QUEUED if end.ending is Ending.SNOOZED:
            return f"snoozed for {spell(end.delay or 0.0)}"
        case State.QUEUED if end.ending is Ending.RELEASED:
            return f"released after {spell(end.elapsed)}"
        case _:
            return f"{state} {took}{why}"


def attempt_of(job: Job) -> str:
    return f"attempt {job.attempt} of {job.max_attempts}"


def shorten_error(error: str) -> str:
    """The first line of an error, cut to LONGEST_ERROR."""
    first = error.strip().partition("\n")[0]
    return first if len(first) <= LONGEST_ERROR else f"{first[:LONGEST_ERROR]}…"
