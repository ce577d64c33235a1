"""The beat's own connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from uuid import UUID

import asyncpg

from windlass.store.postgres.pool import connect, translated
from windlass.store.sql import query


class PostgresHeart:
    """Says "alive" for one worker; connects when it must, and again after a failure."""

    def __init__(self, url: str, *, pooler: bool) -> None:
        self._url = url
        self._pooler = pooler
        self._connection: Any = None

    async def beat(self, worker: UUID, lease: float, held: int = 0) -> bool:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(self._url, pooler=self._pooler)
            return bool(await self._connection.fetchval(query("postgres", "beat"), worker, lease, held))
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self.drop()
            raise translated(error, self._url) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                async with asyncio.timeout(2):
                    await connection.close()
                return
            connection.terminate()

    def drop(self) -> None:
        """Let go of a connection that failed; the next beat opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
