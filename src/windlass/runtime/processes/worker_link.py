"""The child's end of the socket to its worker, and what goes over it while a handler runs: log lines and progress."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from uuid import UUID

from windlass.handler.context import BaseContext
from windlass.handler.log import handler_log
from windlass.payload.sanitise import sanitise_text
from windlass.runtime.processes.wire import Frames, FromChild, LogLine, ProgressReport, frame

PROGRESS_EVERY = 0.25  # seconds between two reports of progress
LONGEST_LINE = 8 * 1024  # bytes of a log line, as `ctx.log` keeps it
READ_BYTES = 64 * 1024


class WorkerLink:
    """The child's end of the socket. Any thread may send; without a worker there is nothing left to do here."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._lock = threading.Lock()

    def send(self, message: FromChild) -> None:
        data = frame(message)
        try:
            with self._lock:
                self._sock.sendall(data)
        except OSError:
            os._exit(1)

    def frames(self) -> Iterator[bytes]:
        frames = Frames()
        while True:
            try:
                data = self._sock.recv(READ_BYTES)
            except OSError:
                return
            if not data:
                return
            yield from frames.feed(data)


class ProgressReporter:
    """Sends progress and cost: the first report at once, later ones a few times a second, the last always."""

    def __init__(self, link: WorkerLink, job: UUID) -> None:
        self._link = link
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._sent_at = float("-inf")
        self._unsent = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def mark(self, context: BaseContext) -> None:
        """From the handler's thread or loop. A coroutine that never yields is reported too: no timer is needed."""
        if self._closed:
            return
        if time.monotonic() - self._sent_at >= PROGRESS_EVERY:
            self._send(context)
        elif not self._unsent:
            self._unsent = True
            self._loop.call_soon_threadsafe(self._send_later, context)

    def close(self, context: BaseContext | None) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if context is not None and self._unsent:
            self._send(context)

    def _send_later(self, context: BaseContext) -> None:
        if not self._closed:
            self._timer = self._loop.call_later(PROGRESS_EVERY, self._flush, context)

    def _flush(self, context: BaseContext) -> None:
        if self._unsent and not self._closed:
            self._send(context)

    def _send(self, context: BaseContext) -> None:
        self._unsent = False
        self._sent_at = time.monotonic()
        self._link.send(ProgressReport(self._job, context.total, context.processed, context.failed, context.spent))


class LogForwarder(logging.Handler):
    """Sends lines of `ctx.log` to the worker, which logs and keeps them."""

    def __init__(self, link: WorkerLink) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        job = getattr(record, "job", None)
        if job is None:
            return
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = f"{record.msg} {record.args!r}"
        self._link.send(LogLine(UUID(job), record.levelno, sanitise_text(text, LONGEST_LINE)))


def forward_log(link: WorkerLink) -> None:
    handler_log.handlers[:] = [LogForwarder(link)]
    handler_log.propagate = False
    handler_log.disabled = False  # a program's dictConfig() disables what it does not name
    handler_log.setLevel(1)  # the worker's logging decides which levels are shown
