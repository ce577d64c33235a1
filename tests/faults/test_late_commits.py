"""Jobs that commit long after they were written, below the floor that a busy worker has already drained past."""

from __future__ import annotations

import statistics
import time
from uuid import UUID

import psycopg

from windlass import Windlass

from .rig import SCALE, FaultLab, scaled

POLL = 0.25  # seconds, as the rig's workers have it
HELD = 2.0 if SCALE < 10 else 5.0  # seconds that the transactions stay open
TRANSACTIONS = 10


def test_jobs_that_commit_late_start_soon_although_the_worker_is_busy(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    app = Windlass(lab.url)

    @app.job
    async def plain(seconds: float = 0.0) -> int:
        raise NotImplementedError  # the program's workers run it

    connections = [psycopg.connect(lab.url) for _ in range(TRANSACTIONS)]
    share = scaled(10, 100)
    late: dict[UUID, int] = {}
    for number, connection in enumerate(connections):
        calls = (plain.call() for _ in range(share))
        late.update((job.id, number) for job in app.enqueue_many(calls, conn=connection))
    held_until = time.monotonic() + HELD
    lab.start("--concurrency", "100")

    def stay_busy() -> bool:
        """Under full load: there is always more than the worker can do."""
        if sum(lab.counts().values()) - lab.final() < 2_000:
            lab.enqueue("plain", 2_000)
        return time.monotonic() >= held_until

    lab.until(stay_busy, "the transactions were open long enough")
    committed: dict[int, float] = {}
    for number, connection in enumerate(connections):
        connection.commit()
        committed[number] = time.time()
        connection.close()

    def started() -> dict[UUID, float]:
        return {entry.job: entry.at for entry in lab.ledger() if entry.event == "begin" and entry.job in late}

    def all_started() -> bool:
        stay_busy()
        return len(started()) == len(late)

    lab.until(all_started, "every late job started")
    app.close()

    waits = sorted(max(0.0, at - committed[late[job]]) for job, at in started().items())
    print(
        f"{len(waits)} late jobs: median {statistics.median(waits):.2f} s, longest {waits[-1]:.2f} s, poll {POLL:g} s"
    )
    # Not the promise of poll + 1 s, which a busy machine may break: but a job that waits for the load to end would.
    assert waits[-1] < 10 * max(1.0, POLL)
