"""`ctx.transaction()` on PostgreSQL: the handler's writes and the fenced finish, committed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.clock import Clock
from windlass.errors import StoreError
from windlass.job import NewJob
from windlass.outcome import Transition
from windlass.state import FINISHING
from windlass.store.encoding import encode_jobs
from windlass.store.postgres import rows
from windlass.store.sql import query

CLEAN = "RESET ALL; RESET ROLE; SELECT pg_advisory_unlock_all()"
"""What a handler set for its session ends with its transaction; in the same round trip."""
GRACE = 1_000  # milliseconds between our limit and the server's


class PostgresTransaction:
    """One open transaction on a connection of its own; capped, so that the engine never holds a long snapshot."""

    windlass_dialect = "postgres"

    def __init__(self, connection: Any, *, clock: Clock, limit: float) -> None:
        self._connection = connection
        self._clock = clock
        self._limit = limit
        self._began = clock.monotonic()
        self._savepoints = 0
        self.ended = False
        self.committed = False
        self.queues: set[str] = set()  # to be woken after the commit

    async def begin(self) -> None:
        milliseconds = max(1, int(self._limit * 1000)) + GRACE  # our own word comes first: it knows why
        await self._connection.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            f" SET LOCAL statement_timeout = {milliseconds};"
            f" SET LOCAL idle_in_transaction_session_timeout = {milliseconds};"
            " SET LOCAL enable_seqscan = on"
        )

    async def execute(self, sql: str, *args: Any) -> str:
        return str(await self._connection.execute(sql, *args))

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        return [dict(record) for record in await self._connection.fetch(sql, *args)]

    async def enqueue(self, jobs: Sequence[NewJob]) -> None:
        await self._connection.execute(query("postgres", "enqueue"), encode_jobs(jobs))
        self.queues |= {job.queue for job in jobs if job.delay is None and job.run_at is None}

    async def finish(self, transition: Transition) -> bool:
        if transition.verb in FINISHING:
            name, arguments = "finish", rows.finish_arguments([transition])
        else:
            name, arguments = "settle", rows.settle_arguments([transition])
        return bool(await self._connection.fetch(query("postgres", name), *arguments))

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
        await self._connection.execute(f"COMMIT; {CLEAN}")
        self.committed = True

    async def rollback(self) -> None:
        self.ended = True
        await self._connection.execute(f"ROLLBACK; {CLEAN}")
