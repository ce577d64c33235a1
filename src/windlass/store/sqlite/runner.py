"""Runs the generators of `store/parts/` on one connection, inside the transaction that is open there."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from windlass.store.parts.statements import Ask, Flowing, Rows, drive, queues_of
from windlass.store.sql import statements
from windlass.store.sqlite.placeholders import named, numbered

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


class Follower:
    """Answers each question at the moment `now`, in microseconds, and remembers whom to wake after the commit."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self.queues: set[str] = set()

    def drive(self, flowing: Flowing[T]) -> T:
        return drive(flowing, self._run)

    def _run(self, question: Ask) -> Rows:
        answer: Rows = []
        for statement in statements("sqlite", question.name):
            cursor = self._connection.execute(numbered(statement), named((question.payload, self._now)))
            if cursor.description is not None:
                answer = cursor.fetchall()
        self.queues |= queues_of(question, answer)
        return answer
