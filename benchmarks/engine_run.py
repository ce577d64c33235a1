"""How fast the engine is: enqueues from this process, and no-op jobs through a worker in another process."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from bare_sql import BATCH
from database import Batch, finished_batches, now, rate, wait_until_drained
from program import Sender
from worker_process import run_worker

LIMIT = 60.0  # seconds until all handlers must have run

SQLITE_FINISHED = """
SELECT min(claimed_at) / 1e6, 0 FROM windlass_history
UNION ALL
SELECT finished_at / 1e6, count(*) FROM windlass_history GROUP BY 1
 ORDER BY 1
"""


async def enqueue(sender: Sender, jobs: int) -> float:
    """`aenqueue_many` in batches as large as those of bare SQL; returns jobs per second."""
    began = time.perf_counter()
    for start in range(0, jobs, BATCH):
        calls = (sender.noop.call(number) for number in range(start, min(start + BATCH, jobs)))
        await sender.app.aenqueue_many(calls)
    return jobs / (time.perf_counter() - began)


async def drain(url: str, connection: Any, jobs: int, *, limit: float = LIMIT) -> list[Batch]:
    """Start a worker on a full queue; returns the batches in which the jobs were finished."""
    since = await now(connection)
    async with run_worker(url, expected=jobs) as worker:
        await worker.wait_for("done", limit=limit)
        await wait_until_drained(connection)
    return await finished_batches(connection, since)


async def drain_sqlite(jobs: int) -> dict[str, float]:
    """The same on a SQLite file, for information; returns enqueues and jobs per second."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        path = Path(folder) / "jobs.db"
        sender = Sender(f"sqlite:///{path}")
        try:
            await sender.app.amigrate()
            enqueued = await enqueue(sender, jobs)
            async with run_worker(sender.app.settings.url, expected=jobs) as worker:
                await worker.wait_for("done", limit=LIMIT)
        finally:
            await sender.app.aclose()
        with closing(sqlite3.connect(path)) as connection:
            return {"enqueue": enqueued, "jobs": rate(connection.execute(SQLITE_FINISHED).fetchall())}
