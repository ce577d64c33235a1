"""HTTP by hand, for what no well-behaved client sends: bytes on a connection of the test's own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from .rig import API, PATIENCE, Served


@dataclass
class Raw:
    """A connection to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(each.split(b":")[1]) for each in lines if each.startswith(b"content-length:")), 0)
            return int(head.split(b" ")[1]), await self.reader.readexactly(length)

    async def closed(self) -> bytes:
        """What still arrives before the server closes the connection."""
        got = b""
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                while more := await self.reader.read(65_536):
                    got += more
        return got


@asynccontextmanager
async def connected(served: Served, *, buffer: int | None = None) -> AsyncIterator[Raw]:
    """A connection; with `buffer`, this side takes no more than about so many bytes until it reads."""
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", served.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=buffer or 2**16)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


def request(method: str, path: str, token: str | None = None, body: bytes | None = None, **headers: str) -> bytes:
    """The bytes of a request; the path begins after /api/v1."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"host": "127.0.0.1", **({} if method == "GET" else {"content-type": "application/json"}), **named}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    if body is not None:
        sent = {"content-length": str(len(body)), **sent}
    lines = [f"{method} {API}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def until_true(condition: object) -> None:
    """Return when a condition holds; it gives way to the server's tasks between two looks."""
    assert callable(condition)
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
