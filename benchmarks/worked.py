"""What the engine does: enqueues from this process, no-op jobs through a worker in another one."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from bare import BATCH
from database import Batch, drained, finished, now, rate
from hand import hand
from program import Sender

LIMIT = 60.0  # seconds until all handlers must have run

SQLITE_FINISHED = """
SELECT min(claimed_at) / 1e6, 0 FROM windlass_history
UNION ALL
SELECT finished_at / 1e6, count(*) FROM windlass_history GROUP BY 1
 ORDER BY 1
"""


async def enqueue(sender: Sender, jobs: int) -> float:
    """`aenqueue_many` in batches as large as the bare ones; how many jobs per second."""
    began = time.perf_counter()
    for start in range(0, jobs, BATCH):
        calls = (sender.noop.call(number) for number in range(start, min(start + BATCH, jobs)))
        await sender.app.aenqueue_many(calls)
    return jobs / (time.perf_counter() - began)


async def drain(url: str, connection: Any, jobs: int, *, limit: float = LIMIT) -> list[Batch]:
    """Start a worker on a full queue; the batches in which the jobs were finished."""
    since = await now(connection)
    async with hand(url, tell=jobs) as worker:
        await worker.says("done", limit=limit)
        await drained(connection)
    return await finished(connection, since)


async def drain_sqlite(jobs: int) -> dict[str, float]:
    """The same on a SQLite file, for information: enqueues and jobs per second."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        path = Path(folder) / "jobs.db"
        sender = Sender(f"sqlite:///{path}")
        try:
            await sender.app.amigrate()
            enqueued = await enqueue(sender, jobs)
            async with hand(sender.app.settings.url, tell=jobs) as worker:
                await worker.says("done", limit=LIMIT)
        finally:
            await sender.app.aclose()
        with closing(sqlite3.connect(path)) as connection:
            return {"enqueue": enqueued, "jobs": rate(connection.execute(SQLITE_FINISHED).fetchall())}
