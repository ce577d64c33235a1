"""A TCP proxy before a server, in a thread of its own: it goes silent, refuses, and comes back on command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """`url` leads through it."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._mute: set[asyncio.StreamWriter] = set()  # connections that pass on nothing any more
        self._refuses = self._swallows = False
        self._server: asyncio.Server | None = None
        self.port = 0
        self.accepted = 0

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        login = self._parts.netloc.rpartition("@")[0]
        return urlunsplit(self._parts._replace(netloc=f"{login}@{self.place}" if login else self.place))

    def silence(self) -> None:
        """Connections of now stay open and carry nothing; later ones work."""
        self._mute |= self._writers

    def swallow(self) -> None:
        """Every connection is accepted, and never answered."""
        self._swallows = True

    def refuse(self) -> None:
        """Every connection ends, and new ones end at once."""
        self._refuses = True
        self._do(self._cut())

    def heal(self) -> None:
        self._refuses = False

    # The machinery

    def start(self) -> None:
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._do(self._end(self._server))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cut()

    async def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A cancelled handler ends as one that returned: Python 3.11 logs the cancellation of this task as an error."""
        with suppress(asyncio.CancelledError):
            await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        self.accepted += 1
        up_reader, up_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers |= {writer, up_writer}
        if self._swallows:
            self.silence()
        try:
            await asyncio.gather(self._copy(reader, up_writer), self._copy(up_reader, writer))
        finally:
            self._writers -= {writer, up_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65_536):
                if writer not in self._mute:
                    writer.write(piece)
            if writer not in self._mute:
                writer.close()


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
