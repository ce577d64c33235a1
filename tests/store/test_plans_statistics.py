"""Plans under statistics that are wrong: no statement of the hot path may scan a table that it should enter by key.

PostgreSQL believes a table as large as the last ANALYZE or VACUUM found it. After a quiet minute that is one row in
thousands of pages: then every walk over a whole index looks like one row, and a join may be turned round. So each
statement is run under such beliefs, and judged by the rows and pages that it touched. `make test` takes ten of
them, `make test-long` all 32.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from servers import administer

from .plans import (
    CRAWL,
    LANES,
    LIMITED,
    RUNNING,
    USUAL,
    WORKER,
    Plan,
    claim_values,
    literal,
    populate,
    statement,
    visiting,
)
from .test_plans import RESCUE, endings

if TYPE_CHECKING:
    from windlass.model.job import Lease

pytestmark = [pytest.mark.postgres, pytest.mark.long]

SCALE = float(os.environ.get("WINDLASS_TEST_SCALE", "1"))
ROWS = (0, 1, 2, 4, 10, 50, 500, 20_000) if SCALE > 1 else (0, 1, 10, 500, 20_000)
PAGES = (1, 3_000, 5_400, 50_000) if SCALE > 1 else (1, 5_400)
FEW = 20  # jobs that a statement is about
BESIDE = 3_000  # rows of each other table that it is not about
TABLES = ("jobs", "limit_counters", "waits", "edges", "keys", "steps", "signals", "outbox")

# A statement may read each of its rows in a few places (find, lock, write, return), and the rows it steps over.
# Jobs that hold slots are counted by a scan of the running jobs.
MOST_ROWS = 12 * FEW
WALKS_RUNNING = {"make_limit_counters", "count_slots"}
MOST_COMPARED = 4 * FEW * FEW  # between what a statement was given and what it found of that
MOST_BUFFERS = 150 * FEW

# Jobs that wait for one another, each with a key, a step and a signal.
WAITING = (
    f"""
INSERT INTO windlass.jobs (id, type, input, status, followed, key, key_scope)
SELECT gen_random_uuid(), 'usual', '{{}}', 'waiting', true, 'key ' || i, 'scope' FROM generate_series(1, {BESIDE}) AS i
""",
    "INSERT INTO windlass.waits (job, need, pending, signal, batch)"
    " SELECT id, 1, 1, 'go', true FROM windlass.jobs WHERE status = 'waiting'",
    "INSERT INTO windlass.edges (awaited, waiter, policy)"
    " SELECT lag(id, 1, id) OVER (ORDER BY id), id, 'count' FROM windlass.jobs WHERE status = 'waiting'",
    "INSERT INTO windlass.keys (scope, key, job, states)"
    " SELECT 'scope', key, id, '{waiting}' FROM windlass.jobs WHERE status = 'waiting'",
    "INSERT INTO windlass.steps (job, name, value) SELECT id, 'one', '1' FROM windlass.jobs WHERE status = 'waiting'",
    "INSERT INTO windlass.signals (job, name, payload)"
    " SELECT id, 'other', '1' FROM windlass.jobs WHERE status = 'waiting'",
    "UPDATE windlass.limit_counters SET used = 1 WHERE key IN ('domain:5', 'domain:10')",
    # Rows that are due later, rows behind a gate and rows for workers that are missing; FEW of each are for a relay.
    f"""
INSERT INTO windlass.outbox (job, deliver_at, waits_for)
SELECT id, now() + CASE WHEN i % 3 > 0 OR i <= {3 * FEW} THEN interval '-1 minute' ELSE interval '1 hour' END,
       CASE i % 3 WHEN 1 THEN 'gate:queue:report' WHEN 2 THEN E'worker:unknown\x1freport' END
  FROM (SELECT id, row_number() OVER (ORDER BY id) AS i FROM windlass.jobs WHERE status = 'queued' LIMIT {BESIDE})
       AS queued
