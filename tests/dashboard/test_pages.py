"""Each page opens on an empty database and with jobs in every state, and shows what the API has."""

from __future__ import annotations

import asyncpg
import pytest
from playwright.async_api import Browser, Page, expect

from servers import postgres_database
from web.rig import Served, serving
from windlass import Windlass

from .rig import PAGES, Stock, both_stores, declare, enqueue, opened

STATES = ("queued", "running", "failed", "waiting", "dead", "succeeded", "cancelled")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_opens_without_a_job(page: Page, path: str) -> None:
    await page.goto(f"/{path}")

    await expect(page.get_by_role("heading", level=1)).to_have_text(PAGES[path])
    await expect(page.locator(".skeleton")).to_have_count(0)


@both_stores
async def test_the_pages_show_the_numbers_of_the_api(page: Page, served: Served, stock: Stock) -> None:
    client = served.client()
    counts = (await client.get("/counts")).json()["counts"]
    await page.goto("/jobs")

    facets = page.get_by_role("complementary", name="Facets")
    for state in STATES:
        await expect(facets.get_by_role("button", name=state)).to_have_text(f"{state}{counts[state]}")
    await expect(page.locator("footer")).to_contain_text(f"of {sum(counts.values())}, newest first")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(sum(counts.values()))
    await expect(page.get_by_role("link", name="Dead letters")).to_contain_text(str(counts["dead"]))

    queues = (await client.get("/queues")).json()["queues"]
    await page.get_by_role("link", name="Queues").first.click()
    for row in queues:
        shown = page.get_by_role("row").filter(has=page.get_by_role("link", name=row["queue"], exact=True))
        later = f"{row['queued'] - row['due']} later" if row["queued"] > row["due"] else ""
        numbers = [f"{row['due']}{later}", *(str(row[name]) for name in ("running", "failed", "dead"))]
        for place, number in enumerate(numbers):
            await expect(shown.locator("td.right").nth(place)).to_have_text(number)


async def test_home_says_how_it_is_and_what_to_do(page: Page, served: Served, stock: Stock) -> None:
    await page.goto("/")
    overview = (await served.client().get("/overview")).json()

    await expect(page.locator(".health .say")).to_have_text(overview["health"]["sentence"])
    for row in overview["queues"]:
        await expect(page.get_by_role("link", name=row["queue"], exact=True)).to_be_visible()
    await expect(page.locator(".kpi")).to_have_count(6)


async def test_errors_are_one_line_per_kind(page: Page, served: Served, stock: Stock) -> None:
    await page.goto("/errors")
    groups = (await served.client().get("/errors")).json()["errors"]

    await expect(page.locator("main section.panel")).to_have_count(len(groups))
    await page.get_by_role("button", name="PermissionError").click()
    await expect(page.locator(".traceback")).to_contain_text("card of eve is refused")
    await page.get_by_role("link", name="Show 1 job").click()
    await expect(page.get_by_role("link", name="charge")).to_be_visible()


async def test_a_job_tells_its_story(page: Page, served: Served, stock: Stock) -> None:
    story = (await served.client().get(f"/jobs/{stock['failed']}/story")).json()["story"]
    await page.goto(f"/jobs/{stock['failed']}")

    await expect(page.locator(".story")).to_contain_text(story[:20])
    await expect(page.locator(".story")).to_contain_text("Retries in ")
    await expect(page.locator(".traceback .last")).to_have_text("TimeoutError: https://example.org does not answer")


async def test_a_running_job_shows_its_progress_and_its_log(page: Page, stock: Stock) -> None:
    await page.goto(f"/jobs/{stock['running']}")

    await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "3")
    await expect(page.get_by_text("3 of 10", exact=True)).to_be_visible()


async def test_children_and_phases_are_shown(page: Page, stock: Stock) -> None:
    await page.goto(f"/jobs/{stock['parent']}")
    await expect(page.locator("section.panel", has_text="Its jobs").get_by_role("row")).to_have_count(3)

    await page.goto("/queues")
    pipeline = page.locator("section.panel", has_text="Pipeline site")
    await expect(pipeline.locator(".phase")).to_have_count(2)
    await expect(pipeline.get_by_text("processor-1").first).to_be_visible()


async def test_secrets_stay_hidden_until_an_admin_asks(page: Page, stock: Stock) -> None:
    await page.goto(f"/jobs/{stock['succeeded']}")
    await expect(page.get_by_text("redacted", exact=True)).to_have_count(2)
    assert "hunter22" not in await page.content()

    await page.get_by_role("button", name="Reveal").first.click()

    await expect(page.locator("pre.json").first).to_contain_text("hunter22")
    await page.goto("/audit")
    await expect(page.get_by_text("reveal").first).to_be_visible()


async def test_a_worker_is_shown_with_its_slots(page: Page, served: Served, stock: Stock) -> None:
    (worker,) = (await served.client().get("/workers")).json()["workers"]
    await page.goto("/workers")

    panel = page.locator("section.panel", has_text=worker["name"])
    await expect(panel.get_by_text(f"{worker['running']} of {worker['concurrency']}")).to_be_visible()
    await expect(panel.get_by_text("busy").first).to_be_visible()


async def test_a_page_that_is_not_there_and_a_job_that_is_not_there_say_so(page: Page, served: Served) -> None:
    await page.goto("/jobs/01a1eeb4-f986-7844-8b6d-9242a171e615")
    await expect(page.get_by_role("heading", name="Not here")).to_be_visible()


async def test_a_filter_with_a_mistake_shows_its_place(page: Page, stock: Stock) -> None:
    await page.goto("/jobs?filter=agee%3A%3C1h")

    await expect(page.get_by_role("alert")).to_contain_text("agee")
    await expect(page.locator(".term.wrong")).to_have_text("agee:<1h")


async def test_a_filter_without_a_match_says_what_was_searched_and_offers_a_way_out(page: Page, stock: Stock) -> None:
    await page.goto("/jobs?filter=state%3Adead%20queue%3Amial")
    await expect(page.get_by_role("heading", name="No job matches state:dead queue:mial")).to_be_visible()
    await expect(page.get_by_text("Searched every job that is stored")).to_be_visible()

    await page.get_by_role("link", name="Without queue:mial").click()
    await expect(page.get_by_role("link", name="charge")).to_be_visible()
    await page.goto("/dead?filter=queue%3Amail")
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
