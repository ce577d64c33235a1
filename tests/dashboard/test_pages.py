"""Each page opens on an empty database and with jobs in every state, and shows what the API has."""

from __future__ import annotations

import asyncpg
from playwright.async_api import Browser, Page, expect

from servers import postgres_database
from web.rig import Served, serving
from windlass import Windlass

from .rig import PAGES, Stock, declare, enqueue, opened, reach, settled, visit


async def test_every_page_opens_without_a_job(browser: Browser, fresh: Served) -> None:
    async with opened(browser, fresh.origin) as page:
        await page.goto("/audit")
        for path, title in PAGES.items():
            await visit(page, f"/{path}")
            await expect(page.get_by_role("heading", level=1)).to_have_text(title)
            await settled(page)


async def test_home_says_how_it_is_and_what_to_do(page: Page, served: Served, stock: Stock) -> None:
    await visit(page, "/")
    overview = (await served.client().get("/overview")).json()

    await expect(page.locator(".health .say")).to_have_text(overview["health"]["sentence"])
    for row in overview["queues"]:
        await expect(page.get_by_role("link", name=row["queue"], exact=True)).to_be_visible()
    await expect(page.locator(".kpi")).to_have_count(6)


async def test_errors_are_one_line_per_kind(page: Page, served: Served, stock: Stock) -> None:
    await visit(page, "/errors")
    groups = (await served.client().get("/errors")).json()["errors"]

    await expect(page.locator(".error")).to_have_count(len(groups))
    await page.get_by_role("button", name="PermissionError").click()
    await expect(page.locator(".traceback")).to_contain_text("card of eve is refused")
    await page.get_by_role("link", name="Show 1 job").click()
    await expect(page.get_by_role("link", name="charge")).to_be_visible()


async def test_a_job_tells_its_story(page: Page, served: Served, stock: Stock) -> None:
    story = (await served.client().get(f"/jobs/{stock['failed']}/story")).json()["story"]
    await visit(page, f"/jobs/{stock['failed']}")

    await expect(page.locator(".story")).to_contain_text(story[:20])
    await expect(page.locator(".story")).to_contain_text("Retries in ")
    await expect(page.locator(".traceback .last")).to_have_text("TimeoutError: https://example.org does not answer")


async def test_a_running_job_shows_its_progress_and_its_log(page: Page, stock: Stock) -> None:
    await visit(page, f"/jobs/{stock['running']}")

    await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "3")
    await expect(page.get_by_text("3 of 10", exact=True)).to_be_visible()


async def test_an_attempt_that_went_well_at_once_is_told(page: Page, stock: Stock) -> None:
    await visit(page, f"/jobs/{stock['succeeded']}")
    await expect(page.locator(".steps-line")).to_contain_text("Attempt 1 of 2 succeeded after")


async def test_children_and_phases_are_shown(page: Page, served: Served, stock: Stock) -> None:
    await visit(page, f"/jobs/{stock['parent']}")
    await expect(page.locator("section.panel", has_text="Its jobs").get_by_role("row")).to_have_count(3)

    many = await enqueue(served.app, "crawl", {"pages": 250})
    await reach(served.app, many, "succeeded")
    await visit(page, f"/jobs/{many}")
    children = page.locator("section.panel", has_text="Its jobs")
    await expect(children.locator("header")).to_contain_text("250")
    await expect(children.get_by_role("row")).to_have_count(30)
    await children.get_by_role("link", name="All its children").click()
    await expect(page.locator(".term")).to_have_text([f"parent:{many}"])

    await visit(page, "/queues")
    pipeline = page.locator("section.panel", has_text="Pipeline site")
    await expect(pipeline.locator(".phase")).to_have_count(2)
    await expect(pipeline.get_by_text("processor-1").first).to_be_visible()


async def test_secrets_stay_hidden_until_an_admin_asks(page: Page, stock: Stock) -> None:
    await visit(page, f"/jobs/{stock['succeeded']}")
    await expect(page.get_by_text("redacted", exact=True)).to_have_count(2)
    assert "hunter22" not in await page.content()

    await page.get_by_role("button", name="Reveal").first.click()

    await expect(page.locator("pre.json").first).to_contain_text("hunter22")
    await visit(page, "/audit")
    await expect(page.get_by_text("reveal").first).to_be_visible()


async def test_a_worker_is_shown_with_its_slots(page: Page, served: Served, stock: Stock) -> None:
    (worker,) = (await served.client().get("/workers")).json()["workers"]
    await visit(page, "/workers")

    panel = page.locator("section.panel", has_text=worker["name"])
    await expect(panel.get_by_text(f"{worker['running']} of {worker['concurrency']}")).to_be_visible()
    await expect(panel.get_by_text("busy").first).to_be_visible()


async def test_a_page_that_is_not_there_and_a_job_that_is_not_there_say_so(page: Page, served: Served) -> None:
    await visit(page, "/jobs/01a1eeb4-f986-7844-8b6d-9242a171e615")
    await expect(page.get_by_role("heading", name="Not here")).to_be_visible()


