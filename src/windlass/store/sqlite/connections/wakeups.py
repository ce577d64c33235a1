"""Wake-ups on a file: directly to the listeners of this process; other processes check the file for a change.

A lost wake-up costs a poll and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from windlass.errors import StoreError
from windlass.store.sql import query
from windlass.store.sqlite.connections.file import ConnectionThread

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path

CHECK_EVERY = 0.02  # seconds between two checks of the file

_listeners: dict[Path, set[Listener]] = {}
_lock = threading.Lock()


class Listener:
    """The wake-ups that one reader has not read yet. The same message twice is one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, None] = {}
        self._arrived = asyncio.Event()

    def notify(self, message: str) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # its loop has ended: no task reads there any more
            self._loop.call_soon_threadsafe(self._put, message)

    async def messages(self) -> AsyncIterator[str]:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending:
                message = next(iter(self._pending))
                del self._pending[message]
                yield message

    def _put(self, message: str) -> None:
        self._pending[message] = None
        self._arrived.set()


def notify(path: Path, message: str) -> None:
    """Send a message to every listener of this process."""
    with _lock:
        listeners = list(_listeners.get(path, ()))
    for listener in listeners:
        listener.notify(message)


@asynccontextmanager
async def listen(path: Path) -> AsyncIterator[AsyncIterator[str]]:
    """Wake-ups for as long as the block lasts."""
    listener = Listener()
    with _lock:
        _listeners.setdefault(path, set()).add(listener)
    thread = ConnectionThread(path, name="listener")
    watch: asyncio.Task[None] | None = None
    try:
        # Read before the caller goes on: every commit from here on is noticed.
        seen = (await thread.call(_version), await thread.call(_wakes))
        watch = asyncio.create_task(_watch(thread, listener, seen))
        yield listener.messages()
    finally:
        with _lock:
            _listeners[path].discard(listener)
            if not _listeners[path]:
                del _listeners[path]
        if watch is not None:
            watch.cancel()
            await asyncio.wait([watch])
        await thread.close()


async def _watch(thread: ConnectionThread, listener: Listener, seen: tuple[int, int]) -> None:
    """Notice jobs that other connections wrote, of this process or another.

    `data_version`, which is read in microseconds, changes with every commit of another connection. Beats, claims and
    idle marks commit too: if they were wake-ups, idle workers would wake each other for ever. So the counter `wakes`
    must have grown as well.
    """
    while True:
        with suppress(StoreError):
            version = await thread.call(_version)
            if version != seen[0]:
                before, seen = seen, (version, await thread.call(_wakes))
                if seen[1] != before[1]:
                    listener.notify("*")
        # The machine's time and not the injected clock's: other processes do not follow a test's clock.
        await asyncio.sleep(CHECK_EVERY)


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def _wakes(connection: sqlite3.Connection) -> int:
    wakes: int = connection.execute(query("sqlite", "count_wakes")).fetchone()[0]
    return wakes
