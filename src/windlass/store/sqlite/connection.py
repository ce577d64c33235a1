"""The file behind a store: where it is, how it is opened, and what its errors mean."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote

from windlass.address import masked
from windlass.errors import ConfigError, StoreCorrupt, StoreError, StoreRefused, StoreUnavailable, ValueRefused
from windlass.store.sqlite.functions import FUNCTIONS
from windlass.store.sqlite.rows import crash, remember, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

PREFIX = "sqlite:///"
OLDEST_SQLITE = (3, 38)  # RETURNING came with 3.35, STRICT tables with 3.37, ->> with 3.38
PATIENCE = 30.0  # seconds until "database is locked" is told to anybody
LONGEST_PAUSE = 0.02  # seconds between two tries, at most

LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
BROKEN = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
OF_VALUES = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH})
OF_ANYTHING = frozenset({0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_MISUSE})
NOT_THERE = "no such "  # table, column or function: SQLite has no code of its own for it
# What a connection may keep although the file is well again: it was opened when the file could only be read, or the
# file was replaced.
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
    """A connection for the calling thread, in autocommit: whoever writes begins a transaction by hand.

    SQLite itself doesn't wait for locks on it: see `retry_while_locked`.
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
    connection.create_function("remember", 2, remember, deterministic=True)
    connection.create_function("crash", 2, crash, deterministic=True)
    connection.create_function("rfc3339", 1, rfc3339, deterministic=True)
    for name, takes, function in FUNCTIONS:
        connection.create_function(name, takes, function, deterministic=True)
    return connection


def use_wal(connection: sqlite3.Connection) -> None:
    """Readers never wait for the writer. The mode stays in the file; saying it again changes nothing."""
    retry_while_locked(lambda: connection.execute("PRAGMA journal_mode = WAL"))


@contextmanager
def write_transaction(
    connection: sqlite3.Connection, *, patience: float = PATIENCE, pause: float = LONGEST_PAUSE
) -> Iterator[None]:
    """A write transaction. IMMEDIATE: a read that comes to write fails at once, whatever the timeout."""
    retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"), patience=patience, pause=pause)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # Some errors (disk full) have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def retry_while_locked(step: Callable[[], T], *, patience: float = PATIENCE, pause: float = LONGEST_PAUSE) -> T:
    """`step`, tried again while the file is locked.

    SQLite's own timeout doesn't cover every lock: not the recovery of a killed writer's WAL, and not a change
    of the journal mode. And it is unfair: the longer somebody waits, the more rarely it looks, so that under
    load whoever came last wins, and a beat can starve. Here everybody looks as often, at random moments, and
    whoever mustn't be late looks more often.
    """
    end = time.monotonic() + patience
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if code(error) not in LOCKED or time.monotonic() >= end:
                raise
        time.sleep(random.uniform(0, pause))


def code(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones keep it in their lowest byte."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """SQLite's errors in the words of `windlass.errors`."""
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
        return StoreUnavailable(
            f"{path} stayed locked by another process ({name}); end the program that holds it "
            f"(find it with: fuser {path})"
        )
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreUnavailable(
            f"{path} cannot be written now ({error}); see whether the disk is full: df {path.parent}"
        )
    refused = f"{path} refused a statement and nothing was written: {error}"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return StoreError(refused)  # RAISE in a trigger: it does not say whether a value was the reason
    if kind in OF_VALUES:
        return ValueRefused(f"{path} refused a value: {error}")
    if kind in OF_ANYTHING and not str(error).startswith(NOT_THERE):
        return StoreError(refused)
    return StoreRefused(refused)


def explain_unopened(path: Path) -> StoreError:
    """Why a file cannot be opened, found out afterwards, because SQLite doesn't say."""
    if not path.parent.is_dir():
        return StoreUnavailable(f"the directory of {path} does not exist; run: mkdir -p {path.parent}")
    if path.is_dir():
        return StoreCorrupt(f"{path} is a directory and not a SQLite file; name a file in it")
    return StoreCorrupt(
        f"{path} cannot be opened for writing: SQLite writes the file and two others beside it; "
        f"run: chmod u+rwx {path.parent} && chmod u+rw {path}"
    )
