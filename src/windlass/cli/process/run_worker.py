"""One worker in this process, from its start to its last log line."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from windlass.observe.events import Event
    from windlass.runtime.worker import Worker

from windlass.cli.process.systemd import Systemd
from windlass.runtime.duties.stacks import log_stacks_soon

log = logging.getLogger("windlass")

LAST_THREADS = 1.0  # seconds for idle threads to notice that their pool is closed


def run_worker(
    make_worker: Callable[[], Worker],
    *,
    subscribers: tuple[Callable[[Event], None], ...],
    lifeline: int | None = None,
    interrupts: bool = True,
) -> None:
    """Run the worker until SIGTERM, SIGINT or the end of the parent. A second signal ends the process at once."""
    try:
        asyncio.run(_run_worker(make_worker, subscribers, lifeline, interrupts))
    finally:
        leave_stuck_threads(failed=sys.exc_info()[0] is not None)


async def _run_worker(
    make_worker: Callable[[], Worker],
    subscribers: tuple[Callable[[Event], None], ...],
    lifeline: int | None,
    interrupts: bool,
) -> None:
    systemd, worker = Systemd(), make_worker()
    for subscriber in subscribers:
        worker.subscribe(subscriber)
    loop = asyncio.get_running_loop()
    wanted = asyncio.Event()
    stop = _StopSignals(lambda: loop.call_soon_threadsafe(wanted.set))
    stop.install(interrupts)
    signal.signal(signal.SIGUSR1, lambda number, frame: log_stacks_soon(lambda: worker))
    if lifeline is not None:
        from windlass.cli.process.child import watch_lifeline

        watch_lifeline(lifeline, lambda: loop.call_soon_threadsafe(wanted.set))
    async with systemd.watched(), worker:
        # The block also begins when the database did not answer the first try: then the worker is not registered yet.
        worker.state.signals.registered.subscribe(lambda: systemd.tell("READY=1"))
        if worker.state.registered:
            systemd.tell("READY=1")
        finished = asyncio.ensure_future(worker.finished())
        asked = asyncio.ensure_future(wanted.wait())
        try:
            await asyncio.wait({finished, asked}, return_when=asyncio.FIRST_COMPLETED)
            if finished.done():
                await finished  # raises the error that ended the worker
            elif worker.state.leases.executions:
                running, grace = len(worker.state.leases.executions), worker.settings.grace
                log.info("stopping; %d running jobs have %g s to end", running, grace)
        finally:
            systemd.tell("STOPPING=1")
            finished.cancel()
            asked.cancel()


class _StopSignals:
    """Handles signals. Python's own signal handlers, not the loop's: they run while a job's handler blocks the loop."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._on_first = first
        self._count = 0

    def install(self, interrupts: bool) -> None:
        signal.signal(signal.SIGTERM, self._receive)
        if interrupts:
            signal.signal(signal.SIGINT, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            end_at_once(128 + number)
        self._on_first()


def end_at_once(code: int) -> None:
    """End the process now, with the logs flushed. Its jobs are released when its lease expires."""
    for flush in (logging.shutdown, sys.stdout.flush, sys.stderr.flush):
        try:
            flush()
        except (OSError, ValueError, RuntimeError):  # a closed pipe, or the signal interrupted a write
            pass
    os._exit(code)


def leave_stuck_threads(*, failed: bool) -> None:
    """A handler's thread cannot be killed, and Python would wait for it for ever; its job has been released already."""
    deadline = time.monotonic() + LAST_THREADS
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive() and not failed:
                log.warning("a handler did not end; leaving its thread behind")
                atexit._run_exitfuncs()
                end_at_once(0)
