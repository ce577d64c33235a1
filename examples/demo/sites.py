"""Stand-ins for websites, on this machine. An address says how its site behaves; the log, what was asked and when."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

PAGE = """<!doctype html><html lang="en"><head><title>{name}</title><meta name="description" content="All about {name}">
</head><body><h1>{name}</h1><main><p>Hemp, steel and {name}.</p><a href="/next">next</a></main></body></html>"""


class Request(NamedTuple):
    host: str
    path: str
    status: int
    began: float  # seconds, monotonic
    ended: float


class Sites:
    """`with Sites() as sites:` serves every host name on `sites.port` until the block ends.

    A word in the host or in the path chooses the answer: `slow` takes two seconds, `shaky` answers 503 the first time,
    `broken` answers 500 always, `grim` answers 403. Everything else is a page, after a moment.
    """

    def __init__(self) -> None:
        self.log: list[Request] = []
        self._asked: Counter[str] = Counter()
        sites = self

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError):  # a worker that was killed, or had enough
                    super().handle()

            def do_GET(self) -> None:
                began, host = time.monotonic(), self.headers["Host"].partition(":")[0]
                status = sites.choose(host, self.path)
                # The end is logged before the answer: the next request may begin as soon as the answer is there.
                sites.log.append(Request(host, self.path, status, began, time.monotonic()))
                body = PAGE.format(name=f"{host}{self.path}").encode() if status == 200 else b""
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    def choose(self, host: str, path: str) -> int:
        """The status of the answer; takes as long as the answer would."""
        if path == "/robots.txt":
            return 404  # everything may be read
        self._asked[host + path] += 1
        words = host + path
        time.sleep(2.0 if "slow" in words else 0.2)
        if "grim" in words:
            return 403
        if "broken" in words:
            return 500
        return 503 if "shaky" in words and self._asked[host + path] == 1 else 200

    def __enter__(self) -> Sites:
        threading.Thread(target=self._server.serve_forever, name="sites", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def most_at_once(self, host: str) -> int:
        """The most requests that this host had at the same time."""
        times = [(each.began, each.ended) for each in self.log if each.host == host]
        changes = sorted([(began, 1) for began, _ in times] + [(ended, -1) for _, ended in times])
        running = most = 0
        for _, change in changes:
            running += change
            most = max(most, running)
        return most
