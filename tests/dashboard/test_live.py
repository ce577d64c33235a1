"""What changes under an open page: in place, announced, paused, lost and found again."""

from __future__ import annotations

import asyncio
import re
from uuid import UUID

import pytest
from playwright.async_api import Browser, Page, Route, expect

from servers import postgres_database
from web.raw import until_true
from web.rig import PATIENCE, Served, serving
from web.test_bulk import Brake
from web.test_outage import proxied
from windlass import NamedCall, Windlass
from windlass.web.server import ApiServer, listen

from .rig import GO, Stock, declare, enqueue, opened, reach, visit


async def test_a_row_that_matches_no_longer_stays(page: Page, served: Served) -> None:
    first = await enqueue(served.app, "echo", {"value": 1}, delay="1h", tenant="a-row-tha")
    await visit(page, "/jobs?filter=state:queued%20tenant:a-row-tha")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(1)

    await (await served.app.afind(first)).acancel()

    await expect(page.locator("tr.gone")).to_contain_text("cancelled")


async def test_a_jobs_page_follows_the_job(fresh_page: Page, fresh: Served) -> None:
    id = await enqueue(fresh.app, "approve", {"who": "bob"})
    await fresh_page.goto(f"/jobs/{id}")
    await expect(fresh_page.locator(".mark.tinted", has_text="queued")).to_be_visible()

    async with fresh.app.worker():
        await expect(fresh_page.locator(".mark.tinted", has_text="waiting")).to_be_visible()
        await (await fresh.app.afind(id)).asignal("answer", "yes")
        await expect(fresh_page.locator(".mark.tinted", has_text="succeeded")).to_be_visible()


async def test_a_job_that_disappears_while_it_is_open_says_so(page: Page, served: Served, stock: Stock) -> None:
    id = await enqueue(served.app, "charge", {"customer": "eve", "amount": 1}, tenant="disappears")
    await reach(served.app, id, "dead")
    await visit(page, f"/jobs/{id}")
    await expect(page.locator(".story")).to_be_visible()

    await (await served.app.afind(id)).adiscard()
    await page.keyboard.press("r")  # its button goes away as soon as the page knows

    await expect(page.get_by_text("This job is gone.")).to_be_visible()
    await expect(page.get_by_role("button", name="Replay")).to_have_count(0)


async def test_a_view_that_was_left_before_it_opened_does_not_end_the_next_ones_list(
    page: Page, served: Served
) -> None:
    """Given a list whose rows come late, when another one is opened meanwhile, then that one stays live."""
    id = await enqueue(served.app, "echo", {"value": 1}, delay="1h", tenant="in-time")
    asked, answer = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.set()
        await answer.wait()
        await route.continue_()

    await visit(page, "/audit")
    await page.route("**/api/v1/jobs?*too-late*", hold)
    await page.evaluate(GO, "/jobs?filter=tenant:too-late")
    await asked.wait()
    await visit(page, "/jobs?filter=tenant:in-time")
    row = page.locator("table.jobs tbody tr")
    await expect(row).to_contain_text("queued")
    async with page.expect_request("**/api/v1/stream?*in-time*"):
        answer.set()  # the list that was left opens, is closed, and gives the stream back

    await (await served.app.afind(id)).acancel()

    await expect(row).to_contain_text("cancelled")
    await page.unroute_all()


async def test_p_pauses_everything(page: Page, served: Served) -> None:
    id = await enqueue(served.app, "echo", {"value": 1}, delay="1h", tenant="p-pauses-")
    await visit(page, "/jobs?filter=tenant:p-pauses-")
    row = page.locator("table.jobs tbody tr")
    await expect(row).to_have_count(1)

    await page.keyboard.press("p")
    await expect(page.get_by_text(re.compile(r"Paused at \d\d:\d\d:\d\d"))).to_be_visible()
    await (await served.app.afind(id)).acancel()
    async with served.client().stream("GET", "/stream", params={"list": "jobs"}) as other:  # the news went out
        async for line in other.aiter_lines():
            if "cancelled" in line:
                break
    await expect(row).to_contain_text("queued")
    await page.get_by_role("button", name="Go live").first.click()

    await expect(row).to_contain_text("cancelled")


async def test_a_broken_stream_is_told_and_recovers(browser: Browser, fresh: Served) -> None:
    app = fresh.app
    async with serving(app, local=True) as first:
        port = first.port
        id = await enqueue(app, "echo", {"value": 1}, delay="1h")
        async with opened(browser, first.origin) as page:
            await page.goto("/jobs")
            await expect(page.locator("table.jobs tbody tr")).to_have_count(1)
            first.server.should_exit = True
            await expect(page.get_by_text(re.compile(r"Connection lost \d+ s ago"))).to_be_visible(timeout=15_000)
            await expect(page.locator("table.jobs tbody tr")).to_have_count(1)  # no blank page

            await (await app.afind(id)).acancel()
            server, socket = ApiServer(app, local=True), listen("127.0.0.1", port)
            running = asyncio.create_task(server._serve([socket]))
            await page.get_by_role("button", name="Try now").click()
            await expect(page.locator("table.jobs tbody tr")).to_contain_text("cancelled")
            await expect(page.get_by_text("Connection lost")).to_have_count(0)
        server.should_exit = True
        async with asyncio.timeout(PATIENCE):
            await running


