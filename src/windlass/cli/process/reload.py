"""The parent of `windlass dev`: one worker child at a time, replaced when a file changes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from windlass.cli.commands.dev import NO_READER, TRY_AGAIN
from windlass.cli.process.child import WindlassProcess, describe_exit
from windlass.cli.process.supervisor import STEADY, restart_delay
from windlass.cli.process.watch import FileWatch
from windlass.declare.program import shorten
from windlass.observe.logs import escape

CHECK_EVERY = 0.5  # seconds between two looks at the files
PATIENCE = 10.0  # seconds for a child to end, which has three or four by itself
MAX_NAMED = 3  # files named in a message
INTERRUPTED = 130


class Reloader:
    """Starts the child, watches, and knows how to end."""

    def __init__(self, arguments: Sequence[str], directories: Iterable[Path]) -> None:
        self._arguments = arguments
        self._watch = FileWatch(directories)
        self._stopping = asyncio.Event()
        self._signals = 0
        self._child: WindlassProcess | None = None

    async def run(self) -> int:
        """Until Ctrl-C or SIGTERM; the answer is the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        _print_message(f"watching the Python files here ({len(self._watch)}); Ctrl-C ends")
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
                _print_message("waiting for a change")
                await self._wait_for_change(None)
                failures = 0
            else:
                failures = 1 if time.monotonic() - began >= STEADY else failures + 1
                wait = restart_delay(failures)
                how = "" if status == TRY_AGAIN else f"the worker ended ({describe_exit(status)}); "
                _print_message(f"{how}trying again in {wait:.1f} s")
                await self._wait_for_change(asyncio.ensure_future(asyncio.sleep(wait)))
        return INTERRUPTED if self._signals > 1 else 0

    def _stop(self) -> None:
        self._signals += 1
        self._stopping.set()
        if self._signals > 1 and self._child is not None:
            self._child.signal(signal.SIGKILL)

    async def _run_child(self) -> tuple[list[Path], int]:
        """One life of the child: what changed meanwhile, and how it ended."""
        self._child = child = WindlassProcess(self._arguments, foreground=True)
        await child.start()
        ended = asyncio.ensure_future(child.wait())
        changed = await self._wait_for_change(ended)
        if changed:
            _print_message(f"{_list_names(changed)} changed; starting anew")
        if not ended.done():
            child.signal(signal.SIGTERM)
            await asyncio.wait({ended}, timeout=PATIENCE)
            child.signal(signal.SIGKILL)  # nobody is there any more, or it does not listen
        return changed, await ended

    async def _wait_for_change(self, other: asyncio.Future[Any] | None) -> list[Path]:
        """Until a file changed, something else happened, or the end was asked for."""
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
    return escape(", ".join(names)) + (f" and {more} more" if more else "")


def _print_message(text: str) -> None:
    click.echo(f"windlass: {text}", err=True)
