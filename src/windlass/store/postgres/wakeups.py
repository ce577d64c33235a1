"""LISTEN on a connection of its own. Losing it costs a poll and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from windlass.address import read_address
from windlass.errors import StoreUnavailable
from windlass.store.postgres.pool import UNREACHABLE, connect, translated

CHANNEL = "windlass"
BACKLOG = 1_000
"""Messages that may wait; more of them say nothing new."""


@asynccontextmanager
async def listening(url: str, expired: set[Callable[[], None]]) -> AsyncIterator[AsyncIterator[str]]:
    """The messages that come while the block runs; raises StoreUnavailable when the connection ends.

    Also when the other sessions are given up (`expired`): a server that is primary no longer never notifies again.
    """
    messages: asyncio.Queue[str | None] = asyncio.Queue()
    connection = await connect(url)

    def heard(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if messages.qsize() < BACKLOG:
            messages.put_nowait(payload)

    def ended(*_: Any) -> None:
        messages.put_nowait(None)

    async def read() -> AsyncIterator[str]:
        while True:
            message = await messages.get()
            if message is None:
                raise StoreUnavailable("the connection that listens for wake-ups ended")
            yield message

    try:
        connection.add_termination_listener(ended)
        expired.add(ended)
        await connection.add_listener(CHANNEL, heard)
        yield read()
    except UNREACHABLE as error:
        raise translated(error, read_address(url)) from error
    finally:
        expired.discard(ended)
        connection.remove_termination_listener(ended)
        await connection.close()
