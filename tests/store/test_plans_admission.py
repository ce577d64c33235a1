"""The plans of admission: claims with limits, slots that are released, and parked jobs, however many."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from windlass.store.sql import query
from windlass.store.sqlite.connections.file import connect as open_file
from windlass.store.sqlite.migrator import SqliteMigrator

from .plans import CRAWL, KEYS, LANES, LIMITED, MOST_BUFFERS, RUNNING, Plan, claim_values, shut, visiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .plans import World

pytestmark = pytest.mark.postgres

FULL = KEYS // 5
MANY = 100_000

CROWD = f"""
INSERT INTO windlass.jobs (id, queue, phase, type, tenant, run_at, updated_at, input, limits, parked_on)
SELECT gen_random_uuid(), 'crawl', 'crawl', 'usual', 'tenant 0', now() - interval '3 hours', now(), '{{}}',
       '{{domain:5}}', 'domain:5'
  FROM generate_series(1, {MANY})
"""
IDLE = """
INSERT INTO windlass.limit_counters (key, name, most)
SELECT 'domain:idle ' || i, 'domain', 2 FROM generate_series(1, 20000) AS i ORDER BY hashint4(i)
"""


def limited(room: int = 1) -> tuple[Any, ...]:
    return claim_values(room=room, lanes=[CRAWL])


# A claim


@pytest.mark.parametrize("room", [1, 200])
async def test_a_claim_with_limits_reads_its_lane_in_the_order_of_its_index(world: World, room: int) -> None:
    plan = await world.explain("claim_limited", limited(room))

    assert plan.part("picked").nodes[0]["Actual Rows"] == room
    assert plan.indexes("jobs") == {"jobs_claim", "jobs_pkey"}
    assert plan.part("picked").kinds().isdisjoint({"Sort", "Incremental Sort"})
    assert "Seq Scan" not in {read["Node Type"] for read in plan.reads("limit_counters")}
    assert plan.part("picked").rows_read("jobs") <= 2 * room


async def test_a_claim_of_one_job_with_limits_touches_few_pages(world: World) -> None:
    plan = await world.explain("claim_limited", limited())

    assert plan.part("picked").buffers <= MOST_BUFFERS
    assert plan.part("counter").rows_read("limit_counters") == 1


async def test_a_claim_without_limits_reads_no_limit_counter(world: World) -> None:
    plan = await world.explain("claim", claim_values(lanes=LANES))

    assert not plan.reads("limit_counters")
    assert not plan.reads("limits")


async def buffers(name: str, statement: str, arguments: tuple[Any, ...], *given: str) -> int:
    """Pages of a statement in a database to which something was added."""
    async with visiting(name) as world:
        for change in given:
            await world.connection.execute(change)
        for table in ("jobs", "limit_counters"):
            await world.connection.execute(f"VACUUM ANALYZE windlass.{table}")
        return (await world.explain(statement, arguments)).buffers


async def test_a_claim_is_not_dearer_beside_a_crowd_that_is_parked(own: str) -> None:
    before = await buffers(own, "claim_limited", limited())
    after = await buffers(own, "claim_limited", limited(), CROWD)

    assert after <= before + 20


async def test_a_claim_is_not_dearer_beside_keys_that_nobody_waits_for(own: str) -> None:
    before = await buffers(own, "claim_limited", limited())
    after = await buffers(own, "claim_limited", limited(), IDLE)

    assert after <= before + 20


async def test_the_lanes_do_not_show_parked_jobs(own: str) -> None:
    before = await buffers(own, "lanes", (["usual"],))
    after = await buffers(own, "lanes", (["usual"],), CROWD)

    assert after <= before + 20


# Slots


async def test_a_slot_comes_back_by_its_key(world: World) -> None:
    plan = await world.explain("release_slots", ('[{"key": "domain:5", "n": 1}]',))

    assert plan.indexes("limit_counters") == {"limit_counters_pkey"}
    assert plan.buffers <= MOST_BUFFERS


async def test_the_first_of_a_key_is_let_in_by_the_order_of_its_index(world: World) -> None:
    given = "UPDATE windlass.limit_counters SET used = 1 WHERE key = 'domain:5'"

    plan = await world.explain("unpark", ('["domain:5"]',), given=given)

    assert plan.part("first").nodes[0]["Actual Rows"] == 1
    assert plan.indexes("jobs") == {"jobs_parked", "jobs_pkey"}
    assert plan.part("first").kinds().isdisjoint({"Sort", "Incremental Sort"})
    assert plan.buffers <= MOST_BUFFERS


async def test_a_crowd_at_a_key_makes_its_slot_no_dearer(own: str) -> None:
    room = "UPDATE windlass.limit_counters SET used = 1 WHERE key = 'domain:5'"
    before = await buffers(own, "unpark", ('["domain:5"]',), room)
    after = await buffers(own, "unpark", ('["domain:5"]',), CROWD)

    assert after <= before + 20


async def test_keys_with_parked_jobs_are_found_without_reading_the_jobs(world: World) -> None:
    plan = await world.explain("parked_keys")

    assert plan.nodes[0]["Actual Rows"] == FULL
    assert plan.indexes("jobs") == {"jobs_parked"}
    assert plan.rows_read("jobs") <= FULL + 1


async def test_a_crowd_at_a_key_is_one_step_of_the_look_for_keys(own: str) -> None:
    before = await buffers(own, "parked_keys", ())
    after = await buffers(own, "parked_keys", (), CROWD)

    assert after <= before + 2 * FULL  # a level more of the index for each key


async def test_a_key_is_met_by_its_name(world: World) -> None:
    plan = await world.explain("make_limit_counters", ('["domain:5", "domain:new"]',))

    assert plan.indexes("limit_counters") <= {"limit_counters_pkey"}
    assert plan.indexes("jobs") <= {"jobs_running"}
    assert plan.rows_read("jobs") <= 2 * (RUNNING + LIMITED)


@pytest.mark.parametrize(("statement", "index"), [("parked_jobs", "jobs_parked"), ("slot_holders", "jobs_running")])
async def test_a_look_at_a_key_reads_no_other_jobs(world: World, statement: str, index: str) -> None:
    plan = await world.explain(statement, ("domain:5", 50))

    assert plan.indexes("jobs") == {index}
    assert plan.rows_read("jobs") <= RUNNING + LIMITED


def test_a_plan_tells_its_parts() -> None:
    """The helpers of these tests work: a part of a plan is found, and a missing one is not."""
    plan = Plan({"Node Type": "Result", "Plans": [{"Node Type": "Sort", "Subplan Name": "CTE picked"}]})

    assert plan.part("picked").kinds() == {"Sort"}
    with pytest.raises(ValueError, match="not enough"):
        plan.part("counter")


BEHIND_A_GATE = f"""
INSERT INTO windlass.outbox (job, deliver_at, waits_for)
SELECT gen_random_uuid(), now() - interval '1 minute', 'gate:queue:report' FROM generate_series(1, {MANY})
"""


async def test_a_crowd_behind_a_gate_is_one_step_of_a_relay(own: str) -> None:
    """A hundred thousand rows of a paused queue must not be read by every lease of the outbox."""
    async with visiting(own) as world:
        await world.connection.execute(shut("queue", "report"))
        before = (await world.explain("lease_outbox", (100, 30.0))).buffers
        await world.connection.execute(BEHIND_A_GATE)
        await world.connection.execute("VACUUM ANALYZE windlass.outbox")

        plan = await world.explain("lease_outbox", (100, 30.0))

    assert plan.rows_read("outbox") <= 5
    assert plan.buffers <= before + MOST_BUFFERS


# SQLite


@pytest_asyncio.fixture(loop_scope="session")
async def file(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    await SqliteMigrator(f"sqlite:///{tmp_path}/jobs.db").migrate()
    with closing(open_file(tmp_path / "jobs.db")) as connection:
        yield connection


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("unpark", "windlass_jobs_parked (parked_on=?)"),
        ("release_slots", "sqlite_autoindex_windlass_limit_counters_1 (key=?)"),
        ("parked_jobs", "windlass_jobs_parked (parked_on=?)"),
        ("parked_keys", "windlass_jobs_parked (parked_on>?)"),
        ("slot_holders", "windlass_jobs_running"),
        ("charge", "sqlite_autoindex_windlass_jobs_1 (id=?)"),
    ],
)
async def test_on_a_file_admission_finds_its_rows_by_index(
    file: sqlite3.Connection, statement: str, index: str
) -> None:
    steps = []
    for part in query("sqlite", statement).split("-- then"):
        file.execute("SAVEPOINT explaining")
        steps += [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {part}", _values(part))]
        file.execute("ROLLBACK TO explaining")

    assert any(f"INDEX {index}" in step for step in steps), steps
    assert not [step for step in steps if step.startswith(("SCAN jobs", "SCAN windlass_jobs")) and "INDEX" not in step]


class Anything(dict[str, Any]):
    """A value for every parameter."""

    def __missing__(self, name: str) -> None:
        return None


def _values(text: str) -> Any:
    """What a statement is given: names, or a JSON parameter and the time."""
    numbers = [number for number in (2, 1) if f"?{number}" in text]
    return ("[]", 0)[: numbers[0]] if numbers else Anything()
