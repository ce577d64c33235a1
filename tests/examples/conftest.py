"""An empty database for each story, and a local web server with sites that behave well or badly."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from servers import postgres_database

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = """<!doctype html><html lang="en"><head><title>Ropes {0}</title>
<meta name="Description" content="All about ropes"></head>
<body><nav>menu</nav><h1>Knots &amp; {0}</h1><main><p>Hemp and steel.<script>var no</script></p>
<a href="/good/0#top">first</a><a href="javascript:alert(1)">no</a><a href="file:///a">no</a></main></body></html>"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    with postgres_database() as lent:
        yield lent.url


class Sites(BaseHTTPRequestHandler):
    """Answers by path: /good/N is a page, and each other name says what it does."""

    def do_GET(self) -> None:
        with suppress(ConnectionError):  # the client had enough
            self._answer(self.path.split("/")[1])

    def _answer(self, name: str) -> None:
        match name:
            case "good":
                self._send(200, PAGE.format(self.path.split("/")[2]).encode())
            case "inside":
                self._send(302, b"", Location="http://10.0.0.1/")
            case "circle":
                self._send(302, b"", Location="/circle")
            case "bomb":
                self._send(200, gzip.compress(b"<title>boom</title>" + bytes(50_000_000), 1), Content_Encoding="gzip")
            case "endless":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<title>endless</title>")
                while True:
                    self.wfile.write(b"x" * 65_536)
            case "long":
                long = 300_000 * "long "
                self._send(200, f'<title>long</title><h1>{long}</h1><a href="/{long}">x</a><p>{long}'.encode())
            case "grows":  # 25 KB that a parser makes millions of nodes of: each <p> has all the <b> again
                bold = "".join(f"<b id={n}>" for n in range(1_500))
                self._send(200, f"<p>{bold}</p>{1_500 * '<p>x</p>'}".encode())
            case _:
                self._send(404, b"")

    def _send(self, status: int, body: bytes, **fields: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="session")
def sites() -> Iterator[str]:
    """The address of the server with the sites."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sites)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The folder of the application that the test's module names is importable, and its modules are fresh."""
    folder = EXAMPLES / request.path.stem.removeprefix("test_")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for file in folder.glob("*.py"):
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
