"""Server-sent events, and the answer that sends them.

A slow reader holds up nothing but its own stream: `send` waits for its connection, and a reader that takes nothing for
TAKEN_WITHIN seconds loses the connection. It can reconnect and resume.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.responses import Response

from windlass.web.guard import Message, Receive, Scope, Send

TAKEN_WITHIN = 30.0  # seconds
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
    (b"x-content-type-options", b"nosniff"),
]


def event(kind: str | None, data: bytes, id: str | None = None) -> bytes:
    """One event; without a kind, a comment that keeps the connection open. JSON has no newline to escape."""
    if kind is None:
        return b": beat\n\n"
    named = b"" if id is None else b"id: " + id.encode() + b"\n"
    return named + b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


class EventStream(Response):
    """Sends events until they end or the reader has gone."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self.status_code = 200
        self.background = None
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_all(send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone):
                task.cancel()
            ended = await asyncio.gather(sending, gone, return_exceptions=True)
        if isinstance(ended[0], Exception) and not isinstance(ended[0], OSError | TimeoutError):
            raise ended[0]

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._events) as events:  # type: ignore[type-var]
            await _send(send, {"type": "http.response.start", "status": 200, "headers": HEADERS})
            async for sent in events:
                await _send(send, {"type": "http.response.body", "body": sent, "more_body": True})
        await _send(send, {"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, message: Message) -> None:
    async with asyncio.timeout(TAKEN_WITHIN):
        await send(message)


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
