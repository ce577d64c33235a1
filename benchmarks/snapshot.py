"""Whether the rate holds while somebody keeps an old snapshot: a report, a dump, a forgotten psql."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from database import connected, rate, thirds
from program import Sender
from worked import drain, enqueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT = 90.0  # seconds


async def measure(url: str, jobs: int) -> dict[str, float]:
    """Jobs per second of all, of the first third and of the last, while nothing dead can be removed."""
    sender = Sender(url)
    try:
        async with connected(url) as connection, snapshot_held(url):
            await enqueue(sender, jobs)
            batches = await drain(url, connection, jobs, limit=LIMIT)
    finally:
        await sender.app.aclose()
    first, _, last = thirds(batches)
    return {"jobs": rate(batches), "first third": first, "last third": last, "ratio": last / first}


@asynccontextmanager
async def snapshot_held(url: str) -> AsyncIterator[None]:
    async with connected(url) as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT count(*) FROM windlass.jobs")  # the first query takes the snapshot
        yield
        await connection.execute("ROLLBACK")
