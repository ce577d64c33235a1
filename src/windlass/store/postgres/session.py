"""A store's session: single statements, transactions, and wake-ups after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from windlass.errors import StoreError
from windlass.store.parts.admission import AdmissionPart
from windlass.store.parts.schedules import SchedulesPart
from windlass.store.parts.statements import Rows, Statements
from windlass.store.parts.tokens import TokensPart
from windlass.store.parts.types import TypesPart
from windlass.store.postgres.connections.pool import ConnectionPool
from windlass.store.postgres.runner import PostgresRunner
from windlass.store.read_limit import READ_TIMEOUT, timed_out
from windlass.store.sql import query

T = TypeVar("T")


class Session(AdmissionPart, SchedulesPart, TypesPart, TokensPart):
    """What every part of the store uses to reach the database."""

    def __init__(self, pool: ConnectionPool) -> None:
        super().__init__()
        self._pool = pool
        self.contact = pool.contact
        self.read_timeout = READ_TIMEOUT
        self._to_wake: set[str] = set()
        self._waking: asyncio.Task[None] | None = None

    async def _fetch(self, sql: str, *args: Any) -> list[Any]:
        records: list[Any] = await self._pool.run(lambda connection: connection.fetch(sql, *args))
        return records

    async def _fetch_list(self, what: str, sql: str, *args: Any) -> list[Any]:
        """Read for a person, within `read_timeout`. The driver cancels the statement on the server."""

        async def fetch(connection: Any) -> list[Any]:
            try:
                records: list[Any] = await connection.fetch(sql, *args, timeout=self.read_timeout)
            except TimeoutError as error:
                raise timed_out(what, self.read_timeout) from error
            return records

        return await self._pool.run(fetch)

    async def _value(self, sql: str, *args: Any) -> Any:
        return await self._pool.run(lambda connection: connection.fetchval(sql, *args))

    async def _execute(self, sql: str, *args: Any) -> None:
        await self._pool.run(lambda connection: connection.execute(sql, *args))

    async def _transact(self, work: Callable[[PostgresRunner, Any], Awaitable[T]]) -> T:
        """Run `work` of several statements in a transaction, again after a deadlock; then wake idle workers."""
        queues: set[str] = set()

        async def work_and_keep_queues(connection: Any) -> T:
            runner = PostgresRunner(connection)
            answer = await work(runner, connection)
            queues.update(runner.queues | runner.unparked)
            return answer

        answer = await self._pool.transact(work_and_keep_queues)
        self.wake_later(queues)
        return answer

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Run a generator's statements in a transaction of their own. Each try makes the generator anew."""
        return await self._transact(lambda runner, _: runner.execute(statements()))

    async def _run_list(self, what: str, name: str) -> Rows:
        return await self._fetch_list(what, query("postgres", name))

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Run a generator's statements without a transaction: each statement commits by itself.

        No worker is woken for jobs that are unparked here: a worker that cannot run such a job would wake itself, and
        unpark the next one.
        """
        return await self._pool.run(lambda connection: PostgresRunner(connection).execute(statements()))

    def wake_later(self, queues: set[str]) -> None:
        """Wake idle workers after a commit, without keeping the caller, and once for many enqueues."""
        self._to_wake |= queues
        if self._to_wake and (self._waking is None or self._waking.done()):
            self._waking = asyncio.get_running_loop().create_task(self._wake_idle())

    async def _wake_idle(self) -> None:
        while self._to_wake:
            queues, self._to_wake = sorted(self._to_wake), set()
            with suppress(StoreError):  # a lost wake-up costs a poll
                await self._execute(query("postgres", "wake_idle_workers"), queues)
