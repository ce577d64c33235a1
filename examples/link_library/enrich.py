"""What a link leads to: title, description, icon, language and type. It asks robots.txt first."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import NamedTuple

from httpx2 import URL, InvalidURL
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

from bookmarks import canonical, domain_of
from windlass import FetchRefused
from windlass.fetch import Fetcher, Page

AGENT = "link_library"
LARGEST = 200_000  # bytes of a page: enough for its head
TAGS = 1_000  # of a page that are read: for thousands of open tags a parser can need gigabytes and minutes
TAG = re.compile("<[a-z]", re.IGNORECASE)
HOPS = 5  # redirects within a domain
KEPT = 3_600.0  # seconds for which a process remembers a robots.txt
MOST = 10_000  # of them
ALLOW = os.environ.get("LIBRARY_ALLOW", "").split()
ANSWER = os.environ.get("LIBRARY_ANSWER", "")  # in a demo every name has this address

robots: dict[str, tuple[float, Protego]] = {}


class Blocked(Exception):
    """The site does not want to be read by a program."""


class Unreachable(Exception):
    """The site answered with an error."""


class Found(NamedTuple):
    """In the order of the columns of `links`."""

    title: str
    description: str
    icon: str
    language: str
    type: str
    leads_to: str = ""
    """The address in another domain to which the link redirects."""


async def look_up(link: str) -> Found:
    """Fetch a page politely and read its head. Each address on the way to it is asked for only if robots.txt allows."""
    fetcher = Fetcher(allow=ALLOW, agent=AGENT, largest=LARGEST, redirects=0, resolve=_answer if ANSWER else None)
    async with fetcher:
        page = await _within_domain(link, lambda place: _ask(fetcher, place))
    return Found("", "", "", "", "", leads_to=_canonical(page.location)) if page.location else _read(page)


async def _within_domain(link: str, ask: Callable[[str], Awaitable[Page]]) -> Page:
    """The answer after all redirects within one domain. It may be a redirect to another one."""
    for _ in range(HOPS + 1):
        page = await ask(link)
        if not page.location or domain_of(_canonical(page.location)) != domain_of(link):
            return page
        link = _canonical(page.location)
    raise FetchRefused(f"{page.url} is one of more than {HOPS} redirects")


def _canonical(location: str) -> str:
    try:
        return canonical(location)
    except ValueError as error:
        raise FetchRefused(f"a redirect leads to what is no web page: {error}") from error


async def _ask(fetcher: Fetcher, link: str) -> Page:
    rules = await _rules(fetcher, URL(link))
    if not rules.can_fetch(link, AGENT):
        raise Blocked("robots.txt forbids it")
    page = await fetcher.get(link, cut=True)
    if page.status == 403 or (page.status in (401, 429, 503) and b"captcha" in page.body.lower()):
        raise Blocked(f"the site answered {page.status}")
    if page.status >= 400:
        raise Unreachable(f"{page.url} answered {page.status}")
    return page


async def _rules(fetcher: Fetcher, link: URL) -> Protego:
    place = str(link.copy_with(raw_path=b"/robots.txt", fragment=None))
    known = robots.get(place)
    if known is not None and time.monotonic() - known[0] < KEPT:
        return known[1]
    try:
        page = await _within_domain(place, lambda place: fetcher.get(place, cut=True))
    except FetchRefused:  # redirects without an end, or to an address inside: there are no rules
        text = ""
    else:
        if page.status >= 500:  # by the standard (RFC 9309) nothing may be read then
            raise Unreachable(f"{place} answered {page.status}")
        text = page.text() if page.status == 200 else ""
    if len(robots) >= MOST:
        robots.clear()
    robots[place] = (time.monotonic(), Protego.parse(text))
    return robots[place][1]


def _read(page: Page) -> Found:
    type = page.media_type[:200]
    if "html" not in type:
        return Found("", "", "", "", type)
    text = page.text()
    end = next(islice(TAG.finditer(text), TAGS, None), None)
    tree = LexborHTMLParser(text[: end.start()] if end else text)

    def of(selector: str, attribute: str) -> str:
        node = tree.css_first(selector)
        return ((node.attributes.get(attribute) or "") if node else "").strip()[:1_000]

    title = tree.css_first("title")
    return Found(
        title=" ".join(title.text().split())[:500] if title else "",
        description=of('meta[name="description" i]', "content"),
        icon=_icon(page.url, of('link[rel~="icon" i]', "href") or "/favicon.ico"),
        language=of("html", "lang")[:35],
        type=of('meta[property="og:type"]', "content")[:200] or type,
    )


def _icon(url: str, place: str) -> str:
    try:
        icon = str(URL(url).join(place))
    except (InvalidURL, ValueError):  # the page is a page all the same
        return ""
    return icon if icon.startswith("http") and len(icon) <= 1_000 else ""


async def _answer(host: str, port: int) -> list[str]:
    return [ANSWER]
