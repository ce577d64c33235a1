"""Every story begins with an empty database, on SQLite and on PostgreSQL; what it opens is closed for it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from store.conftest import URL, _administer, _database, template
from windlass import Windlass, failpoints
from windlass.client import Client
from windlass.store.sqlite.migrator import SqliteMigrator
from windlass.testing.clock import START

from .programs import admitted
from .rig import PATIENCE, Database
from .still import Still

__all__ = ["template"]  # a fixture: pytest finds it by its presence here

EFFECTS = "CREATE TABLE effects (n int NOT NULL)"
"""Without a unique constraint, so that a duplicate is visible."""

CLEAN = """
DO $$ BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid();
    EXECUTE (SELECT 'TRUNCATE effects, ' || string_agg(oid::regclass::text, ', ') FROM pg_class
              WHERE relnamespace = 'windlass'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
                AND relname NOT IN ('installation', 'migrations', 'test_clock'));
END $$;
CREATE OR REPLACE FUNCTION windlass.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT {}'
"""
REAL_TIME = "statement_timestamp()"
MOVED_TIME = "now FROM windlass.test_clock"


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file that every story copies."""
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    asyncio.run(SqliteMigrator(f"sqlite:///{path}").migrate())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(EFFECTS)
    return path


@pytest.fixture(scope="session")
def server(template: str) -> Iterator[Database]:
    """A database that every story empties: twenty times as fast as a copy."""
    url, name = os.environ[URL], f"windlass_test_{uuid4().hex[:12]}"
    asyncio.run(_administer(url, f"CREATE DATABASE {name} TEMPLATE {template}"))
    database = Database(url=_database(url, name), dialect="postgres")
    asyncio.run(database.run(EFFECTS))
    yield database
    asyncio.run(_administer(url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "postgres":
        server: Database = request.getfixturevalue("server")
        return Database(url=server.url, dialect="postgres")
    path = tmp_path / "jobs.db"
    path.write_bytes(request.getfixturevalue("file").read_bytes())
    return Database(url=f"sqlite:///{path}", dialect="sqlite")


@pytest.fixture
async def database(place: Database) -> AsyncIterator[Database]:
    """A database on which real time passes."""
    if place.dialect == "postgres":
        await _administer(place.url, CLEAN.format(REAL_TIME))
    yield place
    await place.close()


@pytest.fixture
async def still_database(place: Database) -> AsyncIterator[Database]:
    """A database whose time stands still until it is moved."""
    if place.dialect == "postgres":
        await _administer(place.url, CLEAN.format(MOVED_TIME))
        await place.run("UPDATE {}test_clock SET now = ?", START)
    yield place
    await place.close()


@pytest.fixture
def app(database: Database) -> Windlass:
    return database.app()


@pytest.fixture
def whatever_happens() -> Iterator[threading.Event]:
    """Set by the story, or at its end: a handler that waits for it ends also when the story fails."""
    event = threading.Event()
    giving_up = threading.Timer(2 * PATIENCE, event.set)
    giving_up.start()
    yield event
    event.set()
    giving_up.cancel()


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.fixture
def still(still_database: Database) -> Still:
    return Still(still_database)


@pytest.fixture
async def program(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Windlass]:
    """The program of every isolation, on this story's database."""
    settings = admitted.app.settings.with_(url=database.url, poll=0.1, grace=5.0, cancel_grace=0.2)
    client = Client(settings, admitted.app.clock)
    monkeypatch.setattr(admitted.app, "settings", settings)
    monkeypatch.setattr(admitted.app, "client", client)
    yield admitted.app
    await client.aclose()
