"""A database for each measurement, and the rates that its history shows."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from windlass.store.postgres.migrator import PostgresMigrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

URL = "WINDLASS_TEST_POSTGRES_URL"
DRAIN_LIMIT = 20.0  # seconds until the last batches must be committed, after every handler has run
POLL = 0.02  # seconds between two queries for remaining jobs

# The first row is the first claim, with no jobs: the time before the first finish is part of the work.
FINISHED = """
SELECT extract(epoch FROM min(claimed_at))::float8, 0
  FROM windlass.history WHERE finished_at >= $1
UNION ALL
SELECT extract(epoch FROM finished_at)::float8, count(*)::int
  FROM windlass.history WHERE finished_at >= $1 GROUP BY 1
 ORDER BY 1
"""

Batch = tuple[float, int]  # the time of the finish in seconds of the database's clock, and the number of jobs


@asynccontextmanager
async def fresh_database() -> AsyncIterator[str]:
    """A new migrated database, so that no measurement meets the dead rows of another."""
    server = os.environ[URL]
    name = f"windlass_bench_{uuid4().hex[:12]}"
    url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    await _administer(server, f"CREATE DATABASE {name}")
    try:
        await PostgresMigrator(url).migrate()
        yield url
    finally:
        await _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[Any]:
    """A connection of the benchmark, which is none of the engine's."""
    connection = await asyncpg.connect(url, command_timeout=60)
    try:
        yield connection
    finally:
        await connection.close()


async def now(connection: Any) -> datetime:
    moment: datetime = await connection.fetchval("SELECT windlass.now()")
    return moment


async def vacuum(connection: Any) -> None:
    """Vacuum and write a checkpoint, so that a measurement does not pay for the one before it."""
    await connection.execute("VACUUM windlass.jobs, windlass.limit_counters")
    with suppress(asyncpg.InsufficientPrivilegeError):
        await connection.execute("CHECKPOINT")


async def wait_until_drained(connection: Any, queue: str | None = None) -> None:
    """Wait until no job is left, in all queues or in one; called when all handlers have run."""
    end = time.monotonic() + DRAIN_LIMIT
    left = "SELECT EXISTS (SELECT FROM windlass.jobs WHERE $1::text IS NULL OR queue = $1)"
    while await connection.fetchval(left, queue):
        if time.monotonic() > end:
            raise TimeoutError("jobs were left after every handler had run")
        await asyncio.sleep(POLL)


async def finished_batches(connection: Any, since: datetime) -> list[Batch]:
    """The batches in which jobs were finished: all rows of one statement have the same time."""
    return [(moment, jobs) for moment, jobs in await connection.fetch(FINISHED, since)]


def rate(batches: list[Batch]) -> float:
    """Jobs per second from the first batch to the last. Jobs of the first batch are not counted: they ran before it."""
    return sum(jobs for _, jobs in batches[1:]) / (batches[-1][0] - batches[0][0])


def thirds(batches: list[Batch]) -> list[float]:
    """The rates of the first, second and last third of the jobs."""
    total, seen, cuts = sum(jobs for _, jobs in batches), 0, [0]
    for index, (_, jobs) in enumerate(batches):
        seen += jobs
        if seen * 3 >= total * len(cuts):
            cuts.append(index)
    return [rate(batches[first : last + 1]) for first, last in pairwise(cuts)]


async def environment_facts() -> dict[str, str]:
    """The cores and server settings that the figures depend on."""
    async with open_connection(os.environ[URL]) as connection:
        settings = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
        shown = {name: str(await connection.fetchval(f"SHOW {name}")) for name in settings}
    return {"cores": str(len(os.sched_getaffinity(0)))} | shown


async def _administer(url: str, statement: str) -> None:
    async with open_connection(url) as connection:
        await connection.execute(statement)
