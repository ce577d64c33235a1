"""windlass.fetch against real sockets: addresses inside, changing names, redirects, and bodies without an end."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from windlass import ConfigError, FetchFailed, FetchRefused
from windlass.fetch import Fetcher, Page
from windlass.fetch.addresses import is_public

HERE = "127.0.0.1"
ENOUGH = "60s"  # for a fetch that is not about time
Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers by path, and keeps the heads of the requests."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.answers: dict[str, Answer | bytes] = {}
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            answer = self.answers[head.split()[1]]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(head, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client had enough
        finally:
            writer.close()

    def url(self, path: str, host: str = HERE) -> str:
        return f"http://{host}:{self.port}{path}"

    def redirect(self, path: str, to: str) -> None:
        self.answers[path] = f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()

    def page(self, path: str, body: bytes, *fields: str) -> None:
        head = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *fields])
        self.answers[path] = head.encode() + b"\r\n\r\n" + body


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, HERE)
    server.port = listening.sockets[0].getsockname()[1]
    yield server
    listening.close()


def test_public_is_decided_by_an_explicit_list() -> None:
    inside = [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "169.254.169.254", "172.31.0.1"),
        *("192.0.0.1", "192.0.0.170", "192.0.2.1", "192.168.0.1", "198.18.0.1", "203.0.113.9", "224.0.0.1"),
        *("240.0.0.1", "255.255.255.255", "168.63.129.16", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8"),
        *("::127.0.0.1", "64:ff9b::7f00:1", "fc00::1", "fd12::1", "fe80::1", "fe80::1%1", "ff02::1", "2001::1"),
        *("2001:db8::1", "2002:7f00:1::", "3fff::1", "4000::1"),
    ]
    outside = ["1.1.1.1", "100.63.255.255", "100.128.0.0", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1"]

    assert [address for address in inside if is_public(address)] == []
    assert [address for address in outside if not is_public(address)] == []


async def test_no_spelling_of_an_inner_address_is_reached(server: Server) -> None:
    server.page("/", b"secret")
    spellings = [
        HERE,
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ]
    async with Fetcher(total=ENOUGH) as fetcher:
        for host in spellings:
            with pytest.raises(FetchRefused, match="not public"):
                await fetcher.get(server.url("/", host))
        for url in (
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:,x",
            "ftp://a.org/",
            "//a.org",
            "http://",
            "",
            "a b",
            f"http://{64 * 'a'}.org/",
            "http://a.org:65536/",
            "http://127.0.0.1:-1/",
        ):
            with pytest.raises(FetchRefused):
                await fetcher.get(url)

    assert server.heads == []


async def test_a_name_is_resolved_once_and_all_its_addresses_must_be_public(server: Server) -> None:
    server.page("/", b"hello")
    answers: dict[str, list[list[str]]] = {
        "rebinds.example": [[HERE], ["10.0.0.1"]],
        "mixed.example": [[HERE, "10.0.0.1"]],
        "no.example": [[]],
    }

    async def resolve(host: str, port: int) -> list[str]:
        return answers[host].pop(0)

    async with Fetcher(allow=[HERE], resolve=resolve, total=ENOUGH) as fetcher:
        page = await fetcher.get(server.url("/#top", "ann:secret@rebinds.example"))
        with pytest.raises(FetchRefused, match=r"10\.0\.0\.1"):
            await fetcher.get(server.url("/", "rebinds.example"))
        with pytest.raises(FetchRefused, match=r"mixed\.example has the address 10\.0\.0\.1"):
            await fetcher.get(server.url("/", "mixed.example"))
        with pytest.raises(FetchFailed, match="no address"):
            await fetcher.get(server.url("/", "no.example"))

    assert (page.status, page.body, page.url) == (200, b"hello", server.url("/", "rebinds.example"))
    assert [f"Host: rebinds.example:{server.port}" in head for head in server.heads] == [True]
    assert "secret" not in server.heads[0]
    assert "authorization" not in server.heads[0].lower()


async def test_each_redirect_is_checked(server: Server) -> None:
    server.redirect("/inside", "http://10.0.0.1/")
    server.redirect("/file", "file:///etc/passwd")
    server.redirect("/a", "/b")
    server.redirect("/b", "/a")
    for n in range(9):
        server.redirect(f"/{n}", f"/{n + 1}")
    server.redirect("/once", "/page?q=1")
    server.answers["/umlaut"] = "HTTP/1.1 302 Found\r\nLocation: /ä\r\nContent-Length: 0\r\n\r\n".encode()
    server.page("/%C3%A4", b"there")
    server.page("/page?q=1", b"there", "Content-Type: Text/HTML; charset=latin-1")
    wrong = {
        "/inside": "10.0.0.1, which is not public",
        "/file": "begins with http",
        "/a": "in a circle",
        "/0": "more than 5",
    }
    async with Fetcher(allow=[HERE], total=ENOUGH) as fetcher:
        for path, why in wrong.items():
            with pytest.raises(FetchRefused, match=why):
                await fetcher.get(server.url(path))
        page = await fetcher.get(server.url("/once"))
        assert (await fetcher.get(server.url("/umlaut"))).url == server.url("/%C3%A4")

    async with Fetcher(allow=[HERE], total=ENOUGH, redirects=0) as fetcher:
        first = await fetcher.get(server.url("/once"))
        last = await fetcher.get(first.location)

    assert (first.status, first.location, last.location) == (302, server.url("/page?q=1"), "")
    assert (page.url, page.hops, page.media_type) == (server.url("/page?q=1"), (server.url("/once"),), "text/html")


async def test_no_body_is_larger_than_the_limit_after_decompression(server: Server) -> None:
    async def endless(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    bomb = gzip.compress(bytes(200_000_000), 1)
    server.answers["/endless"] = endless
    server.page("/bomb", bomb, "Content-Encoding: gzip")
    server.page("/twice", gzip.compress(bomb), "Content-Encoding: gzip, gzip")
    server.page("/lines", gzip.compress(bomb), "Content-Encoding: gzip", "Content-Encoding: gzip")
    server.page("/half", gzip.compress(b"whole" * 99)[:-9], "Content-Encoding: gzip")
    server.page("/none", b"", "Content-Encoding: gzip")
    server.page("/zlib", zlib.compress(b"small"), "Content-Encoding: deflate")
    server.page("/broken", b"no gzip", "Content-Encoding: gzip")
    async with Fetcher(allow=[HERE], largest=100_000, total=ENOUGH, idle=ENOUGH) as fetcher:
        for path in ("/endless", "/bomb"):
            with pytest.raises(FetchRefused, match="larger than 100,000 bytes"):
                await fetcher.get(server.url(path))
            page = await fetcher.get(server.url(path), cut=True)
            assert (len(page.body), page.cut) == (100_000, True)
        for path in ("/twice", "/lines"):
            with pytest.raises(FetchRefused, match="encoded as 'gzip, gzip'"):
                await fetcher.get(server.url(path), cut=True)
        for path in ("/broken", "/half"):
            with pytest.raises(FetchFailed):
                await fetcher.get(server.url(path), cut=True)
        assert (await fetcher.get(server.url("/none"))).body == b""
        assert (await fetcher.get(server.url("/zlib"))).text() == "small"


def test_a_page_names_its_charset() -> None:
    def text(body: bytes, field: str = "text/html") -> str:
        return Page(url="http://a.org/", status=200, headers={"content-type": field}, body=body).text()

    assert text("ä".encode("latin-1"), 'text/html; charset="ISO-8859-1"') == "ä"
    assert text('<meta charset="shift_jis">日本'.encode("shift_jis")).endswith("日本")
    assert text('<META http-equiv=x content="text/html; charset=latin-1">ä'.encode("latin-1")).endswith("ä")
    assert [text("ä".encode(name), "text/html; charset=ascii") for name in ("utf-8-sig", "utf-16")] == ["ä", "ä"]
    assert [text(b"\xc3\xa4\xff", f"text/html; charset={name}") for name in ("", "no", "a\0b")] == ["ä\ufffd"] * 3
    # Python has codecs that are none of the web: one takes minutes for a page, another makes what is no text.
    assert [text(b"\\ud800-a", f"text/html; charset={name}") for name in ("unicode_escape", "punycode")] == [
        "\\ud800-a"
    ] * 2


async def test_a_server_that_drips_or_says_nothing_or_breaks_off_fails_in_time(server: Server) -> None:
    async def drip(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def silent(head: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    server.answers |= {"/drip": drip, "/silent": silent, "/half": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"}
    server.answers["/nonsense"] = b"hello\r\n\r\n"
    async with asyncio.timeout(60), Fetcher(allow=[HERE], total="500ms", idle=ENOUGH) as fetcher:
        with pytest.raises(FetchFailed, match="too long"):
            await fetcher.get(server.url("/drip"))
    async with asyncio.timeout(60), Fetcher(allow=[HERE], total=ENOUGH, idle="300ms") as fetcher:
        with pytest.raises(FetchFailed, match="too long"):
            await fetcher.get(server.url("/silent"))
    async with Fetcher(allow=[HERE], total=ENOUGH, idle=ENOUGH) as fetcher:
        for path in ("/half", "/nonsense"):
            with pytest.raises(FetchFailed, match="cannot be fetched"):
                await fetcher.get(server.url(path))
        with pytest.raises(FetchFailed):
            await fetcher.get("http://127.0.0.1:1/")


async def test_https_is_checked_by_name_although_the_connection_goes_to_an_address(
    server: Server, tmp_path: Path
) -> None:
    name, key, certificate = "shop.example", tmp_path / "key.pem", tmp_path / "cert.pem"
    await asyncio.to_thread(
        subprocess.run,
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
         f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    asked: list[str | None] = []
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(certificate))
    serving.load_cert_chain(certificate, key)
    serving.sni_callback = lambda socket, sni, context: asked.append(sni)
    listening = await asyncio.start_server(server.serve, HERE, ssl=serving)
    port = listening.sockets[0].getsockname()[1]
    server.page("/", b"safe")

    async def resolve(host: str, port: int) -> list[str]:
        return [HERE]

    async with Fetcher(allow=[HERE], resolve=resolve, tls=trusting, total=ENOUGH, idle=ENOUGH) as fetcher:
        assert (await fetcher.get(f"https://{name}:{port}/")).body == b"safe"
        with pytest.raises(FetchFailed):
            await fetcher.get(f"https://other.example:{port}/")
    listening.close()

    assert asked == [name, "other.example"]


def test_what_is_allowed_is_checked() -> None:
    for wrong, why in (("127.0.0.1", "write a list"), (["inside"], "addresses or networks")):
        with pytest.raises(ConfigError, match=why):
            Fetcher(allow=wrong)
