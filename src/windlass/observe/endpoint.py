"""The port of a worker: `/metrics`, `/healthz` and `/readyz`, on a thread of its own.

It answers while a handler blocks the worker's event loop: this is when an operator asks. It needs no token and shows no
value of a job: names of queues, types and phases, numbers, and whether the worker is ready.
"""

from __future__ import annotations

import http.server
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windlass.model.processors import PoolReport

log = logging.getLogger("windlass")

REQUEST_WITHIN = 5.0  # seconds for the lines of a request, and for each part of an answer to be taken
MOST_REQUESTS = 8  # at a time; further ones are closed: a scrape is tried again
INSTALL = "metrics need prometheus-client; install it: pip install 'windlass[prometheus]'"
TEXT = "text/plain; charset=utf-8"

Answer = tuple[int, str, bytes]
"""A status, a type of content, and the content."""


class WorkerNow(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is doing now, as another thread sees it."""

    pools: Sequence[PoolReport] = ()
    held: int = 0  # leases
    unwritten: int = 0  # ended attempts whose transition is not written yet
    waits_for: str | None = None  # why it is not ready; None: it is
    loop_delay: float = 0.0  # seconds
    has_broker: bool | None = None  # whether deliveries arrive here; None: no broker is set
    failures: Counter[str] = msgspec.field(default_factory=Counter)  # of subscribers and instruments, by name
    slow: Counter[str] = msgspec.field(default_factory=Counter)


class WorkerEndpoint:
    """Listens on a port until it is closed. `metrics` makes the answer to a scrape, for an Accept header."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        explain_unready: Callable[[], str | None],
        metrics: Callable[[str], Answer] | None,
    ) -> None:
        self._explain_unready = explain_unready
        self._metrics = metrics
        self._server = _Server((host, port), _Request, self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="windlass-metrics", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening; from another thread than its own."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, accept: str) -> Answer:
        """What a request gets. A fault of a metric is an answer as well, and no traceback in the log per scrape."""
        try:
            return self._answer(path, accept)
        except Exception as error:
            return 500, TEXT, f"{type(error).__name__}\n".encode()

    def _answer(self, path: str, accept: str) -> Answer:
        if path == "/healthz":
            return 200, TEXT, b"ok\n"
        if path == "/readyz":
            why = self._explain_unready()
            return (200, TEXT, b"ready\n") if why is None else (503, TEXT, f"not ready: {why}\n".encode())
        if path == "/metrics":
            return (503, TEXT, f"{INSTALL}\n".encode()) if self._metrics is None else self._metrics(accept)
        return 404, TEXT, b"there are: /metrics /healthz /readyz\n"


class _Server(http.server.ThreadingHTTPServer):
    """A few requests at a time, each with a limit: a client that sends nothing holds a thread for seconds."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: Any, endpoint: WorkerEndpoint) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.endpoint = endpoint
        self._places = threading.BoundedSemaphore(MOST_REQUESTS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without a look-up of this machine's name, which `HTTPServer` makes and does not need."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no line in the log."""


class _Request(http.server.BaseHTTPRequestHandler):
    timeout = REQUEST_WITHIN
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, kind, content = self.server.endpoint.answer(path, self.headers.get("accept", ""))
        self.send_response_only(status)
        for name, value in (("content-type", kind), ("content-length", str(len(content))), ("connection", "close")):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is no line in the log."""


def open_endpoint(
    host: str, port: int, *, explain_unready: Callable[[], str | None], metrics: Callable[[str], Answer] | None
) -> WorkerEndpoint | None:
    """Listen, and answer from now on. A port that is taken is a warning: the worker works on without it."""
    try:
        endpoint = WorkerEndpoint(host, port, explain_unready=explain_unready, metrics=metrics)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        text = "no metrics: cannot listen on %s port %d: %s; jobs go on; choose another port: --metrics-port %d"
        log.warning(text, host, port, why, port + 1)
        return None
    endpoint.start()
    log.info("metrics, /healthz and /readyz are at http://%s:%d", f"[{host}]" if ":" in host else host, endpoint.port)
    return endpoint
