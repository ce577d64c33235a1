"""Jobs over HTTP: lists in pages, one job, waiting for its end, and each thing that an operator does with it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx2 as httpx
import pytest

from windlass import State, Windlass
from windlass.web.caller import Caller
from windlass.web.service.jobs import ApiService

from .rig import PATIENCE, Served, events

Document = dict[str, Any]


async def enqueue(client: httpx.AsyncClient, type: str = "send", **body: Any) -> str:
    answer = await client.post("/jobs", json={"type": type, "input": {"to": "ann"}, **body})
    assert answer.status_code == 202, answer.text
    id: str = answer.json()["id"]
    return id


async def die(served: Served, client: httpx.AsyncClient) -> str:
    """The id of a dead job."""
    id = await enqueue(client, input={"to": "nowhere"}, max_attempts=1)
    async with served.app.worker():
        ended = await client.get(f"/jobs/{id}/result", params={"timeout": 30})
    assert ended.json()["state"] == "dead"
    return id


async def actions(app: Windlass) -> list[tuple[str, str | None]]:
    """What the audit has, oldest first."""
    return [(row.action, row.actor) for row in reversed(await app.aaudit())]


# Read


async def test_a_list_is_read_in_pages(served: Served) -> None:
    client = served.client(await served.token("viewer"))
    operator = served.client(await served.token())
    ids = [await enqueue(operator, queue="a" if n % 2 else "b") for n in range(5)]

    first = (await client.get("/jobs", params={"count": 2})).json()
    second = (await client.get("/jobs", params={"count": 2, "below": first["next"]})).json()
    third = (await client.get("/jobs", params={"count": 2, "below": second["next"]})).json()
    narrowed = (await client.get("/jobs", params={"filter": "queue:a"})).json()

    assert [job["id"] for page in (first, second, third) for job in page["jobs"]] == ids[::-1]
    assert third["next"] is None
    assert [job["id"] for job in narrowed["jobs"]] == [ids[3], ids[1]]
    assert "input" not in first["jobs"][0]


async def test_a_job_tells_why_it_waits(served: Served) -> None:
    client = served.client(await served.token())
    id = await enqueue(client)
    await client.post("/gates/pause", json={"kind": "queue", "name": "mail", "reason": "it moves"})

    job, details = (await client.get(f"/jobs/{id}")).json(), (await client.get(f"/jobs/{id}/details")).json()
    listed = (await client.get("/jobs")).json()["jobs"][0]

    assert job["state"] == "queued"
    assert details["why"]["kind"] == listed["why"]["kind"] == "gate"
    assert "it moves" in details["why"]["text"]


async def test_an_unknown_job_is_not_found(served: Served) -> None:
    client = served.client(await served.token())

    for path in ("", "/details", "/result"):
        answer = await client.get(f"/jobs/{uuid4()}{path}")
        assert (answer.status_code, answer.json()["error"]) == (404, "JobNotFound")
    assert (await client.get("/jobs/nonsense")).status_code == 404


async def test_a_wrong_filter_is_explained(served: Served) -> None:
    client = served.client(await served.token())

    for filter in ("state:nonsense", "input..x:1", "x", "queue:", 'error:"open'):
        listed = await client.get("/jobs", params={"filter": filter})
        bulk = await client.post("/jobs/bulk", json={"verb": "cancel", "filter": filter})

        assert (listed.status_code, listed.json()["error"]) == (422, "FilterError"), filter
        assert bulk.status_code == 422


# Wait


async def test_a_long_poll_returns_when_the_job_ends(served: Served) -> None:
    client = served.client(await served.token())
    id = await enqueue(client)

    waiting = asyncio.create_task(client.get(f"/jobs/{id}/result", params={"timeout": 60}))
    at_once = (await client.get(f"/jobs/{id}/result")).json()
    async with served.app.worker():
        ended = (await waiting).json()

    assert (at_once["ended"], at_once["state"]) == (False, "queued")
    assert (ended["ended"], ended["state"]) == (True, "succeeded")
    assert ended["output"] == {"to": "ann", "n": 1, "token": "[redacted]"}


async def test_many_requests_that_wait_share_one_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served.client(await served.token())
    ids = [await enqueue(client) for _ in range(20)]
    reads: list[int] = []
    states, all_asked = served.app.astates, asyncio.Event()

    async def counted(wanted: list[Any]) -> Any:
        reads.append(len(wanted))
        if len(wanted) == len(ids):
            all_asked.set()
        return await states(wanted)

    monkeypatch.setattr(served.app, "astates", counted)
    waits = [asyncio.create_task(client.get(f"/jobs/{id}/result", params={"timeout": 60})) for id in ids * 2]
    async with asyncio.timeout(PATIENCE):  # a worker that starts now would end jobs before all requests have arrived
        await all_asked.wait()
    async with served.app.worker():
        answers = await asyncio.gather(*waits)

    assert all(answer.json()["ended"] for answer in answers)
    assert max(reads) == 20  # all jobs in one statement, and each of them once


async def test_the_events_of_a_job_end_with_its_result(served: Served) -> None:
    client = served.client(await served.token())
    id = await enqueue(client)

    async with asyncio.timeout(PATIENCE), client.stream("GET", f"/jobs/{id}/events") as stream:
        read = events(stream)
        first = await anext(read)
        async with served.app.worker():
            rest = [event async for event in read]

    assert (first.kind, first.data["state"]) == ("job", "queued")
    assert rest[-1].kind == "result"
    assert rest[-1].data["output"] == {"to": "ann", "n": 1, "token": "[redacted]"}
    assert [event.data["state"] for event in rest][-1] == "succeeded"


async def test_a_job_that_ends_between_two_reads_is_sent_as_it_ended(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = served.client(await served.token())
    id = await enqueue(client, delay="1h")
    read_job = ApiService.job
    reads = 0

    async def read_and_cancel(service: ApiService, caller: Caller, asked: UUID) -> Document:
        nonlocal reads
        job, reads = await read_job(service, caller, asked), reads + 1
        if reads == 2:  # the first is the check before the stream begins
            await (await served.app.afind(id)).acancel()
        return job

    monkeypatch.setattr(ApiService, "job", read_and_cancel)
    async with asyncio.timeout(PATIENCE), client.stream("GET", f"/jobs/{id}/events") as stream:
        sent = [(event.kind, event.data["state"]) async for event in events(stream)]

    assert sent == [("job", "queued"), ("job", "cancelled"), ("result", "cancelled")]


async def test_the_events_of_a_job_that_has_ended_end_at_once(served: Served) -> None:
    client = served.client(await served.token())
    id = await die(served, client)

    async with asyncio.timeout(PATIENCE), client.stream("GET", f"/jobs/{id}/events") as stream:
        kinds = [event.kind async for event in events(stream)]
    await client.post(f"/jobs/{id}/discard")
    gone = await client.get(f"/jobs/{id}/events")

    assert kinds == ["job", "result"]
    assert gone.status_code == 404


# Change


async def test_an_operator_changes_one_job(served: Served) -> None:
    client = served.client(await served.token(name="ann"))
    dead, discarded = await die(served, client), await die(served, client)
    cancelled = await enqueue(client)

    answers = [
        await client.post(f"/jobs/{cancelled}/cancel"),
        await client.post(f"/jobs/{cancelled}/resume"),
        await client.post(f"/jobs/{dead}/replay"),
        await client.post(f"/jobs/{dead}/cancel"),
        await client.post(f"/jobs/{discarded}/discard"),
    ]

    assert [answer.json().get("state") for answer in answers] == ["cancelled", "queued", "queued", "cancelled", None]
    assert {answer.status_code for answer in answers} == {200}
    done = [action for action, actor in await actions(served.app) if actor == "ann"]
    assert done == ["JOB_CANCELLED", "JOB_RESUMED", "JOB_REPLAYED", "JOB_CANCELLED", "JOB_DISCARDED"]
    assert (await client.get(f"/jobs/{discarded}")).status_code == 404
    refused = await client.post(f"/jobs/{cancelled}/retry")
    assert (refused.status_code, refused.json()["error"]) == (409, "TransitionRefused")


async def test_a_dead_job_is_edited_and_run_again(served: Served) -> None:
    client = served.client(await served.token())
    dead = await die(served, client)

    wrong = await client.post(f"/jobs/{dead}/rerun", json={"input": {"to": 1}})
    made = await client.post(f"/jobs/{dead}/rerun", json={"input": {"to": "bob"}, "discard": True})
    async with served.app.worker():
        ended = (await client.get(f"/jobs/{made.json()['id']}/result", params={"timeout": 30})).json()

    assert wrong.status_code == 422
    assert (made.status_code, made.headers["location"]) == (202, made.json()["url"])
    assert ended["output"]["to"] == "bob"
    assert (await client.get(f"/jobs/{dead}")).status_code == 404


async def test_a_signal_reaches_its_job(served: Served) -> None:
    client = served.client(await served.token())
    id = await enqueue(client, "approve", input={"who": "ann"})

    sent = await client.post(f"/jobs/{id}/signal", json={"name": "answer", "value": "yes"})
    async with served.app.worker():
        ended = (await client.get(f"/jobs/{id}/result", params={"timeout": 30})).json()

    assert sent.json()["sent"] is True
    assert ended["output"] == "ann: yes"


# Bulk


async def test_a_bulk_action_changes_what_the_dry_run_counted(served: Served) -> None:
    client = served.client(await served.token(name="ann"))
    await client.post("/jobs/batch", json={"jobs": [{"type": "send", "input": {"to": str(n)}} for n in range(450)]})
    await enqueue(client, "approve", input={"who": "ann"})
    body = {"verb": "cancel", "filter": "type:send"}

    dry = (await client.post("/jobs/bulk", json={**body, "dry_run": True})).json()
    counted = await served.app.acounts()
    wrong = await client.post("/jobs/bulk", json={**body, "expected": 449})
    done = (await client.post("/jobs/bulk", json={**body, "expected": 450})).json()

    assert (dry["matched"], dry["changed"], dry["types"], dry["states"]) == (450, 0, {"send": 450}, {"queued": 450})
    assert counted[State.QUEUED] == 451
    assert (wrong.status_code, "now 450 match" in wrong.json()["detail"]) == (409, True)
    assert (done["matched"], done["changed"], done["refused"], done["done"]) == (450, 450, 0, True)
    assert (await served.app.acounts())[State.QUEUED] == 1
    assert {row.actor for row in await served.app.aaudit(action="JOB_CANCELLED")} == {"ann"}


async def test_the_progress_of_a_bulk_action_is_a_stream(served: Served) -> None:
    client = served.client(await served.token())
    await client.post("/jobs/batch", json={"jobs": [{"type": "send", "input": {"to": str(n)}} for n in range(450)]})

    body, accept = {"verb": "cancel", "filter": ""}, {"accept": "text/event-stream"}
    async with client.stream("POST", "/jobs/bulk", json=body, headers=accept) as stream:
        reports = [event.data async for event in events(stream)]

    assert [report["changed"] for report in reports] == [200, 400, 450]
    assert [report["done"] for report in reports] == [False, False, True]


async def test_a_bulk_action_on_nothing_is_done(served: Served) -> None:
    client = served.client(await served.token())

    done = (await client.post("/jobs/bulk", json={"verb": "replay", "filter": "state:dead"})).json()

    assert (done["matched"], done["done"]) == (0, True)
