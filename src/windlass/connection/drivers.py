"""Driver connections: psycopg, psycopg2, asyncpg, sqlite3, aiosqlite; and Windlass's own transactions.

Rows are read through a plain cursor, because the caller's connection may be set to return dicts or objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.connection.borrowed import (
    AwaitedConnection,
    CallerConnection,
    Rows,
    autocommit_error,
    closed_error,
    explain_failed_transaction,
    failed_transaction_error,
    name_parameters,
    translate,
)
from windlass.errors import UnusableConnection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.model.job import NewJob

# libpq's transaction status, the same numbers in psycopg and psycopg2
IDLE, ACTIVE, IN_TRANSACTION, IN_ERROR = range(4)


class Psycopg(CallerConnection):
    """psycopg 3, blocking."""

    dialect = "postgres"

    def __init__(self, conn: Any) -> None:
        _check_psycopg(conn, "with conn.transaction(): …")
        self._conn = conn

    def run(self, sql: str, *values: object) -> Rows:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with explain_failed_transaction(), Cursor(self._conn, row_factory=tuple_row) as cursor:
            cursor.execute(_psycopg_query(sql), name_parameters(values))
            return cursor.fetchall() if cursor.description else []

    def anchor(self) -> object:
        return self._conn


class AsyncPsycopg(AwaitedConnection):
    """psycopg 3, asynchronous."""

    dialect = "postgres"

    def __init__(self, conn: Any) -> None:
        _check_psycopg(conn, "async with conn.transaction(): …")
        self._conn = conn

    async def arun(self, sql: str, *values: object) -> Rows:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        with explain_failed_transaction():
            async with AsyncCursor(self._conn, row_factory=tuple_row) as cursor:
                await cursor.execute(_psycopg_query(sql), name_parameters(values))
                return await cursor.fetchall() if cursor.description else []

    def anchor(self) -> object:
        return self._conn


def _psycopg_query(sql: str) -> Any:
    return translate(sql, "pyformat")


def _check_psycopg(conn: Any, fix: str) -> None:
    if conn.closed:
        raise closed_error("conn", fix)
    if conn.pgconn.pipeline_status:
        raise UnusableConnection(
            "conn is in pipeline mode, where an error is reported only after later statements; enqueue after the "
            "block: with conn.pipeline(): …"
        )
    status = conn.pgconn.transaction_status
    if status == IN_ERROR:
        raise failed_transaction_error("conn")
    # ACTIVE: another task runs a statement, so whether a transaction is open is unknown.
    if conn.autocommit and status != IN_TRANSACTION:
        raise autocommit_error("conn", fix)


class Psycopg2(CallerConnection):
    """psycopg2."""

    dialect = "postgres"

    def __init__(self, conn: Any) -> None:
        if conn.closed:
            raise closed_error("conn", "with conn: …")
        if conn.async_:
            raise UnusableConnection(
                "conn is psycopg2 in its asynchronous mode; give: psycopg2.connect(…) without async_"
            )
        status = conn.get_transaction_status()
        if status == IN_ERROR:
            raise failed_transaction_error("conn")
        if conn.autocommit and status != IN_TRANSACTION:
            raise autocommit_error("conn", "conn.autocommit = False")
        self._conn = conn

    def run(self, sql: str, *values: object) -> Rows:
        from psycopg2.extensions import cursor as plain  # type: ignore[import-untyped,unused-ignore]

        with explain_failed_transaction(), self._conn.cursor(cursor_factory=plain) as cursor:
            cursor.execute(translate(sql, "pyformat"), name_parameters(values))
            return cursor.fetchall() if cursor.description else []

    def anchor(self) -> object:
        return self._conn


class Asyncpg(AwaitedConnection):
    """asyncpg: a connection, or one from a pool."""

    dialect = "postgres"

    def __init__(self, conn: Any) -> None:
        fix = "async with conn.transaction(): …"
        if _is_asyncpg_closed(conn):
            raise closed_error("conn", fix)
        if not conn.is_in_transaction():
            raise autocommit_error("conn", fix)
        self._conn = conn

    async def arun(self, sql: str, *values: object) -> Rows:
        # Pass text as text, whatever the statement casts it to: a codec for json that the caller has registered would
        # quote the JSON once more.
        for place, value in enumerate(values, start=1):
            if isinstance(value, str):
                sql = sql.replace(f"CAST(${place} AS", f"CAST(${place}::text AS")
        with explain_failed_transaction():
            return [tuple(row) for row in await self._conn.fetch(sql, *values)]

    def anchor(self) -> object:
        return getattr(self._conn, "_con", self._conn)  # a pool's proxy exists for one acquire only


def _is_asyncpg_closed(conn: Any) -> bool:
    from asyncpg import InterfaceError

    try:
        return bool(conn.is_closed())
    except InterfaceError:  # the connection was returned to its pool
        return True


class Sqlite(CallerConnection):
    """sqlite3."""

    dialect = "sqlite"

    def __init__(self, conn: Any) -> None:
        from sqlite3 import ProgrammingError

        try:
            conn.total_changes  # noqa: B018 - the only attribute that raises if the database is closed
        except ProgrammingError:
            raise closed_error("conn", "with conn: …") from None
        check_sqlite(conn)
        self._conn = conn

    def run(self, sql: str, *values: object) -> Rows:
        # sqlite3 begins a transaction by itself before INSERT, but not before WITH … INSERT, which would then be
        # committed at once. IMMEDIATE, because a write follows: a deferred transaction fails without waiting if another
        # writer was faster.
        if not self._conn.in_transaction:
            self._conn.execute("BEGIN IMMEDIATE")
        return self._fetch(sql, values)

    def read(self, sql: str) -> Rows:
        return self._fetch(sql, ())

    def _fetch(self, sql: str, values: tuple[object, ...]) -> Rows:
        cursor = self._conn.cursor()
        cursor.row_factory = None
        try:
            rows: Rows = cursor.execute(translate(sql, "named"), name_parameters(values)).fetchall()
        finally:
            cursor.close()
        return rows


class Aiosqlite(AwaitedConnection):
    """aiosqlite."""

    dialect = "sqlite"

    def __init__(self, conn: Any) -> None:
        try:
            conn.in_transaction  # noqa: B018 - raises if the database is closed
        except ValueError:
            raise closed_error("conn", "async with aiosqlite.connect(path) as conn: …") from None
        check_sqlite(conn)
        self._conn = conn

    async def arun(self, sql: str, *values: object) -> Rows:
        if not self._conn.in_transaction:
            await self._conn.execute("BEGIN IMMEDIATE")  # as in Sqlite.run
        return await self._fetch(sql, values)

    async def aread(self, sql: str) -> Rows:
        return await self._fetch(sql, ())

    async def _fetch(self, sql: str, values: tuple[object, ...]) -> Rows:
        async with self._conn.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(translate(sql, "named"), name_parameters(values))
            return [tuple(row) for row in await cursor.fetchall()]


def check_sqlite(conn: Any) -> None:
    """Refuse a connection that commits every statement: `isolation_level=None`, or `autocommit=True` since 3.12."""
    raw = getattr(conn, "_conn", conn)  # aiosqlite's inner connection: the outer one has no `autocommit`
    if conn.in_transaction:
        return
    # `autocommit` is -1 if isolation_level decides, as it always did before 3.12
    if getattr(raw, "autocommit", -1) is True:
        raise autocommit_error("conn", 'conn.execute("BEGIN")')
    if conn.isolation_level is None and getattr(raw, "autocommit", -1) == -1:
        raise autocommit_error("conn", 'conn.execute("BEGIN")')


class WindlassTransaction(AwaitedConnection):
    """A transaction of Windlass itself, from `ctx.transaction()`."""

    def __init__(self, transaction: Any) -> None:
        self.dialect = transaction.windlass_dialect
        self._transaction = transaction

    async def arun(self, sql: str, *values: object) -> Rows:
        rows = await self._transaction.fetch(translate(sql, "dollar"), *values)
        return [tuple(row.values()) for row in rows]

    async def aenqueue(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> Mapping[UUID, UUID]:
        existing: Mapping[UUID, UUID] = await self._transaction.enqueue(jobs)
        return existing
