"""A stand-in for Wikidata, for demos and tests without a network. It knows no entity: it makes them up from the name.

It speaks wbsearchentities and wbgetentities, allows 5 requests per second (50 with a token), and answers more with 429.
It can refuse, fail, be slow and lose connections, and it logs each request with its time. `python wikidata_server.py
--help` runs it alone.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

ANONYMOUS, TOKEN = 5, 50  # requests per second


class Request(NamedTuple):
    """A line of the log."""

    at: float  # seconds
    action: str
    about: str
    status: int  # 0: the connection was lost
    agent: str


class WikidataServer:
    """`with WikidataServer(busy=100) as server:` serves at `server.url` until the block ends.

    Each request whose number can be divided by `busy`, `broken`, `lost` or `slow` meets that fate; 0 is never.
    `retry_after` is what it says with 429, true or not.
    """

    def __init__(
        self,
        *,
        busy: int = 0,
        broken: int = 0,
        lost: int = 0,
        slow: int = 0,
        retry_after: str = "2",
        delay: float = 2.0,
        port: int = 0,
    ) -> None:
        self.log: list[Request] = []
        self.retry_after, self.delay = retry_after, delay
        self._fates = ((busy, 429), (broken, 500), (lost, 0))
        self._slow = slow
        self._recent: deque[float] = deque()
        self._known: dict[str, tuple[str, int]] = {}  # entities by the search that found them
        self._lock = threading.Lock()
        self._server = _listen(self, port)
        self.url = f"http://127.0.0.1:{self._server.server_port}/w/api.php"

    def admit(self, action: str, about: str, agent: str, most: int) -> int:
        """Log a request, and decide its status."""
        now = time.monotonic()
        with self._lock:
            while self._recent and self._recent[0] <= now - 1.0:
                self._recent.popleft()
            self._recent.append(now)
            number = len(self.log) + 1
            status = next((status for every, status in self._fates if every and number % every == 0), 200)
            if len(self._recent) > most:
                status = 429
            self.log.append(Request(now, action, about, status, agent))
        if self._slow and number % self._slow == 0:
            time.sleep(self.delay)
        return status

    def most(self, seconds: float = 1.0) -> int:
        """The largest number of requests within this time, wherever it begins."""
        times = [request.at for request in self.log]
        first = most = 0
        for place, at in enumerate(times):
            while times[first] <= at - seconds:
                first += 1
            most = max(most, place - first + 1)
        return most

    def answer(self, action: str, asked: dict[str, str]) -> dict[str, Any]:
        if action == "wbsearchentities":
            made = entities(asked["search"])
            self._known |= made
            return {"search": [{"id": id, "label": asked["search"]} for id in made]}
        if action == "wbgetentities":
            known = {id: self._known.get(id) for id in asked["ids"].split("|")}
            return {
                "entities": {id: describe(id, *it) if it else {"id": id, "missing": ""} for id, it in known.items()}
            }
        return {"error": {"code": "badvalue", "info": f"the stand-in has no action {action!r}"}}

    def __enter__(self) -> WikidataServer:
        threading.Thread(target=self._server.serve_forever, name="wikidata-server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def born(name: str) -> int:
    """The year that the stand-in makes up for the person of this name."""
    return 1800 + crc32(name.encode()) % 150


def entities(name: str) -> dict[str, tuple[str, int]]:
    """A namesake, the person and a street, in this order. Names that begin with `Unknown` have no entity."""
    number = crc32(name.encode()) * 10
    return {} if name.startswith("Unknown") else {f"Q{number + n}": (name, n) for n in (1, 2, 3)}


def describe(id: str, name: str, n: int) -> dict[str, Any]:
    """An entity as wbgetentities answers: the namesake (1) died long before the person (2) was born."""
    year = born(name) - (100 if n == 1 else 0)
    dates = {} if n == 3 else {"P569": _date(year), "P570": _date(year + 60)}
    label = f"{name} Street" if n == 3 else name
    description = f"made up by the stand-in, {'a street' if n == 3 else 'a person'}"
    texts = {"labels": label, "descriptions": description}
    shown = {part: {"en": {"language": "en", "value": text}} for part, text in texts.items()}
    return {"id": id, **shown, "aliases": {}, "claims": dates}


def _date(year: int) -> list[Any]:
    return [{"mainsnak": {"datavalue": {"value": {"time": f"+{year}-01-01T00:00:00Z", "precision": 9}}}}]


def _listen(wikidata: WikidataServer, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):  # a worker that was killed, or had enough
                super().handle()

        def do_GET(self) -> None:
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            action, about = asked.get("action", ""), asked.get("search") or asked.get("ids", "")
            most = TOKEN if "Authorization" in self.headers else ANONYMOUS
            status = wikidata.admit(action, about, self.headers["User-Agent"], most)
            if status == 0:
                self.close_connection = True
                return
            body = json.dumps(wikidata.answer(action, asked) if status == 200 else {}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 429:
                self.send_header("Retry-After", wikidata.retry_after)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    return Server(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for Wikidata; it makes its entities up.")
    parser.add_argument("--port", type=int, default=8100)
    for name in ("busy", "broken", "lost", "slow"):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N", help="each Nth request; 0: none")
    parser.add_argument("--retry-after", default="2", help="what it says with 429, true or not")
    parser.add_argument("--delay", type=float, default=2.0, help="seconds of a slow answer")
    server = WikidataServer(**vars(parser.parse_args()))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with server, suppress(KeyboardInterrupt):
        print(f"LINKER_WIKIDATA_URL={server.url}", flush=True)
        signal.pause()
    statuses = {status: sum(each.status == status for each in server.log) for status in (200, 429, 500, 0)}
    print(f"{len(server.log)} requests, {server.most()} in a second at most, by status {statuses}")


if __name__ == "__main__":
    main()
