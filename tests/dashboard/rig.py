"""What the stories of the dashboard share: a program, jobs in every state, and pages that fail on an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Locator, Page, expect
from playwright.async_api import Error as PlaywrightError

from web.rig import PATIENCE, Served
from web.rig import declare as declare_web
from windlass import Context, NamedCall, Windlass, fixed, limit, phase

INNOCENT = ("Failed to load resource",)  # an answer with a status of 400 or more, which stories ask for
HEIGHTS = {1440: 900, 1280: 800, 390: 844, 320: 640}
PAGES = {
    "": "Home",
    "jobs": "Jobs",
    "errors": "Errors",
    "queues": "Queues and phases",
    "schedules": "Schedules",
    "workers": "Workers",
    "dead": "Dead letters",
    "tenants": "Tenants, budgets",
    "audit": "Audit",
    "tokens": "Tokens",
}

both_stores = pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True, scope="module")

GO = "to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }"
Stock = dict[str, str]  # the id of a job by what became of it


def declare(app: Windlass) -> None:
    """The program of the HTTP API's stories, with types whose jobs end in every state."""
    declare_web(app)

    @app.job(queue="web", retry=fixed("10m"), max_attempts=3, limits=[limit("site", 1)])
    async def fetch(url: str, depth: int = 1) -> str:
        raise TimeoutError(f"{url} does not answer")

    @app.job(queue="money", max_attempts=1)
    async def charge(customer: str, amount: int, message: str = "") -> None:
        raise PermissionError(message or f"card of {customer} is refused")

    @app.job(queue="long")
    async def hold(ctx: Context, text: str = "step one is done") -> None:
        ctx.log(text)
        ctx.progress(3, total=10)
        await asyncio.Event().wait()

    @app.job
    async def echo(value: Any) -> Any:
        return value

    @app.job
    async def crawl(ctx: Context, pages: int) -> int:
        return len(await ctx.wait(ctx.spawn_many("page", [echo.call(n) for n in range(pages)])))

    @app.job
    async def guard(ctx: Context) -> None:
        await ctx.wait([ctx.spawn("held", hold.call())])

    @app.job
    async def analyse(url: str) -> str:
        return f"title of {url}"

    @app.job(queue="models")
    async def ask(ctx: Context) -> str:
        return f"{ctx.previous}: ropes"

    app.pipeline("site", phase(analyse, name="analysis", processors=2), ask)


async def enqueue(app: Windlass, type: str, input: dict[str, Any], **options: Any) -> str:
    (job,) = await app.aenqueue_named([NamedCall(type, input, options)])
    return str(job.id)


async def state_of(served: Served, id: str) -> str:
    return (await (await served.app.afind(id)).astatus()).value


def mark(page: Page, state: str) -> Locator:
    return page.locator(".mark.tinted", has_text=state)


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


async def reach(app: Windlass, id: str, state: str) -> None:
    """Wait until a job is in this state."""
    job = await app.afind(id)
    async with asyncio.timeout(PATIENCE):
        while (await job.astatus()).value != state:  # noqa: ASYNC110 - a worker of another task ends it
            await asyncio.sleep(0.02)


ENDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "succeeded": ("send", {"to": "ann", "password": "hunter22"}, {"tenant": "acme"}),
    "failed": ("fetch", {"url": "https://example.org"}, {}),
    "dead": ("charge", {"customer": "eve", "amount": 5}, {"tenant": "globex"}),
    "running": ("hold", {}, {}),
    "waiting": ("approve", {"who": "bob"}, {}),
    "queued": ("send", {"to": "later"}, {"delay": "1h", "tenant": "acme"}),
    "cancelled": ("send", {"to": "nobody"}, {"delay": "2h"}),
    "parent": ("crawl", {"pages": 3}, {}),
    "pipeline": ("site", {"url": "example.org"}, {}),
}


@asynccontextmanager
async def stocked(app: Windlass) -> AsyncIterator[Stock]:
    stock = {name: await enqueue(app, kind, input, **options) for name, (kind, input, options) in ENDS.items()}
    await (await app.afind(stock["cancelled"])).acancel()
    async with app.worker():
        for name in ENDS:
            await reach(app, stock[name], name if name not in ("parent", "pipeline") else "succeeded")
        yield stock


async def visit(page: Page, path: str) -> None:
    """Open a view of the page that is open, as a click on a link does."""
    await page.evaluate(GO, path)
    await settled(page)


async def settled(page: Page) -> None:
    """The view is open, and nothing is on its way."""
    try:
        await page.locator("#app[aria-busy=false]").wait_for()
        await expect(page.locator(".skeleton")).to_have_count(0)
    except (AssertionError, PlaywrightError) as error:
        shown = await page.locator("body").inner_text()
        raise AssertionError(f"{page.url} has not settled; it shows:\n{shown[:2000]}") from error


@contextmanager
def watch(page: Page) -> Iterator[None]:
    """Fail if a script of the page raised, or if the content policy refused something."""
    said: list[str] = []

    def raised(error: Exception) -> None:
        said.append(str(error))

    def wrote(line: ConsoleMessage) -> None:
        said.extend([line.text] if line.type == "error" else [])

    page.on("pageerror", raised)
    page.on("console", wrote)
    try:
        yield
    except BaseException as error:
        error.add_note(f"the page's console: {said}")
        raise
    finally:
        page.remove_listener("pageerror", raised)
        page.remove_listener("console", wrote)
    wrong = [each for each in said if not each.startswith(INNOCENT)]
    assert not wrong, wrong


@asynccontextmanager
async def opened(
    browser: Browser, origin: str, *, width: int = 1440, dark: bool = False, **options: Any
) -> AsyncIterator[Page]:
    """A page with a fresh profile in the browser of this run."""
    context = await browser.new_context(
        viewport={"width": width, "height": HEIGHTS[width]},
        color_scheme="dark" if dark else "light",
        base_url=origin,
        locale="en-GB",
        timezone_id="Europe/Berlin",
        **options,
    )
    context.set_default_timeout(20_000)
    try:
        page = await context.new_page()
        with watch(page):
            yield page
    finally:
        await context.close()
