"""examples/link_library on both stores: its API, workers that are killed, and servers that count their guests."""

from __future__ import annotations

import importlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from .conftest import EXAMPLES

sys.path.append(str(EXAMPLES / "link_library"))

SCALE = float(os.environ.get("WINDLASS_TEST_SCALE", "1"))
LINKS, DOMAINS = (20_000, 3_000) if SCALE > 1 else (120, 12)
PATIENCE = 1_800.0 if SCALE > 1 else 240.0  # seconds until a story gives up
ANN, BOB = ({"Authorization": f"Bearer {user}-demo"} for user in ("ann", "bob"))

MOVED = {
    "short.example/a": "http://long.example:PORT/a#top",
    "short.example/b": "http://www.short.example:PORT/b",
    "shy.example/moved": "/private/there",
    "circle.example/": "/",
    "away.example/": "file:///etc/passwd",
}
"""Addresses that redirect."""
ODD = {
    "old.example": '<meta charset="latin-1"><link rel="icon" href="http://[::1"><title>Größe</title>'.encode("latin-1"),
    "deep.example": b"<title>deep</title>" + b"<b>" * 2_000 + b'<meta name="description" content="too late">',
}
"""Pages of sites that are not as they should be."""

pytestmark = [pytest.mark.usefixtures("on_path"), pytest.mark.long]


