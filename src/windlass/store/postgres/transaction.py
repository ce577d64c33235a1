"""`ctx.transaction()` on PostgreSQL: the handler's writes and the fenced finish, committed together."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from windlass.clock import Clock
from windlass.errors import StoreError
from windlass.model.flow import Memory
from windlass.model.job import Lease, NewJob
from windlass.model.outcome import Transition
from windlass.store.parts.consequences import enqueue_jobs, is_simple
from windlass.store.parts.statements import Statements
from windlass.store.postgres.connections.pool import PIN, PIN_LOCALLY
from windlass.store.postgres.connections.sqlstate import lost_an_attempt, lost_its_statements
from windlass.store.postgres.finish import finish_in_transaction
from windlass.store.postgres.runner import PostgresRunner
from windlass.store.sql import query

T = TypeVar("T")

RESET = "RESET ALL; RESET ROLE; SELECT pg_catalog.pg_advisory_unlock_all()"
"""Undoes what a handler set for its session, in the round trip that ends its transaction."""
GRACE = 1_000  # milliseconds by which the server's limit is longer than ours


class PostgresTransaction:
    """One open transaction on a connection of its own. Its time is capped: the engine never holds a long snapshot."""

    windlass_dialect = "postgres"

    def __init__(self, connection: Any, *, clock: Clock, limit: float, pooler: bool = False) -> None:
        self._connection = connection
        self._pin = f"; {PIN_LOCALLY}" if pooler else ""
        self._reset = RESET if pooler else f"{RESET}; {PIN}"
        self._clock = clock
        self._limit = limit
        self._began = clock.monotonic()
        self._savepoints = 0
        self.ended = False
        self.committed = False
        self.spoilt = False  # the connection lost its prepared statements and is not used again
        self.queues: set[str] = set()  # to be woken after the commit

    async def begin(self) -> None:
        milliseconds = max(1, int(self._limit * 1000)) + GRACE  # our own error comes first: it names the reason
        await self._connection.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            f" SET LOCAL statement_timeout = {milliseconds};"
            f" SET LOCAL idle_in_transaction_session_timeout = {milliseconds};"
            f" SET LOCAL enable_seqscan = on{self._pin}"
        )

    async def execute(self, sql: str, *args: Any) -> str:
        return str(await self._watch(self._connection.execute(sql, *args)))

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        return [dict(record) for record in await self._watch(self._connection.fetch(sql, *args))]

    async def enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        if all(map(is_simple, jobs)):
            return await self._run_in_transaction(enqueue_jobs(jobs))
        await self.savepoint()  # a handler that survives a refusal must not commit half of it
        try:
            existing = await self._run_in_transaction(enqueue_jobs(jobs))
        except BaseException:
            await self.rollback_to()
            raise
        await self.release()
        return existing

    async def finish(self, transition: Transition) -> bool:
        runner = PostgresRunner(self._connection)
        states = await self._watch(finish_in_transaction(runner, self._connection, [transition]))
        self.queues |= runner.queues | runner.unparked
        return bool(states)

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        return bool(
            await self._connection.fetch(
                query("postgres", "record_step"), lease.job, lease.token, memory.name, memory.value
            )
        )

    async def _run_in_transaction(self, statements: Statements[T]) -> T:
        runner = PostgresRunner(self._connection)
        answer = await self._watch(runner.execute(statements))
        self.queues |= runner.queues
        return answer

    async def _watch(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except Exception as error:
            self.spoilt |= lost_its_statements(error)
            raise

    async def savepoint(self) -> None:
        self._savepoints += 1
        await self._connection.execute(f"SAVEPOINT windlass_{self._savepoints}")

    async def release(self) -> None:
        await self._connection.execute(f"RELEASE SAVEPOINT windlass_{self._savepoints}")
        self._savepoints -= 1

    async def rollback_to(self) -> None:
        name = f"windlass_{self._savepoints}"
        await self._connection.execute(f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
        self._savepoints -= 1

    async def commit(self) -> None:
        took = self._clock.monotonic() - self._began
        if took > self._limit:
            raise StoreError(
                f"ctx.transaction() was open for {took:.1f} s and is capped at {self._limit:g} s, a third of the "
                "lease; put it last in the handler, or set a longer WINDLASS_LEASE"
            )
        self.ended = True
        await self._connection.execute(f"COMMIT; {self._reset}")
        self.committed = True

    def lost(self, error: Exception) -> bool:
        return lost_an_attempt(error)

    async def rollback(self) -> None:
        self.ended = True
        await self._connection.execute(f"ROLLBACK; {self._reset}")

    async def give_up(self) -> None:
        """Roll back. A connection that cannot is spoilt: it is closed, or a thread without a lease still uses it."""
        try:
            await self.rollback()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self.spoilt = True
