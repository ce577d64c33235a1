"""Clients that are slow, gone or many: they harm no other request, and leave nothing behind on the server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from windlass import Windlass
from windlass.methods import bulk
from windlass.web.live import events as web_events
from windlass.web.live import feed as live
from windlass.web.live import waiting
from windlass.web.live.feed import Feed
from windlass.web.server import listen
from windlass.web.service.jobs import ApiService

from .raw import Raw, connected, request, until_true
from .rig import PATIENCE, Event, Served, events
from .samples import NEW


@pytest.fixture
async def token(served: Served) -> str:
    return await served.token("operator")


def feed(served: Served) -> Feed:
    found: Feed = served.server._feed
    return found


async def healthy(served: Served, token: str) -> bool:
    return (await served.client(token).get("/session")).status_code == 200


def tasks() -> Counter[str]:
    """The tasks of this loop by what they run, without those of the test and its clients."""
    own = ("test_", "PoolRequest", "Served")
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    return Counter(name for name in names if not name.startswith(own))


async def follow(served: Served, token: str, path: str = "/stream?list=jobs") -> AsyncIterator[Event]:
    client = served.client(token)
    async with client.stream("GET", path) as stream:
        assert stream.status_code == 200
        async for event in events(stream):
            yield event


# Odd connections


async def test_pipelined_requests_are_answered_in_order(served: Served, token: str) -> None:
    body = json.dumps(NEW).encode()
    sent = [request("POST", "/jobs", token, body), request("GET", "/nothing"), request("GET", "/session", token)]

    async with connected(served) as raw:
        await raw.send(b"".join(sent * 20))
        statuses = [(await raw.answer())[0] for _ in range(60)]

    assert statuses == [202, 404, 200] * 20
    assert len(await served.app.ajobs(count=100)) == 20


async def test_half_closed_and_broken_connections_leave_the_server_healthy(served: Served, token: str) -> None:
    broken = [
        request("GET", "/session", token),
        request("GET", "/session", token)[:-10],
        request("POST", "/jobs", token, content_length="100") + b"{",
        request("GET", "/stream?list=jobs", token),
        request("GET", "/stream?list=jobs", token, connection="upgrade", upgrade="websocket"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        b"\0" * 70_000,
    ]
    for text in broken:
        async with connected(served) as raw:
            raw.writer.write(text)
            raw.writer.write_eof()  # the other direction stays open
            await raw.closed()

    await until_true(lambda: not served.server.server_state.connections and not feed(served).streams)
    assert await healthy(served, token)


# Slow readers


async def test_a_reader_that_takes_nothing_loses_its_own_stream_only(
    served: Served, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": shortly}))
    monkeypatch.setattr(web_events, "TAKEN_WITHIN", 0.2)
    await enlarge(served, monkeypatch)

    async with connected(served, buffer=4_096) as slow:
        await slow.send(request("GET", "/stream?list=jobs", token))
        await until_true(lambda: feed(served).streams == 1)
        connection = next(iter(served.server.server_state.connections))
        reading = follow(served, token)
        first, second = await anext(reading), await anext(reading)
        await until_true(lambda: connection not in served.server.server_state.connections)
        third = await anext(reading)

    assert (first.kind, second.kind, third.kind) == ("snapshot", "delta", "delta")
    await reading.aclose()  # type: ignore[attr-defined]
    await until_true(lambda: feed(served).streams == 0)
    assert await healthy(served, token)


async def shortly(seconds: float) -> None:
    """Stands for the pause between two reads of a list."""
    await asyncio.sleep(min(seconds, 0.01))


async def enlarge(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the list of jobs be large, and another one at each read."""
    reads = 0

    async def page(*_: Any) -> dict[str, Any]:
        nonlocal reads
        reads += 1
        return {"jobs": [{"id": str(UUID(int=n)), "text": f"{reads}" * 200_000} for n in range(10)], "next": None}

    monkeypatch.setattr(ApiService, "_page", page)


