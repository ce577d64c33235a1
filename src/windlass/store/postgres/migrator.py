"""Migrations on PostgreSQL: all missing migrations in one transaction, under one lock that ends with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from windlass.address import read_address
from windlass.store.migrate import Migration, missing
from windlass.store.postgres.connections.pool import PIN_LOCALLY, connect, transact, translate_error
from windlass.store.postgres.partitions import AUDIT, HISTORY

T = TypeVar("T")

BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;"
    f" SET LOCAL idle_in_transaction_session_timeout = 0; {PIN_LOCALLY}"
)
LOCK = 0x57494E444C415353  # "WINDLASS": a transaction's advisory lock, which also works behind a pooler


class PostgresMigrator:
    """One migrator at a time: a second one waits, and then has nothing left to apply.

    Everything happens in one transaction without a named statement, as a transaction pooler requires: there may be one,
    whether it was declared or not.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    async def current(self) -> int:
        return await self._transact("BEGIN", current)

    async def migrate(self) -> list[Migration]:
        return await self._transact(BEGIN, self._apply)

    async def _transact(self, begin: str, work: Callable[[Any], Awaitable[T]]) -> T:
        connection = await connect(self.url, pooler=True)
        try:
            return await transact(connection, begin, work)
        except asyncpg.PostgresError as error:
            raise translate_error(error, read_address(self.url)) from error
        finally:
            await connection.close()

    async def _apply(self, connection: Any) -> list[Migration]:
        await connection.execute("SELECT pg_catalog.pg_advisory_xact_lock($1)", LOCK)
        steps = missing("postgres", await current(connection))
        if not steps:
            return []
        await connection.execute(
            "CREATE SCHEMA IF NOT EXISTS windlass;"
            "CREATE TABLE IF NOT EXISTS windlass.migrations (number integer PRIMARY KEY, name text NOT NULL,"
            " applied_at timestamptz NOT NULL DEFAULT statement_timestamp())"
        )
        for step in steps:
            await connection.execute(step.sql)
            await connection.execute(
                "INSERT INTO windlass.migrations (number, name) VALUES ($1, $2)", step.number, step.name
            )
        for table in (HISTORY, AUDIT):
            await table.prepare(connection)
        return steps


async def current(connection: Any) -> int:
    """The schema's number; 0 if there is no schema."""
    if await connection.fetchval("SELECT to_regclass('windlass.migrations') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM windlass.migrations"))
