"""`ctx.transaction()` on SQLite: the handler's writes and the fenced finish, committed together.

While it is open no other connection can write to the file. So its time is limited: a timer rolls it back.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from windlass.errors import StoreError, StoreUnavailable
from windlass.store.parts.consequences import enqueue_jobs, is_simple
from windlass.store.sqlite.connections.file import ConnectionThread, retry_while_locked
from windlass.store.sqlite.connections.wakeups import notify
from windlass.store.sqlite.finish import check_verb, record_step, write_all
from windlass.store.sqlite.rows import micros, named, numbered
from windlass.store.sqlite.session import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from windlass.clock import Clock
    from windlass.model.flow import Memory
    from windlass.model.job import Lease, NewJob
    from windlass.model.outcome import Transition

T = TypeVar("T")

OTHER_PARAMETER = re.compile(r"\?(?!\d)|%s|%\(")
"""A parameter as other drivers write it."""


class SqliteTransaction:
    """One open transaction on a connection and a thread of its own."""

    windlass_dialect = "sqlite"

    def __init__(self, path: Path, *, clock: Clock, limit: float) -> None:
        self._path = path
        self._clock = clock
        self._limit = limit
        self._thread = ConnectionThread(path, name="transaction")
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended: str | None = None  # why nothing more can be written
        self._savepoints = 0
        self._queues: set[str] = set()  # to wake after the commit

    async def begin(self) -> None:
        await self._thread.call(lambda connection: retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE")))
        self._began = self._clock.monotonic()
        # The machine's time: the lock blocks real writers, whatever time an injected clock shows.
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._expire)

    async def execute(self, sql: str, *args: Any) -> str:
        def run(connection: sqlite3.Connection) -> str:
            cursor = _run(connection, sql, args)
            cursor.fetchall()  # RETURNING has written all its rows only when the last one was read
            command = sql.split(maxsplit=1)[0].upper()
            return command if cursor.rowcount < 0 else f"{command} {cursor.rowcount}"

        return await self._call(run)

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        def run(connection: sqlite3.Connection) -> list[dict[str, Any]]:
            cursor = _run(connection, sql, args)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

        return await self._call(run)

    async def enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        if all(map(is_simple, jobs)):
            return await self._transact(lambda runner, connection: runner.execute(enqueue_jobs(jobs)))
        await self.savepoint()  # a handler that catches a refusal must not commit half of the enqueue
        try:
            existing = await self._transact(lambda runner, connection: runner.execute(enqueue_jobs(jobs)))
        except BaseException:
            await self.rollback_to()
            raise
        await self.release()
        return existing

    async def finish(self, transition: Transition) -> bool:
        check_verb(transition)
        return bool(
            await self._transact(lambda runner, connection: write_all(runner, connection, self._now(), [transition]))
        )

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        return await self._call(lambda connection: record_step(connection, self._now(), lease, memory))

    async def savepoint(self) -> None:
        await self._statement(f"SAVEPOINT windlass_{self._savepoints + 1}")
        self._savepoints += 1

    async def release(self) -> None:
        await self._statement(f"RELEASE windlass_{self._savepoints}")
        self._savepoints -= 1

    async def rollback_to(self) -> None:
        await self._statement(f"ROLLBACK TO windlass_{self._savepoints}")
        await self.release()

    async def commit(self) -> None:
        await self._call(self._commit)
        for queue in self._queues:
            notify(self._path, queue)

    def lost(self, error: Exception) -> bool:
        return isinstance(error, StoreUnavailable)

    async def rollback(self) -> None:
        await self._thread.call(lambda connection: self._roll_back(connection, "was rolled back"))

    async def close(self) -> None:
        """Undo what was not committed, and close the file, even when the caller is being cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        await self._thread.close()  # closing a connection rolls back

    def _now(self) -> int:
        return micros(self._clock.now())

    async def _call(self, step: Callable[[sqlite3.Connection], T]) -> T:
        return await self._thread.call(lambda connection: self._guarded(connection, step))

    async def _transact(self, step: Callable[[Runner, sqlite3.Connection], T]) -> T:
        def run(connection: sqlite3.Connection) -> T:
            runner = Runner(connection, self._now())
            answer = step(runner, connection)
            self._queues |= runner.queues
            return answer

        return await self._call(run)

    async def _statement(self, sql: str) -> None:
        await self._call(lambda connection: connection.execute(sql))

    def _guarded(self, connection: sqlite3.Connection, step: Callable[[sqlite3.Connection], T]) -> T:
        """Runs in the thread. No statement runs outside the transaction, where it would commit by itself."""
        if self._ended is not None:
            raise StoreError(f"ctx.transaction() {self._ended}; nothing more can be written through it")
        try:
            return step(connection)
        finally:
            if not connection.in_transaction and self._ended is None:
                self._ended = "was ended by a statement inside it, or by an error that undid all of it"

    def _commit(self, connection: sqlite3.Connection) -> None:
        if self._clock.monotonic() - self._began > self._limit:
            self._roll_back(connection, self._overdue())
            raise StoreError(f"ctx.transaction() {self._overdue()}")
        connection.execute("COMMIT")
        self._ended = "was committed"

    def _roll_back(self, connection: sqlite3.Connection, why: str) -> None:
        if self._ended is None:
            self._ended = why
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _expire(self) -> None:
        # The mark comes first, so that no statement that waits already begins after the interruption.
        if self._ended is None:
            self._ended = self._overdue()
        self._thread.interrupt()
        self._thread.post(lambda connection: self._roll_back(connection, self._overdue()))

    def _overdue(self) -> str:
        return (
            f"was open for longer than {self._limit:g} s, a third of the lease, and was rolled back; put it "
            "last in the handler, or set a longer WINDLASS_LEASE"
        )


def _run(connection: sqlite3.Connection, sql: str, args: tuple[Any, ...]) -> sqlite3.Cursor:
    try:
        return connection.execute(numbered(sql), named(_adapt(arg) for arg in args))
    except sqlite3.Error as error:
        mistyped = isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)) or "syntax" in str(error)
        other = OTHER_PARAMETER.search(sql) or any(isinstance(arg, (tuple, list, dict)) for arg in args)
        if not (mistyped and other):
            raise
        raise type(error)(
            f"{error}; parameters are $1, $2, …, and their values are arguments: "
            'tx.execute("insert into sent values ($1, $2)", a, b)'
        ) from error


def _adapt(value: Any) -> Any:
    """Convert values that asyncpg accepts and sqlite3 does not."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return value
