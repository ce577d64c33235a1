"""What can be measured of the looks: contrast, names, headings, widths, motion; and ages with a wrong clock."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from web.rig import Served

from .rig import HEIGHTS, PAGES, Stock, enqueue, opened, reach, visit

MEASURES = (Path(__file__).parent / "measures.js").read_text()
# A theme changes colours alone, and the narrowest window shows nothing that the next one does not.
LOOKS = (
    *((1440, "light", None), (1440, "dark", ["faint"]), (1280, "light", ["wide", "cut"])),
    *((390, "light", None), (390, "dark", ["faint"]), (320, "light", ["wide", "small"])),
)
AGO = re.compile(r"ended (now|\d+.s ago|\d.m ago)")
AHEAD = """
const Real = Date;
const ahead = {hours} * 3600e3;
globalThis.Date = class extends Real {{
  constructor(...given) {{ given.length ? super(...given) : super(Real.now() + ahead); }}
  static now() {{ return Real.now() + ahead; }}
}};
"""


@pytest_asyncio.fixture(loop_scope="session")
async def full(served: Served, stock: Stock) -> AsyncIterator[list[str]]:
    """The addresses of all pages, with something in each: also a gate, a budget, long names."""
    app = served.app
    await app.apause(queue="mail", reason="the server moves to another place, and nobody knows when it will be back")
    await app.aset_budget(tenant="acme", cents=5, per="day")
    long = await enqueue(app, "echo", {"value": "x" * 500}, queue="q" * 200, tenant="t" * 200, key="k" * 200)
    await reach(app, long, "succeeded")
    yield [
        *PAGES,
        "jobs?filter=state%3Aqueued%20queue%3Amial",
        "jobs?filter=agee%3A1",
        *(f"jobs/{stock[name]}" for name in ("failed", "running", "parent", "pipeline")),
        f"jobs/{long}",
    ]


async def measure(page: Page, path: str) -> dict[str, list[str]]:
    await page.set_viewport_size({"width": 1440, "height": HEIGHTS[1440]})
    await visit(page, f"/{path}")
    for button in await page.locator("main button[aria-expanded]").all():
        await button.click()
    wrong: dict[str, list[str]] = {}
    for width, theme, names in LOOKS:
        await page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
        await page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        found: dict[str, list[str]] = await page.evaluate(MEASURES, names)
        wrong |= {f"{path} {width} {theme} {name}": each for name, each in found.items() if each}
    return wrong


async def test_every_page_is_readable_named_fits_and_asks_nobody_else(
    browser: Browser, served: Served, full: list[str]
) -> None:
    wrong: dict[str, list[str]] = {}
    asked: set[str] = set()
    async with opened(browser, served.origin) as page:
        page.on("request", lambda request: asked.add(request.url))
        await page.goto("/")
        for path in full:
            wrong |= await measure(page, path)

    assert wrong == {}
    assert len(asked) > 30
    assert [url for url in asked if not url.startswith(f"{served.origin}/")] == []


async def test_a_greyed_row_can_be_read(page: Page, served: Served) -> None:
    id = await enqueue(served.app, "echo", {"value": 1}, delay="1h", tenant="greyed")
    await visit(page, "/jobs?filter=state:queued%20tenant:greyed")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(1)
    await (await served.app.afind(id)).acancel()
    await expect(page.locator("tr.gone")).to_contain_text("cancelled")

    assert (await page.evaluate(MEASURES))["faint"] == []


async def test_dialogs_the_palette_and_the_door_are_readable(browser: Browser, fresh: Served) -> None:
    await enqueue(fresh.app, "echo", {"value": 1}, delay="1h")
    wrong: list[dict[str, list[str]]] = []

    async def look(page: Page) -> None:
        for theme in ("light", "dark"):
            await page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            wrong.append(await page.evaluate(MEASURES))

    async with opened(browser, fresh.origin, reduced_motion="reduce") as page:
        await page.goto("/jobs")
        await expect(page.locator("table.jobs")).to_be_visible()
        for keys, shown in (("?", "Keys"), ("Control+k", "Go to"), ("a", "All that match")):
            await page.keyboard.press(keys)
            await expect(page.get_by_text(shown).first).to_be_visible()
            await look(page)
            await page.keyboard.press("Escape")
            await expect(page.locator("dialog")).to_have_count(0)
        await page.get_by_role("button", name="Enqueue…").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await look(page)
        await page.emulate_media(reduced_motion="reduce")
        assert await page.evaluate("matchMedia('(prefers-reduced-motion: reduce)').matches")
        moving = await page.evaluate(
            """() => [...document.querySelectorAll("*")].map((node) => getComputedStyle(node)).filter(
                (style) => style.animationName !== "none" || !/^0s(, 0s)*$/.test(style.transitionDuration)).length"""
        )
        await fresh.token("viewer")
        await page.reload()
        await expect(page.get_by_label("Token")).to_be_visible()
        await look(page)

    assert [{name: list for name, list in each.items() if list} for each in wrong] == [{}] * 10
    assert moving == 0  # the user asked for no motion


async def test_ages_are_right_when_the_browsers_clock_is_wrong(browser: Browser, served: Served, stock: Stock) -> None:
    for hours in (1, -1):
        await look_at_ages(browser, served, stock, hours)


async def look_at_ages(browser: Browser, served: Served, stock: Stock, hours: int) -> None:
    async with opened(browser, served.origin) as page:
        await page.add_init_script(AHEAD.format(hours=hours))
        await page.goto("/jobs?filter=tenant:acme,globex")
        later = page.locator("table.jobs tbody tr", has_text="later")
        await expect(later).to_contain_text(re.compile(r"in (1.h|5\d.m)"))
        await expect(page.locator("table.jobs tbody tr", has_text="charge")).to_contain_text(AGO)
        await visit(page, f"/jobs/{stock['running']}")
        await expect(page.locator(".steps-line")).to_contain_text(re.compile(r"runs for \d+(\.\d)?.m?s"))
        await visit(page, f"/jobs/{stock['failed']}")
        await expect(page.locator(".story")).to_contain_text(re.compile(r"Retries in (10|9).m"))
        await visit(page, "/audit")
        await expect(page.locator("tbody time").first).to_have_text(re.compile(r"now|^\d+.s ago"))


async def test_light_and_dark_are_switched_and_remembered(page: Page) -> None:
    await visit(page, "/audit")
    root = page.locator("html")
    await expect(root).to_have_attribute("data-theme", "light")

    await page.get_by_role("button", name="Light or dark").click()
    await expect(root).to_have_attribute("data-theme", "dark")
    await page.reload()

    await expect(root).to_have_attribute("data-theme", "dark")


async def test_times_are_shown_in_the_viewers_zone_and_in_utc(page: Page, served: Served) -> None:
    await enqueue(served.app, "echo", {"value": 1}, run_at=datetime(2030, 1, 2, 12, 0, tzinfo=UTC), tenant="zone")
    await visit(page, "/jobs?filter=tenant:zone")
    row = page.locator("table.jobs tbody tr")
    await expect(row).to_contain_text("Wed 2 Jan, 13:00")

    await page.get_by_role("button", name="local").click()

    await expect(row).to_contain_text("Wed 2 Jan, 12:00")
    await page.get_by_role("button", name="UTC").click()
