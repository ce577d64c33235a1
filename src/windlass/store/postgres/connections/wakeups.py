"""Listens for wake-ups on a connection of its own. A lost connection costs a poll and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from windlass.address import read_address
from windlass.errors import StoreUnavailable
from windlass.store.postgres.connections.pool import UNREACHABLE, connect, translate_error

CHANNEL = "windlass"
BACKLOG = 1_000
"""Messages that may wait to be read; further messages would carry nothing new."""


@asynccontextmanager
async def listen(url: str, on_expired: set[Callable[[], None]]) -> AsyncIterator[AsyncIterator[str]]:
    """The messages that arrive while the block runs; raises StoreUnavailable when the connection ends.

    It also ends when the pool gives up its sessions (`on_expired`): a server that is no longer primary never notifies
    again.
    """
    messages: asyncio.Queue[str | None] = asyncio.Queue()
    connection = await connect(url)

    def receive(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if messages.qsize() < BACKLOG:
            messages.put_nowait(payload)

    def end(*_: Any) -> None:
        messages.put_nowait(None)

    async def read() -> AsyncIterator[str]:
        while True:
            message = await messages.get()
            if message is None:
                raise StoreUnavailable("the connection that listens for wake-ups ended")
            yield message

    try:
        connection.add_termination_listener(end)
        on_expired.add(end)
        await connection.add_listener(CHANNEL, receive)
        yield read()
    except UNREACHABLE as error:
        raise translate_error(error, read_address(url)) from error
    finally:
        on_expired.discard(end)
        connection.remove_termination_listener(end)
        await connection.close()


@asynccontextmanager
async def listen_to_nothing() -> AsyncIterator[AsyncIterator[str]]:
    """Behind a transaction pooler no session can listen: the poll finds the jobs."""

    async def wait_for_ever() -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    yield wait_for_ever()
