"""A database that a framework has made for its test run, with the framework's own tables in it.

A harness uses it as it is: only the rows of Windlass are deleted, when the harness opens and when it closes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from typing import Any

from windlass.blocking import Portal
from windlass.store import dialect_of
from windlass.store.sqlite.connections.file import locate
from windlass.testing.databases import MOVABLE_CLOCK, MOVED_TIME, REAL_TIME, SET_TIME, Database, connect

WAIT = 5.0  # seconds for a lock on the SQLite file
OWN_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'windlass_*'"
KEPT = ("windlass_installation", "windlass_migrations")

EMPTY = """
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'windlass'::regnamespace
                   AND oid <> ALL ('{windlass.installation, windlass.migrations}'::regclass[])
    LOOP
        EXECUTE 'DELETE FROM ' || name;
    END LOOP;
END $$
"""
DROP_CLOCK = f"{SET_TIME.format(REAL_TIME)}; DROP TABLE IF EXISTS windlass.test_clock"


def given_database(url: str) -> Database:
    """The migrated database at this URL, for one harness."""
    return GivenFile(url) if dialect_of(url) == "sqlite" else GivenPostgres(url)


class GivenFile:
    """A SQLite file. Its time is the harness's clock anyway."""

    def __init__(self, url: str) -> None:
        self.url = url

    def create(self) -> None:
        with closing(sqlite3.connect(locate(self.url), timeout=WAIT)) as connection, connection:
            for (name,) in connection.execute(OWN_TABLES).fetchall():
                if name not in KEPT:
                    connection.execute(f"DELETE FROM {name}")

    def move(self, now: datetime) -> None:
        pass

    def drop(self) -> None:
        self.create()


class GivenPostgres:
    """A PostgreSQL database. Its `windlass.now()` is the harness's clock while the harness is open."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._portal = Portal()  # a thread of its own: the clock may be moved from any loop
        self._connection: Any = None

    def create(self) -> None:
        self._connection = self._portal.submit(lambda: connect(self.url)).result()
        self._execute(f"{EMPTY}; {DROP_CLOCK}; {MOVABLE_CLOCK}; {SET_TIME.format(MOVED_TIME)}")

    def move(self, now: datetime) -> None:
        self._execute("UPDATE windlass.test_clock SET now = $1", now)

    def drop(self) -> None:
        if self._connection is not None:
            self._execute(f"{DROP_CLOCK}; {EMPTY}")
            self._portal.submit(self._connection.close).result()
        self._portal.close()

    def _execute(self, sql: str, *args: object) -> None:
        self._portal.submit(lambda: self._connection.execute(sql, *args)).result()
