"""The tables behind a server, read and changed by a connection of the test's own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

from windlass import Windlass

Rows = dict[str, list[tuple[Any, ...]]]


def is_sqlite(app: Windlass) -> bool:
    return app.settings.url.startswith("sqlite")


def execute(app: Windlass, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement, with `windlass.` before the names of tables."""
    if is_sqlite(app):
        path = app.settings.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path)) as file, file:
            return file.execute(statement.replace("windlass.", "windlass_")).fetchall()
    with psycopg.connect(app.settings.url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def dump(app: Windlass) -> Rows:
    """Every row of every table, apart from the time that the installation last saw."""
    if is_sqlite(app):
        names = execute(app, "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'windlass_%'")
        tables = [name.removeprefix("windlass_") for (name,) in names]
    else:
        names = execute(app, "SELECT tablename FROM pg_tables WHERE schemaname = 'windlass'")
        tables = [name for (name,) in names]
    kept = sorted(set(tables) - {"installation"})
    return {name: sorted(execute(app, f"SELECT * FROM windlass.{name}"), key=repr) for name in kept}
