"""The file behind a store: where it is, how it is opened, what its errors mean, and the threads that use it.

SQLite lets one connection write at a time. Within a process it is cheaper to let all writes take turns on one thread
than to compete for the file's lock, and the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote

from windlass.address import masked
from windlass.errors import (
    ConfigError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    ValueRefused,
)
from windlass.store.sqlite.functions import FUNCTIONS, Total
from windlass.store.sqlite.rows import micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.clock import Clock

T = TypeVar("T")

PREFIX = "sqlite:///"
OLDEST_SQLITE = (3, 38)  # RETURNING came with 3.35, STRICT tables with 3.37, ->> with 3.38
PATIENCE = 30.0  # seconds for which a locked file is tried again before "database is locked" is raised
LOOK_EVERY = 1_000  # steps of SQLite's, some microseconds: how often a read with a time limit looks at the time
LONGEST_PAUSE = 0.02  # seconds between two tries, at most

LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
BROKEN = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
OF_VALUES = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH})
OF_ANYTHING = frozenset({0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_MISUSE})
NOT_THERE = "no such "  # table, column or function: SQLite has no code of its own for it
# Errors that a connection may repeat although the file is usable again: it was opened while the file was read-only, or
# the file was replaced.
SPOILING = BROKEN | {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}


def locate(url: str) -> Path:
    """The absolute path in `sqlite:///relative.db` or `sqlite:////absolute/path.db`."""
    name = unquote(url.removeprefix(PREFIX))
    if not url.startswith(PREFIX) or name in ("", "/", ":memory:"):
        raise ConfigError(
            f"{masked(url)} does not name a SQLite file; write sqlite:///jobs.db or sqlite:////var/lib/app/jobs.db "
            "(jobs in memory would not outlive the process, so there is no :memory:)"
        )
    return Path(name).resolve()


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """A connection for the calling thread, in autocommit: a caller that writes begins a transaction explicitly.

    SQLite itself does not wait for locks on it: see `retry_while_locked`.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(f"this Python has SQLite {sqlite3.sqlite_version}, and Windlass needs {needed} or newer")
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=0,
        isolation_level=None,
        cached_statements=256,
    )
    connection.execute("PRAGMA foreign_keys = ON")
    retry_while_locked(
        lambda: connection.execute("PRAGMA synchronous = FULL")
    )  # reads the file, which may be in recovery
    for name, takes, function in FUNCTIONS:
        connection.create_function(name, takes, function, deterministic=True)
    connection.create_aggregate("sum_of_histograms", 1, Total)  # type: ignore[arg-type]
    return connection


def use_wal(connection: sqlite3.Connection) -> None:
    """Set the write-ahead log: readers never wait for the writer. The file keeps the mode: a repetition is harmless."""
    retry_while_locked(lambda: connection.execute("PRAGMA journal_mode = WAL"))


@contextmanager
def write_transaction(
    connection: sqlite3.Connection, *, patience: float = PATIENCE, pause: float = LONGEST_PAUSE
) -> Iterator[None]:
    """A write transaction. IMMEDIATE: a transaction that reads first and then writes can fail whatever the timeout."""
    retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"), patience=patience, pause=pause)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # Some errors (disk full) have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def retry_while_locked(step: Callable[[], T], *, patience: float = PATIENCE, pause: float = LONGEST_PAUSE) -> T:
    """Run `step`, and try it again while the file is locked.

    SQLite's own timeout does not cover every lock: not the recovery of a killed writer's WAL, and not a change of the
    journal mode. And it is unfair: the longer a connection waits, the more rarely it tries, so that under load the last
    one wins, and a beat can starve. Here every connection tries equally often, at random moments; a beat, which must
    not be late, has a shorter `pause`.
    """
    end = time.monotonic() + patience
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if code(error) not in LOCKED or time.monotonic() >= end:
                raise
        time.sleep(random.uniform(0, pause))


