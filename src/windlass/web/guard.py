"""What stands before each request: its host, its origin, and the size and time of its body.

The host is checked for a whole server, by `HostCheck`. The rest is checked per route (`routing.py`), so that it also
holds for a router inside another program.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request

from windlass.errors import RequestRefused

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 4 * 1024 * 1024  # bytes: twenty such requests at once stay below 100 MB
BODY_WITHIN = 30.0  # seconds for a whole body: a writer that drips bytes holds no request for longer
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITE = frozenset({"same-origin", "none"})  # of Sec-Fetch-Site; none: the user typed the address
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class HostCheck:
    """Answers 421 unless the request's Host is a loopback name or one that the operator listed.

    A page of another site can point its own name at 127.0.0.1 (DNS rebinding). Its requests then come from the user's
    browser, and only their Host tells.
    """

    def __init__(self, app: Asgi, *, hosts: Collection[str] = ()) -> None:
        self._asgi = app  # Starlette before 0.39 gives it by the name `app`
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            from windlass.web.answers import answer_error

            name = host_name(next(headers(scope, b"host"), ""))
            if "*" not in self._hosts and name not in self._hosts and not is_loopback(name):
                refusal = RequestRefused(
                    f"this server does not answer for the host {name[:100]!r}; start it with --allow-host NAME",
                    status=421,
                )
                await answer_error(refusal)(scope, receive, send)
                return
        await self._asgi(scope, receive, send)


def host_name(host: str) -> str:
    """The name in a Host header, without its port and brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Whether a host name leads to this machine alone."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_local(request: Request) -> bool:
    """Whether a request comes from this machine by a loopback name, and no proxy says that it forwards it."""
    peer = request.client.host if request.client is not None else ""
    forwarded = any(name in request.headers for name in FORWARDED)
    return is_loopback(peer) and is_loopback(host_name(request.headers.get("host", ""))) and not forwarded


def check_origin(request: Request) -> None:
    """Refuse a request of another site's page: a browser sends the user's cookie along with it.

    Browsers send Sec-Fetch-Site, older ones Origin. A program sends neither.
    """
    if request.method in READ_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    foreign = site is not None and site not in OWN_SITE
    if site is None and origin is not None:
        foreign = origin.partition("://")[2].lower() != request.headers.get("host", "").lower()
    if foreign:
        raise RequestRefused(
            "a page of another site sent this request; call the API from a program, or from its own page", status=403
        )


def check_json(request: Request) -> None:
    """Refuse a body that does not say that it is JSON: `curl -d` sends the type of a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise RequestRefused("the body is not sent as JSON; add the header Content-Type: application/json", status=415)


def limit_body(request: Request) -> Request:
    """The request with a body that ends with 413 above LARGEST_BODY, and with 408 after BODY_WITHIN seconds.

    A length in the header is refused before a byte of the body is read. A body without a length is counted while it
    arrives: at most LARGEST_BODY is ever held.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestRefused("the body is compressed; send it as it is, without Content-Encoding", status=415)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > LARGEST_BODY:
        raise _too_large(int(length))
    received, ends = 0, asyncio.get_running_loop().time() + BODY_WITHIN
    more = True

    async def receive() -> Message:
        nonlocal received, more
        if not more:  # after the body: the server's own wait for a disconnect, which has no limit
            return await request.receive()
        try:
            async with asyncio.timeout_at(ends):
                message = await request.receive()
        except TimeoutError:
            raise RequestRefused(f"the body took longer than {BODY_WITHIN:g} s to arrive", status=408) from None
        received += len(message.get("body", b""))
        more = bool(message.get("more_body", False))
        if received > LARGEST_BODY:
            raise _too_large(received)
        return message

    return Request(request.scope, receive)


def _too_large(size: int) -> RequestRefused:
    return RequestRefused(
        f"the body has {size:,} bytes or more, and {LARGEST_BODY:,} is the most; send fewer jobs per request, and "
        "references instead of data",
        status=413,
    )


def headers(scope: Scope, name: bytes) -> Iterator[str]:
    """The values of one header."""
    return (value.decode("latin-1") for key, value in scope["headers"] if key == name)
