"""The parent process of `windlass dev`: runs one worker process at a time, and replaces it when a file changes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from windlass.cli.exit_codes import INTERRUPTED, NO_READER, TRY_AGAIN
from windlass.cli.process.child import WindlassProcess, describe_exit
from windlass.cli.process.supervisor import STEADY, restart_delay
from windlass.cli.process.watch import FileWatch
from windlass.cli.show.output import escape_text, print_note
from windlass.declare.program import shorten

CHECK_EVERY = 0.5  # seconds between two checks of the files
PATIENCE = 10.0  # seconds for a child to end; its own grace times take three or four
MAX_NAMED = 3  # files named in a message


class Reloader:
    """Starts the child, watches the files, and stops at a signal."""

    def __init__(self, arguments: Sequence[str], directories: Iterable[Path], kept: Sequence[int] = ()) -> None:
        self._arguments = arguments
        self._kept = kept  # file descriptors that every child gets
        self._watch = FileWatch(directories)
        self._stopping = asyncio.Event()
        self._signals = 0
        self._child: WindlassProcess | None = None

    async def run(self) -> int:
        """Run until Ctrl-C or SIGTERM; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        print_note(f"watching the Python files here ({len(self._watch)}); Ctrl-C ends")
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            changed, status = await self._run_child()
            if status == NO_READER:
                return 0
            if self._stopping.is_set():
                break
            if changed:
                failures = 0
            elif status > 0 and status != TRY_AGAIN:
                print_note("waiting for a change")
                await self._wait_for_change(None)
                failures = 0
            else:
                failures = 1 if time.monotonic() - began >= STEADY else failures + 1
                wait = restart_delay(failures)
                how = "" if status == TRY_AGAIN else f"the worker ended ({describe_exit(status)}); "
                print_note(f"{how}trying again in {wait:.1f} s")
                await self._wait_for_change(asyncio.ensure_future(asyncio.sleep(wait)))
        return INTERRUPTED if self._signals > 1 else 0

    def _stop(self) -> None:
        self._signals += 1
        self._stopping.set()
        if self._signals > 1 and self._child is not None:
            self._child.signal(signal.SIGKILL)

    async def _run_child(self) -> tuple[list[Path], int]:
        """Run one child to its end; returns the files that changed meanwhile, and the exit status."""
        self._child = child = WindlassProcess(self._arguments, foreground=True, kept=self._kept)
        await child.start()
        ended = asyncio.ensure_future(child.wait())
        changed = await self._wait_for_change(ended)
        if changed:
            print_note(f"{_list_names(changed)} changed; restarting")
        if not ended.done():
            child.signal(signal.SIGTERM)
            await asyncio.wait({ended}, timeout=PATIENCE)
            child.signal(signal.SIGKILL)  # does nothing if the child has ended; kills a child that ignores SIGTERM
        return changed, await ended

    async def _wait_for_change(self, other: asyncio.Future[Any] | None) -> list[Path]:
        """Wait until a file changed, `other` is done, or this process was asked to stop."""
        while not self._stopping.is_set():
            stopping = asyncio.ensure_future(self._stopping.wait())
            waiters: set[asyncio.Future[Any]] = {stopping} if other is None else {stopping, other}
            await asyncio.wait(waiters, timeout=CHECK_EVERY, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            changed = self._watch.read_changes()
            if changed:
                return changed
            if other is not None and other.done():
                return []
        return []


def _list_names(changed: list[Path]) -> str:
    names = [shorten(path) for path in changed[:MAX_NAMED]]
    more = len(changed) - len(names)
    return escape_text(", ".join(names)) + (f" and {more} more" if more else "")
