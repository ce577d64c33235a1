"""Live lists: a snapshot, then deltas; one read per list for all listeners; resumed by Last-Event-ID."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest

from windlass.web.live import feed as live

from .rig import PATIENCE, Event, Served, events

Rows = dict[str, Any]


@pytest.fixture(autouse=True)
def _reads_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.05)
    monkeypatch.setattr(live, "AWAY", 0.05)


@asynccontextmanager
async def follow(
    client: httpx.AsyncClient, last: str | None = None, **params: Any
) -> AsyncIterator[AsyncIterator[Event]]:
    headers = {} if last is None else {"last-event-id": last}
    async with asyncio.timeout(PATIENCE), client.stream("GET", "/stream", params=params, headers=headers) as stream:
        assert stream.status_code == 200, await stream.aread()
        yield events(stream)


class Listener:
    """A list as a page keeps it: the rows of the snapshot, with each delta applied."""

    def __init__(self, read: AsyncIterator[Event]) -> None:
        self.rows: Rows = {}
        self.kinds: list[str] = []
        self.last: str | None = None
        self._read = read

    async def until(self, fits: Callable[[Rows], bool]) -> Rows:
        while not fits(self.rows):
            event = await anext(self._read)
            self.kinds.append(event.kind)
            self.last = event.id or self.last
            if event.kind == "snapshot":
                self.rows = {}
            for key, row in event.data.get("rows", {}).items():
                self.rows[key] = row
                if row is None:
                    del self.rows[key]
        return self.rows


async def send(served: Served, to: str = "ann", **options: Any) -> str:
    from windlass import NamedCall

    (job,) = await served.app.aenqueue_named([NamedCall("send", {"to": to}, options)])
    return str(job.id)


async def test_a_list_of_jobs_changes_by_deltas(served: Served) -> None:
    client = served.client(await served.token("viewer"))
    first = await send(served)

    async with follow(client, list="jobs", filter="queue:mail state:queued") as read:
        page = Listener(read)
        await page.until(lambda rows: list(rows) == [first])
        second = await send(served)
        await page.until(lambda rows: set(rows) == {first, second})
        await (await served.app.afind(first)).acancel()
        await page.until(lambda rows: set(rows) == {second})

    assert page.kinds == ["snapshot", "delta", "delta"]


async def test_the_overview_has_counts_queues_workers_and_gates(served: Served) -> None:
    client = served.client(await served.token("viewer"))
    await send(served)

    async with follow(client, list="overview") as read:
        page = Listener(read)
        await page.until(lambda rows: rows.get("queue:mail", {}).get("queued") == 1)
        await served.app.apause(queue="mail", reason="it moves")
        await page.until(lambda rows: rows.get("gate:queue:mail", {}).get("reason") == "it moves")
        await served.app.aresume(queue="mail")
        async with served.app.worker():
            await page.until(lambda rows: rows["counts"]["succeeded"] == 1)
            await page.until(lambda rows: any(key.startswith("worker:") for key in rows))

    assert page.rows["gate:queue:mail"]["state"] == "open"


async def test_all_listeners_share_one_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served.client(await served.token("viewer"))
    reads = 0
    jobs = served.app.ajobs

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await jobs(*args, **options)

    monkeypatch.setattr(served.app, "ajobs", counted)
    monkeypatch.setattr(live, "EVERY", PATIENCE)  # one read, unless there is one per listener
    listeners = [follow(client, list="jobs") for _ in range(10)]
    for each in listeners:
        read = await each.__aenter__()
        assert (await anext(read)).kind == "snapshot"
    for each in listeners:
        await each.__aexit__(None, None, None)

    assert reads == 1


async def test_a_listener_resumes_with_the_deltas_it_lacks(served: Served) -> None:
    client = served.client(await served.token("viewer"))
    await send(served)
    async with follow(client, list="jobs") as read:
        page = Listener(read)
        await page.until(lambda rows: len(rows) == 1)
        async with follow(client, list="jobs") as kept:  # it keeps the list alive
            second = await send(served)
            await Listener(kept).until(lambda rows: len(rows) == 2)
            async with follow(client, page.last, list="jobs") as again:
                event = await anext(again)

    assert event.kind == "delta"
    assert list(event.data["rows"]) == [second]


async def test_an_id_that_is_not_known_gets_a_snapshot(served: Served) -> None:
    client = served.client(await served.token("viewer"))
    await send(served)
    async with follow(client, list="jobs") as read:
        feed = ((await anext(read)).id or "").partition(".")[0]

    for last in ("", "nonsense", "0000.1", f"{feed}.99999999999", f"{feed}.x", f"{feed}.1.1", feed):
        async with follow(client, last, list="jobs") as read:
            assert (await anext(read)).kind == "snapshot", last


async def test_a_listener_that_is_far_behind_gets_a_snapshot(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEPT", 2)
    client = served.client(await served.token("viewer"))
    async with follow(client, list="jobs") as read:
        page = Listener(read)
        await page.until(lambda rows: page.last is not None)
        early = page.last
        for count in range(1, 5):
            await send(served)
            await page.until(lambda rows, count=count: len(rows) == count)  # type: ignore[misc]
        async with follow(client, early, list="jobs") as again:
            event = await anext(again)

    assert event.kind == "snapshot"
    assert len(event.data["rows"]) == 4


async def test_two_lists_are_in_one_stream(served: Served) -> None:
    client = served.client(await served.token("viewer"))

    async with follow(client, list=["overview", "jobs"]) as read:
        names = {(await anext(read)).data["list"], (await anext(read)).data["list"]}

    assert names == {"overview", "jobs"}


async def test_a_stream_says_that_the_database_is_away_and_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.errors import StoreUnavailable

    client = served.client(await served.token("viewer"))
    jobs, away = served.app.ajobs, False

    async def failing(*args: Any, **options: Any) -> Any:
        if away:
            raise StoreUnavailable("no route to secret-host")
        return await jobs(*args, **options)

    monkeypatch.setattr(served.app, "ajobs", failing)
    async with follow(client, list="jobs") as read:
        assert (await anext(read)).kind == "snapshot"
        away = True
        problem = await anext(read)
        away = False
        id = await send(served)
        back = await anext(read)
        while id not in back.data["rows"]:
            back = await anext(read)

    assert problem.kind == "problem"
    assert "secret-host" not in problem.data["detail"]


async def test_a_list_that_cannot_be_read_is_tried_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served.client(await served.token("viewer"))
    jobs, broken = served.app.ajobs, True

    async def failing(*args: Any, **options: Any) -> Any:
        if broken:
            raise RuntimeError("a defect")
        return await jobs(*args, **options)

    monkeypatch.setattr(served.app, "ajobs", failing)
    async with follow(client, list="jobs") as read:
        problem = await anext(read)
        broken = False
        back = await anext(read)

    assert (problem.kind, "a defect" in problem.data["detail"]) == ("problem", False)
    assert back.kind == "snapshot"


async def test_a_stream_ends_when_its_token_is_revoked(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from windlass.web import auth

    monkeypatch.setattr(live, "BEAT", 0.05)
    monkeypatch.setattr(auth, "KNOWN_FOR", 0.0)
    client = served.client(await served.token("viewer", name="page"))

    async with follow(client, list="jobs") as read:
        await anext(read)
        await served.app.arevoke_token("page")
        rest = [event async for event in read]

    assert rest == []
    assert (await client.get("/stream", params={"list": "jobs"})).status_code == 401


async def test_a_stream_has_an_end_and_the_list_is_not_read_for_ever(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LIFE", 0.3)
    monkeypatch.setattr(live, "BEAT", 0.05)
    monkeypatch.setattr(live, "LINGER", 0.0)
    client = served.client(await served.token("viewer"))

    async with follow(client, list="jobs") as read:
        kinds = [event.kind async for event in read]
    reading = [task for task in asyncio.all_tasks() if task.get_name() == "windlass-web-jobs"]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*reading)

    assert kinds == ["snapshot"]
    assert served.server._feed.streams == 0


async def test_too_many_lists_and_streams_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served.client(await served.token("viewer"))
    monkeypatch.setattr(live, "MOST_LISTS", 1)
    async with follow(client, list="jobs", filter="queue:a") as read:
        await anext(read)
        other = await client.get("/stream", params={"list": "jobs", "filter": "queue:b"})
        monkeypatch.setattr(live, "MOST_STREAMS", 1)
        more = await client.get("/stream", params={"list": "jobs", "filter": "queue:a"})

    assert (other.status_code, more.status_code) == (503, 503)
    assert more.headers["retry-after"]


async def test_streams_end_when_the_server_stops(served: Served) -> None:
    client = served.client(await served.token("viewer"))

    async with follow(client, list="jobs") as read:
        await anext(read)
        served.server.should_exit = True
        rest = [event async for event in read]

    assert rest == []
