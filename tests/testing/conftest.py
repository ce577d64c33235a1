"""Every story has an app whose own database does not exist, and a harness on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers import url_of
from windlass import Windlass
from windlass.testing import Harness, harness

NOWHERE = "sqlite:////nowhere/jobs.db"


@pytest.fixture
def app() -> Windlass:
    """Whoever reaches its own database fails: it is nowhere."""
    return Windlass(NOWHERE)


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> str | None:
    """What a harness is given as url=."""
    if request.param == "sqlite":
        return None
    return url_of("postgres")


@pytest.fixture
def bench(app: Windlass, server: str | None) -> Iterator[Harness]:
    with harness(app, server, patience="20s") as bench:
        yield bench