def within(seconds: float, connection: sqlite3.Connection, now: int, step: Step[T]) -> T:
    """Run `step`; SQLite interrupts it (SQLITE_INTERRUPT) at its next look at the time after `seconds`."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() >= end, LOOK_EVERY)
    try:
        return step(connection, now)
    finally:
        connection.set_progress_handler(None, 0)


def code(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones keep it in their lowest byte."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as those of `windlass.errors`."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(path, error) from error
    except (OverflowError, UnicodeEncodeError) as error:  # the driver itself refused it
        raise ValueRefused(f"{path} cannot keep a value: {error}") from error


def explain(path: Path, error: sqlite3.Error) -> StoreError:
    kind = code(error)
    if kind in BROKEN:
        return StoreCorrupt(
            f"{path} is not a SQLite database ({error}); restore it from a backup, or name another file"
        )
    if kind == sqlite3.SQLITE_READONLY:
        return StoreCorrupt(f"{path} is read-only, and jobs have to be written; run: chmod u+w {path} {path.parent}")
    if kind == sqlite3.SQLITE_CANTOPEN:
        return explain_unopened(path)
    if kind in LOCKED:
        name = getattr(error, "sqlite_errorname", None) or "SQLITE_BUSY"
        return StoreBusy(
            f"{path} stayed locked by another process ({name}); end the program that holds it "
            f"(find it with: fuser {path})"
        )
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreUnavailable(
            f"{path} cannot be written now ({error}); see whether the disk is full: df {path.parent}"
        )
    refused = f"{path} refused a statement and nothing was written: {error}"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return StoreError(refused)  # RAISE in a trigger: whether a value was the reason is not known
    if kind in OF_VALUES:
        return ValueRefused(f"{path} refused a value: {error}")
    if kind in OF_ANYTHING and not str(error).startswith(NOT_THERE):
        return StoreError(refused)
    return StoreRefused(refused)


def explain_unopened(path: Path) -> StoreError:
    """Why a file cannot be opened: found out afterwards, because SQLite gives no reason."""
    if not path.parent.is_dir():
        return StoreUnavailable(f"the directory of {path} does not exist; run: mkdir -p {path.parent}")
    if path.is_dir():
        return StoreCorrupt(f"{path} is a directory and not a SQLite file; name a file in it")
    return StoreCorrupt(
        f"{path} cannot be opened for writing: SQLite writes the file and two others beside it; "
        f"run: chmod u+rwx {path.parent} && chmod u+rw {path}"
    )


# Threads


Step = Callable[[sqlite3.Connection, int], T]
"""A function of a connection and of the time now, in microseconds."""


class ConnectionThread:
    """A connection and the only thread that uses it. It is opened by its first use."""

    def __init__(self, path: Path, *, name: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"windlass-{name}")
        self._connection: sqlite3.Connection | None = None

    async def call(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Run `step` in the thread. A caller that is cancelled meanwhile does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, step)

    def post(self, step: Callable[[sqlite3.Connection], object]) -> None:
        """Run `step` after the steps that wait already; its result and its error are dropped."""
        self._thread.submit(self._run, step)

    def interrupt(self) -> None:
        """Interrupt the running statement, from any thread."""
        if self._connection is not None:
            self._connection.interrupt()

    async def close(self) -> None:
        """After the last step: close the connection and end the thread, even when the caller is cancelled."""
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)
        await closing
        self._thread.shutdown(wait=True)  # all steps are done: this waits only for the thread's end

    def _run(self, step: Callable[[sqlite3.Connection], T]) -> T:
        with translate_errors(self._path):
            if self._connection is None:
                self._connection = self._connect()
            try:
                return step(self._connection)
            except sqlite3.Error as error:
                # Only its owner may end an open transaction: a new connection would write outside of it.
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
                # The clock is read after the lock: a wait for other writers must not date the rows back.
                return step(connection, micros(self._clock.now()))

        return await self._thread.call(transact)

    async def close(self) -> None:
        await self._thread.close()


class Reader:
    """Reads, which do not wait for the writer."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._thread = ConnectionThread(path, name="reader")

    async def read(self, step: Step[T]) -> T:
        return await self._thread.call(
            lambda connection: retry_while_locked(lambda: step(connection, micros(self._clock.now())))
        )

    async def close(self) -> None:
        await self._thread.close()
