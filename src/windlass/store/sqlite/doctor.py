"""The checks of a SQLite file: the library, the file and its rights, its write-ahead log, plans, and its rows."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from windlass.clock import Clock, SystemClock
from windlass.errors import StoreError
from windlass.store.doctor.checkup import (
    ANSWER,
    COUNTED_ROWS,
    Finding,
    Holder,
    MissingLeases,
    UnservedType,
    check_clock,
    check_holders,
    check_leases,
    check_outbox,
    check_rows,
    check_schema,
    check_types,
    ok,
    problem,
    warning,
)
from windlass.store.migrate import fits
from windlass.store.sql import ordered_query, query
from windlass.store.sqlite.connections.file import OLDEST_SQLITE, connect, locate, translate_errors
from windlass.store.sqlite.migrator import current
from windlass.store.sqlite.rows import SECOND, micros, span

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.config import Settings

LARGE_LOG = 64 * 2**20  # bytes of the write-ahead log; SQLite starts it again at 4 MB, unless a reader prevents that
LITTLE_ROOM = 200 * 2**20  # bytes free on the disk
QUICK_TO_CHECK = 100 * 2**20  # bytes: checking the integrity of a larger file takes too long

Check = Callable[[sqlite3.Connection], Iterator[Finding]]


class SqliteCheckup:
    """Implements `store.doctor.checkup.Checkup`."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._path = locate(settings.url)

    async def examine(self) -> list[Finding]:
        return await asyncio.to_thread(lambda: list(self._examine()))

    def _examine(self) -> Iterator[Finding]:
        yield self._library()
        if not self._path.exists():
            yield problem(
                "file", f"{self._path} does not exist", "windlass migrate, or name another: --url sqlite:///…"
            )
            return
        yield from self._rights()
        try:
            number = current(self._path)
            yield check_schema(self._settings, number)
            if fits("sqlite", number):
                with translate_errors(self._path), closing(connect(self._path)) as connection:
                    for check in (
                        self._integrity,
                        self._log,
                        self._plans,
                        self._types,
                        self._holders,
                        self._leases,
                        self._outbox,
                        self._rows,
                    ):
                        yield from check(connection)
        except StoreError as error:
            yield problem("file", str(error))
        yield from self._room()

    def _library(self) -> Finding:
        needed = ".".join(map(str, OLDEST_SQLITE))
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            return problem("database", f"SQLite {sqlite3.sqlite_version}; Windlass needs {needed} or newer")
        return ok("database", f"SQLite {sqlite3.sqlite_version} at {self._path}")

    # The file

    def _rights(self) -> Iterator[Finding]:
        path, folder = self._path, self._path.parent
        if not os.access(path, os.R_OK | os.W_OK):
            yield problem("rights", f"this user may not read and write {path}", f"chmod u+rw {path}")
        elif not os.access(folder, os.W_OK | os.X_OK):
            yield problem("rights", f"SQLite writes two files beside it, into {folder}", f"chmod u+rwx {folder}")
        elif path.stat().st_mode & stat.S_IWOTH:
            yield warning("rights", "every user of this machine may change the file", f"chmod o-w {path}")
        else:
            yield ok("rights", "the file and its directory can be written")

    def _integrity(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        if self._path.stat().st_size > QUICK_TO_CHECK:
            return
        (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            yield problem("integrity", f"the file is damaged: {said}", "restore it from a backup")
        else:
            yield ok("integrity", "the file is whole")

    def _log(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        size = _size(self._path.with_name(f"{self._path.name}-wal"))
        if mode != "wal":
            yield warning("log", f"journal mode {mode}: readers and the writer wait for each other", "windlass migrate")
        elif size > LARGE_LOG:
            yield warning(
                "log",
                f"the write-ahead log has {size / 2**20:,.0f} MB: a program reads in one long transaction",
                f"find it: fuser {self._path}; then: sqlite3 {self._path} 'PRAGMA wal_checkpoint(TRUNCATE)'",
            )
        else:
            yield ok("log", f"write-ahead log of {size / 2**20:,.1f} MB")

    def _room(self) -> Iterator[Finding]:
        free = shutil.disk_usage(self._path.parent).free
        if free < LITTLE_ROOM:
            yield warning("disk", f"{free / 2**20:,.0f} MB are free", f"df {self._path.parent}")

    # The rows

    def _plans(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        parameters = {
            "queue": "default",
            "phase_rank": 0,
            "priority": 0,
            "tenant": "default",
            "limited": 0,
            "limit": 10,
            "after_at": 0,
            "after_id": "",
            "full": None,
            "types": "[]",
            "suspects": "with",
            "untouched": 0,
            "now": self._now(),
            "until": self._now(),
        }
        statement = ordered_query("sqlite", "due_jobs", "run_at")
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
        if any("windlass_jobs_claim" in row[3] for row in plan):
            yield ok("plans", "a claim enters jobs by its index")
        else:
            yield problem("plans", "a claim does not use its index", f"sqlite3 {self._path} ANALYZE")

    def _types(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        rows = connection.execute(query("sqlite", "doctor_types"), {"now": self._now()})
        yield from check_types([UnservedType(*row) for row in rows])

    def _holders(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        now = {"now": self._now()}
        gone = [Holder(*row) for row in connection.execute(query("sqlite", "doctor_holders"), now)]
        (alive,) = connection.execute(query("sqlite", "doctor_alive"), now).fetchone()
        yield from check_holders(self._settings, alive, gone)

    def _outbox(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        now = self._now()
        (mode,) = connection.execute(query("sqlite", "delivery")).fetchone()
        counted = {"most": COUNTED_ROWS, "now": now}
        due, oldest = connection.execute(query("sqlite", "outbox_size"), counted).fetchone()
        yield from check_outbox(mode, due, None if oldest is None else (now - oldest) / SECOND)

    def _rows(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        odd, example, ahead = connection.execute(query("sqlite", "doctor_rows"), {"now": self._now()}).fetchone()
        yield check_rows(odd, example)
        yield check_clock(ahead / SECOND)

    def _leases(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        parameters = {"answer": span(ANSWER), "now": self._now()}
        rows = connection.execute(query("sqlite", "doctor_forgotten"), parameters)
        yield from check_leases([MissingLeases(*row) for row in rows])

    def _now(self) -> int:
        return micros(self._clock.now())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
