"""Each action of the pages is done by clicking, and the store has what the page says."""

from __future__ import annotations

from playwright.async_api import Browser, Locator, Page, expect

from web.rig import Served
from windlass import NamedCall

from .rig import Stock, button, enqueue, mark, opened, reach, state_of, visit


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


async def test_a_running_job_is_asked_to_stop(page: Page, stock: Stock) -> None:
    await visit(page, f"/jobs/{stock['running']}")

    await button(page, "Cancel…").click()
    await button(page, "Cancel it").click()

    await expect(mark(page, "cancelled")).to_be_visible()


async def test_a_signal_is_sent(page: Page, stock: Stock) -> None:
    await visit(page, f"/jobs/{stock['waiting']}")

    await button(page, "Send signal…").click()
    await page.get_by_label("Name").fill("answer")
    await page.get_by_label("Value, as JSON").fill('"yes"')
    await button(page, "Send").click()

    await expect(mark(page, "succeeded")).to_be_visible()
    await expect(page.locator("pre.json").last).to_have_text('"bob: yes"')


async def die(served: Served, tenant: str) -> str:
    """A dead letter of the story's own."""
    id = await enqueue(served.app, "charge", {"customer": "eve", "amount": 5, "message": tenant}, tenant=tenant)
    await reach(served.app, id, "dead")
    return id


async def test_a_job_is_edited_and_run_again(page: Page, served: Served, stock: Stock) -> None:
    dead = await die(served, "edited")
    await visit(page, f"/jobs/{dead}")
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

    await expect(page).not_to_have_url(f"/jobs/{dead}")
    await expect(page.locator("pre.json").first).to_contain_text('"amount": 9007199254740993')
    newest = (await served.client().get("/jobs", params={"filter": "tenant:edited", "count": 1})).text
    assert "9007199254740993" in newest


async def test_a_job_is_enqueued_by_a_form_from_its_hints(page: Page, stock: Stock) -> None:
    await visit(page, "/jobs")
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
    await visit(page, "/queues")
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

    await served.app.apause(queue="mail")
    await expect(mail).to_contain_text("paused")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("open gate")
    await expect(page.get_by_role("option", name="Open gate of queue mail…")).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await button(page, "Open mail").click()
    await expect(mail.get_by_role("button", name="Pause…")).to_be_visible()


async def test_everything_is_paused_and_opened(page: Page, served: Served, stock: Stock) -> None:
    await visit(page, "/queues")

    await button(page, "Pause everything…").click()
    await page.get_by_label("Reason").fill("an outage")
    await button(page, "Pause everything").click()
    await button(page, "Open everything…").click()
    await button(page, "Open everything").click()

    await expect(button(page, "Pause everything…")).to_be_visible()
    await expect(page.get_by_role("status")).not_to_contain_text("Everything is open.")  # the word of this time is gone

    await served.app.apause(all=True, reason="an outage")
    await enqueue(served.app, "echo", {"value": 1}, tenant="outage")
    await visit(page, "/")
    await button(page, "Open gate…").click()  # the button beside the sentence does it, and copies no command
    await button(page, "Open everything").click()
    await expect(page.get_by_role("status")).to_contain_text("Everything is open.")
    assert not any(gate.is_closed for gate in await served.app.agates())


async def test_a_schedule_is_run_now_paused_and_resumed(page: Page, served: Served, stock: Stock) -> None:
    await visit(page, "/schedules")
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
    await visit(page, "/tenants")

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
    await visit(page, "/tenants")

    await row(page, "acme").get_by_role("button", name="Weight…").click()
    await page.get_by_label("Weight").fill("heavy")
    await button(page, "Set").click()

    await expect(page.get_by_role("status")).to_contain_text("weight")


async def test_a_token_is_created_shown_once_and_revoked(browser: Browser, fresh: Served) -> None:
    async with opened(browser, fresh.origin) as page:
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
        await expect(row(page, "root")).to_be_visible()  # the cookie is there
        await fresh.app.acreate_token("old", role="viewer")
        await page.reload()

        await row(page, "old").get_by_role("button", name="Revoke…").click()
        await button(page, "Revoke").click()

        await expect(row(page, "old")).to_contain_text("revoked")
        assert secret not in await page.content()


