"""The heartbeat of one worker, on a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from windlass.address import read_address
from windlass.store.postgres.connections.pool import BEGIN, CONNECT_TIMEOUT, open_session, transact, translate_error
from windlass.store.sql import query


class PostgresHeartbeat:
    """Renews one worker's lease. Connects on the first beat, and again after a failure."""

    def __init__(self, url: str, *, pooler: bool) -> None:
        self._address = read_address(url)
        self._pooler = pooler
        self._connection: Any = None

    async def beat(
        self, worker: UUID, lease: float, held: int = 0, pools: str | None = None, *, within: float | None = None
    ) -> bool:
        try:
            async with asyncio.timeout(within):
                return await self._beat((worker, lease, held, pools), within or CONNECT_TIMEOUT)
        except Exception as error:
            raise translate_error(error, self._address) from error

    async def _beat(self, values: tuple[Any, ...], within: float) -> bool:
        async def renew(connection: Any) -> bool:
            return bool(await connection.fetchval(query("postgres", "beat"), *values))

        try:
            if self._connection is None or self._connection.is_closed():
                timeout = min(within, CONNECT_TIMEOUT)
                self._connection = await open_session(self._address, pooler=self._pooler, timeout=timeout)
                self._address = self._address.preferring(self._connection.host)
            return await (transact(self._connection, BEGIN, renew) if self._pooler else renew(self._connection))
        except BaseException:  # also a cancellation: the next beat must not wait for this silent connection again
            self.drop()
            raise

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def drop(self) -> None:
        """Terminate a connection that failed; the next beat opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