""",
    "INSERT INTO windlass.gates (kind, name, state) VALUES ('queue', 'report', 'paused')",
)


class Hot:
    """The statements of the hot path with their arguments: each about FEW rows of this database."""

    def __init__(self, leases: list[Lease], limited: list[Lease], waiting: list[Any], queued: list[Any]) -> None:
        ids = payload(waiting)
        keys = [f"domain:{5 * place}" for place in range(1, FEW + 1)]
        jobs = [lease.job for lease in leases]
        self.statements: dict[str, tuple[Any, ...]] = {
            "claim": claim_values(room=FEW),
            "claim with the oldest": claim_values(room=FEW, aged=2),
            "claim_by_creation": claim_values(room=1, lanes=[CRAWL._replace(limited=False)]),
            "claim_limited": claim_values(room=FEW, lanes=[CRAWL]),
            "lanes": (["usual", "rare"],),
            "finish": endings("finish", leases),
            "finish_with_slots": endings("finish_with_slots", limited),
            "finish_staying": endings("finish_staying", leases),
            "advance": advances(leases),
            "record_progress": (jobs, [lease.token for lease in leases], *[[1] * FEW] * 3),
            "charge": (payload([{"job": each.job, "token": each.token, "cents": 3} for each in leases]),),
            "rescue": (*RESCUE[:2], FEW, *RESCUE[3:]),
            "unpark": ('["domain:5", "domain:10"]',),
            "parked_keys": (),
            "release_slots": (payload([{"key": key, "n": 1} for key in keys]),),
            "make_limit_counters": (payload([*keys, "domain:new"]),),
            "count_slots": (),
            "acquire_token": (payload([{"key": "domain:5", "most": 0}]),),
            "hold_back": (payload([{"key": key, "name": "domain", "seconds": 1} for key in keys]),),
            "mark_followed": (ids,),
            "wake_waiting": (ids,),
            "bury_waiting": (payload([{"id": each, "reason": "gone"} for each in waiting]),),
            "cancel_many": (payload([{"id": each, "reason": "gone", "actor": None} for each in waiting]),),
            "children": (payload([{"job": each, "tenant": "default"} for each in waiting]),),
            "count_batch": (ids,),
            "count_arrivals": (
                payload([{"job": each, "fence": 0, "arrived": 1, "succeeded": 1, "bad": 0} for each in waiting]),
            ),
            "mark_arrivals": (payload([{"awaited": each, "ok": True} for each in waiting]),),
            "ended_jobs": (ids,),
            "ended_states": (ids,),
            "fatal_edges": (ids,),
            "free_keys": (payload([{"job": each, "status": "succeeded"} for each in waiting]),),
            "take_over_keys": (payload([wanted(place) for place in range(1, FEW + 1)]),),
            "repoint_keys": (payload([wanted(place) for place in range(1, FEW + 1)]),),
            "awaits_signal": (payload([{"job": each, "name": "go"} for each in waiting]),),
            "begin_waits": (payload([begun(each) for each in waiting]),),
            "delete_expired_waits": (ids,),
            "delete_edges": (ids,),
            "delete_waits": (ids,),
            "due_waits": ("[20]",),
            "find_many": (jobs,),
            "states": (jobs,),
            "finished_by_lease": (jobs[0], leases[0].token),
            "record_step": (jobs[0], leases[0].token, "two", "2"),
            "lease_outbox": (FEW, 30.0),
            "settle_outbox": (list(range(1, FEW)), [FEW], 1.0),
            "outbox_size": (FEW,),
            "claim_delivered": (WORKER, queued, WORKER, ["usual", "rare"], None, "with"),
            "claim_delivered_limited": (WORKER, queued, WORKER, ["usual", "rare"], None, "with"),
            "refuse_delivered": (queued, ["rare"], ["mail"], "without"),
            "undelivered_jobs": (payload([{**LANES[0]._asdict(), "phase_rank": 0, "older": 60, "page": FEW}]),),
            "publish_again": (payload(queued),),
            "bury_undelivered": (payload([{"id": each, "message": "lost"} for each in queued]),),
        }


def payload(values: list[Any]) -> str:
    return json.dumps(values, default=str)


def wanted(place: int) -> dict[str, Any]:
    return {"scope": "scope", "key": f"key {place}", "job": "00000000-0000-0000-0000-000000000001", "forever": False}


def begun(job: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("fence", "need", "pending", "succeeded", "bad", "total"), 1)
    return {"job": job, **counts, "batch": False, "signal": "other"}


def advances(leases: list[Lease]) -> tuple[Any, ...]:
    from windlass.model.flow import Advance
    from windlass.model.outcome import Transition
    from windlass.model.state import Verb
    from windlass.store.postgres import rows

    to = Advance(type="usual", queue="mail", phase="mail", phase_rank=1, max_attempts=4)
    return rows.advance_arguments([(Transition(lease=lease, verb=Verb.ADVANCE, attempt=1), to) for lease in leases])


# The databases

STATISTICS = {"of a full table": (True, False), "of no table": (False, False), "of one job": (False, True)}


@pytest.fixture(scope="module", params=STATISTICS)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    analysed, when_quiet = STATISTICS[request.param]
    name = asyncio.run(populate(USUAL, analysed, when_quiet=when_quiet))
    yield name
    administer(f"DROP DATABASE {name} WITH (FORCE)")


BELIEVE = f"""
UPDATE pg_class SET reltuples = $1, relpages = $2
  FROM unnest('{{{",".join(TABLES)}}}'::text[]) AS wanted (name)
 WHERE relnamespace = 'windlass'::regnamespace AND relkind IN ('r', 'i')
   AND (relname = wanted.name OR relname LIKE wanted.name || '\\_%')
