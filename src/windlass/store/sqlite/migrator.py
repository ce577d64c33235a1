"""Migrations on SQLite: all that are missing in one transaction, which keeps a second migrator waiting."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from windlass.store.migrate import Migration, missing
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


class SqliteMigrator:
    """Creates the file if there is none. A second migrator waits, and finds nothing left to do."""

    def __init__(self, url: str) -> None:
        self._path = locate(url)

    async def current(self) -> int:
        return await asyncio.to_thread(current, self._path)

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
            for step in steps:
                for statement in _statements(step.sql):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO windlass_migrations (number, name) VALUES (?, ?)", (step.number, step.name)
                )
        return steps


def _number(connection: sqlite3.Connection) -> int:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'windlass_migrations'").fetchone()
    if known is None:
        return 0
    number: int = connection.execute("SELECT coalesce(max(number), 0) FROM windlass_migrations").fetchone()[0]
    return number


def _statements(script: str) -> Iterator[str]:
    """The statements one by one: `executescript` would commit first. Semicolons inside a trigger do not end it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
