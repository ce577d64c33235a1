"""The database goes away and comes back under load: no 202 without a row, 503 with Retry-After, one job per key."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx2 as httpx
import pytest

from servers import postgres_database
from windlass import Windlass
from windlass.errors import StoreUnavailable, ValueRefused
from windlass.store.sqlite.connections import file
from windlass.testing.databases import write_migrated_file
from windlass.web.answers import answer_error

from .rig import CANARY, PATIENCE, declare, serving
from .tables import execute

CLIENTS = 20
KEYS = 15  # of each client
CUTS = 3


class Proxy:
    """A TCP proxy before the database that the test cuts and restores; it runs on the test's loop."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._links: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        self.is_armed = False  # the next commit makes it mute
        self.is_mute = False  # the database hears, and its answers are lost: what it commits is not known here

    async def link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        if self.is_cut:
            writer.transport.abort()
            return
        with suppress(OSError):
            there, back = await asyncio.open_connection(*self._target)
            self._links.add(back)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, back, False))
                group.create_task(self._copy(there, writer, True))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, muted: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.is_armed and not muted and b"COMMIT" in data:
                    self.is_mute = True  # before it is sent: its answer is lost for certain
                if not (muted and self.is_mute):
                    writer.write(data)
        writer.transport.abort()

    def cut(self) -> None:
        """End every connection; new ones end at once. Statements under way may be committed or not."""
        self.is_cut = True
        for writer in self._links:
            writer.transport.abort()
        self._links.clear()

    def restore(self) -> None:
        self.is_cut = self.is_armed = self.is_mute = False


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server of this URL, and the URL that leads through it."""
    parts = urlsplit(url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    listener = await asyncio.start_server(proxy.link, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0]
    try:
        yield proxy, urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"))
    finally:
        proxy.cut()
        listener.close()


class Producers:
    """Clients that enqueue one job per key, and repeat the request until it is accepted."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.accepted: dict[str, str] = {}
        self.refused: list[httpx.Response] = []
        self.other: list[httpx.Response] = []
        self.moved = asyncio.Event()

    async def enqueue(self, producer: int) -> None:
        for number in range(KEYS):
            key = f"{producer}-{number}"
            while key not in self.accepted:
                body = {"type": "send", "input": {"to": key}}
                answer = await self._client.post("/jobs", json=body, headers={"idempotency-key": key})
                if answer.status_code == 202:
                    self.accepted[key] = answer.json()["id"]
                else:
                    (self.refused if answer.status_code == 503 else self.other).append(answer)
                self.moved.set()

    async def until(self, accepted: int, refused: int) -> None:
        """Return when so many requests were accepted and refused."""
        async with asyncio.timeout(PATIENCE):
            while len(self.accepted) < accepted or len(self.refused) < refused:
                self.moved.clear()
                await self.moved.wait()


@pytest.mark.postgres
async def test_no_job_is_lost_or_doubled_while_the_database_goes_and_comes() -> None:
    with postgres_database() as lent:
        async with proxied(lent.url) as (proxy, url):
            app, direct = Windlass(url), Windlass(lent.url)
            declare(app)
            token = (await direct.acreate_token("load", role="operator")).secret
            async with serving(app) as served, asyncio.timeout(PATIENCE):
                producers = Producers(served.client(token))
                async with asyncio.TaskGroup() as group:
                    for producer in range(CLIENTS):
                        group.create_task(producers.enqueue(producer))
                    for cut in range(1, CUTS + 1):
                        await producers.until(accepted=cut * CLIENTS, refused=0)
                        proxy.is_armed = True
                        async with asyncio.timeout(PATIENCE):
                            while len(await direct.ajobs(count=1_000)) <= len(producers.accepted):
                                pass  # until a job is stored whose producer does not know it
                        proxy.cut()
                        await producers.until(accepted=0, refused=len(producers.refused) + 1)
                        proxy.restore()
            await app.aclose()
            rows = execute(direct, "SELECT id, input ->> 'to' FROM windlass.jobs")
            await direct.aclose()

    assert producers.other == []
    assert len(producers.accepted) == CLIENTS * KEYS
    assert {to: str(id) for id, to in rows} == producers.accepted
    assert len(rows) == CLIENTS * KEYS  # one job per key, however often it was sent
    assert all(answer.headers["retry-after"] == "2" for answer in producers.refused)


async def test_a_locked_file_is_a_503_and_works_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for waits in (file.retry_while_locked, inspect.unwrap(file.write_transaction)):
        defaults = waits.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "patience", 0.1)  # seconds
    write_migrated_file(tmp_path / "jobs.db")
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    declare(app)
    body = {"type": "send", "input": {"to": "ann"}}
    async with serving(app) as served:
        client = served.client(await served.token())
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = await client.post("/jobs", json=body, headers={"idempotency-key": "order-7"})
            read = await client.get("/jobs")
            other.execute("ROLLBACK")
        again = await client.post("/jobs", json=body, headers={"idempotency-key": "order-7"})

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert (read.status_code, read.json()["jobs"]) == (200, [])
    assert (again.status_code, again.json()["existing"]) == (202, False)
    assert len(await app.ajobs()) == 1
    await app.aclose()


def test_an_answer_does_not_repeat_what_the_database_says(caplog: pytest.LogCaptureFixture) -> None:
    away, refused = answer_error(StoreUnavailable(f"at {CANARY}")), answer_error(ValueRefused(f"value {CANARY}"))

    assert (away.status_code, refused.status_code) == (503, 422)
    assert "retry-after" in away.headers
    assert "retry-after" not in refused.headers
    assert CANARY.encode() not in bytes(away.body) + bytes(refused.body)
    assert caplog.text.count(CANARY) == 2  # the operator reads it in the log
