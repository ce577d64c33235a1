"""What a page says about its site: title, description, headings, main text, links and language."""

from __future__ import annotations

from typing import TypedDict

from httpx2 import URL, InvalidURL
from selectolax.lexbor import LexborHTMLParser, LexborNode

# Together below the 256 KiB of a job's result, also in a script of four bytes per character.
LONGEST_TEXT = 20_000  # characters of the main text
LONGEST_HEADING = 200  # characters
LONGEST_LINK = 500  # characters; longer links are left out
LONGEST = 2_000  # characters of an address
MOST = 100  # headings, and links
HIGHEST = 65_535  # port


class Site(TypedDict):
    """What is known of a site after its analysis."""

    url: str
    status: int
    title: str
    description: str
    headings: list[str]
    text: str
    links: list[str]
    language: str


def canonical(website: str) -> str:
    """One spelling for one website: `Example.ORG` is `https://example.org/`. Raises ValueError."""
    try:
        url = URL(website.strip() if "://" in website else f"https://{website.strip()}")
        url = url.copy_with(userinfo=b"", fragment=None)
    except (InvalidURL, UnicodeError) as error:
        raise ValueError(str(error)) from error
    if url.scheme not in ("http", "https") or not url.host or "%" in url.host or not 0 <= (url.port or 0) <= HIGHEST:
        raise ValueError("a website begins with http:// or https:// and has a host")
    host = url.raw_host.decode().rstrip(".")
    found = str(url.copy_with(raw_path=url.raw_path or b"/", host=host))
    if not host or len(found) > LONGEST:
        raise ValueError(f"a website has a host, and {LONGEST:,} characters at most")
    return found


def extract(body: str, *, url: str, status: int) -> Site:
    """Read a page. Broken HTML is read as a browser reads it."""
    tree = LexborHTMLParser(body)
    html, described = tree.css_first("html"), tree.css_first('meta[name="description" i]')
    headings = [_text(node)[:LONGEST_HEADING] for node in tree.css("h1, h2, h3")[:MOST]]
    links = _links(tree, url)
    for node in tree.css("script, style, noscript, nav, header, footer, template"):
        node.decompose()
    main = tree.css_first("main, article") or tree.body
    title = tree.css_first("title")
    return Site(
        url=url[:LONGEST],
        status=status,
        title=_text(title)[:500],
        description=(described.attributes.get("content") or "")[:1_000] if described else "",
        headings=[heading for heading in headings if heading],
        text=_text(main)[:LONGEST_TEXT],
        links=links,
        language=((html.attributes.get("lang") or "") if html else "")[:35],
    )


def _text(node: LexborNode | None) -> str:
    return " ".join(node.text(separator=" ").split()) if node else ""


def _links(tree: LexborHTMLParser, url: str) -> list[str]:
    found: dict[str, None] = {}
    for node in tree.css("a[href]"):
        try:
            link = str(URL(url).join(node.attributes.get("href") or "").copy_with(fragment=None))
        except (InvalidURL, ValueError):
            continue
        if link.startswith("http") and len(link) <= LONGEST_LINK:
            found[link] = None
        if len(found) == MOST:
            break
    return list(found)
