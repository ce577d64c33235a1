"""The plans of the hot path stay what they were designed to be: rows by index, under any statistics."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from windlass.model.filter import parse
from windlass.model.outcome import Transition
from windlass.model.state import Verb
from windlass.store.parts.search import POSTGRES, SQLITE, listing
from windlass.store.postgres.finish import Reach
from windlass.store.postgres.floors import Floor
from windlass.store.sql import ordered_query, search_query
from windlass.store.sqlite.connections.file import connect as open_file
from windlass.store.sqlite.migrator import SqliteMigrator
from windlass.store.sqlite.rows import named, numbered

from .plans import (
    ALL_LANES,
    DEEP,
    LANES,
    LIMITED,
    MOST_BUFFERS,
    RUNNING,
    SHALLOW,
    LaneOf,
    claim_values,
    shut,
    visiting,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from windlass.model.job import Lease

    from .plans import World

# PostgreSQL: claim

pytestmark = pytest.mark.postgres

CLAIMS: dict[str, tuple[tuple[Any, ...], str]] = {
    "one": (claim_values(), ""),
    "many": (claim_values(room=200), ""),
    "with the oldest": (claim_values(room=20, aged=2), ""),
    "of one type": (claim_values(types=("rare",)), ""),
    "with a shut type": (claim_values(), shut("type", "rare")),
    "with a shut tenant": (claim_values(), shut("tenant", "tenant 0")),
    "with a shut queue": (claim_values(), shut("queue", "mail")),
    "without suspects": (claim_values(suspects="without"), ""),
    "of suspects": (claim_values(suspects="only"), ""),
    "of rested jobs": (claim_values(untouched=30.0), ""),
    "of overdue jobs": (claim_values(untouched=30.0, overdue=30.0), ""),
}


@pytest.mark.parametrize("kind", CLAIMS)
async def test_a_claim_reads_its_lanes_in_the_order_of_their_index(world: World, kind: str) -> None:
    arguments, given = CLAIMS[kind]

    plan = await world.explain("claim", arguments, given=given)

    assert plan.indexes("jobs") == {"jobs_claim", "jobs_pkey"}
    picked = plan.part("picked")
    assert picked.kinds().isdisjoint({"Sort", "Incremental Sort"})
    (lane,) = picked.reads("jobs")
    assert lane["Index Name"] == "jobs_claim"
    assert all(_bounded(read) for read in plan.reads("jobs") if read["Index Name"] == "jobs_claim")


def _bounded(read: dict[str, Any]) -> bool:
    """Whether the index itself begins at the floor and ends at now."""
    condition = read["Index Cond"]
    return "run_at" in condition and ">=" in condition and "run_at <=" in condition


@pytest.mark.parametrize("planning", ["force_custom_plan", "force_generic_plan"])
async def test_a_claim_of_one_job_touches_few_pages(untouched: str, planning: str) -> None:
    async with visiting(untouched, planning) as world:
        for kind in sorted(CLAIMS.keys() - {"many", "with the oldest"}):
            arguments, given = CLAIMS[kind]

            plan = await world.explain("claim", arguments, given=given)

            assert plan.part("picked").nodes[0]["Actual Rows"] == 1, kind
            assert plan.buffers <= MOST_BUFFERS, kind


async def test_a_claim_with_everything_shut_reads_no_job(world: World) -> None:
    plan = await world.explain("claim", claim_values(), given=shut("all", ""))

    assert plan.rows_read("jobs") == 0


def test_a_claim_is_not_dearer_in_a_deep_queue_with_a_long_history(databases: Callable[[int, bool], str]) -> None:
    async def buffers(name: str) -> int:
        async with visiting(name) as world:
            return (await world.explain("claim", claim_values())).buffers

    shallow, deep = (asyncio.run(buffers(databases(jobs, True))) for jobs in (SHALLOW, DEEP))

    one_level_more = len(LANES) + 1 + 2  # of the claim's index per lane and pick, of the primary key for find and write
    assert deep <= shallow + one_level_more
    assert deep <= MOST_BUFFERS


# PostgreSQL: a held snapshot, under which nothing dead can be removed

DEAD = 5_000
RESCUE: tuple[Any, ...] = (3, 30, 500, [], False, False, True, "0" * 12)
"""Most crashes, most rescues, page, all but these, crash_counts, blames, fingerprint."""
LANE = [LaneOf("mail", 0, "default")]
PASSED = (
    f"DELETE FROM windlass.jobs WHERE id IN (SELECT id FROM windlass.jobs WHERE status = 'queued' AND queue = 'mail'"
    f" AND priority = 0 ORDER BY run_at, id LIMIT {DEAD}) RETURNING run_at, id"
)


@asynccontextmanager
async def snapshot_held(world: World) -> AsyncIterator[None]:
    import asyncpg

    connection = await asyncpg.connect(world.url)
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT count(*) FROM windlass.jobs")
        yield
    finally:
        await connection.close()


async def many_in_one_lane(world: World, run_at: str) -> None:
    await world.connection.execute(
        "INSERT INTO windlass.jobs (id, queue, phase, type, run_at, updated_at, input)"
        f" SELECT gen_random_uuid(), 'mail', 'mail', 'usual', {run_at}, now(), '{{}}'"
        f"   FROM generate_series(1, {2 * DEAD}) AS i"
    )


async def test_given_a_held_snapshot_a_claim_starts_above_the_dead(own: str) -> None:
    async with visiting(own) as world, snapshot_held(world):
        await many_in_one_lane(world, "now() - interval '2 hours' + i * interval '1 millisecond'")
        floor = max(Floor(record["run_at"], record["id"]) for record in await world.connection.fetch(PASSED))

        below = await world.explain("claim", claim_values(lanes=LANE))
        above = await world.explain("claim", claim_values(lanes=LANE, floor=floor))

    assert below.buffers > MOST_BUFFERS  # or this story has no dead in it
    assert above.buffers <= MOST_BUFFERS


async def test_given_a_held_snapshot_a_claim_starts_above_the_dead_of_its_own_enqueue(own: str) -> None:
    async with visiting(own) as world, snapshot_held(world):
        await many_in_one_lane(world, "now() - interval '2 hours'")
        floor = max(Floor(record["run_at"], record["id"]) for record in await world.connection.fetch(PASSED))

        plan = await world.explain("claim", claim_values(lanes=LANE, floor=floor))

    assert plan.buffers <= MOST_BUFFERS


@pytest.mark.parametrize("statement", ["finish", "finish_staying"])
async def test_given_a_held_snapshot_an_ending_does_not_walk_over_the_dead(own: str, statement: str) -> None:
    async with visiting(own, "force_generic_plan") as world, snapshot_held(world):
        arguments = endings(statement, await world.leases(1))
        before = await world.explain(statement, arguments)

        await passed_through(world)
        after = await world.explain(statement, arguments)

    assert after.buffers <= before.buffers + MOST_BUFFERS


async def test_given_a_held_snapshot_a_rescue_does_not_walk_over_the_dead(own: str) -> None:
    async with visiting(own) as world, snapshot_held(world):
        before = await world.explain("rescue", RESCUE)

        await passed_through(world)
        after = await world.explain("rescue", RESCUE)

    assert after.part("orphan").buffers <= before.part("orphan").buffers + MOST_BUFFERS


async def passed_through(world: World) -> None:
    """Thousands of jobs were claimed by one worker and finished."""
    await world.connection.execute(
        "INSERT INTO windlass.jobs (id, type, input, status, token, worker)"
        " SELECT gen_random_uuid(), 'passed', '{}', 'running', gen_random_uuid(), (SELECT min(id::text)::uuid"
        f" FROM windlass.workers WHERE NOT dead) FROM generate_series(1, {DEAD})"
    )
    await world.connection.execute("DELETE FROM windlass.jobs WHERE type = 'passed'")


# PostgreSQL: finish, sweep, find


def endings(statement: str, leases: list[Lease]) -> tuple[Any, ...]:
    from windlass.store.postgres import rows

    if statement != "finish_staying":
        reach = Reach.PLAIN if statement == "finish" else Reach.LIMITED
        return rows.finish_arguments(
            [Transition(lease=lease, verb=Verb.SUCCEED, attempt=1) for lease in leases], reach=reach
        )
    return rows.finish_staying_arguments(
        [Transition(lease=lease, verb=Verb.FAIL, attempt=1) for lease in leases], reach=Reach.PLAIN
    )


@pytest.mark.parametrize("count", [1, 200])
@pytest.mark.parametrize("statement", ["finish", "finish_staying"])
async def test_an_ending_finds_its_jobs_by_id(world: World, statement: str, count: int) -> None:
    plan = await world.explain(statement, endings(statement, await world.leases(count)))

    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert all("id =" in read["Index Cond"] for read in plan.reads("jobs"))
    assert count > 1 or plan.buffers <= MOST_BUFFERS


@pytest.mark.parametrize("count", [1, 30])
async def test_an_ending_finds_its_slots_by_their_keys(world: World, count: int) -> None:
    leases = await world.leases(count, limited=True)

    plan = await world.explain("finish_with_slots", endings("finish_with_slots", leases))

    assert len(leases) == count
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.indexes("limit_counters") == {"limit_counters_pkey"}
    assert count > 1 or plan.buffers <= MOST_BUFFERS


async def test_a_rescue_looks_at_running_jobs_only_and_once(world: World) -> None:
    plan = await world.explain("rescue", RESCUE)

    assert plan.indexes("jobs") <= {"jobs_running", "jobs_pkey"}
    assert plan.rows_read("jobs") <= 4 * (
        RUNNING + LIMITED
    )  # jobs by holder, holders that are dead, the verdict, the write


async def test_a_burial_reads_no_jobs(world: World) -> None:
    plan = await world.explain("mark_workers_dead")

    assert not plan.reads("jobs")
    assert plan.nodes[0]["Actual Rows"] == 5


@pytest.mark.parametrize("table", ["jobs", "history"])
async def test_a_job_is_found_by_its_id_wherever_it_is(world: World, table: str) -> None:
    job = await world.connection.fetchval(f"SELECT id FROM windlass.{table} OFFSET 100 LIMIT 1")

    plan = await world.explain("find", (job,))

    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert all(index.endswith("id_idx") for index in plan.indexes("history"))
    assert plan.rows_read("jobs") + plan.rows_read("history") == 1
    assert plan.buffers <= MOST_BUFFERS


LINKS = """
INSERT INTO windlass.links (job, name, target)
SELECT md5((i % 20)::text)::uuid, 'match[' || i || ']', id
  FROM (SELECT id, row_number() OVER () AS i FROM windlass.jobs LIMIT 10000) AS target
