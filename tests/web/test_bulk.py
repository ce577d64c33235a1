"""Bulk actions on the server: they go on without their page, are found by others, and are stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest

from windlass import NamedCall, State, Windlass
from windlass.methods import bulk
from windlass.web.live import bulk as live_bulk

from .rig import PATIENCE, Served, events, serving

CANCEL = {"verb": "cancel", "filter": "type:send"}


class Brake:
    """Stops a bulk action before its first job until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self._go_on = threading.Event(), threading.Event()  # the store has a thread of its own
        change = bulk.BulkChange._change
        monkeypatch.setattr(bulk, "PAGE", 5)
        monkeypatch.setattr(bulk, "AT_ONCE", 1)

        async def slow(action: bulk.BulkChange, *job: Any) -> Any:
            self.begun.set()
            await asyncio.to_thread(self._go_on.wait)
            return await change(action, *job)

        monkeypatch.setattr(bulk.BulkChange, "_change", slow)

    def release(self) -> None:
        self._go_on.set()


@pytest.fixture
def brake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brake]:
    brake = Brake(monkeypatch)
    yield brake
    brake.release()


async def fill(app: Windlass, count: int = 20, tenant: str = "default") -> None:
    await app.aenqueue_named(
        [NamedCall("send", {"to": str(n)}, {"delay": "1h", "tenant": tenant}) for n in range(count)]
    )


async def until_over(client: httpx.AsyncClient, id: str) -> dict[str, Any]:
    """The action at its end, by the live list."""
    async with asyncio.timeout(PATIENCE), client.stream("GET", "/stream", params={"list": "bulk"}) as stream:
        async for event in events(stream):
            if event.data["rows"][id]["state"] != "running":
                break
    return dict((await client.get(f"/bulk/{id}")).json())


async def test_it_goes_on_when_its_caller_has_gone(served: Served, brake: Brake) -> None:
    await fill(served.app)
    token = await served.token(name="ann")
    caller = served.client(token)

    begun = await caller.post("/bulk", json={**CANCEL, "expected": 20})
    await caller.aclose()
    brake.release()
    ended = await until_over(served.client(token), begun.json()["id"])

    assert (begun.status_code, begun.json()["state"], begun.json()["matched"]) == (202, "running", 20)
    assert (ended["state"], ended["changed"], ended["refused"], ended["actor"]) == ("done", 20, 0, "ann")
    assert ended["ended_at"] is not None
    assert (await served.app.acounts())[State.CANCELLED] == 20
    assert {row.actor for row in await served.app.aaudit(action="JOB_CANCELLED")} == {"ann"}


async def test_another_number_than_expected_changes_nothing(served: Served) -> None:
    await fill(served.app)
    client = served.client(await served.token())

    refused = await client.post("/bulk", json={**CANCEL, "expected": 19})

    assert (refused.status_code, "now 20 match" in refused.json()["detail"]) == (409, True)
    assert (await client.get("/bulk")).json() == {"actions": []}
    assert (await served.app.acounts())[State.QUEUED] == 20


async def test_it_is_followed_and_stopped_by_another_operator(served: Served, brake: Brake) -> None:
    await fill(served.app)
    ann, bob = served.client(await served.token(name="ann")), served.client(await served.token(name="bob"))
    id = (await ann.post("/bulk", json=CANCEL)).json()["id"]
    await asyncio.to_thread(brake.begun.wait)

    listed = (await bob.get("/bulk")).json()["actions"]
    async with bob.stream("GET", "/stream", params={"list": "bulk"}) as stream:
        following = events(stream)
        snapshot = await anext(following)
        stopped = await bob.post(f"/bulk/{id}/stop")
        brake.release()
        async for event in following:
            if event.data["rows"][id]["state"] != "running":
                break
    ended = (await bob.get(f"/bulk/{id}")).json()

    assert [(each["id"], each["state"], each["actor"]) for each in listed] == [(id, "running", "ann")]
    assert snapshot.data["rows"][id]["matched"] == 20
    assert stopped.status_code == 200
    assert (ended["state"], ended["changed"]) == ("stopped", 5)  # the page under way was finished, and counted
    assert (await served.app.acounts())[State.CANCELLED] == 5
    assert event.data["rows"][id]["changed"] == 5


@asynccontextmanager
async def running(served: Served, token: str, **filter: str) -> AsyncIterator[str]:
    begun = await served.client(token).post("/bulk", json={**CANCEL, **filter})
    assert begun.status_code == 202, begun.text
    yield begun.json()["id"]


async def test_a_tenant_finds_and_stops_its_own_only(served: Served, brake: Brake) -> None:
    for tenant in ("a", "b"):
        await fill(served.app, 10, tenant)
    a, b = [await served.token(tenant=tenant) for tenant in ("a", "b")]
    async with running(served, a) as id, running(served, whole := await served.token("admin")) as other:
        shown = (await served.client(b).get("/bulk")).json()["actions"]
        refused = [
            (await served.client(b).get(f"/bulk/{id}")),
            (await served.client(b).post(f"/bulk/{id}/stop")),
            (await served.client(a).post(f"/bulk/{other}/stop")),
        ]
        missing = await served.client(b).get(f"/bulk/{uuid4()}")
        lists = (await served.client(b).get("/lists", params={"list": "bulk"})).json()
        brake.release()
        done = await until_over(served.client(a), id)
        await until_over(served.client(whole), other)

    assert (shown, lists) == ([], {"lists": {"bulk": {}}})
    assert [answer.status_code for answer in (*refused, missing)] == [404] * 4
    assert done["matched"] == 10
    assert (await served.app.acounts())[State.CANCELLED] == 20


async def test_a_viewer_looks_and_does_not_begin_or_stop(served: Served, brake: Brake) -> None:
    await fill(served.app)
    viewer = served.client(await served.token("viewer"))
    async with running(served, await served.token()) as id:
        seen = (await viewer.get(f"/bulk/{id}")).json()["state"]
        refused = [await viewer.post("/bulk", json=CANCEL), await viewer.post(f"/bulk/{id}/stop")]

    assert seen == "running"
    assert [answer.status_code for answer in refused] == [403, 403]


async def test_a_filter_by_a_hidden_value_is_not_shown(served: Served) -> None:
    await fill(served.app)
    admin, viewer = served.client(await served.token("admin")), served.client(await served.token("viewer"))

    begun = await admin.post("/bulk", json={**CANCEL, "filter": "type:send input.password:h*"})

    assert begun.status_code == 202
    assert "h*" not in (await viewer.get("/bulk")).text


async def test_only_so_many_run_at_a_time(served: Served, brake: Brake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_bulk, "MOST_RUNNING", 1)
    await fill(served.app)
    token = await served.token()

    async with running(served, token):
        refused = await served.client(token).post("/bulk", json=CANCEL)

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")


async def test_a_server_that_stops_ends_its_actions_and_the_next_one_says_so(app: Windlass, brake: Brake) -> None:
    await fill(app)
    token = (await app.acreate_token("ann", role="operator")).secret
    async with serving(app) as first:
        async with running(first, token) as id:
            await asyncio.to_thread(brake.begun.wait)
        await first.server._bulk.close()
        brake.release()
    async with serving(app) as second:
        answer = await second.client(token).get(f"/bulk/{id}")

    assert answer.status_code == 404
    assert "the server was restarted; the audit has what was changed" in answer.json()["detail"]
    assert (await app.acounts())[State.QUEUED] >= 15
