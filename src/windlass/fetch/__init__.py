"""A guarded HTTP client for addresses that users gave: it reaches nothing but the public internet, within limits.

    async with Fetcher() as fetcher:
        page = await fetcher.get("https://example.org/")

A name is resolved once, all its addresses must be public, and the connection goes to one of the addresses that were
checked: a second answer of the name server (DNS rebinding) is never asked for. Each redirect is checked in the same
way. A body is cut off or refused by its size after decompression, and a total and an idle time end every fetch. A
proxy of the environment is not used: it would resolve the name itself.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

from windlass.clock import Duration, seconds
from windlass.errors import FetchFailed, FetchRefused
from windlass.fetch.addresses import Network, is_in, is_public, parse_networks

try:
    import httpcore2
    from httpx2 import URL, InvalidURL
except ImportError as error:
    raise ImportError("windlass.fetch needs httpx2; install it with: pip install 'windlass[fetch]'") from error

if TYPE_CHECKING:
    import ssl

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""What answers a name and a port with addresses as text."""

LARGEST = 2 * 2**20  # bytes of a body, decompressed
CHUNK = 2**16  # bytes that a decompressor returns at a time, whatever it could return
HIGHEST = 65_535  # port
REDIRECTS = frozenset({301, 302, 303, 307, 308})
META = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]+)", re.IGNORECASE)
NEAR = 1_024  # bytes in which a page names its charset, by the standard of HTML
BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
CHARSETS = ("ascii", "big5", "cp", "euc", "gb", "iso", "koi8", "mac", "shift", "tis", "utf-8", "utf-16")
"""How the web's codecs begin in Python: its `punycode` takes minutes for a page, `unicode_escape` makes surrogates."""
AGENT = "Mozilla/5.0 (compatible; Windlass)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a server answered."""

    url: str
    """The address that answered, after redirects."""
    status: int
    headers: Mapping[str, str]
    """By names in small letters; of a name that is there twice, the last value."""
    body: bytes
    """Decompressed."""
    cut: bool = False
    """Whether the body went on: `get(…, cut=True)` returns its beginning."""
    hops: tuple[str, ...] = ()
    """The addresses that redirected, in order."""

    @property
    def location(self) -> str:
        """The address to which it redirects, or an empty text; only `Fetcher(redirects=0)` returns a redirect."""
        place = self.headers.get("location", "") if self.status in REDIRECTS else ""
        return _join(URL(self.url), place) if place else ""

    @property
    def media_type(self) -> str:
        """The content type without parameters: `text/html`; empty when there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def text(self) -> str:
        """The body as text. Its charset is that of a BOM, else of the content type, else of a META tag, else UTF-8.

        What is no text becomes `�`.
        """
        for bom, charset in BOMS:
            if self.body.startswith(bom):
                return self.body.decode(charset, "replace")
        charset = self.headers.get("content-type", "").lower().partition("charset=")[2].split(";")[0].strip(" \"'")
        named = None if charset else META.search(self.body[:NEAR])
        return self.body.decode(_codec(named[1].decode() if named else charset), "replace")


class Fetcher:
    """Fetches addresses that users gave: `async with Fetcher() as fetcher: page = await fetcher.get(url)`."""

    def __init__(
        self,
        *,
        largest: int = LARGEST,
        total: Duration = "20s",
        idle: Duration = "5s",
        redirects: int = 5,
        allow: Iterable[str] = (),
        agent: str = AGENT,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`largest` is in bytes after decompression, `total` and `idle` are times, `redirects` the most of them.

        With `redirects=0` a redirect is an answer like any other, and `page.location` says where it leads.
        `allow` names private addresses or networks that may be reached all the same, for tests and demos:
        `Fetcher(allow=["127.0.0.1"])`. `resolve` answers names instead of the machine's resolver.
        """
        self._largest = largest
        self._total = seconds(total, what="Fetcher(total)")
        self._idle = seconds(idle, what="Fetcher(idle)")
        self._redirects = redirects
        self._agent = agent
        backend = _Guard(parse_networks(allow), resolve or _ask_resolver)
        self._pool = httpcore2.AsyncConnectionPool(
            network_backend=backend, ssl_context=tls, max_connections=None, max_keepalive_connections=0
        )

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._pool.aclose()

    async def get(self, url: str, *, cut: bool = False) -> Page:
        """Fetch an address: `page = await fetcher.get("https://example.org/")`. Any status is an answer.

        Raises FetchRefused for what no retry can change: an address that is not public, a scheme other than http and
        https, a redirect in a circle, a body that is too large. With `cut` such a body ends at `largest`. Raises
        FetchFailed when the server cannot be reached, ends in the middle, or takes too long.
        """
        seen: list[str] = []
        try:
            async with asyncio.timeout(self._total):
                while True:
                    target = _parse(url, seen)
                    answer = await self._ask(target, seen, cut=cut)
                    if isinstance(answer, Page):
                        return answer
                    seen.append(str(target))
                    if len(seen) > self._redirects:
                        raise FetchRefused(f"{seen[0]} redirects more than {self._redirects} times")
                    url = answer
        except (TimeoutError, httpcore2.TimeoutException):
            raise FetchFailed(
                f"{url} took too long: nothing for {self._idle:g} s, or more than {self._total:g} s in all"
            ) from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError, zlib.error) as error:
            raise FetchFailed(f"{url} cannot be fetched: {type(error).__name__}: {error}") from error

    async def _ask(self, target: URL, hops: list[str], *, cut: bool) -> Page | str:
        """The answer, or the address to which it redirects."""
        headers = [
            (b"Host", target.netloc),
            (b"User-Agent", self._agent.encode()),
            (b"Accept", b"*/*"),
            (b"Accept-Encoding", b"gzip, deflate"),
        ]
        limits = dict.fromkeys(("connect", "read", "write", "pool"), self._idle)
        place = httpcore2.URL(
            scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path or b"/"
        )
        async with self._pool.stream("GET", place, headers=headers, extensions={"timeout": limits}) as answer:
            lines = [(name.decode("latin-1").lower(), _decode(value)) for name, value in answer.headers]
            fields, coding = dict(lines), ", ".join(value for name, value in lines if name == "content-encoding")
            if self._redirects and answer.status in REDIRECTS and fields.get("location"):
                return _join(target, fields["location"])
            body, is_cut = await self._read(answer.aiter_stream(), coding, target, cut=cut)
        return Page(url=str(target), status=answer.status, headers=fields, body=body, cut=is_cut, hops=tuple(hops))

    async def _read(self, chunks: AsyncIterator[bytes], coding: str, url: URL, *, cut: bool) -> tuple[bytes, bool]:
        """The decompressed body, and whether it went on."""
        body, inflate, is_whole = bytearray(), _decompressor(coding.strip().lower(), url), True
        async for chunk in chunks:
            for piece in (chunk,) if inflate is None else _inflate(inflate, chunk):
                body += piece
                if len(body) > self._largest:
                    if cut:
                        return bytes(body[: self._largest]), True
                    raise FetchRefused(f"the body of {url} is larger than {self._largest:,} bytes")
            is_whole = inflate is None or inflate.eof
        if not is_whole:
            raise FetchFailed(f"{url} cannot be fetched: its compressed body ends in the middle")
        return bytes(body), False


