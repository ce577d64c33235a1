"""The broker's dead letters over HTTP: listed, shown, replayed and discarded, with secrets hidden."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

import with_redis
from private_server import free_port
from servers import url_of
from windlass import NamedCall, State, Windlass
from windlass.model.delivery import DeliveryMode
from windlass.model.job import new_id
from windlass.transport import make_dispatcher
from windlass.transport.protocol import Level, Message

from .rig import CANARY, PATIENCE, Served, serving

GARBAGE = f"no envelope, password={CANARY}".encode()


@pytest.fixture
async def delivered(app: Windlass) -> AsyncIterator[Served]:
    """A server whose program has a broker: a database of Redis that no other story uses."""
    url = f"{url_of('redis').removesuffix('/0')}/{uuid4().int % (with_redis.DATABASES - 1) + 1}"
    app.settings = app.settings.with_(broker=url)
    app._client.settings = app.settings
    client = Redis.from_url(url)
    await client.flushdb()
    async with serving(app) as served:
        yield served
    await client.flushdb()
    await client.aclose()


async def bury(app: Windlass, payload: bytes, reason: str) -> None:
    assert app.settings.broker is not None
    dispatcher = make_dispatcher(app.settings.broker)
    await dispatcher.open()
    await dispatcher.bury([(Message(job=new_id(), queue="mail", level=Level.NORMAL, payload=payload), reason)])
    await dispatcher.close()


async def die(app: Windlass, letters: int = 1) -> str:
    """A dead job with a copy in the broker; the worker's relay publishes it."""
    await app._client.aask(lambda store: store.set_delivery(DeliveryMode.OUTBOX))
    (job,) = await app.aenqueue_named([NamedCall("send", {"to": "nowhere", "password": CANARY}, {"max_attempts": 1})])
    async with app.worker(), asyncio.timeout(PATIENCE):
        while len((await app.adead_letters(kind="letter")).rows) < letters:
            pass
    assert (await job.arecord()).status is State.DEAD
    return str(job.id)


async def test_letters_are_listed_shown_and_replayed(delivered: Served) -> None:
    admin = delivered.client(await delivered.token("admin"))
    viewer = delivered.client(await delivered.token("viewer"))
    job = await die(delivered.app)
    await bury(delivered.app, GARBAGE, "not JSON")

    listed = (await viewer.get("/letters")).json()
    copy, garbage = listed["letters"]
    assert (listed["broker"], listed["problem"]) == (True, None)
    assert (copy["state"], copy["job"], copy["type"], copy["queue"]) == ("dead", job, "send", "mail")
    assert (garbage["state"], garbage["job"], garbage["reason"]) == ("unreadable", None, "not JSON")

    shown = await viewer.get("/letters/one", params={"id": copy["id"]})
    assert shown.json()["payload"]["body"] == {"to": "nowhere", "password": "[redacted]"}
    texts = [each.text for each in (shown, await viewer.get("/letters/one", params={"id": garbage["id"]}))]
    assert not any(CANARY in text for text in [*texts, str(listed)])
    seen = await admin.get("/letters/one", params={"id": garbage["id"]})
    assert seen.json()["payload"].startswith("no envelope")

    ids = [copy["id"], garbage["id"]]
    assert (await viewer.post("/letters/replay", json={"ids": ids})).status_code == 403
    counted = (await admin.post("/letters/replay", json={"ids": ids, "dry_run": True})).json()
    assert (counted["matched"], counted["changed"], counted["removed"]) == (2, 0, 0)
    (refused,) = counted["refused"]
    assert (refused["id"], "no envelope" in refused["reason"]) == (garbage["id"], True)

    done = (await admin.post("/letters/replay", json={"ids": ids})).json()
    assert (done["matched"], done["changed"], done["removed"], len(done["refused"])) == (2, 1, 1, 1)
    assert (await (await delivered.app.afind(job)).arecord()).status is State.QUEUED

    gone = (await admin.post("/letters/discard", json={"ids": ids})).json()
    assert (gone["matched"], gone["removed"], gone["refused"][0]["id"]) == (1, 1, copy["id"])
    actions = [row for row in await delivered.app.aaudit() if row.action.startswith("DEAD_LETTER")]
    assert [(row.action, row.actor) for row in actions] == [
        ("DEAD_LETTER_DISCARDED", "admin-all"),
        ("DEAD_LETTER_REPLAYED", "admin-all"),
    ]
    assert (await viewer.get("/letters")).json()["letters"] == []
    assert (await viewer.get("/letters/one", params={"id": copy["id"]})).status_code == 404