async def test_a_filter_with_a_mistake_shows_its_place(page: Page, stock: Stock) -> None:
    await visit(page, "/jobs?filter=agee%3A%3C1h")

    await expect(page.get_by_role("alert")).to_contain_text("agee")
    await expect(page.locator(".term.wrong")).to_have_text("agee:<1h")


async def test_a_filter_without_a_match_says_what_was_searched_and_offers_a_way_out(page: Page, stock: Stock) -> None:
    await visit(page, "/jobs?filter=state%3Adead%20queue%3Amial")
    await expect(page.get_by_role("heading", name="No job matches state:dead queue:mial")).to_be_visible()
    await expect(page.get_by_text("Searched every job that is stored")).to_be_visible()

    await page.get_by_role("link", name="Without queue:mial").click()
    await expect(page.get_by_role("link", name="charge")).to_be_visible()
    await visit(page, "/dead?filter=queue%3Amail")
    await page.get_by_role("link", name="Search all jobs").click()

    await expect(page.locator("table.jobs tbody tr")).to_have_count(3)
    await expect(page.locator(".term")).to_have_text(["queue:mail"])


async def test_a_search_that_takes_too_long_is_stopped_and_tried_again(browser: Browser) -> None:
    with postgres_database() as lent:
        app = Windlass(lent.url, poll="100ms", read_timeout="200ms")
        declare(app)
        await enqueue(app, "echo", {"value": 1}, delay="1h")
        other = await asyncpg.connect(lent.url)
        async with serving(app, local=True) as served, opened(browser, served.origin) as page:
            async with other.transaction():
                await other.execute("LOCK TABLE windlass.jobs")
                await page.goto("/jobs?filter=input.value%3A1")
                await expect(page.get_by_role("heading", name="This took too long and was stopped")).to_be_visible()
            await page.get_by_role("button", name="Try again").click()
            await expect(page.get_by_role("link", name="echo")).to_be_visible()
        await other.close()
        await app.aclose()


async def test_a_schedule_shows_its_ticks_and_those_to_come(page: Page, served: Served, stock: Stock) -> None:
    await served.client().post("/schedules/fire", json={"name": "nightly"})
    await visit(page, "/schedules")

    ticks = page.get_by_role("row").filter(has_text="nightly").locator("svg.ticks")
    await expect(ticks).to_have_attribute("aria-label", "1 ticks in the last 24 hours, 1 to come in the next")
    await expect(ticks.locator("rect.wait")).to_have_count(1)
    await expect(ticks.locator("circle.coming")).to_have_count(1)


async def test_a_gate_that_was_closed_is_marked_on_both_charts(page: Page, served: Served, stock: Stock) -> None:
    await served.app.apause(queue="marked", reason="a deploy")
    await visit(page, "/")

    for chart in await page.locator("svg.chart").all():
        await expect(chart.locator("g.gate text")).to_have_text("marked paused")
    await expect(page.locator("svg.chart")).to_have_count(2)
    await served.app.aresume(queue="marked")


async def test_a_job_says_that_it_waits_for_a_signal_or_for_its_children(
    page: Page, served: Served, stock: Stock
) -> None:
    await visit(page, f"/jobs/{stock['waiting']}")
    await expect(page.locator(".story")).to_contain_text("signal answer")
    await expect(page.locator(".sums")).to_contain_text("Waited for a signal")

    parent = await enqueue(served.app, "guard", {})
    await reach(served.app, parent, "waiting")
    await visit(page, f"/jobs/{parent}")
    await expect(page.locator(".story")).to_contain_text("Waits for 1 job")
    await expect(page.locator(".sums")).to_contain_text("Waited for its jobs")
    await expect(page.locator("svg.life rect.run.s-failed")).to_have_count(0)  # a wait is no failure
    await page.get_by_label("2 jobs as a graph").get_by_role("link").click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("hold")


async def test_jobs_are_cards_of_their_lines_on_a_phone(browser: Browser, served: Served, stock: Stock) -> None:
    async with opened(browser, served.origin, width=390, dark=True) as phone:
        await phone.goto("/jobs?filter=type:charge")
        card = phone.locator("table.jobs tbody tr")
        await expect(card).to_contain_text("PermissionError: card of eve is refused")
        parts = [await card.locator(f"td.c-{name}").bounding_box() for name in ("state", "type", "why", "life")]
        heights = [box["y"] for box in parts if box is not None]
        assert (len(heights), heights) == (4, sorted(heights))
        assert await card.locator("td.c-life svg").is_visible()
        assert not await card.locator("td.c-box").is_visible()
        await card.get_by_role("link", name="charge").click()
        bar = await phone.locator(".actions").bounding_box()
        tabs = await phone.get_by_role("navigation", name="Pages").last.bounding_box()
        assert bar is not None
        assert tabs is not None
        assert abs(bar["y"] + bar["height"] - tabs["y"]) <= 1