class _Guard(httpcore2.AsyncNetworkBackend):
    """Connects to a name's addresses after all of them were checked; the pool above it keeps the Host and the SNI."""

    def __init__(self, allow: tuple[Network, ...], resolve: Resolve) -> None:
        self._allow = allow
        self._resolve = resolve
        self._below = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._resolve(host, port)
        for address in addresses:  # one private address among public ones is refused too: it is an attack, or a mistake
            if not (is_public(address) or is_in(address, self._allow)):
                raise FetchRefused(f"{host} has the address {address}, which is not public")
        failure: Exception = OSError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._below.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._below.sleep(seconds)


async def _ask_resolver(host: str, port: int) -> list[str]:
    """The addresses of a name, each once. A number in any spelling (127.1, 0x7f000001) is resolved as well."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # a label of more than 63 characters, a NUL
        raise FetchRefused(f"{host[:100]!r} is no name of a host: {error}") from None
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def _parse(url: str, seen: list[str]) -> URL:
    """A checked address, without fragment and password."""
    try:
        parsed = URL(urldefrag(url.strip()).url)
        given = parsed.copy_with(userinfo=b"")
    except (InvalidURL, ValueError, TypeError) as error:
        raise FetchRefused(f"{url[:200]!r} is no address: {error}") from None
    if given.scheme not in ("http", "https") or not given.host:
        raise FetchRefused(f"{url[:200]!r} is not fetched: an address begins with http:// or https://, and has a host")
    if not 0 <= (given.port or 0) <= HIGHEST:
        raise FetchRefused(f"{url[:200]!r} is no address: a port is {HIGHEST} at most, and not below 0")
    if str(given) in seen:
        raise FetchRefused(f"{seen[0]} redirects in a circle, back to {given}")
    return given


def _decode(value: bytes) -> str:
    """A field as text. Many servers send `Location` in UTF-8, and a browser reads it so."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _codec(charset: str) -> str:
    """The codec of a charset that the web uses, else UTF-8."""
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return "utf-8"
    return name if name.startswith(CHARSETS) else "utf-8"


def _join(base: URL, location: str) -> str:
    try:
        return str(base.join(location))
    except (InvalidURL, ValueError) as error:
        raise FetchRefused(f"{base} redirects to {location[:200]!r}, which is no address: {error}") from None


def _decompressor(coding: str, url: URL) -> zlib._Decompress | None:
    """What decompresses a body. Only one coding: two of them multiply what a bomb expands to."""
    if coding in ("", "identity"):
        return None
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise FetchRefused(f"{url} is encoded as {coding[:50]!r}; gzip and deflate were asked for")
    return zlib.decompressobj(zlib.MAX_WBITS | 32 if coding != "deflate" else zlib.MAX_WBITS)


def _inflate(inflate: zlib._Decompress, chunk: bytes) -> Iterable[bytes]:
    while chunk and not inflate.eof:
        yield inflate.decompress(chunk, CHUNK)
        chunk = inflate.unconsumed_tail
