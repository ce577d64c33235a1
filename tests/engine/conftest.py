"""Every story begins with an empty database, on SQLite and on PostgreSQL; what it opens is closed for it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from kept_sessions import kept_sessions, postgres_database, run_on_one_loop
from windlass import Windlass, failpoints
from windlass.client import Client
from windlass.testing.clock import START
from windlass.testing.databases import write_migrated_file

from .brokers import Broker, private_part
from .programs import admitted
from .rig import PATIENCE, Database
from .stopped_clock import StoppedClock

__all__ = ["kept_sessions"]

EFFECTS = "CREATE TABLE effects (n int NOT NULL)"
"""Without a unique constraint, so that a duplicate is visible."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    run_on_one_loop(Path(__file__).parent, items)


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A migrated file that every story copies."""
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    write_migrated_file(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(EFFECTS)
    return path.read_bytes()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    """Which store a story is on."""
    store: str = request.param
    return store


@contextmanager
def empty_database(place: str, request: pytest.FixtureRequest, *, moved: bool) -> Iterator[Database]:
    if place == "postgres":
        with postgres_database(moved=moved, given=EFFECTS) as lent:
            lent.move(START)
            yield Database(url=lent.url, dialect="postgres", lent=lent)
        return
    path: Path = request.getfixturevalue("tmp_path") / "jobs.db"
    path.write_bytes(request.getfixturevalue("file"))
    yield Database(url=f"sqlite:///{path}", dialect="sqlite")


@pytest_asyncio.fixture(loop_scope="session")
async def database(place: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """A database on which real time passes."""
    with empty_database(place, request, moved=False) as database:
        yield database
        await database.close()


@pytest_asyncio.fixture(loop_scope="session")
async def still_database(place: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """A database on a clock that stands still until the test moves it."""
    with empty_database(place, request, moved=True) as database:
        yield database
        await database.close()


@pytest_asyncio.fixture(loop_scope="session")
async def broker(place: str) -> AsyncIterator[Broker]:
    """A part of a broker that is empty. Each store has one kind: the suites of stores and of transports prove that
    those of a kind are alike."""
    async with private_part({"sqlite": "redis", "postgres": "rabbitmq"}[place]) as broker:
        yield broker


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
def stopped_clock(still_database: Database) -> StoppedClock:
    return StoppedClock(still_database)


@pytest_asyncio.fixture(loop_scope="session")
async def program(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Windlass]:
    """The program of every isolation, on this story's database."""
    settings = admitted.app.settings.with_(url=database.url, poll=0.1, grace=5.0, cancel_grace=0.2)
    client = Client(settings, admitted.app.clock)
    monkeypatch.setattr(admitted.app, "settings", settings)
    monkeypatch.setattr(admitted.app, "_client", client)
    yield admitted.app
    await client.aclose()
