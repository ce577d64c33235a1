"""Whether the rate stays while another transaction keeps an old snapshot: a report, a dump, a forgotten psql."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from database import open_connection, rate, thirds
from engine_run import drain, enqueue
from program import Sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT = 90.0  # seconds


async def measure(url: str, jobs: int) -> dict[str, float]:
    """Jobs per second of all jobs, of the first third and of the last, while no dead row can be removed."""
    sender = Sender(url)
    try:
        async with open_connection(url) as connection, hold_snapshot(url):
            await enqueue(sender, jobs)
            batches = await drain(url, connection, jobs, limit=LIMIT)
    finally:
        await sender.app.aclose()
    first, _, last = thirds(batches)
    return {"jobs": rate(batches), "first third": first, "last third": last, "ratio": last / first}


@asynccontextmanager
async def hold_snapshot(url: str) -> AsyncIterator[None]:
    async with open_connection(url) as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT count(*) FROM windlass.jobs")  # the first query takes the snapshot
        yield
        await connection.execute("ROLLBACK")
