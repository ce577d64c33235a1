"""Every story runs on SQLite and on PostgreSQL: each test has an empty database and a clock of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import pytest_asyncio

from kept_sessions import kept_sessions, postgres_database, run_on_one_loop
from servers import administer
from windlass.store.sqlite.migrator import SqliteMigrator
from windlass.store.sqlite.store import SqliteStore
from windlass.testing.clock import ManualClock
from windlass.testing.databases import write_migrated_file

from . import plans
from .rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


__all__ = ["kept_sessions"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    run_on_one_loop(Path(__file__).parent, items)


@pytest.fixture(params=["sqlite", "postgres"])
def making(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[Rig]:
    if request.param == "sqlite":
        return sqlite_rig(tmp_path / "jobs.db")
    return postgres_rig()


@pytest_asyncio.fixture(loop_scope="session")
async def rig(making: AbstractAsyncContextManager[Rig]) -> AsyncIterator[Rig]:
    """An open store with one registered worker."""
    async with making as rig:
        rig.worker = await rig.register()
        yield rig


@pytest_asyncio.fixture(loop_scope="session")
async def file_rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """SQLite only: for what is true of a file."""
    async with sqlite_rig(tmp_path / "jobs.db") as rig:
        rig.worker = await rig.register()
        yield rig


@asynccontextmanager
async def sqlite_rig(path: Path) -> AsyncIterator[Rig]:
    url = f"sqlite:///{path}"
    write_migrated_file(path)
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


@asynccontextmanager
async def postgres_rig() -> AsyncIterator[Rig]:
    from windlass.store.postgres.migrator import PostgresMigrator
    from windlass.store.postgres.store import PostgresStore

    clock = ManualClock()
    with postgres_database(moved=True) as database:
        url = database.url
        database.move(clock.now())
        store = PostgresStore(url, clock=clock)
        await store.open()

        async def run(sql: str) -> Any:
            return await database.fetch(sql.format("windlass."))

        async def move() -> None:
            await database.fetch("UPDATE windlass.test_clock SET now = $1", clock.now())

        try:
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


# Plans


@pytest.fixture(scope="session")
def databases() -> Iterator[Callable[[int, bool], str]]:
    """Databases by the number of their jobs and by whether they were analysed, made when they are asked for."""
    made: dict[tuple[int, bool], str] = {}

    def of(jobs: int, analysed: bool) -> str:
        if (jobs, analysed) not in made:
            made[jobs, analysed] = asyncio.run(plans.populate(jobs, analysed))
        return made[jobs, analysed]

    yield of
    for name in made.values():
        administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["analysed", "never analysed"])
def populated(request: pytest.FixtureRequest, databases: Callable[[int, bool], str]) -> str:
    """Not async: the databases are made on a loop of their own."""
    return databases(plans.USUAL, request.param == "analysed")


@pytest_asyncio.fixture(loop_scope="session", params=["force_custom_plan", "force_generic_plan"])
async def world(request: pytest.FixtureRequest, populated: str) -> AsyncIterator[plans.World]:
    async with plans.visiting(populated, request.param) as world:
        yield world


@pytest.fixture
def own(databases: Callable[[int, bool], str]) -> Iterator[str]:
    """A copy for a test that commits."""
    with copy_of(databases(plans.USUAL, True)) as name:
        yield name


@pytest.fixture
def untouched(populated: str) -> Iterator[str]:
    """A copy for a test that counts pages: what others rolled back is dead, and reads more of them."""
    with copy_of(populated) as name:
        yield name


@contextmanager
def copy_of(source: str) -> Iterator[str]:
    name = f"windlass_plans_{uuid4().hex[:12]}"
    administer(f"CREATE DATABASE {name} TEMPLATE {source}")
    yield name
    administer(f"DROP DATABASE {name} WITH (FORCE)")
