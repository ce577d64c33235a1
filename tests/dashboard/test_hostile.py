"""What a job, a name or a reason may carry stays text on every page: markup, scripts, odd characters, large values."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from playwright.async_api import Browser, Page, expect

from web.rig import Served
from windlass import InvalidOption, Windlass

from .rig import PAGES, Stock, enqueue, opened, reach, settled, visit

HACK = "window.hacked=1,alert(1)"
CORPUS = [
    f"<script>{HACK}</script>",
    f"</script><script>{HACK}</script>",
    f"<img src=x onerror='{HACK}'>",
    f"<svg/onload={HACK}>",
    f'"><a href=javascript:{HACK} autofocus onfocus={HACK}>click</a>',
    f"javascript:{HACK}",
    f"<iframe srcdoc='<script>parent.{HACK}</script>'></iframe>",
    f"<style>*{{background:url(javascript:{HACK})}}</style><base href=//evil.example.org>",
    f"${{{HACK}}}{{{{constructor.constructor('{HACK}')()}}}}",
    "__proto__",
    "\u202e\u2066gnp.exe\u2069\u200f",
    "e\u0301\u0336" * 60,
]
LONG = "x" * 200  # a name has no more
TERMINAL = "\x1b[31mred\x1b]8;;http://evil.example.org\x07\x08"  # no name may have it; inputs may


@asynccontextmanager
async def infested(app: Windlass) -> AsyncIterator[list[tuple[str, str]]]:
    """Ids of jobs, each with a text that its page shows. Each text of the corpus is wherever a text may be."""
    good: list[str] = []
    dead: list[tuple[str, str]] = []

    @app.job
    async def say(text: str) -> str:
        return text

    for text in [*CORPUS, LONG]:
        odd: Any = {text: [text, {"<b>": text + TERMINAL}]}
        good.append(await enqueue(app, "echo", {"value": odd}, tenant=text))
        said = {"customer": text, "amount": 1, "message": text + TERMINAL}
        dead.append((await enqueue(app, "charge", said, tenant=text, queue=text, key=text), text))
        await app.apause(queue=f"shut {text}"[:200], reason=text)
        await app.acreate_token(text, role="viewer", tenant=text)
        await app.aset_budget(tenant=text, cents=5, per="day")
        app.schedule(text, say.call(text), cron="0 3 * * *")
    held = await enqueue(app, "hold", {"text": CORPUS[0] + TERMINAL})
    worker = app.worker()
    worker.name = CORPUS[0]
    async with worker:
        for id in good:
            await reach(app, id, "succeeded")
        for id, _ in dead:
            await reach(app, id, "dead")
        await reach(app, held, "running")
        yield [*dead, (good[0], CORPUS[0]), (held, CORPUS[0])]


async def inert(page: Page) -> None:
    """Nothing of the corpus ran or became an element."""
    assert await page.evaluate("window.hacked") is None
    made = await page.evaluate(
        """() => [
            document.scripts.length,
            document.querySelectorAll("main img, iframe, style, main script, main base, a[href^='javascript']").length,
            [...document.querySelectorAll("*")].filter((node) => /\bon/.test(node.getAttributeNames())).length,
        ]"""
    )
    assert made == [1, 0, 0], made


async def test_every_page_and_every_job_shows_hostile_texts_as_text(browser: Browser, fresh: Served) -> None:
    dialogs: list[str] = []
    async with infested(fresh.app) as jobs, opened(browser, fresh.origin) as page:
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await page.goto("/jobs")
        await page.get_by_label("Token").fill(await fresh.token("admin", name="root"))
        await page.get_by_role("button", name="Open").click()
        await settled(page)
        for path, title in PAGES.items():
            await visit(page, f"/{path}")
            await expect(page.get_by_role("heading", level=1)).to_have_text(title)
            if path not in ("", "audit"):
                await expect(page.get_by_text(CORPUS[0][:22]).first).to_be_visible()
            for button in await page.locator("main button[aria-expanded]").all():
                await button.click()
            await inert(page)
        for id, text in jobs:
            await visit(page, f"/jobs/{id}")
            await expect(page.locator("dl.facts code").first).to_have_text(id)
            await expect(page.locator(".story")).to_be_visible()
            await expect(page.locator("pre.json").first).to_contain_text(json.dumps(text, ensure_ascii=False)[1:-1])
            await inert(page)
        for text in CORPUS[:8:2]:
            await page.goto(str(httpx.URL("/jobs", params={"filter": f'queue:"{text}"'})))
            await settled(page)
            await inert(page)
    assert dialogs == []


async def test_whole_numbers_are_shown_and_sent_exactly(page: Page, served: Served, stock: Stock) -> None:
    for number in (2**53 + 1, 2**63 - 1, -(2**63)):
        id = await enqueue(served.app, "echo", {"value": [number, {"deep": number}]}, tenant="numbers")
        await reach(served.app, id, "succeeded")
        await visit(page, f"/jobs/{id}")
        for place in (0, 1):
            await expect(page.locator("pre.json").nth(place)).to_contain_text(f'"deep": {number}')

        await page.get_by_role("button", name="Edit, run again…").click()
        await page.get_by_role("dialog").get_by_label("value").fill(f'{{"again": [{number}, 1]}}')
        await page.get_by_role("button", name="Run again", exact=True).click()
        await expect(page.locator("pre.json").first).to_contain_text('"again"')

        newest = (await served.app.ajobs("tenant:numbers", count=1))[0]
        record = await (await served.app.afind(newest.id)).arecord()
        assert json.loads(record.input) == {"value": {"again": [number, 1]}}


async def test_a_number_that_no_store_holds_is_refused_in_words(page: Page, served: Served) -> None:
    await visit(page, "/jobs")
    await page.get_by_role("button", name="Enqueue…").last.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Type").select_option("echo")
    await dialog.get_by_label("value").fill(str(10**30))
    await dialog.get_by_role("button", name="Enqueue").click()

    await expect(dialog.locator(".mistake").first).to_contain_text("64")
    assert await served.app.ajobs("input.value:>9223372036854775806 tenant:default") == []


async def test_a_large_value_comes_when_asked_for_and_is_cut(page: Page, served: Served, tmp_path: Path) -> None:
    value = "".join(f"<b>{n}</b> " + "ы" * 40 for n in range(2_400))  # near the 256 KiB that a job may carry
    id = await enqueue(served.app, "hold", {"text": value})
    read: list[str] = []
    page.on("response", lambda answer: read.append(answer.headers.get("content-length", "0")))
    await visit(page, f"/jobs/{id}")
    await expect(page.get_by_role("button", name="Show 1")).to_be_visible()
    await expect(page.locator(".story")).to_be_visible()
    assert max(map(int, read)) < 50_000

    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Download").click()
    download = await waiting.value
    await download.save_as(tmp_path / "input.json")

    assert json.loads((tmp_path / "input.json").read_text()) == {"text": value}
    assert download.suggested_filename == "input.json"
    await expect(page.locator("pre.json").first).to_contain_text("more characters")
    assert len(await page.content()) < 250_000


async def test_what_the_store_does_not_hold_is_refused_before(served: Served) -> None:
    for odd in ("a\x00b", TERMINAL, "x" * 10_000):
        with pytest.raises(InvalidOption):
            await enqueue(served.app, "echo", {"value": 1}, queue=odd)
