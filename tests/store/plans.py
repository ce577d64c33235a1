"""Reading plans of PostgreSQL's, and databases full of jobs to make them in.

A plan is judged by its shape and by the pages it touches, never by its time. PostgreSQL plans a statement for its very
arguments at first and for any arguments later, and it knows a table's contents only after an ANALYZE; so each
statement is explained in all four ways, in a transaction that is rolled back.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

from servers import administer, named
from windlass.model.job import Lease
from windlass.store.postgres.claim import MOST_PARKED
from windlass.store.postgres.floors import BEGINNING, Floor
from windlass.store.sql import ordered_query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


MOST_BUFFERS = 50  # per statement about one job (I10)
RUNNING, LIMITED = 300, 30  # running jobs without limits, and with
KEYS = 1_000  # of which every fifth is full
WORKER = UUID(int=0xA11CE)  # alive, and the one that claims
SHALLOW, USUAL, DEEP = 2_000, 20_000, 40_000  # queued jobs, and as many in the history


class LaneOf(NamedTuple):
    """Where claimable jobs are, as a claim names it."""

    queue: str
    urgency: int
    tenant: str
    limited: bool = False


LANES = [
    LaneOf(queue, -priority, f"tenant {2 * place + second}")
    for place, priority in enumerate((10, 5, 0))
    for second, queue in enumerate(("mail", "report"))
]
CRAWL = LaneOf("crawl", 0, "tenant 0", limited=True)
ALL_LANES = 2 * 3 * 7 + 1

# $1 jobs. Jobs wait in two queues with three priorities and seven tenants, oldest first; some are of a type or tenant
# that is shut, some are suspects. A fourth as many count against keys that have room, half as many are parked on keys
# that have none. Of fifty workers five are dead and five are silent. Nothing but the test itself may ANALYZE or VACUUM.
POPULATE = (
    """