class Web:
    """Every site of the story: counts its guests by domain, and answers by path."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()  # addresses
        self.most = 0  # requests of one domain at a time
        self._inside: Counter[str] = Counter()
        self._lock = threading.Lock()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with web.inside(self.headers["Host"], self.path):
                    time.sleep(0.01)  # long enough for guests to meet
                # The guest is counted out before its answer: the next one may come as soon as the answer is there.
                with suppress(ConnectionError):
                    web.answer(self)

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextmanager
    def inside(self, host: str, path: str) -> Iterator[None]:
        domain = ".".join(host.partition(":")[0].split(".")[-2:])
        with self._lock:
            self.asked[f"http://{host}{path}"] += 1
            self._inside[domain] += 1
            self.most = max(self.most, self._inside[domain])
        try:
            yield
        finally:
            with self._lock:
                self._inside[domain] -= 1

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        host = to.headers["Host"]
        status = 403 if host.startswith("grim.") else 404 if to.path == "/robots.txt" else 200
        body = b'<html lang="en"><title>Page</title><meta name="description" content="About"><p>text</p></html>'
        if host.startswith("shy.") and to.path == "/robots.txt":
            status, body = 200, b"User-agent: *\nDisallow: /private\n"
        body = ODD.get(host.partition(":")[0], body)
        location = MOVED.get(host.partition(":")[0] + to.path, "")
        to.send_response(302 if location else status)
        if location:
            to.send_header("Location", location.replace("PORT", str(self.port)))
        to.send_header("Content-Type", "text/html")
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Library:
    """The API in this process, and workers in others."""

    def __init__(self, http: TestClient, app: Any, folder: Path) -> None:
        self.http, self.app = http, app
        self._log = (folder / "workers.log").open("wb")
        self._workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "windlass", "worker", "library.py"]
        worker = subprocess.Popen(command, cwd=EXAMPLES / "link_library", stdout=self._log, stderr=self._log)
        self._workers.append(worker)
        return worker

    def upload(self, file: bytes | str, who: dict[str, str] = ANN) -> str:
        answer = self.http.post("/imports", content=file, headers=who)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def ended(self, id: str, who: dict[str, str] = ANN) -> dict[str, Any]:
        def read() -> dict[str, Any] | None:
            found = self.http.get(f"/imports/{id}", headers=who).json()
            return found if found["finished_at"] else None

        return dict(until(read))

    def links(self, who: dict[str, str] = ANN, count: int = 999) -> list[dict[str, Any]]:
        """All links of a user, page by page."""
        rows: list[dict[str, Any]] = []
        below: str | None = ""
        while below is not None:
            page = self.http.get("/links", params={"below": below, "count": count}, headers=who).json()
            rows += page["links"]
            below = page["next"]
        return rows

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._log.close()


def until(read: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (value := read()):
        assert time.monotonic() < end, "the story waited too long"
        time.sleep(0.05)
    return value


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path) -> Iterator[Library]:
    given = {"LIBRARY_ALLOW": "127.0.0.1", "LIBRARY_ANSWER": "127.0.0.1", "WINDLASS_URL": url, "WINDLASS_LEASE": "6s"}
    for name, value in (given | {"WINDLASS_SWEEP": "1s", "WINDLASS_POLL": "200ms"}).items():
        monkeypatch.setenv(name, value)
    module = importlib.import_module("library")
    with TestClient(module.api) as http:
        library = Library(http, module.app, tmp_path)
        yield library
        library.close()


def export(folders: dict[str, list[str]]) -> str:
    """A file as Chrome writes it."""
    lines = ["<!DOCTYPE NETSCAPE-Bookmark-file-1>", "<TITLE>Bookmarks</TITLE>", "<DL><p>"]
    for folder, addresses in folders.items():
        lines += [f"<DT><H3>{folder}</H3>", "<DL><p>"]
        lines += [f'<DT><A HREF="{address}" ADD_DATE="1">Title</A>' for address in addresses]
        lines += ["</DL><p>"]
    return "\n".join([*lines, "</DL><p>"])


def test_each_link_is_enriched_once_and_no_domain_has_more_than_two_guests(library: Library, web: Web) -> None:
    """Given two users with the same links in two folders, when workers are killed, each link has one job."""
    addresses = [web.url(f"www.d{n % DOMAINS}.example", f"/{n}") for n in range(LINKS)]
    spelled = [address.replace("www.d", "WWW.D") + "?utm_source=mail#top" for address in addresses]
    first, second = library.start_worker(), library.start_worker()
    ids = [(library.upload(export({"a": addresses, "b": spelled}), who), who) for who in (ANN, BOB)]

    until(lambda: len(web.asked) > LINKS // 4)
    first.send_signal(signal.SIGKILL)
    library.start_worker()
    until(lambda: len(web.asked) > LINKS // 2)
    second.send_signal(signal.SIGKILL)
    reports = [library.ended(id, who) for id, who in ids]
    until(lambda: library.app.counts()["succeeded"] >= min(LINKS + 2, 10_001))
    until(lambda: not library.app.jobs("-state:succeeded", count=1))
    wanted, rows = set(addresses), library.links(BOB)
    found = Counter(row["url"] for row in rows if (row["title"], row["description"]) == ("Page", "About"))

    assert [(each["status"], each["total_items"], each["failed_items"]) for each in reports] == [
        ("succeeded", 2 * LINKS, 0)
    ] * 2
    assert found == Counter([*addresses, *addresses])
    assert web.most <= 2
    assert wanted <= set(web.asked)
    again = sum(count - 1 for address, count in web.asked.items() if address in wanted)
    retried = len(library.app.jobs("type:enrich attempt:2", count=1_000))  # a request failed, on a busy machine
    assert again <= 20 + retried, "only what a killed worker had begun, or what failed, is asked for again"


def test_refusals_are_dead_for_ever_and_make_candidates(library: Library, web: Web) -> None:
    refused = [web.url("grim.example"), web.url("shy.example", "/private")]
    bad = ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "", "http://", "http://./"]
    library.start_worker()
    report = library.ended(library.upload(export({"a": [*refused, *bad]})))
    until(lambda: library.app.counts()["dead"] == 2)
    library.ended(library.upload(export({"mine": refused}), BOB), BOB)
    broken = library.ended(library.upload(b""))

    assert (report["total_items"], report["processed_items"], report["failed_items"]) == (8, 2, 6)
    assert (broken["status"], "no export of bookmarks" in broken["last_error"]) == ("failed", True)
    library.app.find(broken["id"]).discard()
    assert library.http.get(f"/imports/{broken['id']}", headers=ANN).status_code == 404
    listed = library.http.get("/block-candidates", headers=BOB).json()
    assert {(row["domain"], row["reason"], row["links"]) for row in listed} == {
        ("grim.example", "the site answered 403", 1),
        ("shy.example", "robots.txt forbids it", 1),
    }
    assert web.asked[refused[1]] == 0
    assert web.asked[refused[0]] == 1


def test_an_import_is_its_owners_and_can_be_cancelled_in_the_middle(library: Library, web: Web) -> None:
    """A fast machine may end the import before the cancel: then the story is told again with four times the links."""
    library.app.pause(queue="enrichment", reason="not part of this story")
    library.start_worker()
    for count in (20_000, 80_000):
        id = library.upload(export({"a": [f"http://d{n}.example:1/{n}" for n in range(count)]}))
        routes = [("GET", f"/imports/{id}"), ("POST", f"/imports/{id}/cancel")]
        strangers = [library.http.request(method, path, headers=BOB).status_code for method, path in routes]
        unknown = [library.http.request(method, path).status_code for method, path in routes]
        assert (strangers, unknown) == ([404, 404], [401, 401])
        until(lambda id=id: library.http.get(f"/imports/{id}", headers=ANN).json()["processed_items"])  # type: ignore[misc]
        cancelled = library.http.post(f"/imports/{id}/cancel", headers=ANN).status_code
        report = library.ended(id)
        if report["processed_items"] < count:
            break

    assert (cancelled, report["status"], 0 < report["processed_items"] < count) == (200, "canceled", True)
    assert library.http.post(f"/imports/{id}/cancel", headers=ANN).status_code == 409


def test_a_redirect_to_another_domain_is_a_link_of_its_own(library: Library, web: Web) -> None:
    """Given redirects, then robots.txt is asked for each place on the way, and another domain has a job of its own."""
    links = [
        web.url(host, path) for host, _, path in (place.partition("/") for place in MOVED) for path in [f"/{path}"]
    ]
    library.start_worker()
    library.ended(library.upload(export({"a": links})))
    until(lambda: library.app.counts()["dead"] == 3 and library.app.counts()["succeeded"] == 4)
    rows = {row["url"]: (row["title"], row["leads_to"]) for row in library.links()}

    assert rows[links[0]] == ("", web.url("long.example", "/a"))
    assert rows[links[1]] == ("Page", "")
    assert [rows[link] for link in links[2:]] == [(None, None)] * 3
    assert web.asked[web.url("long.example", "/a")] == 1
    assert web.asked[web.url("long.example", "/robots.txt")] == 1
    assert web.asked[web.url("shy.example", "/private/there")] == 0
    assert {row["reason"] for row in library.http.get("/block-candidates", headers=ANN).json()} == {
        "robots.txt forbids it"
    }


def test_odd_pages_are_read_as_far_as_they_can_be(library: Library, web: Web) -> None:
    library.start_worker()
    library.ended(library.upload(export({"a": [web.url(host) for host in ODD]})))
    until(lambda: library.app.counts()["succeeded"] == 3)
    rows = {row["title"]: (row["icon"], row["description"]) for row in library.links()}

    assert rows == {"Größe": ("", ""), "deep": (web.url("deep.example", "/favicon.ico"), "")}


def test_names_that_no_index_holds_are_imported(library: Library) -> None:
    """Given folders and addresses of great length, a NUL and `/` in names, then each placement is listed once."""
    noise = random.Random(7)
    long, folder = (
        "".join(chr(noise.randrange(*place)) for _ in range(900)) for place in ((97, 123), (0x4E00, 0x9FFF))
    )
    links = [f"http://a.example:1/{long}{long}"[:1_990], "http://b.example:1/"]
    library.app.pause(queue="enrichment", reason="not part of this story")
    library.start_worker()
    file = export({folder: links, "x/y": links, "n\0l": links, "%s": [links[1]] * 2})
    report = library.ended(library.upload(file))

    assert (report["status"], report["processed_items"]) == ("succeeded", 8)
    rows = library.links(count=2)
    assert library.http.get("/links", params={"below": "n\0l"}, headers=ANN).status_code == 422
    assert Counter(row["folder"] for row in rows) == {folder[:500]: 2, "x%2Fy": 2, "n\ufffdl": 2, "%s": 1}


def test_the_worker_has_the_numbers_of_the_seed() -> None:
    settings = importlib.import_module("library").app.settings

    assert (settings.concurrency, settings.discovery_batch, settings.max_attempts) == (10, 10, 2)
    assert (settings.lease, settings.timeout) == (600.0, 600.0)  # of a silent worker; of a handler that hangs


def test_bookmark_files_of_all_kinds_are_read() -> None:
    read = importlib.import_module("bookmarks")
    deep = "<DL><p><DT><H3>x</H3>" * 1_000 + '<DL><DT><A HREF="http://a.org">Ä</A>' + "</DL><p>" * 1_001
    plain = export({"Ordner ü": ["HTTP://Example.ORG:80/a?utm_source=x&b=1#c", "http://xn--bcher-kva.example"]})

    (found,) = read.read_bookmarks(deep.encode())
    assert (found.link, found.title, found.folder.count("x")) == ("http://a.org/", "Ä", 99)
    for file in (plain.encode(), b"\xef\xbb\xbf" + plain.encode(), plain.encode("utf-16"), plain.encode("latin-1")):
        assert [(each.folder, each.link) for each in read.read_bookmarks(file)] == [
            ("Ordner ü", "http://example.org/a?b=1"),
            ("Ordner ü", "http://xn--bcher-kva.example/"),
        ]
    named = '<META CONTENT="text/html; charset=Shift_JIS"><DL><A HREF="http://a.org/">日本</A>'
    assert [each.title for each in read.read_bookmarks(named.encode("shift_jis"))] == ["日本"]
    assert len(list(read.read_bookmarks(named.replace("Shift_JIS", "no").encode("shift_jis")))) == 1
    many = 100_000 if SCALE > 1 else 2_000
    assert len(list(read.read_bookmarks(export({"a": ["http://a.org/"] * many}).encode()))) == many
    for empty in (b"", b"\xef\xbb\xbf", b"%PDF-1.4 \x00\xff", b"<DL><![<", b"<DL>&#" + b"1" * 5_000 + b";"):
        with pytest.raises(read.NoBookmarks):
            list(read.read_bookmarks(empty))
    spellings = [
        "http://bücher.example",
        "http://BÜCHER.example:80/#x",
        "http://xn--bcher-kva.example/?gclid=1",
        "http://u:p@bücher.example./?",
    ]
    assert {read.canonical(each) for each in spellings} == {"http://xn--bcher-kva.example/"}
    ports = [f"http://a.example:{port}/" for port in (-1, 65536)]
    for wrong in ("http://a%20b/", "http://../", *ports, "http://[::1", "http://a.example/" + 2_000 * "a"):
        with pytest.raises(ValueError, match=r"."):
            read.canonical(wrong)
    domains = ["http://a.b.example.co.uk/", "http://127.0.0.1:8000/", "http://x.github.io/", "http://localhost/"]
    assert [read.domain_of(each) for each in domains] == ["example.co.uk", "127.0.0.1", "x.github.io", "localhost"]
