"""Who may look and who may change: signing in and out, viewers, tokens of one tenant, secrets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from web.rig import Served, serving
from windlass import Windlass
from windlass.web import auth
from windlass.web.live import feed

from .rig import PAGES, Stock, enqueue, opened, visit

CHANGES = {
    "errors": ["Replay 1 dead…"],
    "queues": ["Pause…"],
    "schedules": ["Run now…", "Pause…"],
    "dead": ["Replay all 1…", "Discard all 1…"],
    "tenants": ["Weight…"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shut(app: Windlass) -> AsyncIterator[Served]:
    """A server that asks everybody for a token, as on an address that other machines reach."""
    async with serving(app) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser, shut: Served) -> AsyncIterator[Page]:
    async with opened(browser, shut.origin) as page:
        yield page


async def sign_in(page: Page, secret: str, path: str = "/jobs") -> None:
    await page.goto(path)
    await page.get_by_label("Token").fill(secret)
    await page.get_by_role("button", name="Open").click()
    await expect(page.get_by_role("navigation", name="Pages").first).to_be_visible()


async def test_the_page_asks_for_a_token_and_lets_it_go_again(visitor: Page, shut: Served) -> None:
    await visitor.goto("/audit")
    await expect(visitor.get_by_text("This dashboard needs a token.")).to_be_visible()
    await visitor.get_by_label("Token").fill("wl_wrong")
    await visitor.get_by_role("button", name="Open").click()
    await expect(visitor.get_by_role("alert")).to_contain_text("unknown, revoked or expired")

    await visitor.get_by_label("Token").fill(await shut.token("operator", name="ann-1"))
    await visitor.get_by_role("button", name="Open").click()
    await expect(visitor.get_by_role("heading", level=1)).to_have_text("Audit")
    await expect(visitor.get_by_text("ann-1 · operator")).to_be_visible()
    (cookie,) = await visitor.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert await visitor.evaluate("document.cookie") == ""

    await visitor.reload()
    await expect(visitor.get_by_role("heading", level=1)).to_have_text("Audit")
    await visitor.get_by_role("button", name="Sign out").click()
    await expect(visitor.get_by_label("Token")).to_be_visible()
    assert await visitor.context.cookies() == []


async def test_a_revoked_token_leads_back_to_the_door(
    visitor: Page, shut: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "KNOWN_FOR", 0.0)
    await sign_in(visitor, await shut.token("viewer", name="eve-2"))
    await shut.app.arevoke_token("eve-2")

    await visitor.evaluate("dispatchEvent(new PopStateEvent('popstate'))")  # as by Back; the page may know already

    await expect(visitor.get_by_role("alert")).to_contain_text("revoked")
    await expect(visitor.get_by_label("Token")).to_be_visible()


async def test_an_open_page_notices_that_its_token_was_revoked(
    visitor: Page, shut: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BEAT", 0.2)
    await sign_in(visitor, await shut.token("viewer", name="eve-3"))
    await shut.app.arevoke_token("eve-3")

    await expect(visitor.get_by_label("Token")).to_be_visible()
    await visitor.get_by_label("Token").fill("wl_half")  # what is typed stays
    await expect(visitor.get_by_role("alert")).to_contain_text("revoked")
    await expect(visitor.get_by_label("Token")).to_have_value("wl_half")


async def test_a_viewer_finds_no_button_that_changes(visitor: Page, shut: Served, stock: Stock) -> None:
    await sign_in(visitor, await shut.token("viewer", name="eve-4"))
    await expect(visitor.get_by_role("button", name="Enqueue…")).to_have_count(0)
    await visitor.keyboard.press("a")
    await expect(visitor.get_by_role("region", name="Chosen jobs")).to_have_count(0)

    for path, names in CHANGES.items():
        await visit(visitor, f"/{path}")
        if path == "errors":
            await visitor.get_by_role("button", name="PermissionError").click()
        for name in names:
            button = visitor.get_by_role("button", name=name, exact=True).first
            await expect(button).to_be_disabled()
            await expect(button).to_have_attribute("title", "You may look, not change: " + needed(path))
    await expect(visitor.get_by_role("link", name="Tokens")).to_have_count(0)


def needed(path: str) -> str:
    return f"this needs an {'admin' if path == 'tenants' else 'operator'}'s token."


async def test_a_viewer_changes_no_job(visitor: Page, shut: Served, stock: Stock) -> None:
    await sign_in(visitor, await shut.token("viewer", name="viewer-5"))

    for name in ("failed", "dead", "waiting", "queued", "cancelled"):
        await visit(visitor, f"/jobs/{stock[name]}")
        await expect(visitor.locator(".story")).to_be_visible()
        buttons = visitor.locator("main > .row.wrap").first.get_by_role("button")
        for place in range(await buttons.count()):
            await expect(buttons.nth(place)).to_be_disabled()
            await expect(buttons.nth(place)).to_have_attribute("title", "You may look, not change: " + needed(""))
        await visitor.keyboard.press("r")
        await visitor.keyboard.press("c")
        await expect(visitor.get_by_role("dialog")).to_have_count(0)
    states = {job.status.value for job in await shut.app.ajobs("type:fetch,charge")}
    assert states == {"failed", "dead"}


async def test_a_token_of_one_tenant_sees_that_tenant(visitor: Page, shut: Served, stock: Stock) -> None:
    await sign_in(visitor, await shut.token("operator", tenant="acme", name="acme-6"), "/")

    await expect(visitor.get_by_role("heading", level=1)).to_have_text("Jobs")
    await expect(visitor.locator("table.jobs tbody tr")).to_have_count(2)
    pages = visitor.get_by_role("navigation", name="Pages").first
    shown = [PAGES[path] for path in ("jobs", "errors", "dead", "tenants", "audit")]
    assert [text.rstrip("0123456789") for text in await pages.locator("a.item").all_inner_texts()] == shown
    await visit(visitor, f"/jobs/{stock['dead']}")
    await expect(visitor.get_by_role("heading", name="Not here")).to_be_visible()
    for path in ("queues", "schedules", "workers", "tokens"):
        await visit(visitor, f"/{path}")
        await expect(visitor.get_by_role("heading", name="Not with this token")).to_be_visible()
    for path in ("errors", "dead", "tenants", "audit"):
        await visit(visitor, f"/{path}")
        await expect(visitor.get_by_role("heading", level=1)).to_have_text(PAGES[path])
        assert "globex" not in await visitor.content()


async def test_secrets_are_revealed_to_admins_only_and_the_audit_says_by_whom(
    visitor: Page, shut: Served, stock: Stock
) -> None:
    await sign_in(visitor, await shut.token("operator", name="ann-7"))
    await visit(visitor, f"/jobs/{stock['succeeded']}")
    await expect(visitor.get_by_text("redacted", exact=True).first).to_be_visible()
    await expect(visitor.get_by_role("button", name="Reveal")).to_have_count(0)
    assert "hunter22" not in await visitor.content()
    await visitor.get_by_role("button", name="Sign out").click()

    await sign_in(visitor, await shut.token("admin", name="root-7"), f"/jobs/{stock['succeeded']}")
    await visitor.get_by_role("button", name="Reveal").first.click()
    await expect(visitor.locator("pre.json").first).to_contain_text("hunter22")
    await visit(visitor, "/audit?actor=root-7")

    await expect(visitor.get_by_role("row").filter(has_text="reveal")).to_contain_text("root-7")


async def test_an_edited_job_keeps_its_secret_for_an_admin_alone(visitor: Page, shut: Served, stock: Stock) -> None:
    """Given a hidden password beside a changed address, then an operator types it, and an admin may leave it."""
    dialog = visitor.get_by_role("dialog")
    password = dialog.locator("label", has_text="password")
    await sign_in(visitor, await shut.token("operator", name="editor"), f"/jobs/{stock['succeeded']}")
    await visitor.get_by_role("button", name="Edit, run again…").click()
    await expect(password).to_contain_text("hidden; kept as it is")
    await dialog.get_by_label("to", exact=False).first.fill("bob")
    await expect(password).to_contain_text("hidden; type it")
    await visitor.get_by_role("button", name="Dry run").click()
    await expect(password.locator(".mistake")).to_contain_text("ask an admin")
    await dialog.get_by_role("button", name="Back").click()
    await visitor.get_by_role("button", name="Sign out").click()

    await sign_in(visitor, await shut.token("admin", name="root-8"), f"/jobs/{stock['succeeded']}")
    await visitor.get_by_role("button", name="Edit, run again…").click()
    await dialog.get_by_label("to", exact=False).first.fill("bob")
    await expect(dialog.locator("label", has_text="was ann")).to_be_visible()
    await expect(password).to_contain_text("hidden; kept as it is")
    await visitor.get_by_role("button", name="Dry run").click()
    await expect(dialog.locator(".checks")).to_contain_text("fits")
    await visitor.get_by_role("button", name="Run again", exact=True).click()
    await expect(visitor.get_by_text("Copy of")).to_be_visible()

    newest = (await shut.app.ajobs("type:send", count=1))[0]
    record = await (await shut.app.afind(newest.id)).arecord()
    given = json.loads(record.input)
    assert (given["to"], given["password"]) == ("bob", "hunter22")
    assert "hunter22" not in await visitor.content()


async def test_at_home_no_token_is_needed_until_there_is_one(fresh_page: Page, fresh: Served) -> None:
    page, served = fresh_page, fresh
    await page.goto("/jobs")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    await expect(page.get_by_role("button", name="Sign out")).to_have_count(0)

    await enqueue(served.app, "echo", {"value": 1}, delay="1h")
    await served.token("viewer", name="first")
    await page.reload()

    await expect(page.get_by_label("Token")).to_be_visible()