async def test_what_changes_a_dead_job_removes_its_copy_from_the_broker(delivered: Served) -> None:
    client = delivered.client(await delivered.token())
    dead = [await die(delivered.app, letters=n + 1) for n in range(4)]

    answers = [
        await client.post(f"/jobs/{dead[0]}/replay"),
        await client.post(f"/jobs/{dead[1]}/rerun", json={"input": {"to": "bob"}, "discard": True}),
        await client.post("/jobs/bulk", json={"verb": "discard", "filter": f"id:{dead[2]}"}),
    ]

    assert all(answer.is_success for answer in answers)
    (left,) = (await client.get("/letters")).json()["letters"]
    assert left["job"] == dead[3]
    # The broker is away: the change is answered all the same.
    delivered.app.settings = delivered.app.settings.with_(broker=f"redis://127.0.0.1:{free_port()}/0")
    assert (await client.post(f"/jobs/{dead[3]}/discard")).status_code == 200


async def test_a_secret_of_a_letter_is_hidden_where_its_texts_repeat_it(delivered: Served) -> None:
    viewer = delivered.client(await delivered.token("viewer"))
    body = {"password": CANARY, "note": f"log in with {CANARY}"}
    for payload in ({"body": body}, {"body": {"to": "ann"}, "token": CANARY, "note": CANARY}):
        await bury(delivered.app, json.dumps(payload).encode(), f"refused {CANARY}")

    letters = (await viewer.get("/letters")).json()["letters"]
    shown = [await viewer.get("/letters/one", params={"id": each["id"]}) for each in letters]

    assert shown[0].json()["payload"]["body"] == {"password": "[redacted]", "note": "log in with [redacted]"}
    assert not any(CANARY in text for text in [str(letters), *[each.text for each in shown]])


async def test_without_a_broker_and_with_one_that_is_away_no_letters_are_listed(app: Windlass, served: Served) -> None:
    admin = served.client(await served.token("admin"))
    assert (await admin.get("/letters")).json() == {"letters": [], "broker": False, "problem": None}
    without = await admin.post("/letters/discard", json={"ids": ["letter:1-0"]})
    assert (without.status_code, "broker" in without.json()["detail"]) == (422, True)

    app.settings = app.settings.with_(broker=f"redis://127.0.0.1:{free_port()}/0")
    app._client.settings = app.settings
    away = (await admin.get("/letters")).json()
    assert (away["letters"], away["broker"], "does not answer" in away["problem"]) == ([], True, True)
    for refused in (
        await admin.post("/letters/discard", json={"ids": ["letter:1-0"]}),
        await admin.get("/letters/one", params={"id": "letter:1-0"}),
    ):
        assert (refused.status_code, "127.0.0.1" in refused.text) == (503, False)
        assert "windlass broker check" in refused.text


async def test_a_tenant_has_no_letters(served: Served) -> None:
    own = served.client(await served.token("operator", tenant="acme"))
    assert (await own.get("/letters")).status_code == 403
    assert (await own.post("/letters/discard", json={"ids": ["letter:1-0"]})).status_code == 403
    everywhere = served.client(await served.token("operator"))
    one = ["letter:1-0"]
    wrong: list[dict[str, object]] = [
        {"ids": []},
        {"ids": [str(new_id())]},
        {"ids": one[0]},
        {"ids": one, "all": True},
    ]
    for body in wrong:
        assert (await everywhere.post("/letters/discard", json=body)).status_code == 422