"""


@pytest.mark.parametrize("planning", ["force_custom_plan", "force_generic_plan"])
async def test_whatever_is_believed_of_the_tables_each_statement_touches_its_own_rows(
    database: str, planning: str
) -> None:
    dear: dict[str, list[str]] = {}
    async with visiting(database, planning) as world:
        connection = world.connection
        leases, limited = await world.leases(FEW), await world.leases(FEW, limited=True)
        await connection.execute("BEGIN")
        for change in WAITING:
            await connection.execute(change)
        found = await connection.fetch("SELECT id FROM windlass.jobs WHERE status = 'waiting' ORDER BY id")
        queued = await connection.fetch(
            "SELECT id FROM windlass.jobs WHERE status = 'queued' AND queue <> 'report' AND parked_on IS NULL"
            " ORDER BY id LIMIT $1",
            FEW,
        )
        waiting = [record["id"] for record in found[:: BESIDE // FEW]]
        hot = Hot(leases, limited, waiting, [record["id"] for record in queued])
        for place, name in enumerate(hot.statements):
            await connection.execute(f"PREPARE hot_{place} AS {statement(name.split()[0])}")
        await connection.execute("SAVEPOINT truth")
        for rows, pages in product(ROWS, PAGES):
            await connection.execute(BELIEVE, rows, pages)
            for place, (name, arguments) in enumerate(hot.statements.items()):
                plan = await run(connection, f"hot_{place}", arguments)
                dear.setdefault(name, []).extend(complaints(name, plan, f"{rows} rows in {pages} pages"))
            await connection.execute("ROLLBACK TO SAVEPOINT truth")
        await connection.execute("ROLLBACK")
    problems = [f"{name}: {len(words)}, as {words[0]}" for name, words in dear.items() if words]
    assert not problems, "\n" + "\n".join(problems)


async def run(connection: Any, prepared: str, arguments: tuple[Any, ...]) -> Plan:
    values = f"({', '.join(map(literal, arguments))})" if arguments else ""
    await connection.execute("SAVEPOINT unwritten")
    answer = await connection.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE {prepared} {values}"
    )
    await connection.execute("ROLLBACK TO SAVEPOINT unwritten")
    return Plan(json.loads(answer)[0]["Plan"])


def complaints(name: str, plan: Plan, believed: str) -> Iterator[str]:
    most = MOST_ROWS + (RUNNING + LIMITED if name in WALKS_RUNNING else 0)
    for table in TABLES:
        if (read := plan.rows_read(table)) > most:
            yield f"{read:,.0f} rows of {table} with {believed}: {sorted(plan.indexes(table))}"
    compared = sum(node["Actual Loops"] * node.get("Rows Removed by Join Filter", 0) for node in plan.nodes)
    if compared > MOST_COMPARED:
        yield f"{compared:,.0f} rows compared with {believed}"
    if plan.buffers > MOST_BUFFERS:
        yield f"{plan.buffers:,} buffers with {believed}"
