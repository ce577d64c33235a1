"""Every story runs on SQLite and on PostgreSQL: each test has a fresh database and a clock of its own."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from windlass.store.sqlite.migrator import SqliteMigrator
from windlass.store.sqlite.store import SqliteStore
from windlass.testing.clock import ManualClock

from . import plans
from .rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

URL = "WINDLASS_TEST_POSTGRES_URL"

MOVABLE_CLOCK = """
CREATE TABLE windlass.test_clock (now timestamptz NOT NULL);
INSERT INTO windlass.test_clock VALUES (statement_timestamp());
CREATE OR REPLACE FUNCTION windlass.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT now FROM windlass.test_clock';
"""


@pytest.fixture(params=["sqlite", "postgres"])
def making(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[Rig]:
    """Not async: the template's fixture runs a loop of its own."""
    if request.param == "sqlite":
        return sqlite_rig(tmp_path / "jobs.db")
    return postgres_rig(request.getfixturevalue("template"))


@pytest.fixture
async def rig(making: AbstractAsyncContextManager[Rig]) -> AsyncIterator[Rig]:
    """An open store with one registered worker."""
    async with making as rig:
        rig.worker = await rig.register()
        yield rig


@pytest.fixture
async def file_rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """SQLite only: for what is true of a file."""
    async with sqlite_rig(tmp_path / "jobs.db") as rig:
        rig.worker = await rig.register()
        yield rig


@asynccontextmanager
async def sqlite_rig(path: Path) -> AsyncIterator[Rig]:
    url = f"sqlite:///{path}"
    await SqliteMigrator(url).migrate()
    clock = ManualClock()
    store = SqliteStore(url, clock=clock)
    await store.open()

    async def run(sql: str) -> Any:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(sql.format("windlass_")).fetchall()

    async def move() -> None:
        pass

    try:
        yield Rig(
            store=store,
            migrator=SqliteMigrator(url),
            dialect="sqlite",
            clock=clock,
            run=run,
            move=move,
            another=lambda: SqliteStore(url, clock=clock),
        )
    finally:
        await store.close()


@pytest.fixture(scope="session")
def template() -> Iterator[str]:
    """A migrated database that every test copies: a copy takes a tenth of a second."""
    url = os.environ.get(URL)
    if url is None:
        pytest.skip(f"{URL} is not set; run: make test")
    name = f"windlass_template_{uuid4().hex[:12]}"
    asyncio.run(_make_template(url, name))
    yield name
    asyncio.run(_administer(url, f"DROP DATABASE {name} WITH (FORCE)"))


async def _make_template(url: str, name: str) -> None:
    import asyncpg

    from windlass.store.postgres.migrator import PostgresMigrator

    await _administer(url, f"CREATE DATABASE {name}")
    await PostgresMigrator(_database(url, name)).migrate()
    connection = await asyncpg.connect(_database(url, name))
    try:
        await connection.execute(MOVABLE_CLOCK)
    finally:
        await connection.close()


@asynccontextmanager
async def postgres_rig(template: str) -> AsyncIterator[Rig]:
    import asyncpg

    from windlass.store.postgres.migrator import PostgresMigrator
    from windlass.store.postgres.store import PostgresStore

    server = os.environ[URL]
    name = f"windlass_test_{uuid4().hex[:12]}"
    await _administer(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    url = _database(server, name)
    connection = await asyncpg.connect(url)
    clock = ManualClock()
    store = PostgresStore(url, clock=clock)

    async def run(sql: str) -> Any:
        return await connection.fetch(sql.format("windlass."))

    async def move() -> None:
        await connection.execute("UPDATE windlass.test_clock SET now = $1", clock.now())

    try:
        await move()
        await store.open()
        yield Rig(
            store=store,
            migrator=PostgresMigrator(url),
            dialect="postgres",
            clock=clock,
            run=run,
            move=move,
            another=lambda: PostgresStore(url, clock=clock),
        )
    finally:
        await store.close()
        await connection.close()
        await _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


async def _administer(url: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


# Plans


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[int, bool], str]]:
    """Databases by the number of their jobs and by whether they were analysed, made when they are asked for."""
    made: dict[tuple[int, bool], str] = {}

    def of(jobs: int, analysed: bool) -> str:
        if (jobs, analysed) not in made:
            made[jobs, analysed] = asyncio.run(plans.populate(os.environ[URL], jobs, analysed))
        return made[jobs, analysed]

    yield of
    for name in made.values():
        asyncio.run(_administer(os.environ[URL], f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(params=["analysed", "never analysed"])
def populated(request: pytest.FixtureRequest, databases: Callable[[int, bool], str]) -> str:
    """Not async: the databases are made on a loop of their own."""
    return databases(plans.USUAL, request.param == "analysed")


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
async def world(request: pytest.FixtureRequest, populated: str) -> AsyncIterator[plans.World]:
    async with plans.visiting(populated, request.param) as world:
        yield world


@pytest.fixture
def own(databases: Callable[[int, bool], str]) -> Iterator[str]:
    """A copy for a test that commits."""
    name = f"windlass_plans_{uuid4().hex[:12]}"
    source = databases(plans.USUAL, True)
    asyncio.run(_administer(os.environ[URL], f"CREATE DATABASE {name} TEMPLATE {source}"))
    yield name
    asyncio.run(_administer(os.environ[URL], f"DROP DATABASE {name} WITH (FORCE)"))
