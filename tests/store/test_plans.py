"""The plans of the hot path stay what they were designed to be: rows by index, whatever the statistics say.

A plan is judged by its shape and by the pages it touches, never by its time. PostgreSQL plans a statement for its very
arguments at first and for any arguments later, and it knows a table's contents only after an ANALYZE; so each
statement is explained in all four ways, in a transaction that is rolled back.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import pytest

from windlass.job import Lease
from windlass.outcome import Transition
from windlass.state import Verb
from windlass.store.postgres.floors import BEGINNING, Floor
from windlass.store.sql import query
from windlass.store.sqlite.file import connect as open_file
from windlass.store.sqlite.migrator import SqliteMigrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

URL = "WINDLASS_TEST_POSTGRES_URL"

MOST_BUFFERS = 50  # per statement about one job (I10)
RUNNING = 300
WORKER = UUID(int=0xA11CE)  # alive, and the one that claims
LANES = [(queue, -priority) for priority in (10, 5, 0) for queue in ("mail", "report")]
SHALLOW, USUAL, DEEP = 2_000, 20_000, 40_000  # queued jobs, and as many in the history

# $1 jobs. Jobs wait in six lanes, oldest first; some are of a type or tenant that is shut, some are suspects. Of fifty
# workers five are dead and five are silent. Nothing but the test itself may ANALYZE or VACUUM.
POPULATE = (
    """
INSERT INTO windlass.jobs (id, queue, phase, priority, type, tenant, crashes, run_at, updated_at, input)
SELECT gen_random_uuid(), queue, queue, i % 3 * 5, CASE WHEN i % 10 = 0 THEN 'rare' ELSE 'usual' END,
       'tenant ' || i % 7, (i % 50 = 0)::int, due, due, '{}'
  FROM (SELECT i, CASE WHEN i % 2 = 0 THEN 'mail' ELSE 'report' END AS queue,
               now() - interval '1 hour' + i * interval '10 milliseconds' AS due
          FROM generate_series(1, $1::int) AS i) AS made
""",
    """
INSERT INTO windlass.history (id, type, input, status, finished_at)
SELECT gen_random_uuid(), 'usual', '{}', 'succeeded', now() - i % 4 * interval '1 day'
  FROM generate_series(1, $1::int) AS i
""",
    """
INSERT INTO windlass.workers (id, name, alive_until, dead, concurrency, types)
SELECT gen_random_uuid(), 'host:' || i, now() + CASE WHEN i < 10 THEN -1 ELSE 1 END * interval '1 hour', i < 5, 10,
       '{usual}'
  FROM generate_series(0, 49) AS i
""",
    f"INSERT INTO windlass.workers (id, name, alive_until, concurrency, types)"
    f" VALUES ('{WORKER}', 'claims', now() + interval '1 hour', 10, '{{usual}}')",
    f"""
INSERT INTO windlass.jobs (id, type, input, status, token, worker, attempt, fence)
SELECT gen_random_uuid(), 'usual', '{{}}', 'running', gen_random_uuid(), held.id, 1, 1
  FROM generate_series(0, {RUNNING - 1}) AS i
  JOIN (SELECT id, row_number() OVER (ORDER BY id) AS place FROM windlass.workers) AS held ON held.place = i % 50 + 1
""",
)


# Reading a plan


class Plan:
    """What PostgreSQL did for one statement."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self.nodes = list(_walk(root))

    @property
    def buffers(self) -> int:
        """Pages touched, cached or not."""
        return int(self._root["Shared Hit Blocks"] + self._root["Shared Read Blocks"])

    def part(self, name: str) -> Plan:
        (found,) = [node for node in self.nodes if node.get("Subplan Name") == f"CTE {name}"]
        return Plan(found)

    def kinds(self) -> set[str]:
        return {node["Node Type"] for node in self.nodes}

    def reads(self, table: str) -> list[dict[str, Any]]:
        """Scans of a table or of its partitions."""
        return [node for node in self.nodes if "Scan" in node["Node Type"] and _is_of(node, table)]

    def indexes(self, table: str) -> set[str]:
        """The indexes by which a table is read; a scan without one is told by its kind."""
        return {
            below.get("Index Name", below["Node Type"])
            for read in self.reads(table)
            for below in (read.get("Plans", ()) if read["Node Type"] == "Bitmap Heap Scan" else (read,))
        }

    def rows_read(self, table: str) -> int:
        """Rows that came out of its indexes, wanted or not."""
        return sum(
            read["Actual Loops"] * (read["Actual Rows"] + read.get("Rows Removed by Filter", 0))
            for read in self.reads(table)
        )


