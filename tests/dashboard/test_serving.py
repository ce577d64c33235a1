"""How the dashboard's files are served: policy, types, caching, sizes, below a prefix, from one origin."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import httpx2 as httpx
import pytest
import uvicorn
from fastapi import FastAPI
from playwright.async_api import Browser, Page, expect

from web.rig import PATIENCE, Served
from windlass import Windlass
from windlass.web import make_api
from windlass.web.pages import FILES
from windlass.web.server import listen

from .rig import PAGES, Stock, enqueue, opened

KILOBYTE = 1024
GUIDE = Path(__file__).parents[2] / "docs" / "dashboard.md"
KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
STRICT = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
}


@asynccontextmanager
async def asking(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.origin, timeout=PATIENCE) as client:
        yield client


async def test_the_policy_is_strict_and_nothing_is_inline(served: Served) -> None:
    async with asking(served) as client:
        for path in PAGES:
            page = await client.get(f"/{path}")
            assert set(page.headers["content-security-policy"].split("; ")) == STRICT
            assert page.headers["x-content-type-options"] == "nosniff"
            scripts = re.findall(r"<script[^>]*>(.*?)</script>", page.text, re.S)
            assert scripts == [""]
            assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page.text) == []


async def test_files_have_their_types_and_are_asked_for_again(served: Served) -> None:
    async with asking(served) as client:
        for name in FILES:
            answer = await client.get(f"/assets/{name}")
            if name == "index.html":
                assert answer.status_code == 404
                continue
            assert answer.headers["content-type"] == KINDS[Path(name).suffix]
            assert (answer.headers["cache-control"], answer.headers["vary"]) == ("no-cache", "accept-encoding")
            assert answer.content == FILES[name][0]
            again = await client.get(f"/assets/{name}", headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["../pages.py", "core/../../pages.py", "..%2f..%2fpages.py", "core", "nothing.js", "core/%00.js"]
)
async def test_no_other_file_is_served(served: Served, path: str) -> None:
    async with asking(served) as client:
        answer = await client.get(f"/assets/{path}")

    assert answer.status_code == 404


def test_the_files_are_as_small_as_the_guide_says() -> None:
    sizes = {kind: [content for name, (content, _) in FILES.items() if name.endswith(kind)] for kind in (".js", ".css")}
    whole = {kind: sum(map(len, contents)) / KILOBYTE for kind, contents in sizes.items()}
    sent = {kind: sum(len(gzip.compress(each)) for each in contents) / KILOBYTE for kind, contents in sizes.items()}
    for kind, size in whole.items():
        print(f"{kind[1:]}: {size:.1f} KB in {len(sizes[kind])} files, {sent[kind]:.1f} KB as sent")
    found = re.search(r"at most (\d+) KB of JavaScript \((\d+) KB as sent\) and\s+(\d+) KB of CSS", GUIDE.read_text())
    assert found is not None

    scripts, compressed, styles = map(int, found.groups())

    assert whole[".js"] <= scripts
    assert sent[".js"] <= compressed
    assert whole[".css"] <= styles <= 25


async def test_an_unknown_address_shows_a_page_to_a_browser_and_a_problem_to_a_program(
    page: Page, served: Served
) -> None:
    answer = await page.goto("/nothing/here")
    assert answer is not None
    assert answer.status == 404
    await expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    async with asking(served) as client:
        assert (await client.get("/nothing")).json()["status"] == 404
        assert (await client.get("/api/v1/nothing", headers={"accept": "text/html"})).json()["status"] == 404

    await page.get_by_role("link", name="Home").last.click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("Home")


async def test_no_request_leaves_the_origin(page: Page, served: Served, stock: Stock) -> None:
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    for path in [*PAGES, *(f"jobs/{id}" for id in stock.values())]:
        await page.goto(f"/{path}")
        await expect(page.locator(".skeleton")).to_have_count(0)

    assert len(asked) > 30
    assert [url for url in asked if not url.startswith(f"{served.origin}/")] == []


@asynccontextmanager
async def mounted(app: Windlass, prefix: str) -> AsyncIterator[str]:
    """The origin of another program that has the dashboard below a prefix."""
    api = make_api(app, hosts=(), local=True)
    shop = FastAPI()
    shop.mount(prefix, api)
    socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(shop, log_level="warning", lifespan="off"))
    running = asyncio.create_task(server.serve(sockets=[socket]))
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        api.state.windlass_feed.close()
        async with asyncio.timeout(PATIENCE):
            await running


@pytest.mark.parametrize("prefix", ["/windlass", "/a/b%20c"])
async def test_it_works_below_a_prefix(browser: Browser, app: Windlass, prefix: str) -> None:
    id = await enqueue(app, "send", {"to": "ann"}, delay="1h")
    asked: set[str] = set()
    async with mounted(app, unquote(prefix)) as origin, opened(browser, origin) as page:
        page.on("request", lambda request: asked.add(request.url))
        await page.goto(f"{prefix}/")
        await page.get_by_role("link", name="Jobs").first.click()
        await expect(page).to_have_url(f"{origin}{prefix}/jobs")
        await page.get_by_role("link", name="send").click()
        await expect(page).to_have_url(f"{origin}{prefix}/jobs/{id}")
        await page.reload()
        await expect(page.get_by_role("heading", level=1)).to_have_text("send")
        await page.get_by_role("button", name="Cancel…").click()
        await page.get_by_role("button", name="Cancel it").click()
        await expect(page.locator(".mark.tinted", has_text="cancelled")).to_be_visible()
        await page.goto("about:blank")

    assert [url for url in asked if not url.startswith((f"{origin}{prefix}/", "about:"))] == []
