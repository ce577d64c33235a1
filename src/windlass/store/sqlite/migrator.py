"""Migrations on SQLite: all that are missing in one transaction, which keeps a second migrator waiting."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from windlass.store.migrate import LAST_WITH_A_STOP, Migration, missing, outdated, refuse_outdated
from windlass.store.sql import query_parts
from windlass.store.sqlite.connections.file import (
    connect,
    explain_unopened,
    locate,
    retry_while_locked,
    translate_errors,
    use_wal,
    write_transaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = """
CREATE TABLE IF NOT EXISTS windlass_migrations (
    number     INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER) * 1000000)
) STRICT
"""
WORKERS = """
SELECT name, {number} FROM windlass_workers AS workers
 WHERE NOT dead AND alive_until > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 ORDER BY started_at
"""


class SqliteMigrator:
    """Creates the file if there is none. A second migrator waits, and finds nothing left to do."""

    def __init__(self, url: str) -> None:
        self._path = locate(url)

    async def current(self) -> int:
        return await asyncio.to_thread(current, self._path)

    async def outdated_workers(self) -> list[str]:
        if not self._path.exists():
            return []

        def read() -> list[str]:
            with translate_errors(self._path), closing(connect(self._path)) as connection:
                return retry_while_locked(lambda: _outdated_workers(connection))

        return await asyncio.to_thread(read)

    async def migrate(self) -> list[Migration]:
        return await asyncio.to_thread(_migrate, self._path)


def current(path: Path) -> int:
    """The schema's number; 0 where there is none. A missing file stays missing."""
    if not path.parent.is_dir():
        raise explain_unopened(path)
    if not path.exists():
        return 0
    with translate_errors(path), closing(connect(path)) as connection:
        return retry_while_locked(lambda: _number(connection))


def _migrate(path: Path) -> list[Migration]:
    with translate_errors(path), closing(connect(path, create=True)) as connection:
        missing(
            "sqlite", retry_while_locked(lambda: _number(connection))
        )  # a newer schema is refused before anything is written
        use_wal(connection)
        with write_transaction(connection):
            connection.execute(TABLE)
            steps = missing("sqlite", _number(connection))
            refuse_outdated("sqlite", _outdated_workers(connection) if steps else [])
            for step in steps:
                for statement in _statements(step.sql):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO windlass_migrations (number, name) VALUES (?, ?)", (step.number, step.name)
                )
            if steps:
                _remake_triggers(connection)
        return steps


def _remake_triggers(connection: sqlite3.Connection) -> None:
    """No migration makes the triggers of the outbox, but `set_delivery`. Where they exist they get the present text."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'windlass_deliver_new'").fetchone() is None:
        return
    for change in ("drop_outbox_triggers", "make_outbox_triggers"):
        for statement in query_parts("sqlite", change):
            connection.execute(statement)


def _number(connection: sqlite3.Connection) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'windlass_migrations'").fetchone()
    if known is None:
        return 0
    number: int = connection.execute("SELECT coalesce(max(number), 0) FROM windlass_migrations").fetchone()[0]
    return number


def _outdated_workers(connection: sqlite3.Connection) -> list[str]:
    number = _number(connection)
    if number == 0:
        return []
    known = connection.execute("SELECT 1 FROM pragma_table_info('windlass_workers') WHERE name = 'schema_number'")
    own = min(number, LAST_WITH_A_STOP)  # of a program that does not write it
    column = f"coalesce(schema_number, {own})" if known.fetchone() else str(own)
    return outdated("sqlite", connection.execute(WORKERS.format(number=column)).fetchall())


def _statements(script: str) -> Iterator[str]:
    """The statements one by one: `executescript` would commit first. Semicolons inside a trigger do not end it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
