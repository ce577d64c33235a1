"""`ctx.log`: the lines that a handler logs, stored with the attempt and sent to the `windlass.job` logger."""

from __future__ import annotations

import logging

from windlass.model.job import Job
from windlass.payload.sanitise import sanitise_text

LOG_LINES = 1_000
LOG_BYTES = 64 * 1024

handler_log = logging.getLogger("windlass.job")


class JobLog:
    """Lines that are stored with the attempt (at most 1,000, or 64 KiB) and also go to the `windlass.job` logger."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._bytes = 0
        self.lines: list[str] = []
        self.dropped = 0

    def debug(self, message: str, *args: object) -> None:
        self.write(logging.DEBUG, message, args)

    def info(self, message: str, *args: object) -> None:
        self.write(logging.INFO, message, args)

    def warning(self, message: str, *args: object) -> None:
        self.write(logging.WARNING, message, args)

    def error(self, message: str, *args: object) -> None:
        self.write(logging.ERROR, message, args)

    __call__ = info

    def write(self, level: int, message: str, args: tuple[object, ...]) -> None:
        handler_log.log(level, message, *args, extra={"job": str(self._job.id), "job_type": self._job.type})
        try:
            text = message % args if args else str(message)
        except (TypeError, ValueError):
            text = f"{message} {args!r}"
        line = sanitise_text(f"{logging.getLevelName(level)} {text}", 8 * 1024)
        size = len(line.encode()) + 4
        if len(self.lines) >= LOG_LINES or self._bytes + size > LOG_BYTES:
            self.dropped += 1
            return
        self.lines.append(line)
        self._bytes += size

    def kept_lines(self) -> list[str]:
        """The lines to store, with a last line that counts the dropped ones."""
        return (
            [*self.lines, f"… {self.dropped} more line{' was' if self.dropped == 1 else 's were'} dropped"]
            if self.dropped
            else self.lines
        )
