"""A pooler of transactions as PgBouncer is one: it refuses settings at the start of a session, gives out keys of its
own, and lends a server's session to a client from the first message of a transaction until its end.

Each transaction gets the session that was used longest ago, so that a statement that was prepared in one transaction is
not there in the next.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

SESSIONS = 2
SSL_REQUEST = 80877103
KNOWN = {"user", "database", "client_encoding", "application_name"}
AUTHENTICATED = b"R" + struct.pack("!ii", 8, 0)
GOODBYE = b"X"
READY = b"Z" + struct.pack("!i", 5) + b"I"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """Listens in a thread of its own; the server must let its user in without a password."""

    def __init__(self, url: str, *, ignores: set[str]) -> None:
        self._parts = urlsplit(url)
        self._accepts = KNOWN | ignores
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._free: asyncio.Queue[Stream] = asyncio.Queue()
        self._greeting = b""  # the server's settings
        self._server: Any = None

    @property
    def url(self) -> str:
        login = self._parts.netloc.rpartition("@")[0]
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}"))

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _open(self) -> None:
        for _ in range(SESSIONS):
            self._free.put_nowait(await self._log_in())
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while not self._free.empty():
            self._free.get_nowait()[1].transport.abort()

    async def _log_in(self) -> Stream:
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        names = {"user": self._parts.username or "postgres", "database": self._parts.path.strip("/")}
        words = b"".join(f"{name}\0{value}\0".encode() for name, value in names.items()) + b"\0"
        writer.write(struct.pack("!ii", len(words) + 8, 196_608) + words)
        self._greeting = b""
        while (message := await read(reader))[:1] != b"Z":
            assert message[:1] != b"E", message
            self._greeting += message if message[:1] == b"S" else b""
        return reader, writer

    # A client

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if await self._greet(reader, writer):
                asks: asyncio.Future[bytes] = asyncio.ensure_future(read(reader))
                while (message := await asks)[:1] != GOODBYE:
                    asks = await self._lend(message, reader, writer)
        writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """What a client asks for at its start; whether it may go on."""
        while True:
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            if struct.unpack("!i", body[:4])[0] != SSL_REQUEST:
                break
            writer.write(b"N")
        asked = body[4:].split(b"\0")[:-2:2]
        for name in asked:
            if name.decode() not in self._accepts:
                said = b"SFATAL\0C08P01\0Munsupported startup parameter: " + name + b"\0\0"
                writer.write(b"E" + struct.pack("!i", len(said) + 4) + said)
                return False
        key = b"K" + struct.pack("!iii", 12, 1, 1)
        writer.write(AUTHENTICATED + self._greeting + key + READY)
        return True

    async def _lend(
        self, message: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> asyncio.Future[bytes]:
        """One transaction, on one of the server's sessions; the answer is what the client asks after it."""
        async with self._session() as (up_reader, up_writer):
            up_writer.write(message)
            answers = asyncio.ensure_future(until_idle(up_reader, writer))
            asks = asyncio.ensure_future(read(reader))
            try:
                while not answers.done():
                    await asyncio.wait({answers, asks}, return_when=asyncio.FIRST_COMPLETED)
                    if not answers.done():
                        if asks.result()[:1] == GOODBYE:
                            raise ConnectionError("it left in the middle of a transaction")
                        up_writer.write(asks.result())
                        asks = asyncio.ensure_future(read(reader))
                await answers
            finally:
                answers.cancel()
        return asks

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Stream]:
        stream = await self._free.get()
        try:
            yield stream
        except BaseException:
            stream[1].transport.abort()  # in the middle of a transaction: no other client may have it
            with suppress(OSError):
                stream = await self._log_in()
            raise
        finally:
            self._free.put_nowait(stream)


async def read(reader: asyncio.StreamReader) -> bytes:
    """One message of the protocol."""
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


async def until_idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what the server sends, until it reports that no transaction is open."""
    while True:
        message = await read(reader)
        writer.write(message)
        if message == READY:
            return


@contextmanager
def pooled(url: str, *, ignores: set[str] | None = None) -> Iterator[Pooler]:
    """A pooler before the database; it accepts settings at the start silently when they are to be ignored."""
    pooler = Pooler(url, ignores=ignores or set())
    pooler.start()
    try:
        yield pooler
    finally:
        pooler.stop()