async def test_a_database_that_does_not_answer_is_told(browser: Browser) -> None:
    with postgres_database() as lent:
        async with proxied(lent.url) as (proxy, url):
            app = Windlass(url, poll="100ms")
            declare(app)
            await enqueue(app, "echo", {"value": 1}, delay="1h")
            async with serving(app, local=True) as served, opened(browser, served.origin) as page:
                await page.goto("/")
                await expect(page.locator(".health .say")).to_be_visible()
                proxy.cut()
                await expect(page.get_by_role("alert")).to_contain_text("database", timeout=30_000)
                await expect(page.locator(".health .say")).to_be_visible()  # as of then
                await page.get_by_role("link", name="Audit").first.click()
                await expect(page.get_by_role("button", name="Try again")).to_be_visible(timeout=30_000)
                proxy.restore()
                await page.get_by_role("button", name="Try again").click()
                await expect(page.get_by_role("heading", level=1)).to_have_text("Audit")
                await expect(page.get_by_role("alert")).to_have_count(0, timeout=30_000)


async def test_a_worker_that_stops_shows(fresh_page: Page, fresh: Served) -> None:
    await fresh_page.goto("/workers")
    await expect(fresh_page.get_by_text("No worker has been started")).to_be_visible()

    worker = fresh.app.worker(queues=["mail"])
    async with worker:
        await expect(fresh_page.get_by_text("idle")).to_be_visible()
        await expect(fresh_page.get_by_role("link", name="Workers 1")).to_be_visible()
        worker.kill()

    await expect(fresh_page.get_by_role("link", name="Workers 1")).to_have_count(0)


async def test_a_page_that_is_not_seen_gives_its_connections_back(page: Page, served: Served) -> None:
    id = await enqueue(served.app, "echo", {"value": 1}, delay="1h", tenant="a-page-th")
    await visit(page, "/jobs?filter=tenant:a-page-th")
    row = page.locator("table.jobs tbody tr")
    await expect(row).to_contain_text("queued")

    await page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true})")
    await page.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
    await until_true(lambda: served.server._feed.streams == 0)
    await (await served.app.afind(id)).acancel()
    await page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")

    await expect(row).to_contain_text("cancelled")
    await expect(page.get_by_text("Connection lost")).to_have_count(0)


async def test_many_pages_are_visited_one_after_the_other(page: Page, stock: Stock) -> None:
    for _ in range(2):  # a browser opens six connections to a server, and keeps pages that were left for a while
        for name in ("failed", "dead", "waiting", "queued", "running"):
            await visit(page, f"/jobs/{stock[name]}")
            await expect(page.locator(".story")).to_be_visible()


async def test_pausing_stops_a_jobs_page_too(page: Page, served: Served) -> None:
    id = await enqueue(served.app, "send", {"to": "ann"}, delay="1h")
    await visit(page, f"/jobs/{id}")
    await expect(page.locator(".mark.tinted", has_text="queued")).to_be_visible()
    await page.keyboard.press("p")
    async with served.client().stream("GET", f"/jobs/{id}/events") as other:
        await (await served.app.afind(id)).acancel()
        async for line in other.aiter_lines():  # the news went out
            if "cancelled" in line:
                break
    await expect(page.locator(".mark.tinted", has_text="queued")).to_be_visible()

    await page.keyboard.press("p")

    await expect(page.locator(".mark.tinted", has_text="cancelled")).to_be_visible()


async def test_a_bulk_action_goes_on_without_its_page_and_the_next_page_finds_it(
    browser: Browser, fresh: Served, fresh_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fresh.app.aenqueue_named([NamedCall("echo", {"value": n}, {"delay": "1h"}) for n in range(20)])
    brake = Brake(monkeypatch)
    begun = (await fresh.client().post("/bulk", json={"verb": "cancel", "filter": "type:echo"})).json()
    async with opened(browser, fresh.origin) as other:
        await other.goto("/audit")
        await expect(other.get_by_role("region", name="Bulk action")).to_contain_text("Cancelling 20 jobs")
    await fresh_page.goto("/workers")
    await fresh_page.get_by_role("region", name="Bulk action").get_by_role("button", name="Stop").click()
    await until_true(lambda: fresh.server._bulk.find(UUID(begun["id"]), None)._stops)
    brake.release()

    await expect(fresh_page.get_by_role("status")).to_contain_text("Stopped: 5 were cancelled.")


async def test_many_windows_of_one_browser_stay_live(browser: Browser, fresh: Served) -> None:
    id = await enqueue(fresh.app, "echo", {"value": 1}, delay="1h")
    async with opened(browser, fresh.origin) as first:
        windows = [first, *[await first.context.new_page() for _ in range(4)]]  # one more than have a stream
        for window in windows:
            await window.goto("/jobs")
            await expect(window.locator("table.jobs tbody tr")).to_have_count(1)
        await (await fresh.app.afind(id)).acancel()
        for window in windows:
            await expect(window.locator("table.jobs tbody tr")).to_contain_text("cancelled", timeout=15_000)
        await until_true(lambda: fresh.server._feed.streams <= 4)


async def test_counts_and_facets_follow_the_list(page: Page, served: Served) -> None:
    await enqueue(served.app, "echo", {"value": 1}, delay="1h", tenant="counts-an")
    await visit(page, "/jobs?filter=tenant:counts-an")
    facet = page.get_by_role("complementary", name="Facets").get_by_role("button", name="queued")
    await expect(facet).to_have_text("queued1")

    await enqueue(served.app, "echo", {"value": 2}, delay="1h", tenant="counts-an")

    await expect(facet).to_have_text("queued2", timeout=15_000)
