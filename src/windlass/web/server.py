"""The server of `windlass web` and `windlass dev`: uvicorn, with limits for slow clients and an end for streams."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from windlass.errors import ConfigError
from windlass.web.api import make_api
from windlass.web.guard import is_loopback
from windlass.web.live import events

if TYPE_CHECKING:
    from collections.abc import Collection

    from windlass.app import Windlass

HEADERS_WITHIN = 15.0  # seconds for the headers of a request
BACKLOG = 2_048  # connections that wait to be accepted
GRACE = 5  # seconds for requests that are under way when the server stops


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose request headers do not arrive, or whose answer is not taken, in time.

    uvicorn waits for both for ever. `close` would wait until the answer is taken, and so `abort` ends the connection.
    """

    _deadline: asyncio.TimerHandle | None = None
    _untaken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        answered = self.cycle is None or self.cycle.response_complete
        if self.conn.their_state is h11.IDLE or (answered and self.conn.their_state is h11.SEND_BODY):
            self._await_headers()  # also after the answer to a body that was refused, while the rest of it drips in
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken = self.loop.call_later(events.TAKEN_WITHIN, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop_waiting()  # the next request's headers: uvicorn's own limit holds until their first byte

    def _await_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_WITHIN, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_writing(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None


class ApiServer(uvicorn.Server):
    """A server that ends its streams when it stops; they would hold it up until the grace is over."""

    def __init__(
        self,
        app: Windlass,
        *,
        hosts: Collection[str] = (),
        local: bool = False,
        secure: bool = False,
        root_path: str = "",
    ) -> None:
        api = make_api(app, hosts=hosts, local=local, secure=secure)
        self._app, self._feed, self._bulk = app, api.state.windlass_feed, api.state.windlass_bulk
        config = uvicorn.Config(
            api,
            http=ImpatientProtocol,
            ws="none",
            lifespan="off",  # `shutdown` closes the app; a signal during the start would print the lifespan's traceback
            loop="asyncio",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            root_path=root_path,  # what a proxy has taken off the front of each path
            proxy_headers=False,  # the address of a proxy's client is not believed
            timeout_graceful_shutdown=GRACE,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feed.close()
        await self._bulk.close()
        await super().shutdown(sockets)
        await self._app.aclose()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address. Raises ConfigError when the address is taken or is not this machine's."""
    try:
        return open_socket(host, port)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another one: --port {port + 1}"
        ) from None


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens. It names TCP: only then asyncio sends each answer at once.

    Without the protocol's number asyncio leaves Nagle's algorithm on, and every answer of two parts waits 40 ms for the
    other side's acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def check_bind(app: Windlass, host: str) -> bool:
    """Whether only this machine reaches the address. Raises ConfigError for any other one while there is no token."""
    if is_loopback(host):
        return True
    if not app.has_tokens():
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no token yet; create one first: "
            "windlass token create NAME --role admin"
        )
    return False


def address(host: str, listening: socket.socket) -> str:
    """The URL at which a browser finds the server."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


class BackgroundServer:
    """The API on a thread of its own, beside a worker: `with BackgroundServer(app, listening): …`."""

    def __init__(self, app: Windlass, listening: socket.socket) -> None:
        self._server = ApiServer(app, local=True)
        self._listening = listening
        self._thread = threading.Thread(target=self._run, name="windlass-web", daemon=True)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listening]))

    def __enter__(self) -> BackgroundServer:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.should_exit = True
        self._thread.join(GRACE + 1)
