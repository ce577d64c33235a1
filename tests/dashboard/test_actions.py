"""Each action of the pages is done by clicking, and the store has what the page says."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

from web.rig import Served
from windlass import NamedCall, State

from .rig import Stock, both_stores, enqueue


async def state_of(served: Served, id: str) -> str:
    return (await (await served.app.afind(id)).astatus()).value


def mark(page: Page, state: str) -> Locator:
    return page.locator(".mark.tinted", has_text=state)


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


@both_stores
async def test_a_job_is_found_opened_cancelled_and_resumed(page: Page, served: Served) -> None:
    id = await enqueue(served.app, "send", {"to": "ann"}, delay="1h")
    await page.goto("/jobs")

    await page.get_by_role("link", name="send").click()
    await button(page, "Cancel…").click()
    await button(page, "Back").click()
    await expect(mark(page, "queued")).to_be_visible()
    await button(page, "Cancel…").click()
    await button(page, "Cancel it").click()
    await expect(mark(page, "cancelled")).to_be_visible()
    assert await state_of(served, id) == "cancelled"

    await button(page, "Resume").click()
    await expect(mark(page, "queued")).to_be_visible()


@both_stores
async def test_failed_and_dead_jobs_are_retried_replayed_and_discarded(
    page: Page, served: Served, stock: Stock
) -> None:
    await page.goto(f"/jobs/{stock['failed']}")
    await button(page, "Retry now").click()
    await expect(page.get_by_text("Attempt 2 of 3").first).to_be_visible()

    await page.goto(f"/jobs/{stock['dead']}")
    await button(page, "Replay").click()
    await expect(page.get_by_role("status").get_by_text("Job replayed.")).to_be_visible()
    await expect(page.locator(".traceback")).to_have_count(2)
    await button(page, "Discard…").click()
    await button(page, "Discard it").click()
    await expect(page.get_by_text("This job is gone.")).to_be_visible()
    await expect(button(page, "Discard…")).to_have_count(0)


async def test_a_running_job_is_asked_to_stop(page: Page, stock: Stock) -> None:
    await page.goto(f"/jobs/{stock['running']}")

    await button(page, "Cancel…").click()
    await button(page, "Cancel it").click()

    await expect(mark(page, "cancelled")).to_be_visible()


async def test_a_signal_is_sent(page: Page, stock: Stock) -> None:
    await page.goto(f"/jobs/{stock['waiting']}")

    await button(page, "Send signal…").click()
    await page.get_by_label("Name").fill("answer")
    await page.get_by_label("Value, as JSON").fill('"yes"')
    await button(page, "Send").click()

    await expect(mark(page, "succeeded")).to_be_visible()
    await expect(page.locator("pre.json").last).to_have_text('"bob: yes"')


async def test_a_job_is_edited_and_run_again(page: Page, served: Served, stock: Stock) -> None:
    await page.goto(f"/jobs/{stock['dead']}")
    await button(page, "Edit, run again…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("amount").fill("many")
    await button(page, "Run again").click()
    await expect(dialog.locator("label", has_text="amount").locator(".mistake")).to_have_text("this is no number")
    await dialog.get_by_label("amount").fill("1.5")
    await button(page, "Run again").click()
    await expect(dialog.locator("label", has_text="amount").locator(".mistake")).to_contain_text("int")

    await dialog.get_by_label("amount").fill("9007199254740993")
    await button(page, "Run again").click()

    await expect(page).not_to_have_url(f"/jobs/{stock['dead']}")
    await expect(page.locator("pre.json").first).to_contain_text('"amount": 9007199254740993')
    newest = (await served.client().get("/jobs", params={"count": 1})).text
    assert "9007199254740993" in newest


async def test_a_job_is_enqueued_by_a_form_from_its_hints(page: Page, stock: Stock) -> None:
    await page.goto("/jobs")
    await button(page, "Enqueue…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Type").select_option("charge")
    await dialog.get_by_label("customer").fill("zoe")
    await dialog.get_by_role("button", name="Enqueue").click()
    await expect(dialog.locator(".mistake")).to_contain_text("amount")
    await dialog.get_by_label("amount").fill("7")
    await dialog.get_by_text("Options").click()
    await dialog.get_by_label("tenant").fill("acme")
    await dialog.get_by_role("button", name="Enqueue").click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("charge")
    await expect(page.locator("pre.json").first).to_contain_text('"customer": "zoe"')
    await expect(page.locator("dl.facts")).to_contain_text("acme")


async def test_a_queue_is_paused_with_a_reason_and_opened(page: Page, served: Served, stock: Stock) -> None:
    await page.goto("/queues")
    mail = page.get_by_role("row").filter(has=page.get_by_role("link", name="mail", exact=True))

    await mail.get_by_role("button", name="Pause…").click()
    await page.get_by_label("Reason").fill("the server moves")
    await button(page, "Pause mail").click()
    await expect(mail).to_contain_text("the server moves")
    await expect(mail).to_contain_text("paused")
    assert [gate.reason for gate in await served.app.agates()] == ["the server moves"]

    await mail.get_by_role("button", name="Open…").click()
    await button(page, "Open mail").click()
    await expect(mail.get_by_role("button", name="Pause…")).to_be_visible()


async def test_everything_is_paused_and_opened(page: Page, stock: Stock) -> None:
    await page.goto("/queues")

    await button(page, "Pause everything…").click()
    await page.get_by_label("Reason").fill("an outage")
    await button(page, "Pause everything").click()
    await button(page, "Open everything…").click()
    await button(page, "Open everything").click()

    await expect(button(page, "Pause everything…")).to_be_visible()


async def test_a_schedule_is_run_now_paused_and_resumed(page: Page, served: Served, stock: Stock) -> None:
    await page.goto("/schedules")
    nightly = row(page, "nightly").first

    await nightly.get_by_role("button", name="Run now…").click()
    await button(page, "Run now").click()
    await expect(page.get_by_role("status").get_by_text("Enqueued.")).to_be_visible()
    await nightly.get_by_role("button", name="Pause…").click()
    await page.get_by_label("Reason").fill("no mail today")
    await button(page, "Pause").click()
    await expect(nightly).to_contain_text("no mail today")
    await nightly.get_by_role("button", name="Resume").click()
    await expect(nightly).to_contain_text("on")
    await nightly.get_by_role("button", name="nightly").click()

    await expect(page.get_by_text("Next five, in Europe/Berlin")).to_be_visible()
    await expect(page.get_by_text("by hand")).to_be_visible()
    assert not (await served.app.aschedules("nightly"))[0].paused


async def test_a_weight_and_a_budget_are_set_changed_and_removed(page: Page, served: Served, stock: Stock) -> None:
    await page.goto("/tenants")

    await row(page, "acme").get_by_role("button", name="Weight…").click()
    await page.get_by_label("Weight").fill("3")
    await button(page, "Set").click()
    await expect(row(page, "acme").locator("td").nth(1)).to_have_text("3")
    await button(page, "Set a budget…").click()
    await page.get_by_label("Tenant", exact=True).fill("acme")
    await page.get_by_label("Cents").fill("500")
    await button(page, "Set").click()
    budget = page.locator("section.panel", has_text="Budgets").get_by_role("row").filter(has_text="acme")
    await expect(budget).to_contain_text("of 500")
    await budget.get_by_role("button", name="Remove…").click()
    await button(page, "Remove").click()

    await expect(page.get_by_text("No budget is set")).to_be_visible()
    assert [each.weight for each in await served.app.atenants() if each.name == "acme"] == [3]


async def test_a_wrong_value_is_refused_in_the_servers_words(page: Page, stock: Stock) -> None:
    await page.goto("/tenants")

    await row(page, "acme").get_by_role("button", name="Weight…").click()
    await page.get_by_label("Weight").fill("heavy")
    await button(page, "Set").click()

    await expect(page.get_by_role("status")).to_contain_text("weight")


async def test_a_token_is_created_shown_once_and_revoked(page: Page, served: Served) -> None:
    await page.goto("/tokens")
    await button(page, "Create…").click()
    await page.get_by_label("Name").fill("root")
    await page.get_by_label("Role").select_option("admin")
    await button(page, "Create").click()
    secret = await page.locator(".copyline code").inner_text()
    await button(page, "I have it").click()
    await expect(page.get_by_label("Token")).to_be_visible()  # from now on, this server asks for one
    await page.get_by_label("Token").fill(secret)
    await button(page, "Open").click()
    await served.app.acreate_token("old", role="viewer")
    await page.reload()

    await row(page, "old").get_by_role("button", name="Revoke…").click()
    await button(page, "Revoke").click()

    await expect(row(page, "old")).to_contain_text("revoked")
    assert secret not in await page.content()


@both_stores
async def test_a_bulk_action_counts_exactly_and_asks_for_the_number_above_a_hundred(page: Page, served: Served) -> None:
    await served.app.aenqueue_named([NamedCall("echo", {"value": n}, {"delay": "1h"}) for n in range(120)])
    await enqueue(served.app, "send", {"to": "ann"}, delay="1h")
    await page.goto("/jobs?filter=type%3Aecho")

    await page.get_by_label("Choose all that match").check()
    await page.get_by_role("region", name="Chosen jobs").get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading")).to_have_text("Cancel 120 jobs?")
    await expect(dialog).to_contain_text("type:echo")
    await expect(button(page, "Cancel 120")).to_be_disabled()
    await dialog.get_by_label("Type 120 to go on").fill("12")
    await expect(button(page, "Cancel 120")).to_be_disabled()
    await dialog.get_by_label("Type 120 to go on").fill("120")
    await button(page, "Cancel 120").click()

    await expect(page.get_by_role("status")).to_contain_text("120 cancelled.")
    counts = await served.app.acounts()
    assert {state.value: number for state, number in counts.items() if number} == {"cancelled": 120, "queued": 1}


async def test_chosen_rows_are_changed_and_no_other(page: Page, served: Served) -> None:
    ids = [await enqueue(served.app, "echo", {"value": n}, delay="1h") for n in range(3)]
    await page.goto("/jobs")

    await page.get_by_label(f"Choose echo {ids[0]}").check()
    await page.get_by_label(f"Choose echo {ids[2]}").check()
    await page.get_by_role("region", name="Chosen jobs").get_by_role("button", name="Cancel…").click()
    await button(page, "Cancel 2").click()

    await expect(page.get_by_role("status")).to_contain_text("2 cancelled.")
    assert [await state_of(served, id) for id in ids] == ["cancelled", "queued", "cancelled"]


async def test_a_bulk_action_shows_its_progress_and_is_stopped(page: Page, served: Served) -> None:
    for _ in range(4):
        await served.app.aenqueue_named([NamedCall("echo", {"value": n}, {"delay": "1h"}) for n in range(1_000)])
    await page.goto("/jobs?filter=type%3Aecho")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(50)
    await page.keyboard.press("a")
    await page.get_by_role("region", name="Chosen jobs").get_by_role("button", name="Cancel…").click()
    await page.get_by_label("Type 4000 to go on").fill("4,000")
    await button(page, "Cancel 4,000").click()

    await button(page, "Stop").click()

    await expect(page.get_by_role("status")).to_contain_text("Stopped")
    assert (await served.app.acounts())[State.QUEUED] > 0


async def test_dead_letters_are_replayed_all_at_once(page: Page, served: Served, stock: Stock) -> None:
    await enqueue(served.app, "charge", {"customer": "bob", "amount": 3})
    await page.goto("/dead")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(2)

    await button(page, "Replay all…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("2 dead")
    await button(page, "Replay 2").click()

    await expect(page.get_by_role("status")).to_contain_text("2 replayed.")


async def test_an_error_group_is_replayed(page: Page, stock: Stock) -> None:
    await page.goto("/errors")
    await page.get_by_role("button", name="PermissionError").click()
    await button(page, "Replay 1 dead…").click()
    await button(page, "Replay 1").click()

    await expect(page.get_by_role("status")).to_contain_text("1 replayed.")
