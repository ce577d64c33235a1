"""How records are written: as lines or as JSON, without secrets, and whatever a handler of the log does.

A record begins with its time, at the left edge. Further lines of it, such as a traceback, are indented. Text of a
handler, a job's type or an error message may come from any source: each newline in it begins an indented line, and
terminal codes and characters that change the reading direction are written as escapes. So no value can imitate a
record, and a log collector can join the lines of one record: a line that begins with a space belongs to the one above.

As JSON, a record is one line, and the fields of `extra` are keys of its object. `log_lines.py` makes the lines of
events.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TextIO

from windlass.policy.redaction import Redaction

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("text", "json")
LONGEST_RECORD = 32 * 1024  # characters; the middle of a longer one is cut
INDENT = "    "  # of the further lines of a record
ENGINE = "windlass"  # the logger of the engine
ROUTINE = "windlass.attempts"  # of attempts that go well: an error tracker can leave out these alone
GUARDED = (ENGINE, ROUTINE, "windlass.job", "windlass.connection")

# Control characters, lone surrogates, line and paragraph separators, invisible characters and changes of direction.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record; all others came with `extra`."""


def set_up(
    level: str,
    *,
    name: str | None = None,
    stream: TextIO | None = None,
    format: str = "text",
    redact: Iterable[str] = (),
) -> None:
    """Send every record of this process to stderr. `name` marks the lines of one of several processes."""
    handler = CountingHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(name, redact) if format == "json" else LineFormatter(name, redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # asyncio logs at DEBUG which selector it uses; that is noise.
    logging.getLogger("asyncio").setLevel(max(root.level, logging.WARNING))
    # The AMQP library logs each try to connect as an error: an outage of ten minutes would be hundreds of lines beside
    # those that Windlass writes about it.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)


def hide_names(names: Iterable[str]) -> None:
    """Hide further secrets in what `set_up` writes: the program, which names them, is loaded after it."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Formatter):
            handler.formatter.redaction = Redaction(names)


class _Formatter(logging.Formatter):
    """What both forms share: which records may have secrets, and the text of an exception."""

    def __init__(self, name: str | None = None, redact: Iterable[str] = ()) -> None:
        super().__init__()
        self.process = name
        self.redaction = Redaction(redact)

    def texts(self, record: logging.LogRecord) -> tuple[str, str]:
        """The message and the text of the exception, without secrets."""
        message, trace = record.getMessage(), ""
        if record.exc_info:
            trace = record.exc_text or self.formatException(record.exc_info)
        if is_own(record):
            return message, trace
        return self.redaction.text(shorten(message)), self.redaction.text(shorten(trace)) if trace else ""


def is_own(record: logging.LogRecord) -> bool:
    """Whether a record has no text of a handler in it: lines of the engine itself have names, numbers and ids.

    To look for secrets in each line of each job would cost more than to write it.
    """
    return record.name in (ENGINE, ROUTINE) and (
        record.levelno < logging.WARNING or getattr(record, "kind", "") == "attempt_ended"
    )


class LineFormatter(_Formatter):
    """`2026-01-01T12:00:00.000Z INFO  [2] what happened job=…`, then indented lines if the record has more."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"[{escape(self.process)}] " if self.process else ""
        text, trace = self.texts(record)
        first, *others = escape(shorten(f"{text}\n{trace}" if trace else text), lines=True).split("\n")
        job = escape(str(getattr(record, "job", "")))
        tail = f" job={job}" if job and f"job={job}" not in first else ""
        lines = [f"{_time(record)} {record.levelname:<7} {prefix}{first}{tail}"]
        return "\n".join([*lines, *(f"{INDENT}{prefix}{line}" for line in others if line.strip())])


class JsonFormatter(_Formatter):
    """One JSON object per record: time, level, logger, message, the fields of `extra`, and the exception's text."""

    def format(self, record: logging.LogRecord) -> str:
        text, trace = self.texts(record)
        fields = {name: value for name, value in vars(record).items() if name not in USUAL}
        if fields and not is_own(record):
            fields = self.redaction.value(json.loads(json.dumps(fields, default=_plain, skipkeys=True)))
        document: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": shorten(text),
        }
        if self.process:
            document["worker_process"] = self.process
        document |= {name: value for name, value in fields.items() if name not in document and value is not None}
        if trace:
            document["exception"] = shorten(trace)
        written = json.dumps(document, default=_plain, ensure_ascii=False, skipkeys=True)
        # json.dumps writes control characters as escapes, and leaves changes of direction and lone surrogates.
        return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _plain(value: object) -> object:
    """What JSON has no form for, as text."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__} in its text>"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


# Handlers that fail


class CountingHandler(logging.StreamHandler[TextIO]):
    """Counts the records that could not be written, and goes on: stderr may be a pipe that was closed."""

    lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        self.lost += 1


class HandlerGuard:
    """Stands before the handlers of one logger: what they raise must not reach the part of the worker that logs.

    Python's own handlers catch their errors, and those of other libraries often do not. The worker would lose an
    attempt's end or a whole service to an error about a line.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.lost = 0

    def __call__(self, record: logging.LogRecord) -> None:
        try:
            type(self._logger).callHandlers(self._logger, record)  # looked up each time: error trackers replace it
        except Exception as error:
            self.lost += 1
            if self.lost == 1:
                text = f"a handler of the log failed ({type(error).__name__}); jobs go on, and lost records are counted"
                try:
                    print(f"windlass: {text}", file=sys.stderr)
                except (OSError, ValueError):
                    pass


def guard_handlers() -> None:
    """Let no handler of the log end the work of a worker; may be called again."""
    for name in GUARDED:
        logger = logging.getLogger(name)
        if not isinstance(vars(logger).get("callHandlers"), HandlerGuard):
            setattr(logger, "callHandlers", HandlerGuard(logger))  # noqa: B010


def count_lost_records() -> int:
    """Records of this process that a handler of the log failed to write."""
    guards = [vars(logging.getLogger(name)).get("callHandlers") for name in GUARDED]
    counting = [*guards, *logging.getLogger().handlers]
    return sum(each.lost for each in counting if isinstance(each, HandlerGuard | CountingHandler))