"""  # 500 links of each of 20 jobs


async def test_the_page_of_a_job_reads_links_and_jobs_by_index_and_no_more_than_it_shows(world: World) -> None:
    job = await world.connection.fetchval("SELECT md5('0')::uuid")

    counted = await world.explain("link_groups", (job, 300), given=LINKS)
    around = await world.explain("relatives", ([job], 200), given=LINKS)

    assert counted.indexes("links") == around.indexes("links") == {"links_pkey"}
    assert counted.indexes("jobs") == {"jobs_pkey"}
    assert all(index.endswith("id_idx") for index in counted.indexes("history"))
    assert (counted.rows_read("links"), around.rows_read("links")) == (300, 200)
    assert counted.rows_read("jobs") <= 300


async def test_an_operators_index_of_trigrams_finds_a_job_by_an_argument(own: str) -> None:
    """The index that docs/cli.md names: the condition looks for the text in a document before it walks through it."""
    name, condition, names, parameters = listing(parse("input.to:user77@example.org"), POSTGRES, 3, None)
    async with visiting(own) as world:
        await world.connection.execute("""
            CREATE SEQUENCE numbers;
            UPDATE windlass.jobs SET input = json_build_object('to', format('user%s@example.org', nextval('numbers')));
            CREATE EXTENSION pg_trgm;
            CREATE INDEX arguments ON windlass.jobs USING gist ((input::text) gist_trgm_ops);
            ANALYZE windlass.jobs""")
        plan = await world.explain_text(search_query("postgres", name, condition, names), (50, None, *parameters))

    assert plan.indexes("jobs") == {"arguments"}
    assert plan.rows_read("jobs") < 100


async def test_the_lanes_are_found_without_reading_their_jobs(world: World) -> None:
    plan = await world.explain("lanes", (["usual", "rare"],))

    assert plan.indexes("jobs") == {"jobs_claim"}
    assert plan.rows_read("jobs") <= 2 * ALL_LANES


# SQLite


class Anything(dict[str, Any]):
    """A value for every parameter."""

    def __missing__(self, name: str) -> None:
        return None


@pytest_asyncio.fixture(loop_scope="session")
async def file(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    await SqliteMigrator(f"sqlite:///{tmp_path}/jobs.db").migrate()
    with closing(open_file(tmp_path / "jobs.db")) as connection:
        yield connection


def explained(statement: str) -> str:
    return "EXPLAIN QUERY PLAN " + ordered_query("sqlite", statement, "run_at")


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("due_jobs", "windlass_jobs_claim"),
        ("next_due_in_lane", "windlass_jobs_claim"),
        ("lanes", "windlass_jobs_claim"),
        ("claim", "sqlite_autoindex_windlass_jobs_1"),
        ("finish", "sqlite_autoindex_windlass_jobs_1"),
        ("finish_staying", "sqlite_autoindex_windlass_jobs_1"),
        ("rescue", "windlass_jobs_running"),
        ("find", "windlass_history_id"),
        ("find_brief", "windlass_history_id"),
        ("link_groups", "windlass_history_id"),
        ("relatives", "sqlite_autoindex_windlass_links_1"),
        ("delivered_jobs", "sqlite_autoindex_windlass_jobs_1"),
        ("refuse_delivered", "sqlite_autoindex_windlass_jobs_1"),
        ("undelivered_jobs", "windlass_jobs_claim"),
        ("publish_again", "windlass_outbox_job"),
        ("due_outbox", "windlass_outbox_due"),
    ],
)
async def test_on_a_file_every_statement_finds_its_jobs_by_index(
    file: sqlite3.Connection, statement: str, index: str
) -> None:
    steps = [row[3] for row in file.execute(explained(statement), Anything())]

    assert any(f"INDEX {index}" in step for step in steps)
    assert not [step for step in steps if step.startswith(("SCAN jobs", "SCAN windlass_")) and "INDEX" not in step]


@pytest.mark.parametrize("statement", ["free_outbox", "next_in_outbox", "outbox_size"])
async def test_on_a_file_the_outbox_is_read_by_its_indexes(file: sqlite3.Connection, statement: str) -> None:
    steps = [row[3] for row in file.execute(explained(statement), Anything())]

    assert not [step for step in steps if "SCAN windlass_" in step and "INDEX" not in step and "outbox" in step]
    assert not [step for step in steps if "windlass_budgets" in step and "SCAN" in step]
    assert not [step for step in steps if "AUTOMATIC" in step]


async def test_on_a_file_lanes_search_gates_and_budgets_by_name(file: sqlite3.Connection) -> None:
    """An automatic index would be made from every budget there is, in each claim."""
    steps = [row[3] for row in file.execute(explained("lanes"), Anything())]

    assert any("SEARCH windlass_budgets" in step and "name=?" in step for step in steps)
    assert not [step for step in steps if "AUTOMATIC" in step]


async def test_on_a_file_a_claim_sorts_nothing(file: sqlite3.Connection) -> None:
    steps = [row[3] for row in file.execute(explained("due_jobs"), Anything())]

    assert not [step for step in steps if "TEMP B-TREE" in step]
    lane = "(queue=? AND phase_rank=? AND priority=? AND tenant=? AND <expr>=? AND (run_at,id)>(?,?) AND run_at<?)"
    assert any(lane in step for step in steps)


async def test_on_a_file_a_list_by_state_reads_no_job_of_another_state(file: sqlite3.Connection) -> None:
    """Given 2,000 queued jobs, when dead ones are listed, then it takes as many steps as without them."""
    name, condition, names, parameters = listing(parse("state:dead"), SQLITE, 4, None)
    statement = numbered(search_query("sqlite", name, condition, names))

    def count_steps() -> int:
        steps: list[None] = []
        file.set_progress_handler(lambda: steps.append(None), 1)
        file.execute(statement, named((0, 50, None, *parameters))).fetchall()
        file.set_progress_handler(None, 0)
        return len(steps)

    without = count_steps()
    file.execute(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 2000)"
        " INSERT INTO windlass_jobs (id, type, input, run_at, created_at, updated_at)"
        " SELECT printf('%032x', n), 'usual', '{}', 0, 0, 0 FROM number"
    )

    assert count_steps() < without + 500
