"""One connection in one thread: a `Writer` for every write of this process, a `Reader` beside it.

SQLite lets one connection write at a time. Taking turns inside the process is cheaper than fighting for the
file's lock, and the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from windlass.store.sqlite.connection import (
    SPOILING,
    code,
    connect,
    retry_while_locked,
    translate_errors,
    use_wal,
    write_transaction,
)
from windlass.store.sqlite.rows import micros

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.clock import Clock

T = TypeVar("T")

Step = Callable[[sqlite3.Connection, int], T]
"""What is done with a connection at a moment, in microseconds."""


class ConnectionThread:
    """A connection and the only thread that touches it. Opened by its first use."""

    def __init__(self, path: Path, *, name: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"windlass-{name}")
        self._connection: sqlite3.Connection | None = None

    async def call(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Run `step` in the thread. A caller that is cancelled while it runs doesn't stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, step)

    def post(self, step: Callable[[sqlite3.Connection], object]) -> None:
        """Run `step` after whatever waits already; nobody is told how it went."""
        self._thread.submit(self._run, step)

    def interrupt(self) -> None:
        """End the statement that runs, from whichever thread."""
        if self._connection is not None:
            self._connection.interrupt()

    async def close(self) -> None:
        """After the last step: close the connection and end the thread, even when the caller is cancelled."""
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)
        await closing
        self._thread.shutdown(wait=True)  # the work is done: this waits only for the thread's own end

    def _run(self, step: Callable[[sqlite3.Connection], T]) -> T:
        with translate_errors(self._path):
            if self._connection is None:
                self._connection = self._connect()
            try:
                return step(self._connection)
            except sqlite3.Error as error:
                # An open transaction is its owner's to end: a new connection would write outside of it.
                if code(error) in SPOILING and not self._connection.in_transaction:
                    self._disconnect()
                raise

    def _connect(self) -> sqlite3.Connection:
        connection = connect(self._path)
        try:
            use_wal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Writer:
    """Every write of this process: one transaction per step, one after the other."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._thread = ConnectionThread(path, name="writer")

    async def write(self, step: Step[T]) -> T:
        """Run `step` in a transaction of its own; it is rolled back when the step raises."""

        def transact(connection: sqlite3.Connection) -> T:
            with write_transaction(connection):
                # Read after the lock: a wait for other writers must not date the rows back.
                return step(connection, micros(self._clock.now()))

        return await self._thread.call(transact)

    async def close(self) -> None:
        await self._thread.close()


class Reader:
    """Looking without waiting for the writer."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._thread = ConnectionThread(path, name="reader")

    async def read(self, step: Step[T]) -> T:
        return await self._thread.call(
            lambda connection: retry_while_locked(lambda: step(connection, micros(self._clock.now())))
        )

    async def close(self) -> None:
        await self._thread.close()
