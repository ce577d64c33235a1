"""Every story opens the dashboard in a real Chromium, on a server with a real socket.

Stories run on SQLite; a file whose stories depend on the store names both: `pytestmark = both_stores`. All stories of a
process share one event loop and one connection to the browser: to make them anew took a second per story.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from servers import postgres_database, url_of
from web.rig import Served, serving
from windlass import Windlass
from windlass.testing.databases import write_migrated_file
from windlass.web import auth
from windlass.web.live import feed

from .rig import Stock, declare, opened, stocked

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("asyncio") is not None:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(autouse=True)
def _reads_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "EVERY", 0.1)
    monkeypatch.setattr(feed, "AWAY", 0.2)
    monkeypatch.setattr(auth, "KNOWN_FOR", 0.1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        yield await playwright.chromium.connect_over_cdp(url_of("browser"))


@pytest_asyncio.fixture(loop_scope="session")
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Windlass]:
    """The program of the stories, on an empty database."""
    if getattr(request, "param", "sqlite") == "sqlite":
        write_migrated_file(tmp_path / "jobs.db")
        app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}", poll="100ms", grace="100ms")
        declare(app)
        yield app
        await app.aclose()
        return
    with postgres_database() as lent:
        app = Windlass(lent.url, poll="100ms", grace="100ms")
        declare(app)
        yield app
        await app.aclose()


@pytest_asyncio.fixture(loop_scope="session")
async def served(app: Windlass) -> AsyncIterator[Served]:
    """A server on loopback that needs no token while there is none."""
    async with serving(app, local=True) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def stock(app: Windlass) -> AsyncIterator[Stock]:
    """Jobs in all states, a pipeline, children, a schedule, a limit, tenants, an error group; a worker runs."""
    async with stocked(app) as stock:
        yield stock


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, served: Served) -> AsyncIterator[Page]:
    """A page at 1440 px; an error in its console fails the story."""
    async with opened(browser, served.origin) as page:
        yield page


@pytest_asyncio.fixture(loop_scope="session")
async def phone(browser: Browser, served: Served) -> AsyncIterator[Page]:
    """A page at 390 px, dark."""
    async with opened(browser, served.origin, width=390, dark=True) as page:
        yield page
