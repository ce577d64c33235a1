"""Every story has a database of its own, on SQLite and on PostgreSQL, and a server of the HTTP API on it.

Stories about requests, connections and tokens need one store: what the stores do is proved in tests/store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from servers import postgres_database
from windlass import Windlass
from windlass.testing.databases import write_migrated_file

from .rig import Served, declare, serving

STORES = ("sqlite", "postgres")
OF_REQUESTS = ("attacks", "connections", "doors", "fits_in", "letters", "live", "secrets")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "app" in metafunc.fixturenames:
        of_requests = metafunc.module.__name__.rpartition("test_")[2] in OF_REQUESTS
        metafunc.parametrize("app", STORES[:1] if of_requests else STORES, indirect=True)


@pytest.fixture
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Windlass]:
    """The program of the stories, on an empty database."""
    if request.param == "sqlite":
        write_migrated_file(tmp_path / "jobs.db")
        app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}", poll="100ms")
        declare(app)
        yield app
        await app.aclose()
        return
    with postgres_database() as lent:
        app = Windlass(lent.url, poll="100ms")
        declare(app)
        yield app
        await app.aclose()


@pytest.fixture
async def served(app: Windlass) -> AsyncIterator[Served]:
    """A server that asks every caller for a token."""
    async with serving(app) as served:
        yield served


@pytest.fixture
async def open_door(app: Windlass) -> AsyncIterator[Served]:
    """A server on loopback that needs no token while there is none."""
    async with serving(app, local=True) as served:
        yield served
