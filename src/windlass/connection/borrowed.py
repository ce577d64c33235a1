"""The caller's connection: an enqueue uses it, and Windlass never commits or closes it.

A subclass per driver overrides `run` if the driver blocks, or `arun` if it is asynchronous. Statements are written with
`$1` (PostgreSQL) or `?1` (SQLite) and are translated to the driver's placeholders.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from windlass.errors import IdempotencyConflict, UnusableConnection
from windlass.store.parts.consequences import enqueue_jobs
from windlass.store.parts.statements import Statement, Statements, aexecute, execute
from windlass.store.sql import query_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from uuid import UUID

    from windlass.model.job import NewJob

Dialect = Literal["postgres", "sqlite"]
Rows = list[tuple[Any, ...]]
Style = Literal["named", "dollar", "pyformat", "text"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

FAILED_TRANSACTION = "25P02"
"""PostgreSQL's code for a statement in a transaction that an earlier error has aborted."""

# Comments, literals, quoted names and dollar quotes are skipped; the second group is a parameter's number.
TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([A-Za-z_]*)\$.*?\$\1\$|[$?](\d+)""", re.DOTALL
)
# Exactly what SQLAlchemy's text() would take for a parameter: text() leaves other backslashes as they are.
NAMED = re.compile(r"(?<![:\w\\]):(\w+)(?![:\w])")


class CallerConnection:
    """The caller's connection, ready for a statement inside the caller's transaction."""

    dialect: Dialect
    asynchronous = False
    runs_on_loop = False  # blocking calls over an asynchronous driver, on a running event loop: SQLAlchemy's run_sync

    def run(self, sql: str, *values: object) -> Rows:
        """Run one statement, blocking; returns its rows as tuples."""
        raise NotImplementedError

    async def arun(self, sql: str, *values: object) -> Rows:
        """Run one statement; a blocking connection blocks."""
        return self.run(sql, *values)

    def read(self, sql: str) -> Rows:
        """Run a query without opening a transaction that it does not need."""
        return self.run(sql)

    async def aread(self, sql: str) -> Rows:
        return await self.arun(sql) if self.asynchronous else self.read(sql)

    def enqueue(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> Mapping[UUID, UUID]:
        """Write new jobs in the caller's transaction, blocking; returns what `Store.enqueue` returns.

        SQLite has no clock of its own: the time is `now`, or else that of this machine.
        """
        micros = _micros(now)

        def fetch(statement: Statement) -> Rows:
            rows: Rows = []
            for sql in query_parts(self.dialect, statement.name):
                rows = self.run(sql, *self._values(statement, micros))
            return rows

        return execute(enqueue_statements(jobs), fetch)

    async def aenqueue(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> Mapping[UUID, UUID]:
        """Write new jobs in the caller's transaction; as `enqueue`."""
        micros = _micros(now)

        async def fetch(statement: Statement) -> Rows:
            rows: Rows = []
            for sql in query_parts(self.dialect, statement.name):
                rows = await self.arun(sql, *self._values(statement, micros))
            return rows

        return await aexecute(enqueue_statements(jobs), fetch)

    def _values(self, statement: Statement, micros: int) -> tuple[object, ...]:
        if self.dialect == "sqlite":
            return statement.payload, micros
        return () if statement.payload is None else (statement.payload,)

    def anchor(self) -> object | None:
        """The object by which the location is cached: the driver's own connection, which stays in one database."""
        return None

    def after_commit(self, callback: Callable[[], None]) -> bool:
        """Call `callback` once after the caller's commit; returns False if the driver has no hook for that commit."""
        return False


class AwaitedConnection(CallerConnection):
    """An asynchronous connection, which cannot serve a blocking call."""

    asynchronous = True

    def run(self, sql: str, *values: object) -> Rows:
        raise UnusableConnection(
            "conn is asynchronous, and enqueue() is a blocking call; use: await job.options(conn=conn).aenqueue(…)"
        )

    async def arun(self, sql: str, *values: object) -> Rows:
        raise NotImplementedError


def enqueue_statements(jobs: Sequence[NewJob]) -> Statements[Mapping[UUID, UUID]]:
    """The statements of an enqueue, for a blocking or an asynchronous driver.

    If one of several idempotency keys is refused, nothing stays written, though the caller may continue and commit.
    """
    if sum(job.idempotency is not None or job.unique is not None for job in jobs) < 2:
        return (yield from enqueue_jobs(jobs))
    yield Statement("begin_savepoint")
    try:
        existing = yield from enqueue_jobs(jobs)
    except IdempotencyConflict:
        yield Statement("roll_back_to_savepoint")
        yield Statement("release_savepoint")
        raise
    yield Statement("release_savepoint")
    return existing


def _micros(now: datetime | None) -> int:
    return time.time_ns() // 1000 if now is None else (now - EPOCH) // MICROSECOND


@cache
def translate(sql: str, style: Style) -> str:
    """`sql` without comments, and with the placeholders of `style`."""
    pieces: list[str] = []
    end = 0
    for token in TOKEN.finditer(sql):
        pieces.append(_escape(sql[end : token.start()], style))
        if token[2]:
            pieces.append(_placeholder(token[2], style))
        elif not token[0].startswith(("--", "/*")):
            pieces.append(_escape(token[0], style))
        end = token.end()
    pieces.append(_escape(sql[end:], style))
    return "".join(pieces).strip()


def _escape(text: str, style: Style) -> str:
    if style == "pyformat":
        return text.replace("%", "%%")
    if style == "text":
        return NAMED.sub(r"\\:\1", text)
    return text


def _placeholder(number: str, style: Style) -> str:
    if style == "pyformat":
        return f"%(p{number})s"
    if style == "text":
        # The space separates a cast's colons from the name: text() would not find the name otherwise.
        return f":p{number} "
    if style == "dollar":
        return f"${number}"
    return f":p{number}"


def name_parameters(values: tuple[object, ...]) -> dict[str, object]:
    """The values by the names that `translate` gives to placeholders."""
    return {f"p{place}": value for place, value in enumerate(values, start=1)}


@contextmanager
def explain_failed_transaction() -> Iterator[None]:
    """Raise `UnusableConnection` if an earlier error has aborted the transaction: asyncpg does not report it before."""
    try:
        yield
    except Exception as error:
        origin = getattr(error, "orig", None) or error
        if FAILED_TRANSACTION in (getattr(origin, "sqlstate", None), getattr(origin, "pgcode", None)):
            raise failed_transaction_error("conn") from error
        raise


def failed_transaction_error(what: str) -> UnusableConnection:
    return UnusableConnection(
        f"{what} is in a failed transaction: an earlier statement raised, and PostgreSQL refuses every statement "
        "until the transaction ends, so the job would be lost with it; roll back, then begin again and "
        f"enqueue there: {what}.rollback()"
    )


def closed_error(what: str, fix: str) -> UnusableConnection:
    return UnusableConnection(f"{what} is closed, so nothing can be written on it; enqueue while it is open: {fix}")


def autocommit_error(what: str, fix: str) -> UnusableConnection:
    return UnusableConnection(
        f"{what} commits every statement by itself, so the job would stay if your own rows were rolled back; "
        f"open a transaction around both: {fix}"
    )
