"""Every story opens the dashboard in a real Chromium, on a server with a real socket.

The stories of a file share a database, a server, a worker and a page, which goes from view to view without a reload: to
make them anew took four seconds per story. So a story looks at jobs of its own, by their tenant, and leaves nothing
paused. Stories run on SQLite; those that depend on the store are in `test_stores.py`. All share one browser.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from servers import postgres_database, url_of
from web.rig import Served, serving
from windlass import Windlass
from windlass.testing.databases import write_migrated_file
from windlass.web import auth
from windlass.web.live import feed

from .rig import Stock, declare, opened, stocked, watch

HERE = Path(__file__).parent
expect.set_options(timeout=20_000)  # milliseconds until a story gives up on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("asyncio") is not None:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(autouse=True, scope="session")
def _reads_often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "EVERY", 0.1)
        patch.setattr(feed, "AWAY", 0.2)
        patch.setattr(auth, "KNOWN_FOR", 0.1)
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        yield await playwright.chromium.connect_over_cdp(url_of("browser"))


@asynccontextmanager
async def program(url: str) -> AsyncIterator[Windlass]:
    app = Windlass(url, poll="100ms", grace="100ms")
    declare(app)
    yield app
    await app.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Windlass]:
    """The program of a file's stories, on one database."""
    if getattr(request, "param", "sqlite") == "sqlite":
        path = tmp_path_factory.mktemp("dashboard") / "jobs.db"
        write_migrated_file(path)
        async with program(f"sqlite:///{path}") as app:
            yield app
        return
    with postgres_database() as lent:
        async with program(lent.url) as app:
            yield app


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(app: Windlass) -> AsyncIterator[Served]:
    """A server on loopback that needs no token while there is none."""
    async with serving(app, local=True) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def fresh(tmp_path: Path) -> AsyncIterator[Served]:
    """A server of one story, on an empty database."""
    write_migrated_file(tmp_path / "jobs.db")
    async with program(f"sqlite:///{tmp_path / 'jobs.db'}") as app, serving(app, local=True) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stock(app: Windlass) -> AsyncIterator[Stock]:
    """Jobs in all states, a pipeline, children, a schedule, a limit, tenants, an error group; a worker runs."""
    async with stocked(app) as stock:
        yield stock


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(browser: Browser, served: Served) -> AsyncIterator[Page]:
    """The page of a file's stories, at 1440 px: it is loaded once, and goes from view to view as a user does."""
    async with opened(browser, served.origin) as page:
        await page.goto("/audit")
        yield page


@pytest_asyncio.fixture(loop_scope="session")
async def page(window: Page) -> AsyncIterator[Page]:
    """That page; an error in its console fails the story in which it happened."""
    with watch(window):
        yield window
    for _ in range(await window.locator("dialog[open]").count()):
        await window.keyboard.press("Escape")
    await window.evaluate("localStorage.clear(); document.getElementById('toasts').replaceChildren()")


@pytest_asyncio.fixture(loop_scope="session")
async def fresh_page(browser: Browser, fresh: Served) -> AsyncIterator[Page]:
    """A page of one story, on that story's server."""
    async with opened(browser, fresh.origin) as page:
        yield page
