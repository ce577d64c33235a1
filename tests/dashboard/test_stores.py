"""The stories whose answers come from the store's own SQL: on SQLite and on PostgreSQL."""

from __future__ import annotations

from playwright.async_api import Page, expect

from web.rig import Served
from windlass import NamedCall

from .rig import Stock, both_stores, button, enqueue, mark, state_of, visit

pytestmark = both_stores
STATES = ("queued", "running", "failed", "waiting", "dead", "succeeded", "cancelled")


async def test_the_pages_show_the_numbers_of_the_api(page: Page, served: Served, stock: Stock) -> None:
    client = served.client()
    counts = (await client.get("/counts")).json()["counts"]
    await visit(page, "/jobs")

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


async def test_a_job_is_found_opened_cancelled_and_resumed(page: Page, served: Served) -> None:
    id = await enqueue(served.app, "send", {"to": "ann"}, delay="1h", tenant="found")
    await visit(page, "/jobs?filter=tenant:found")

    await page.get_by_role("link", name="send").click()
    await button(page, "Cancel…").click()
    await button(page, "Back").click()
    await expect(mark(page, "queued")).to_be_visible()
    await button(page, "Cancel…").click()
    await button(page, "Cancel it").click()
    await expect(mark(page, "cancelled")).to_be_visible()
    assert await state_of(served, id) == "cancelled"

    await button(page, "Resume").click()
    await expect(page.get_by_role("status")).to_contain_text("Job resumed.")
    await expect(mark(page, "cancelled")).to_have_count(0)


async def test_failed_and_dead_jobs_are_retried_replayed_and_discarded(
    page: Page, served: Served, stock: Stock
) -> None:
    await visit(page, f"/jobs/{stock['failed']}")
    await button(page, "Retry now").click()
    await expect(page.get_by_text("Attempt 2 of 3").first).to_be_visible()

    await visit(page, f"/jobs/{stock['dead']}")
    await button(page, "Replay").click()
    await expect(page.get_by_role("status").get_by_text("Job replayed.")).to_be_visible()
    await expect(page.locator(".traceback")).to_have_count(2)
    await button(page, "Discard…").click()
    await button(page, "Discard it").click()
    await expect(page.get_by_text("This job is gone.")).to_be_visible()
    await expect(button(page, "Discard…")).to_have_count(0)


async def test_a_bulk_action_counts_exactly_and_asks_for_the_number_above_a_hundred(page: Page, served: Served) -> None:
    await served.app.aenqueue_named(
        [NamedCall("echo", {"value": n}, {"delay": "1h", "tenant": "bulk"}) for n in range(120)]
    )
    await enqueue(served.app, "send", {"to": "ann"}, delay="1h", tenant="bulk")
    await visit(page, "/jobs?filter=type:echo%20tenant:bulk")

    await page.get_by_label("Choose all that match").check()
    await page.get_by_role("region", name="Chosen jobs").get_by_role("button", name="Cancel 120…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading")).to_have_text("Cancel 120 jobs?")
    await expect(dialog).to_contain_text("type:echo")
    await expect(button(page, "Cancel 120")).to_be_disabled()
    await dialog.get_by_label("Type 120 to go on").fill("12")
    await expect(button(page, "Cancel 120")).to_be_disabled()
    await dialog.get_by_label("Type 120 to go on").fill("120")
    await button(page, "Cancel 120").click()

    await expect(page.get_by_role("status")).to_contain_text("120 cancelled.")
    left = [(job.type, job.status.value) for job in await served.app.ajobs("tenant:bulk", count=200)]
    assert sorted(set(left)) == [("echo", "cancelled"), ("send", "queued")]
    assert len(left) == 121


async def test_a_row_changes_in_place_and_new_ones_wait_until_asked_for(page: Page, served: Served) -> None:
    first = await enqueue(served.app, "echo", {"value": 1}, delay="1h", tenant="row")
    await visit(page, "/jobs?filter=tenant:row")
    rows = page.locator("table.jobs tbody tr")
    await expect(rows).to_have_count(1)

    await (await served.app.afind(first)).acancel()
    await expect(rows.first).to_contain_text("cancelled")
    await enqueue(served.app, "send", {"to": "ann"}, delay="1h", tenant="row")
    await enqueue(served.app, "send", {"to": "bob"}, delay="1h", tenant="row")
    await expect(page.get_by_role("button", name="2 newer jobs match")).to_be_visible()
    await expect(rows).to_have_count(1)
    await page.keyboard.press(".")

    await expect(rows).to_have_count(3)
    await expect(rows.last).to_contain_text("echo")
