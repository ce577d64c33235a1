"""One way to the database: statements, transactions with what follows them, and wake-ups after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from windlass.errors import StoreError
from windlass.store.parts.admission import AdmissionPart
from windlass.store.parts.schedules import SchedulesPart
from windlass.store.parts.statements import Statements
from windlass.store.postgres.finish import Runner
from windlass.store.postgres.pool import Pool
from windlass.store.sql import query

T = TypeVar("T")


class Session(AdmissionPart, SchedulesPart):
    """What every part of the store asks through."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self._pool = pool
        self.contact = pool.contact
        self._to_wake: set[str] = set()
        self._waking: asyncio.Task[None] | None = None

    async def _fetch(self, sql: str, *args: Any) -> list[Any]:
        records: list[Any] = await self._pool.run(lambda connection: connection.fetch(sql, *args))
        return records

    async def _value(self, sql: str, *args: Any) -> Any:
        return await self._pool.run(lambda connection: connection.fetchval(sql, *args))

    async def _execute(self, sql: str, *args: Any) -> None:
        await self._pool.run(lambda connection: connection.execute(sql, *args))

    async def _transact(self, work: Callable[[Runner, Any], Awaitable[T]]) -> T:
        """Do `work` of several statements in a transaction, and wake afterwards; tried anew after a deadlock."""
        queues: set[str] = set()

        async def followed(connection: Any) -> T:
            runner = Runner(connection)
            answer = await work(runner, connection)
            queues.update(runner.queues | runner.let_in)
            return answer

        answer = await self._pool.transact(followed)
        self.wake_later(queues)
        return answer

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Drive a generator in a transaction of its own; made anew for every try."""
        return await self._transact(lambda runner, _: runner.execute(statements()))

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Drive a generator without a transaction: each of its statements stands for itself.

        Nobody is woken for what a look lets in: a worker that cannot run it would wake itself, and let in the next.
        """
        return await self._pool.run(lambda connection: Runner(connection).execute(statements()))

    def wake_later(self, queues: set[str]) -> None:
        """After a commit: wake idle workers without keeping the caller, and once for many enqueues."""
        self._to_wake |= queues
        if self._to_wake and (self._waking is None or self._waking.done()):
            self._waking = asyncio.get_running_loop().create_task(self._wake_idle())

    async def _wake_idle(self) -> None:
        while self._to_wake:
            queues, self._to_wake = sorted(self._to_wake), set()
            with suppress(StoreError):  # a lost wake-up costs a poll
                await self._execute(query("postgres", "wake_idle_workers"), queues)