# Clients that go away


async def test_a_client_that_goes_away_leaves_nothing_behind(
    served: Served, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LINGER", 0.0)
    monkeypatch.setattr(live, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": shortly}))
    job = (await served.client(token).post("/jobs", json=NEW)).json()["id"]
    paths = (f"/jobs/{job}/result?timeout=60", f"/jobs/{job}/events", "/stream?list=jobs&list=figures&list=overview")
    watching: list[int] = []
    reads = waiting.Awaited._read

    async def read(awaited: waiting.Awaited, ids: list[UUID]) -> None:
        watching.append(sum(each.requests for each in awaited._watched.values()))
        await reads(awaited, ids)

    monkeypatch.setattr(waiting.Awaited, "_read", read)
    before = tasks()

    async with AsyncExitStack() as stack:
        for path in paths * 5:
            raw = await stack.enter_async_context(connected(served))
            await raw.send(request("GET", path, token))
        await until_true(lambda: feed(served).streams == 10 and watching and watching[-1] == 10)

    await until_true(lambda: feed(served).streams == 0 and tasks() == before)
    assert await healthy(served, token)


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_bulk_action_stops_when_its_caller_has_gone(
    served: Served, token: str, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 5)
    monkeypatch.setattr(bulk, "AT_ONCE", 1)
    client = served.client(token)
    await client.post("/jobs/batch", json={"jobs": [NEW] * 100})
    begun, go_on = threading.Event(), threading.Event()  # the store has a thread of its own
    change = bulk.BulkChange._change

    async def slow(self: bulk.BulkChange, *job: Any) -> Any:
        begun.set()
        await asyncio.to_thread(go_on.wait)
        return await change(self, *job)

    monkeypatch.setattr(bulk.BulkChange, "_change", slow)
    before = tasks()
    body = json.dumps({"verb": "cancel"}).encode()

    async with connected(served) as raw:
        await raw.send(request("POST", "/jobs/bulk", token, body, accept=accept))
        await until_true(begun.is_set)
        open_before = len(served.server.server_state.connections)
    await until_true(lambda: len(served.server.server_state.connections) < open_before)
    go_on.set()
    await until_true(lambda: tasks() == before)

    assert len(await served.app.ajobs("state:cancelled", count=100)) <= 5


# A thousand streams


async def test_a_thousand_idle_streams_share_one_read(
    served: Served, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, app, reads, moment = served.client(token), served.app, 0, asyncio.Event()
    ajobs = Windlass.ajobs

    async def counted(self: Windlass, *args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await ajobs(self, *args, **options)

    async def pause(seconds: float) -> None:
        nonlocal moment
        await moment.wait()  # the test decides when the interval is over

    monkeypatch.setattr(Windlass, "ajobs", counted)
    monkeypatch.setattr(live, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    async with AsyncExitStack() as stack:
        raws = [await stack.enter_async_context(connected(served)) for _ in range(1_000)]
        for raw in raws:
            raw.writer.write(request("GET", "/stream?list=jobs", token))
        await asyncio.gather(*(receive(raw, b"event: snapshot") for raw in raws))
        assert (feed(served).streams, reads) == (1_000, 1)

        assert (await client.post("/jobs", json=NEW)).status_code == 202
        moment.set()
        moment = asyncio.Event()
        await asyncio.gather(*(receive(raw, b"event: delta") for raw in raws))
        assert reads == 2

    await until_true(lambda: feed(served).streams == 0)
    assert len(await app.ajobs()) == 1


async def receive(raw: Raw, text: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        await raw.reader.readuntil(text)
        await raw.reader.readuntil(b"\n\n")


async def test_an_answer_of_two_parts_is_sent_at_once(served: Served) -> None:
    """asyncio turns Nagle's algorithm off only for sockets that name TCP: every answer took 40 ms longer."""
    with closing(listen("127.0.0.1", 0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