def _is_of(node: dict[str, Any], table: str) -> bool:
    relation = str(node.get("Relation Name"))
    return relation == table or relation.startswith(f"{table}_")


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


# A database full of jobs


@dataclass
class World:
    """A connection with the engine's settings, to a database full of jobs."""

    connection: Any
    url: str

    async def explain(self, name: str, arguments: tuple[Any, ...] = (), *, given: str = "") -> Plan:
        """Run a statement as the engine does, prepared, and undo it.

        The cheapest of three runs: a session's first one reads the catalogue, too, and now and then one has to
        make the table longer.
        """
        values = f"({', '.join(map(_literal, arguments))})" if arguments else ""
        await self.connection.execute(f"PREPARE statement AS {query('postgres', name)}")
        try:
            return min([await self._run(f"statement {values}", given) for _ in range(3)], key=lambda plan: plan.buffers)
        finally:
            await self.connection.execute("DEALLOCATE statement")

    async def _run(self, execution: str, given: str) -> Plan:
        await self.connection.execute(f"BEGIN; {given}")
        told = await self.connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {execution}")
        await self.connection.execute("ROLLBACK")
        return Plan(json.loads(told)[0]["Plan"])

    async def leases(self, count: int) -> list[Lease]:
        found = await self.connection.fetch(
            "SELECT id, token, fence FROM windlass.jobs WHERE status = 'running' ORDER BY id LIMIT $1", count
        )
        return [Lease(*record) for record in found]


