"""Runs the generators of `store/parts/` on one connection, inside the transaction that is open there."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from windlass.store.parts.statements import Rows, Statement, Statements, execute
from windlass.store.sql import query_parts
from windlass.store.sqlite.placeholders import named, numbered

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


class Runner:
    """Answers each question at the moment `now`, in microseconds, and remembers whom to wake after the commit."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self.queues: set[str] = set()

    def execute(self, statements: Statements[T]) -> T:
        return execute(statements, self._run)

    def _run(self, statement: Statement) -> Rows:
        answer: Rows = []
        for sql in query_parts("sqlite", statement.name):
            cursor = self._connection.execute(numbered(sql), named((statement.payload, self._now)))
            if cursor.description is not None:
                answer = cursor.fetchall()
        self.queues |= statement.queues_to_wake(answer)
        return answer
