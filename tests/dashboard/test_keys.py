"""The dashboard by keyboard alone: rows, pages, the palette, dialogs; and silence in fields."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from web.rig import Served

from .rig import PAGES, Stock, enqueue, mark, visit

LETTERS = {
    "h": "",
    "j": "jobs",
    "e": "errors",
    "q": "queues",
    "s": "schedules",
    "w": "workers",
    "d": "dead",
    "t": "tenants",
    "a": "audit",
    "k": "tokens",
}


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def titled(page: Page, title: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(title)


async def test_g_and_a_letter_opens_a_page(page: Page) -> None:
    await visit(page, "/audit")
    await titled(page, "Audit")

    for letter, path in LETTERS.items():
        await press(page, "g", letter)
        await titled(page, PAGES[path])


async def test_rows_are_walked_chosen_and_opened(page: Page, served: Served) -> None:
    for name in ("ann", "bob", "eve"):
        await enqueue(served.app, "send", {"to": name}, delay="1h", tenant="walk")
    await visit(page, "/jobs?filter=tenant:walk")
    rows = page.locator("table.jobs tbody tr")
    await expect(rows).to_have_count(3)

    await press(page, "j", "j", "j", "j")  # it stays on the last row
    await expect(rows.nth(2)).to_have_class(re.compile("cursor"))
    await press(page, "k")
    await expect(rows.nth(1)).to_have_class(re.compile("cursor"))
    await press(page, "x")
    await expect(page.get_by_role("region", name="Chosen jobs")).to_contain_text("1 chosen")
    await press(page, "a")
    await expect(page.get_by_role("region", name="Chosen jobs")).to_contain_text("All that match: 3")
    await press(page, "Escape")
    await expect(page.get_by_role("region", name="Chosen jobs")).to_have_count(0)
    await press(page, "Enter")

    await titled(page, "send")
    await expect(page.locator("pre.json").first).to_contain_text("bob")
    await press(page, "u")
    await titled(page, "Jobs")


async def test_a_job_is_cancelled_and_resumed_by_its_keys(page: Page, served: Served) -> None:
    id = await enqueue(served.app, "send", {"to": "ann"}, delay="1h")
    await visit(page, f"/jobs/{id}")
    await expect(page.locator(".story")).to_be_visible()

    await press(page, "c")
    await expect(page.get_by_role("button", name="Cancel it")).to_be_focused()
    await press(page, "Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await press(page, "c", "Enter")
    await expect(mark(page, "cancelled")).to_be_visible()
    await press(page, "r")

    await expect(page.get_by_role("status")).to_contain_text("Job resumed.")
    await expect(mark(page, "cancelled")).to_have_count(0)


async def test_enter_presses_what_has_the_focus_and_not_the_row(page: Page, served: Served) -> None:
    await enqueue(served.app, "send", {"to": "ann"}, delay="1h")
    await visit(page, "/jobs")
    await expect(page.locator("table.jobs")).to_be_visible()
    await press(page, "j")

    await page.get_by_role("link", name="Audit").first.focus()
    await press(page, "Enter")

    await titled(page, "Audit")


async def test_slash_goes_to_the_filter_and_no_key_fires_while_one_types(page: Page, stock: Stock) -> None:
    await visit(page, "/jobs")
    field = page.get_by_role("combobox", name="Filter")
    await expect(page.locator("table.jobs")).to_be_visible()
    await press(page, "/")
    await expect(field).to_be_focused()

    await page.keyboard.type("gjp?xa.")
    await expect(field).to_have_value("gjp?xa.")
    await titled(page, "Jobs")
    await expect(page.get_by_text("Paused at")).to_have_count(0)
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await press(page, "Escape")
    await expect(field).not_to_be_focused()
    await press(page, "g", "e")
    await titled(page, "Errors")
    await visit(page, "/jobs")
    await press(page, "/")
    await field.fill("state:de")
    await expect(page.get_by_role("option", name="state:dead")).to_be_visible()
    await press(page, "ArrowDown", "Enter")
    await expect(page.locator(".term")).to_have_text(["state:dead"])

    await expect(page.locator("table.jobs tbody tr")).to_have_count(1)
    await expect(page).to_have_url(re.compile(r"filter=state%3Adead$"))


async def test_the_palette_is_typed_into_chosen_from_and_left(page: Page, stock: Stock) -> None:
    await visit(page, "/")
    await titled(page, "Home")
    await press(page, "Control+k")
    field = page.get_by_role("combobox", name="Search or do")
    await expect(field).to_be_focused()
    await page.keyboard.type("dead let")
    await expect(page.get_by_role("option")).to_have_count(1)
    await press(page, "Enter")
    await titled(page, "Dead letters")

    await press(page, "Control+k")
    await page.keyboard.type("mail")
    await expect(page.get_by_role("option", name="mail jobs of this queue")).to_be_visible()
    await press(page, "Enter")
    await expect(page.locator(".term")).to_have_text(["queue:mail"])

    await press(page, "Control+k", "Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_palette_opens_a_pasted_id_and_a_pasted_filter(page: Page, stock: Stock) -> None:
    for pasted in (stock["dead"], stock["dead"][-8:], "type:charge"):
        await visit(page, "/audit")
        await press(page, "Control+k")
        await page.keyboard.insert_text(pasted)
        option = page.get_by_role("option", name="Search type:charge" if pasted == "type:charge" else "Open job")
        await expect(option).to_be_visible()
        await press(page, "Enter")
        await titled(page, "Jobs" if pasted == "type:charge" else "charge")

    await expect(page.locator(".term")).to_have_text(["type:charge"])


async def test_a_question_mark_lists_the_keys_and_turns_them_off(page: Page) -> None:
    await visit(page, "/audit")
    await titled(page, "Audit")
    await press(page, "?")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("choose all that match")
    await dialog.get_by_role("checkbox", name="Single keys are on").uncheck()
    await press(page, "Escape", "g", "j", "p")
    await expect(page.get_by_text("Paused at")).to_have_count(0)
    await titled(page, "Audit")

    await page.get_by_role("button", name="Keys").click()
    await dialog.get_by_role("checkbox", name="Single keys are on").check()
    await press(page, "Escape", "p")
    await expect(page.get_by_text("Paused at")).to_be_visible()
    await press(page, "p")

    await expect(page.get_by_text("Paused at")).to_have_count(0)


async def test_the_focus_is_seen_and_returns_when_a_dialog_closes(page: Page, stock: Stock) -> None:
    await visit(page, "/schedules")
    button = page.get_by_role("button", name="Run now…")
    await button.focus()
    await press(page, "Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await press(page, "Escape")

    await expect(button).to_be_focused()
    outline = await button.evaluate("node => getComputedStyle(node).outlineWidth")
    assert outline == "2px"


async def test_enter_takes_an_open_suggestion(page: Page, stock: Stock) -> None:
    await visit(page, "/jobs")
    await expect(page.locator("table.jobs")).to_be_visible()
    await press(page, "/")
    await page.keyboard.type("state:de")
    await expect(page.get_by_role("option", name="state:dead")).to_be_visible()

    await press(page, "Enter")

    await expect(page.locator(".term")).to_have_text(["state:dead"])