async def test_chosen_rows_are_changed_and_no_other(page: Page, served: Served) -> None:
    ids = [await enqueue(served.app, "echo", {"value": n}, delay="1h", tenant="chosen") for n in range(3)]
    await visit(page, "/jobs?filter=tenant:chosen")

    await page.get_by_label(f"Choose echo {ids[0]}").check()
    await page.get_by_label(f"Choose echo {ids[2]}").check()
    await page.get_by_role("region", name="Chosen jobs").get_by_role("button", name="Cancel 2…").click()
    await button(page, "Cancel 2").click()

    await expect(page.get_by_role("status")).to_contain_text("2 cancelled.")
    assert [await state_of(served, id) for id in ids] == ["cancelled", "queued", "cancelled"]


async def test_only_jobs_that_the_action_can_change_are_counted(page: Page, served: Served, stock: Stock) -> None:
    await die(served, "able")
    failed = await enqueue(served.app, "fetch", {"url": "x"}, tenant="able")
    await reach(served.app, failed, "failed")
    await visit(page, "/jobs?filter=tenant:able%20state:failed,dead")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(2)

    await page.keyboard.press("a")
    await page.get_by_role("region", name="Chosen jobs").get_by_role("button", name="Cancel 1…").click()
    await button(page, "Cancel 1").click()

    await expect(page.get_by_role("status")).to_contain_text("1 cancelled.")
    assert await state_of(served, failed) == "cancelled"


async def test_a_bulk_action_shows_its_progress_and_is_stopped(page: Page, served: Served) -> None:
    for _ in range(4):
        calls = [NamedCall("echo", {"value": n}, {"delay": "1h", "tenant": "many"}) for n in range(1_000)]
        await served.app.aenqueue_named(calls)
    await visit(page, "/jobs?filter=tenant:many")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(50)
    await page.keyboard.press("a")
    await page.get_by_role("region", name="Chosen jobs").get_by_role("button", name="Cancel 4,000…").click()
    await page.get_by_label("Type 4000 to go on").fill("4,000")
    await button(page, "Cancel 4,000").click()

    await button(page, "Stop").click()

    await expect(page.get_by_role("status")).to_contain_text("Stopped")
    assert await served.app.ajobs("tenant:many state:queued", count=1)


async def test_dead_letters_are_replayed_all_at_once(page: Page, served: Served, stock: Stock) -> None:
    for _ in range(2):
        await die(served, "dead")
    await visit(page, "/dead?filter=tenant:dead")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(2)

    await button(page, "Replay all 2…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("2 dead")
    await button(page, "Replay 2").click()

    await expect(page.get_by_role("status")).to_contain_text("2 replayed.")


async def test_an_error_group_is_replayed(page: Page, served: Served, stock: Stock) -> None:
    await die(served, "refused by the bank")
    await visit(page, "/errors")
    await page.get_by_role("button", name="PermissionError refused by the bank").click()
    await button(page, "Replay 1 dead…").click()
    await button(page, "Replay 1").click()

    await expect(page.locator("#toasts")).to_contain_text("1 replayed.")


async def test_without_a_clipboard_a_text_is_copied_all_the_same(page: Page, stock: Stock) -> None:
    """On plain http a page has no clipboard."""
    await visit(page, f"/jobs/{stock['queued']}")
    await page.evaluate(
        """() => {
            Object.defineProperty(navigator, "clipboard", { value: undefined, configurable: true });
            addEventListener("copy", () => { window.copied = document.activeElement.value; }, { once: true });
        }"""
    )

    await button(page, "Copy the id").click()
    await expect(page.get_by_role("status")).to_contain_text("Copied.")

    assert await page.evaluate("delete navigator.clipboard && window.copied") == stock["queued"]
