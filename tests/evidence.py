"""What a failed story shows besides its traceback: the jobs in its database, and the last events of its workers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

JOBS = 10  # of a database
LINES = 20  # of a worker's log, or of its events

RECORDS = (
    "SELECT * FROM (SELECT * FROM {0}jobs UNION ALL SELECT * FROM {0}history) AS jobs ORDER BY created_at LIMIT {1}"
)

event_sources: list[Callable[[], Iterable[object]]] = []
"""The events of each worker in this process: added by a suite's rig, cleared before the next test."""


def of(item: pytest.Item) -> list[tuple[str, str]]:
    """Sections of a report; a story that broke its own database gets the reason instead."""
    found: list[tuple[str, str]] = []
    values = list(getattr(item, "funcargs", {}).values())
    for url in dict.fromkeys(url for value in values for url in _urls(value)):
        try:
            found.append(("Jobs in the database", "\n".join(map(_line_of, _records(url))) or "none"))
        except Exception as problem:
            found.append(("Jobs in the database", f"cannot be read: {problem}"))
    for words in event_sources:
        found.append(("Events of a worker", "\n".join(map(_event_line, list(words())[-LINES:]))))
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    for log in sorted(directory.glob("*.log")) if directory else ():
        found.append((log.name, "\n".join(log.read_text(errors="replace").splitlines()[-LINES:])))
    return found


def _urls(value: object) -> Iterator[str]:
    """A rig, a database, a harness or an app, each with its URL somewhere."""
    for owner in (value, getattr(value, "store", None), getattr(value, "settings", None)):
        url = getattr(owner, "url", None)
        if isinstance(url, str) and url.startswith(("sqlite:///", "postgres")):
            yield url


def _records(url: str) -> list[dict[str, Any]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(RECORDS.format("windlass_", JOBS))]
    with psycopg.connect(url, row_factory=dict_row, autocommit=True) as server:
        return server.execute(RECORDS.format("windlass.", JOBS).encode()).fetchall()


def _line_of(record: dict[str, Any]) -> str:
    """What differs from nothing, on one line."""
    return "  ".join(f"{name}={value}" for name, value in record.items() if value not in (None, 0, False, "", []))


def _event_line(event: object) -> str:
    """An event on one line, with a job's id instead of its record."""
    fields = getattr(event, "__struct_fields__", ())
    values = {name: getattr(event, name) for name in fields}
    shown = [f"{name}={getattr(value, 'id', value)}" for name, value in values.items() if value is not None]
    return " ".join([type(event).__name__, *shown]) if fields else str(event)