INSERT INTO windlass.jobs (id, queue, phase, priority, type, tenant, crashes, run_at, updated_at, input)
SELECT gen_random_uuid(), queue, queue, i % 3 * 5, CASE WHEN i % 10 = 0 THEN 'rare' ELSE 'usual' END,
       'tenant ' || i % 7, (i % 10 = 2)::int, due, due, '{}'
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
    "INSERT INTO windlass.limits (name, most) VALUES ('domain', 2)",
    f"""
INSERT INTO windlass.limit_counters (key, name, most, used)
SELECT 'domain:' || i, 'domain', 2, CASE WHEN i % 5 = 0 THEN 2 ELSE 0 END FROM generate_series(1, {KEYS}) AS i
 ORDER BY hashint4(i)
""",
    f"""
INSERT INTO windlass.jobs (id, queue, phase, type, tenant, run_at, updated_at, input, limits)
SELECT gen_random_uuid(), 'crawl', 'crawl', 'usual', 'tenant 0', due, due, '{{}}',
       ARRAY['domain:' || i * 5 % {KEYS} + i % 4 + 1]
  FROM (SELECT i, now() - interval '1 hour' + i * interval '10 milliseconds' AS due
          FROM generate_series(1, $1::int / 4) AS i) AS made
""",
    f"""
INSERT INTO windlass.jobs (id, queue, phase, type, tenant, run_at, updated_at, input, limits, parked_on)
SELECT gen_random_uuid(), 'crawl', 'crawl', 'usual', 'tenant 0', due, due, '{{}}', ARRAY[key], key
  FROM (SELECT 'domain:' || (i * 5 - 1) % {KEYS} + 1 AS key,
               now() - interval '2 hours' + i * interval '10 milliseconds' AS due
          FROM generate_series(1, $1::int / 2) AS i) AS made
""",
    f"""
INSERT INTO windlass.jobs (id, type, queue, phase, input, status, token, worker, attempt, fence, limits)
SELECT gen_random_uuid(), 'usual', 'crawl', 'crawl', '{{}}', 'running', gen_random_uuid(), '{WORKER}', 1, 1,
       ARRAY['domain:' || i * 5]
  FROM generate_series(1, {LIMITED}) AS i
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
        """The indexes by which a table is read; a scan without one is named by its kind."""
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

    async def explain(
        self, name: str, arguments: tuple[Any, ...] = (), *, given: str = "", sql: str | None = None
    ) -> Plan:
        """Run a statement as the engine does, prepared, and undo it; with `sql`, that text of it.

        The cheapest of three runs: a session's first one reads the catalogue, too, and now and then one has to
        make the table longer.
        """
        return await self.explain_text(sql or statement(name), arguments, given=given)

    async def explain_text(self, sql: str, arguments: tuple[Any, ...] = (), *, given: str = "") -> Plan:
        """As `explain`, for a statement with the condition of a filter."""
        values = f"({', '.join(map(literal, arguments))})" if arguments else ""
        await self.connection.execute(f"PREPARE statement AS {sql}")
        try:
            return min([await self._run(f"statement {values}", given) for _ in range(3)], key=lambda plan: plan.buffers)
        finally:
            await self.connection.execute("DEALLOCATE statement")

    async def _run(self, execution: str, given: str) -> Plan:
        await self.connection.execute(f"BEGIN; {given}")
        plan = await self._explain(f"EXECUTE {execution}")
        await self.connection.execute("ROLLBACK")
        return plan

    async def explain_once(self, name: str) -> Plan:
        """For a statement without arguments, in the transaction that the caller began."""
        return await self._explain(statement(name))

    async def _explain(self, sql: str) -> Plan:
        answer = await self.connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}")
        return Plan(json.loads(answer)[0]["Plan"])

    async def leases(self, count: int, *, limited: bool = False) -> list[Lease]:
        found = await self.connection.fetch(
            "SELECT id, token, fence FROM windlass.jobs"
            " WHERE status = 'running' AND (limits IS NOT NULL) = $2 ORDER BY id LIMIT $1",
            count,
            limited,
        )
        return [Lease(*record) for record in found]


def literal(value: Any) -> str:
    """SQL for a value, without a type: PREPARE knows the types."""
    if value is None:
        return "NULL"
    text = _array(value) if isinstance(value, (list, tuple)) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _array(values: list[Any] | tuple[Any, ...]) -> str:
    quoted = ("NULL" if value is None else json.dumps(str(value)) for value in values)
    return "{" + ",".join(quoted) + "}"


def statement(name: str) -> str:
    """The text of a statement; `claim_by_creation` is the claim in the order of `created_at`."""
    if name == "claim_by_creation":
        return ordered_query("postgres", "claim", "created_at")
    return ordered_query("postgres", name, "run_at")


async def populate(jobs: int, analysed: bool, *, when_quiet: bool = False) -> str:
    """A new database full of jobs: its name. `when_quiet`: it was analysed when it held one job."""
    import asyncpg

    from windlass.store.postgres.migrator import PostgresMigrator

    name = f"windlass_plans_{uuid4().hex[:12]}"
    administer(f"CREATE DATABASE {name}")
    await PostgresMigrator(named(name)).migrate()
    connection = await asyncpg.connect(named(name))
    try:
        for (table,) in await connection.fetch("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"):
            if table.startswith("windlass."):
                await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        if when_quiet:
            await connection.execute(POPULATE[0], 1)
            await connection.execute("ANALYZE")
        for statement in POPULATE:
            await connection.execute(statement, *([jobs] if "$1" in statement else []))
        if analysed:
            await connection.execute("ANALYZE")
    finally:
        await connection.close()
    return name


@asynccontextmanager
async def visiting(name: str, planning: str = "auto") -> AsyncIterator[World]:
    from windlass.store.postgres.connections.pool import connect

    url = named(name)
    connection = await connect(url)
    try:
        await connection.execute(f"SET plan_cache_mode = {planning}")
        yield World(connection, url)
    finally:
        await connection.close()


def claim_values(
    *,
    room: int = 1,
    types: tuple[str, ...] = ("usual", "rare"),
    aged: int = 0,
    suspects: str = "with",
    untouched: float = 0.0,
    overdue: float = 0.0,
    lanes: list[LaneOf] = LANES,
    floor: Floor = BEGINNING,
) -> tuple[Any, ...]:
    """Arguments of a claim, as the store gives them; jobs with limits are claimed by another statement."""
    queues, urgencies, tenants, limited = zip(*lanes, strict=True)
    many = len(lanes)
    found = (WORKER, room, uuid4(), types, aged, suspects, untouched, queues, [0] * many, urgencies, tenants, limited)
    bounds = ([room] * many, [floor.run_at] * many, [floor.id] * many, [None] * many, len(set(queues)) > 1)
    asked = (*found, *bounds, None, overdue)
    return (*asked, MOST_PARKED) if any(limited) else asked


def shut(kind: str, name: str) -> str:
    return f"INSERT INTO windlass.gates (kind, name, state) VALUES ('{kind}', '{name}', 'paused')"
