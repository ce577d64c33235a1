"""How long a single job waits until an idle worker in another process runs it."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from database import open_connection, wait_until_drained
from program import Sender
from worker_process import run_worker

if TYPE_CHECKING:
    from uuid import UUID

INTERVAL = (0.02, 0.06)  # seconds between two enqueues, at random, so that they do not coincide with polls
WARM_UP = 10  # jobs that are not counted

# The handler returns the time of its own clock; created_at is the time of the INSERT.
TIMES = """
SELECT id, (output #>> '{}')::float8 AS ran, extract(epoch FROM created_at)::float8 AS created,
       extract(epoch FROM started_at - created_at)::float8 AS row
  FROM windlass.history WHERE type = 'stamp'
"""


async def measure(url: str, jobs: int) -> dict[str, list[float]]:
    """Latencies in milliseconds, sorted: from before the call, from the INSERT, and from the row's own times."""
    sender = Sender(url)
    sent: dict[UUID, float] = {}
    try:
        async with run_worker(url), open_connection(url) as connection:
            for number in range(WARM_UP + jobs):
                await asyncio.sleep(random.uniform(*INTERVAL))
                before = time.time()
                job = await sender.stamp.aenqueue(number)
                if number >= WARM_UP:
                    sent[job.id] = before
            await wait_until_drained(connection)
            rows = [row for row in await connection.fetch(TIMES) if row["id"] in sent]
    finally:
        await sender.app.aclose()
    return {
        "from the call": _milliseconds(row["ran"] - sent[row["id"]] for row in rows),
        "from the insert": _milliseconds(row["ran"] - row["created"] for row in rows),
        "started − created": _milliseconds(row["row"] for row in rows),
    }


def _milliseconds(values: Any) -> list[float]:
    return sorted(value * 1000 for value in values)


def percentile(values: list[float], share: float) -> float:
    """A percentile of sorted values, by the nearest rank."""
    return values[min(len(values) - 1, int(len(values) * share))]
