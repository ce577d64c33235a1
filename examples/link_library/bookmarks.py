"""Reads the bookmark file that Chrome exports, and spells each link in one way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from ipaddress import ip_address
from typing import NamedTuple

from httpx2 import URL, InvalidURL
from publicsuffixlist import PublicSuffixList

TRACKING = ("utm_", "fbclid", "gclid", "dclid", "msclkid", "mc_eid", "mc_cid", "igshid", "yclid", "_hsenc", "_hsmi")
LONGEST = 2_000  # characters of an address
HIGHEST = 65_535  # port
DEEPEST = 100  # folders of a path; deeper ones are left out
SUFFIXES = PublicSuffixList()
CHARSET = re.compile(rb"charset=[\"']?([\w-]+)", re.IGNORECASE)


class Bookmark(NamedTuple):
    """A link in a folder, whose name has the names of all folders around it, with `/` between and `%2F` inside them.

    `link` is None for what is no web page: `javascript:`, `file:`, `data:`.
    """

    folder: str
    title: str
    link: str | None


class NoBookmarks(ValueError):
    """The file is no export of bookmarks."""


def read_bookmarks(file: bytes) -> Iterator[Bookmark]:
    """All bookmarks of a file, in order. Its encoding is that of its BOM, else UTF-8, else what its META tag names."""
    reader = _Reader()
    try:
        reader.feed(_decode(file).replace("\0", "\ufffd"))  # PostgreSQL stores no NUL
        reader.close()
    except (AssertionError, ValueError) as error:  # of the parser, for `<![` and for a number of 5,000 digits
        raise NoBookmarks(f"the file is no export of bookmarks: {error}") from error
    if not reader.is_export:
        raise NoBookmarks("the file is no export of bookmarks: it has no list (<DL>) and no link")
    for folder, title, address in reader.found:
        try:
            yield Bookmark(folder, title, canonical(address))
        except ValueError:
            yield Bookmark(folder, title, None)


def canonical(address: str) -> str:
    """One spelling per page: case, port, tracking parameters, fragment, international names. Raises ValueError."""
    try:
        url = URL(address.strip()).copy_with(userinfo=b"", fragment=None)
        kept = [(name, value) for name, value in url.params.multi_items() if not name.lower().startswith(TRACKING)]
        if not kept:
            url = url.copy_with(query=None)
        elif len(kept) < len(url.params.multi_items()):
            url = url.copy_with(params=kept)
        host = url.raw_host.decode().rstrip(".")
        text = str(url.copy_with(raw_path=url.raw_path or b"/", host=host))
    except (InvalidURL, UnicodeError) as error:
        raise ValueError(str(error)) from error
    is_page = url.scheme in ("http", "https") and host and "%" not in url.host and 0 <= (url.port or 0) <= HIGHEST
    if not is_page or len(text) > LONGEST:
        raise ValueError(f"{address[:100]!r} is no address of a web page")
    return text


def domain_of(link: str) -> str:
    """The registrable domain: `a.b.example.co.uk` belongs to `example.co.uk`; an address without one is its own."""
    host = URL(link).raw_host.decode()
    try:
        return str(ip_address(host))  # its parts are no domains
    except ValueError:
        return str(SUFFIXES.privatesuffix(host) or host)


def _decode(file: bytes) -> str:
    for bom, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if file.startswith(bom):
            return file.decode(encoding, "replace")
    try:
        return file.decode()
    except UnicodeDecodeError:
        named = CHARSET.search(file[:2_000])
    try:
        return file.decode(named[1].decode() if named else "latin-1", "replace")
    except (LookupError, ValueError):  # no encoding has that name
        return file.decode("latin-1")


class _Reader(HTMLParser):
    """Folders are H3 before a DL. The path is a list, so that no depth of nesting is too much."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.is_export = False
        self._path: list[str] = []
        self._name = ""
        self._text: list[str] = []
        self._address: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "dl":
            self.is_export = True
            self._path.append(self._name)
            self._name = ""
        if tag in ("h3", "a"):
            self._text = []
        if tag == "a":
            self._address = dict(attrs).get("href") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "dl" and self._path:
            self._path.pop()
        if tag == "h3":
            self._name = "".join(self._text).strip()[:500].replace("/", "%2F")
        if tag == "a" and self._address is not None:
            folder = "/".join(name for name in self._path[:DEEPEST] if name)
            self.found.append((folder[:1_000], "".join(self._text).strip()[:500], self._address))
            self.is_export, self._address = True, None

    def handle_data(self, data: str) -> None:
        self._text.append(data)
