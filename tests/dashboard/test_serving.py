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
import uvicorn
from fastapi import FastAPI, Request
from playwright.async_api import Browser, Page, expect
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

from web.rig import NO_TLS, PATIENCE, Served, serving
from windlass import Windlass
from windlass.web import make_api
from windlass.web.pages import FILES
from windlass.web.server import listen

from .rig import PAGES, enqueue, opened

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
    async with httpx.AsyncClient(base_url=served.origin, timeout=PATIENCE, verify=NO_TLS) as client:
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


async def test_no_other_file_is_served(served: Served) -> None:
    async with asking(served) as client:
        for path in ("../pages.py", "core/../../pages.py", "..%2f..%2fpages.py", "core", "nothing.js", "core/%00.js"):
            assert (await client.get(f"/assets/{path}")).status_code == 404, path


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


@asynccontextmanager
async def running(program: FastAPI) -> AsyncIterator[str]:
    """The origin of another program on a free port."""
    socket = listen("127.0.0.1", 0)
    config = uvicorn.Config(program, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[socket]))
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE):
            await task


@asynccontextmanager
async def mounted(app: Windlass, prefix: str) -> AsyncIterator[str]:
    """The origin of another program that has the dashboard below a prefix."""
    api = make_api(app, hosts=(), local=True)
    shop = FastAPI()
    shop.mount(prefix, api)
    async with running(shop) as origin:
        try:
            yield origin
        finally:
            api.state.windlass_feed.close()


async def walk_below(page: Page, base: str, id: str) -> None:
    """From page to page, with a reload and a change; each address begins with the base."""
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    await page.get_by_role("link", name="Jobs").first.click()
    await expect(page).to_have_url(f"{base}/jobs")
    await page.get_by_role("link", name="send").first.click()
    await expect(page).to_have_url(f"{base}/jobs/{id}")
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("send")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel it").click()
    await expect(page.locator(".mark.tinted", has_text="cancelled")).to_be_visible()
    assert [url for url in asked if not url.startswith(f"{base}/")] == []


async def test_it_works_below_a_prefix_of_another_program(browser: Browser, fresh: Served) -> None:
    for prefix in ("/windlass", "/a/b%20c"):
        id = await enqueue(fresh.app, "send", {"to": "ann"}, delay="1h", key=prefix)
        async with mounted(fresh.app, unquote(prefix)) as origin, opened(browser, origin) as page:
            await page.goto(f"{prefix}/")
            await walk_below(page, f"{origin}{prefix}", id)
            await page.goto("about:blank")


@asynccontextmanager
async def behind_proxy(origin: str, prefix: str) -> AsyncIterator[str]:
    """A reverse proxy that takes the prefix off, passes `Host` on and streams what comes: its own origin."""
    proxy = FastAPI()
    async with httpx.AsyncClient(base_url=origin, timeout=None, verify=NO_TLS) as client:

        @proxy.api_route(f"{prefix}/{{path:path}}", methods=["GET", "POST", "PUT", "DELETE"])
        async def forward(request: Request, path: str) -> StreamingResponse:
            passed = client.build_request(
                request.method,
                httpx.URL(f"/{path}", query=request.url.query.encode()),
                headers=request.headers.raw,
                content=await request.body(),
            )
            answer = await client.send(passed, stream=True)
            made = StreamingResponse(answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose))
            made.raw_headers = answer.headers.raw
            return made

        async with running(proxy) as own:
            yield own


async def test_it_works_behind_a_proxy_with_a_public_url(browser: Browser, fresh: Served) -> None:
    """As `windlass web app.py --public-url http://<proxy>/board` serves it."""
    app = fresh.app
    id = await enqueue(app, "send", {"to": "ann"}, delay="1h")
    secret = (await app.acreate_token("ann", role="operator")).secret
    async with serving(app, root_path="/board") as inner, behind_proxy(inner.origin, "/board") as origin:
        async with opened(browser, origin) as page:
            await page.goto("/board/")
            await page.get_by_label("Token").fill(secret)
            await page.get_by_role("button", name="Open").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("Home")
            (cookie,) = await page.context.cookies()
            assert (cookie["path"], cookie["httpOnly"], cookie["sameSite"]) == ("/board", True, "Strict")
            await walk_below(page, f"{origin}/board", id)
            await (await app.afind(id)).aresume()
            await expect(page.locator(".mark.tinted", has_text="queued")).to_be_visible()  # the stream comes through
        async with httpx.AsyncClient(base_url=origin, timeout=PATIENCE, verify=NO_TLS) as other:
            sent = {"authorization": f"Bearer {secret}", "origin": "http://evil.example.org"}
            refused = await other.post(f"/board/api/v1/jobs/{id}/cancel", headers=sent)
    assert refused.status_code == 403
