"""Migrations on PostgreSQL: all that are missing in one transaction, under one lock that ends with it."""

from __future__ import annotations

from typing import Any

import asyncpg

from windlass.store.migrate import Migration, missing
from windlass.store.postgres.partitions import AUDIT, HISTORY
from windlass.store.postgres.pool import connect, translated

LOCK = 0x57494E444C415353  # "WINDLASS": a transaction's advisory lock, which also works behind a pooler


class PostgresMigrator:
    """One migrator at a time; who comes second waits, and finds nothing left to do."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def current(self) -> int:
        connection = await connect(self.url)
        try:
            return await current(connection)
        except asyncpg.PostgresError as error:
            raise translated(error, self.url) from error
        finally:
            await connection.close()

    async def migrate(self) -> list[Migration]:
        connection = await connect(self.url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
                await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                return await self._apply(connection)
        except asyncpg.PostgresError as error:
            raise translated(error, self.url) from error
        finally:
            await connection.close()

    async def _apply(self, connection: Any) -> list[Migration]:
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
    """The schema's number; 0 where there is none."""
    if await connection.fetchval("SELECT to_regclass('windlass.migrations') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM windlass.migrations"))
