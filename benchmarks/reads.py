"""How long PostgreSQL takes for `counts`, `queues`, `tenants` and `phases` with a million jobs: `make bench-reads`.

Each shape is a database of its own, loaded by SQL. The time is PostgreSQL's own (EXPLAIN ANALYZE), the best of five.
"""

from __future__ import annotations

import argparse
import asyncio
import json

import asyncpg

from database import fresh_database
from windlass.store.postgres.connections.pool import connect
from windlass.store.sql import query

INSERT = "INSERT INTO windlass.jobs (id, type, input, status, queue, phase, tenant, limits, parked_on, token, worker)"
JOBS = (
    INSERT + " SELECT gen_random_uuid(), 'usual', '{{}}', '{status}', {queue}, 'default', {tenant}, {limits}, {parked},"
    " NULL, NULL FROM generate_series(1, $1::int) AS i"
)
PLAIN = {"status": "queued", "queue": "'mail'", "tenant": "'default'", "limits": "NULL", "parked": "NULL"}
HISTORY = (
    "INSERT INTO windlass.history (id, type, input, status, finished_at)"
    " SELECT gen_random_uuid(), 'usual', '{}', 'succeeded', now() FROM generate_series(1, $1::int) AS i"
)
PIPELINE = (
    "INSERT INTO windlass.jobs (id, type, input, queue, pipeline, phase, phase_rank)"
    " SELECT gen_random_uuid(), 'usual', '{}', 'default', 'site', 'phase ' || i % 3, i % 3"
    " FROM generate_series(1, $1::int) AS i"
)
SHAPES = {
    "queued in one queue": JOBS.format(**PLAIN),
    "queued in 100 queues": JOBS.format(**{**PLAIN, "queue": "'queue ' || i % 100"}),
    "queued by 1,000 tenants": JOBS.format(**{**PLAIN, "tenant": "'tenant ' || i % 1000"}),
    "failed": JOBS.format(**{**PLAIN, "status": "failed"}),
    "waiting": JOBS.format(**{**PLAIN, "status": "waiting"}),
    "dead": JOBS.format(**{**PLAIN, "status": "dead"}),
    "dead of 1,000 tenants in 10 queues": JOBS.format(
        **{**PLAIN, "status": "dead", "queue": "'queue ' || i % 10", "tenant": "'tenant ' || i % 1000"}
    ),
    "parked on one key": JOBS.format(**{**PLAIN, "limits": "ARRAY['domain:a']", "parked": "'domain:a'"}),
    "queued in three phases": PIPELINE,
    "in the history": HISTORY,
}
READS = ("count_by_state", "queues", "tenants", "phases")
TRIES = 5


async def measure(load: str, jobs: int) -> dict[str, float]:
    """Milliseconds of the server's for each read, in a new database."""
    async with fresh_database() as url:
        return await _measure(url, load, jobs)


async def _measure(url: str, load: str, jobs: int) -> dict[str, float]:
    loading = await asyncpg.connect(url)
    await loading.execute("SET statement_timeout = 0")
    await loading.execute(load.replace("$1::int", str(jobs)))
    await loading.execute("ANALYZE windlass.jobs, windlass.history")
    await loading.close()
    connection = await connect(url)
    best = {}
    for name in READS:
        times = []
        for _ in range(TRIES):
            plan = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query('postgres', name)}")
            (found,) = json.loads(plan)
            times.append(found["Planning Time"] + found["Execution Time"])
        best[name] = min(times)
    await connection.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--only", choices=SHAPES, help="one shape")
    given = parser.parse_args()
    print(f"{given.jobs:,} jobs".ljust(40) + "".join(f"{name:>18}" for name in READS))
    for shape, load in SHAPES.items():
        if given.only in (None, shape):
            times = asyncio.run(measure(load, given.jobs))
            print(shape.ljust(40) + "".join(f"{times[name]:>15.1f} ms" for name in READS), flush=True)


if __name__ == "__main__":
    main()
