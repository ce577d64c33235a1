"""How fast PostgreSQL runs the engine's statements by themselves: one connection, a tight loop, no engine around it.

The texts are the engine's own (candidates.sql with claim.sql, finish.sql, COPY of the same columns). So the difference
between these figures and the engine's is the cost of everything that is not SQL.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from windlass.model.job import NewJob, new_id
from windlass.store.postgres.finish import Reach
from windlass.store.postgres.floors import BEGINNING, Floor
from windlass.store.postgres.rows import COPY_COLUMNS, copy_row
from windlass.store.protocol import Suspects
from windlass.store.sql import ordered_query, query

BATCH = 200  # jobs per statement
LIMIT = 60.0  # seconds


async def enqueue(connection: Any, jobs: int) -> float:
    """COPY so many jobs into the table; returns jobs per second. The rows are made before the time starts."""
    rows = [copy_row(NewJob(id=new_id(), type="noop", input=f'{{"number":{number}}}')) for number in range(jobs)]
    began = time.perf_counter()
    for start in range(0, jobs, BATCH):
        await connection.copy_records_to_table(
            "jobs", schema_name="windlass", columns=COPY_COLUMNS, records=rows[start : start + BATCH]
        )
    return jobs / (time.perf_counter() - began)


async def drain(connection: Any) -> None:
    """Claim and finish until no job is left, with a floor, as a worker does."""
    worker, floor, end = uuid4(), BEGINNING, time.monotonic() + LIMIT
    row = (worker, "bare", LIMIT, BATCH, None, ["noop"], False, None, "", None)  # the last three: versions
    await connection.execute(query("postgres", "register"), *row)
    while claimed := await connection.fetch(
        ordered_query("postgres", "claim", "run_at"), *_claim_parameters(worker, floor)
    ):
        floor = max(Floor(record["run_at"], record["id"]) for record in claimed)
        await connection.fetch(query("postgres", "finish"), *_finish_parameters(claimed))
        if time.monotonic() > end:
            raise TimeoutError(f"bare SQL did not drain the queue within {LIMIT:.0f} s")


def _claim_parameters(worker: Any, floor: Floor) -> tuple[Any, ...]:
    lane = (["default"], [0], [0], ["default"], [False], [BATCH], [floor.run_at], [floor.id])
    return (worker, BATCH, uuid4(), ["noop"], 0, Suspects.WITH.value, 0.0, *lane, [None], False, None, 0.0)


def _finish_parameters(claimed: list[Any]) -> tuple[Any, ...]:
    """A success for each job, with the result null of a handler that returns nothing."""
    jobs = len(claimed)
    leases = sorted((record["id"], record["token"]) for record in claimed)
    nulls = [None] * jobs
    return (
        [job for job, _ in leases],
        [token for _, token in leases],
        ["succeeded"] * jobs,
        ["null"] * jobs,
        nulls,  # errors
        nulls,  # attempt entries
        [0.0] * jobs,
        nulls,  # totals
        [0] * jobs,
        [0] * jobs,
        [0] * jobs,
        [1] * jobs,
        nulls,  # reasons
        ["JOB_SUCCEEDED"] * jobs,
        Reach.PLAIN,
    )
