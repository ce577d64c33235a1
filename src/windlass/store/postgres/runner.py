"""Runs the generators of `store/parts/` on one connection, and keeps the queues to wake after the commit."""

from __future__ import annotations

from typing import Any, TypeVar

from windlass.store.parts.statements import Rows, Statement, Statements, aexecute
from windlass.store.sql import query

T = TypeVar("T")


class PostgresRunner:
    """Runs statements on one connection, in whatever transaction is open there."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.queues: set[str] = set()  # with jobs that are claimable now, except jobs that were parked
        self.unparked: set[str] = set()  # queues with jobs that were parked and are claimable now

    async def execute(self, statements: Statements[T]) -> T:
        return await aexecute(statements, self._run)

    async def _run(self, statement: Statement) -> Rows:
        values = () if statement.payload is None else (statement.payload,)
        answer: Rows = await self._connection.fetch(query("postgres", statement.name), *values)
        queues = self.unparked if statement.unparks else self.queues
        queues |= statement.queues_to_wake(answer)
        return answer
