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
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import pytest

from windlass.job import Lease
from windlass.outcome import Transition
from windlass.state import Verb
from windlass.store.sql import query
from windlass.store.sqlite.file import connect as open_file
from windlass.store.sqlite.migrator import SqliteMigrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

URL = "WINDLASS_TEST_POSTGRES_URL"

MOST_BUFFERS = 50  # per statement about one job (I10)
RUNNING = 300
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
        """Scans of a table; an index's bitmap names its table only above itself."""
        return [node for node in self.nodes if node.get("Relation Name") == table and "Scan" in node["Node Type"]]

    def indexes(self, table: str) -> set[str]:
        """The indexes by which a table is read; a scan without one is named by its kind."""
        return {node.get("Index Name", node["Node Type"]) for node in self.reads(table)}

    def rows_read(self, table: str) -> float:
        return sum(node["Actual Loops"] * _passed(node) for node in self.reads(table))


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


def _passed(node: dict[str, Any]) -> float:
    return float(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0))


# A database full of jobs


@dataclass
class World:
    """A connection with the engine's settings, to a database full of jobs."""

    connection: Any
    url: str

    async def explain(self, name: str, arguments: tuple[Any, ...], *, given: str = "") -> Plan:
        """Run a statement as the engine does, prepared, and undo it."""
        await self.connection.execute(f"PREPARE statement AS {query('postgres', name)}")
        try:
            await self.connection.execute(f"BEGIN; {given}")
            values = f"({', '.join(map(_literal, arguments))})" if arguments else ""
            told = await self.connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE statement {values}"
            )
            return Plan(json.loads(told)[0]["Plan"])
        finally:
            await self.connection.execute("ROLLBACK; DEALLOCATE statement")

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