def _literal(value: Any) -> str:
    """SQL for a value, without a type: PREPARE knows the types."""
    if value is None:
        return "NULL"
    text = _array(value) if isinstance(value, (list, tuple)) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _array(values: list[Any] | tuple[Any, ...]) -> str:
    quoted = ("NULL" if value is None else json.dumps(str(value)) for value in values)
    return "{" + ",".join(quoted) + "}"


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[int, bool], str]]:
    """Databases by the number of their jobs and by whether they were analysed, made when they are asked for."""
    server = os.environ.get(URL)
    if server is None:
        pytest.skip(f"{URL} is not set; run: make test")
    made: dict[tuple[int, bool], str] = {}

    def database(jobs: int, analysed: bool) -> str:
        if (jobs, analysed) not in made:
            made[jobs, analysed] = asyncio.run(_make(server, jobs, analysed))
        return made[jobs, analysed]

    yield database
    for name in made.values():
        asyncio.run(_administer(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def _make(server: str, jobs: int, analysed: bool) -> str:
    import asyncpg

    from windlass.store.postgres.migrator import PostgresMigrator

    name = f"windlass_plans_{uuid4().hex[:12]}"
    await _administer(server, f"CREATE DATABASE {name}")
    await PostgresMigrator(_database(server, name)).migrate()
    connection = await asyncpg.connect(_database(server, name))
    try:
        for (table,) in await connection.fetch("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"):
            if table.startswith("windlass."):
                await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        for statement in POPULATE:
            await connection.execute(statement, *([jobs] if "$1" in statement else []))
        if analysed:
            await connection.execute("ANALYZE")
    finally:
        await connection.close()
    return name


async def _administer(url: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@asynccontextmanager
async def visiting(name: str, planning: str = "auto") -> AsyncIterator[World]:
    from windlass.store.postgres.pool import connect

    url = _database(os.environ[URL], name)
    connection = await connect(url)
    try:
        await connection.execute(f"SET plan_cache_mode = {planning}")
        yield World(connection, url)
    finally:
        await connection.close()


@pytest.fixture(params=["analysed", "never analysed"])
def name(request: pytest.FixtureRequest, databases: Callable[[int, bool], str]) -> str:
    """Not async: the databases are made on a loop of their own."""
    return databases(USUAL, request.param == "analysed")


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
async def world(request: pytest.FixtureRequest, name: str) -> AsyncIterator[World]:
    async with visiting(name, request.param) as world:
        yield world


@pytest.fixture
def own(databases: Callable[[int, bool], str]) -> Iterator[str]:
    """A copy for a test that commits."""
    name = f"windlass_plans_{uuid4().hex[:12]}"
    source = databases(USUAL, True)
    asyncio.run(_administer(os.environ[URL], f"CREATE DATABASE {name} TEMPLATE {source}"))
    yield name
    asyncio.run(_administer(os.environ[URL], f"DROP DATABASE {name} WITH (FORCE)"))


def wish(
    *,
    room: int = 1,
    types: tuple[str, ...] = ("usual", "rare"),
    aged: int = 0,
    suspects: str = "with",
    rest: float = 0.0,
    lanes: list[tuple[str, int]] = LANES,
    floor: Floor = BEGINNING,
) -> tuple[Any, ...]:
    """Arguments of a claim, as the store gives them."""
    queues, urgencies = [queue for queue, _ in lanes], [urgency for _, urgency in lanes]
    zeros, times, ids = [0] * len(lanes), [floor.run_at] * len(lanes), [floor.id] * len(lanes)
    return (WORKER, room, uuid4(), types, aged, suspects, rest, queues, zeros, urgencies, times, ids)


def shut(kind: str, name: str) -> str:
    return f"INSERT INTO windlass.gates (kind, name, state) VALUES ('{kind}', '{name}', 'paused')"


# PostgreSQL: claim

WISHES: dict[str, tuple[tuple[Any, ...], str]] = {
    "one": (wish(), ""),
    "many": (wish(room=200), ""),
    "with the oldest": (wish(room=20, aged=2), ""),
    "of one type": (wish(types=("rare",)), ""),
    "with a shut type": (wish(), shut("type", "rare")),
    "with a shut tenant": (wish(), shut("tenant", "tenant 1")),
    "with a shut queue": (wish(), shut("queue", "mail")),
    "without suspects": (wish(suspects="without"), ""),
    "of suspects": (wish(suspects="only"), ""),
    "of rested jobs": (wish(rest=30.0), ""),
}


@pytest.mark.parametrize("kind", WISHES)
async def test_a_claim_reads_its_lanes_in_the_order_of_their_index(world: World, kind: str) -> None:
    arguments, given = WISHES[kind]

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


@pytest.mark.parametrize("kind", sorted(WISHES.keys() - {"many", "with the oldest"}))
async def test_a_claim_of_one_job_touches_few_pages(world: World, kind: str) -> None:
    arguments, given = WISHES[kind]

    plan = await world.explain("claim", arguments, given=given)

    assert plan.part("picked").nodes[0]["Actual Rows"] == 1
    assert plan.buffers <= MOST_BUFFERS


async def test_a_claim_with_everything_shut_reads_no_job(world: World) -> None:
    plan = await world.explain("claim", wish(), given=shut("all", ""))

    assert plan.rows_read("jobs") == 0


def test_a_claim_is_not_dearer_in_a_deep_queue_with_a_long_history(databases: Callable[[int, bool], str]) -> None:
    async def buffers(name: str) -> int:
        async with visiting(name) as world:
            return (await world.explain("claim", wish())).buffers

    shallow, deep = (asyncio.run(buffers(databases(jobs, True))) for jobs in (SHALLOW, DEEP))

    one_level_more = len(LANES) + 1 + 1  # of the claim's index per lane and pick, of the primary key
    assert deep <= shallow + one_level_more
    assert deep <= MOST_BUFFERS


# PostgreSQL: a held snapshot, under which nothing dead can be removed

DEAD = 5_000
RESCUE = (3, 30, 500)  # most crashes, most rescues, page
LANE = [("mail", 0)]
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

        below = await world.explain("claim", wish(lanes=LANE))
        above = await world.explain("claim", wish(lanes=LANE, floor=floor))

    assert below.buffers > MOST_BUFFERS  # or this story has no dead in it
    assert above.buffers <= MOST_BUFFERS


async def test_given_a_held_snapshot_a_claim_starts_above_the_dead_of_its_own_enqueue(own: str) -> None:
    async with visiting(own) as world, snapshot_held(world):
        await many_in_one_lane(world, "now() - interval '2 hours'")
        floor = max(Floor(record["run_at"], record["id"]) for record in await world.connection.fetch(PASSED))

        plan = await world.explain("claim", wish(lanes=LANE, floor=floor))

    assert plan.buffers <= MOST_BUFFERS


@pytest.mark.parametrize("statement", ["finish", "settle"])
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


# PostgreSQL: finish, settle, sweep, find


def endings(statement: str, leases: list[Lease]) -> tuple[Any, ...]:
    from windlass.store.postgres import rows

    if statement == "finish":
        return rows.finish_arguments(
            [Transition(lease=lease, verb=Verb.SUCCEED, attempt=1) for lease in leases], followed=False
        )
    return rows.settle_arguments(
        [Transition(lease=lease, verb=Verb.FAIL, attempt=1) for lease in leases], followed=False
    )


@pytest.mark.parametrize("count", [1, 200])
@pytest.mark.parametrize("statement", ["finish", "settle"])
async def test_an_ending_finds_its_jobs_by_id(world: World, statement: str, count: int) -> None:
    plan = await world.explain(statement, endings(statement, await world.leases(count)))

    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert all("id =" in read["Index Cond"] for read in plan.reads("jobs"))
    assert count > 1 or plan.buffers <= MOST_BUFFERS


async def test_a_rescue_looks_at_running_jobs_only_and_once(world: World) -> None:
    plan = await world.explain("rescue", RESCUE)

    assert plan.indexes("jobs") <= {"jobs_running", "jobs_pkey"}
    assert plan.rows_read("jobs") <= 4 * RUNNING  # who holds what, whose holder is dead, the verdict, the write


async def test_a_burial_reads_no_jobs(world: World) -> None:
    plan = await world.explain("bury_workers")

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


async def test_the_lanes_are_found_without_reading_their_jobs(world: World) -> None:
    plan = await world.explain("lanes", (["usual", "rare"],))

    assert plan.indexes("jobs") == {"jobs_claim"}
    assert plan.rows_read("jobs") <= 2 * len(LANES)


# SQLite


class Anything(dict[str, Any]):
    """A value for every parameter."""

    def __missing__(self, name: str) -> None:
        return None


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    await SqliteMigrator(f"sqlite:///{tmp_path}/jobs.db").migrate()
    with closing(open_file(tmp_path / "jobs.db")) as connection:
        yield connection


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("due", "windlass_jobs_claim"),
        ("next_due", "windlass_jobs_claim"),
        ("lanes", "windlass_jobs_claim"),
        ("claim", "sqlite_autoindex_windlass_jobs_1"),
        ("finish", "sqlite_autoindex_windlass_jobs_1"),
        ("settle", "sqlite_autoindex_windlass_jobs_1"),
        ("rescue", "windlass_jobs_running"),
        ("find", "windlass_history_id"),
    ],
)
async def test_on_a_file_every_statement_finds_its_jobs_by_index(
    file: sqlite3.Connection, statement: str, index: str
) -> None:
    steps = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {query('sqlite', statement)}", Anything())]

    assert any(f"INDEX {index}" in step for step in steps)
    assert not [step for step in steps if step.startswith(("SCAN jobs", "SCAN windlass_")) and "INDEX" not in step]


async def test_on_a_file_a_claim_sorts_nothing(file: sqlite3.Connection) -> None:
    steps = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {query('sqlite', 'due')}", Anything())]

    assert not [step for step in steps if "TEMP B-TREE" in step]
    assert any("(queue=? AND phase_rank=? AND priority=? AND run_at<?)" in step for step in steps)
