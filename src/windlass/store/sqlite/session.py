"""How the store uses its file: writes one after the other on one thread, reads beside them, wake-ups after a commit."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from windlass.errors import StoreRefused, StoreUnavailable
from windlass.store import migrate
from windlass.store.contact import Contact
from windlass.store.parts.admission import AdmissionPart
from windlass.store.parts.schedules import SchedulesPart
from windlass.store.parts.statements import Rows, Statement, Statements, execute, run
from windlass.store.parts.tokens import TokensPart
from windlass.store.parts.types import TypesPart
from windlass.store.read_limit import READ_TIMEOUT, timed_out
from windlass.store.sql import query_parts
from windlass.store.sqlite.connections.file import (
    LOCKED,
    Reader,
    Step,
    T,
    Writer,
    code,
    connect,
    locate,
    translate_errors,
    within,
    write_transaction,
)
from windlass.store.sqlite.connections.wakeups import notify
from windlass.store.sqlite.migrator import current
from windlass.store.sqlite.rows import named, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windlass.clock import Clock


class Runner:
    """Runs the statements of `store/parts/` in the open transaction, at the time `now` in microseconds.

    `queues` collects the queues to wake after the commit.
    """

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self.queues: set[str] = set()

    def execute(self, statements: Statements[T]) -> T:
        return execute(statements, self._run)

    def _run(self, statement: Statement) -> Rows:
        answer: Rows = []
        parameters = named((statement.payload, self._now)) | {"now": self._now}
        for sql in query_parts("sqlite", statement.name):
            cursor = self._connection.execute(numbered(sql), parameters)
            if cursor.description is not None:
                answer = cursor.fetchall()
        self.queues |= statement.queues_to_wake(answer)
        return answer


class Session(AdmissionPart, SchedulesPart, TypesPart, TokensPart):
    """Runs what the other parts of the store write and read."""

    def __init__(self, url: str, *, clock: Clock) -> None:
        super().__init__()
        self.url = url
        self.clock = clock
        self.contact = Contact(clock)
        self.read_timeout = READ_TIMEOUT
        self._path = locate(url)
        self._writer: Writer | None = None
        self._reader: Reader | None = None

    async def open(self) -> None:
        if self._writer is not None:
            return
        await self._check_schema()
        await asyncio.to_thread(self._try_to_write)
        self._writer = Writer(self._path, self.clock)
        self._reader = Reader(self._path, self.clock)

    async def _check_schema(self) -> None:
        migrate.check("sqlite", await asyncio.to_thread(current, self._path), str(self._path))

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()
        if writer is not None:
            await writer.close()

    def _try_to_write(self) -> None:
        """SQLite opens a read-only file, and even begins a transaction in it: only a write fails.

        It does not wait for a lock: a program that holds it can write, and may be the one that opens this store.
        """
        with translate_errors(self._path), closing(connect(self._path)) as connection:
            try:
                with write_transaction(connection, patience=0):
                    connection.execute("DELETE FROM windlass_jobs WHERE false")
            except sqlite3.OperationalError as error:
                if code(error) not in LOCKED:
                    raise

    async def _write(self, step: Step[T]) -> T:
        if self._writer is None:
            raise _not_open()
        answer = await self._writer.write(step)
        self.contact.answered()
        return answer

    async def _read(self, step: Step[T]) -> T:
        if self._reader is None:
            raise _not_open()
        answer = await self._reader.read(step)
        self.contact.answered()
        return answer

    async def _read_list(self, what: str, step: Step[T]) -> T:
        """Read for a person, within `read_timeout`."""
        try:
            return await self._read(lambda connection, now: within(self.read_timeout, connection, now, step))
        except StoreRefused as error:
            if isinstance(error.__cause__, sqlite3.Error) and code(error.__cause__) == sqlite3.SQLITE_INTERRUPT:
                raise timed_out(what, self.read_timeout) from error.__cause__
            raise

    async def _run_list(self, what: str, name: str) -> Rows:
        return await self._read_list(what, lambda connection, now: Runner(connection, now).execute(run(name)))

    async def _transact(self, step: Callable[[Runner, sqlite3.Connection, int], T]) -> T:
        """Run `step` in a transaction; workers are woken after the commit."""
        queues: set[str] = set()

        def work(connection: sqlite3.Connection, now: int) -> T:
            runner = Runner(connection, now)
            answer = step(runner, connection, now)
            queues.update(runner.queues)
            return answer

        answer = await self._write(work)
        self.wake_later(queues)
        return answer

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Run the statements in a transaction of their own."""
        return await self._transact(lambda runner, connection, now: runner.execute(statements()))

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Run statements that only read."""
        return await self._read(lambda connection, now: Runner(connection, now).execute(statements()))

    async def wake(self, message: str) -> None:
        notify(self._path, message)

    def wake_later(self, queues: Iterable[str]) -> None:
        """After a commit: wake the listeners of this process. Other processes see the change in the file."""
        for queue in queues:
            notify(self._path, queue)


def _not_open() -> StoreUnavailable:
    return StoreUnavailable("the store is not open; await its open() first")
