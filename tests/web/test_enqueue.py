"""Enqueue over HTTP: 202 after the commit and never without one, one transaction per request, keys, and bad input."""

from __future__ import annotations

from typing import Any

from windlass import Windlass

from .rig import Served, serving


async def test_an_enqueue_answers_with_the_address_of_a_stored_job(served: Served) -> None:
    client = served.client(await served.token())

    answer = await client.post("/jobs", json={"type": "send", "input": {"to": "ann"}, "priority": 3})

    assert answer.status_code == 202
    accepted = answer.json()
    assert answer.headers["location"] == accepted["url"] == f"/api/v1/jobs/{accepted['id']}"
    assert (accepted["state"], accepted["existing"]) == ("queued", False)
    job = (await client.get(f"/jobs/{accepted['id']}")).json()
    assert (job["type"], job["queue"], job["priority"], job["input"]) == ("send", "mail", 3, {"to": "ann"})


async def test_a_batch_is_one_transaction(served: Served) -> None:
    client = served.client(await served.token())
    good = [{"type": "send", "input": {"to": str(n)}} for n in range(1_000)]

    stored = await client.post("/jobs/batch", json={"jobs": good})
    refused = await client.post("/jobs/batch", json={"jobs": [*good[:17], {"type": "send", "input": {"to": 17}}]})

    assert stored.status_code == 202
    assert len({job["id"] for job in stored.json()["jobs"]}) == 1_000
    assert (refused.status_code, refused.json()["path"]) == (422, "$.jobs[17].input.to")
    assert sum((await served.app.acounts()).values()) == 1_000  # none of the refused batch


async def test_a_key_returns_the_same_jobs_and_refuses_another_body(served: Served) -> None:
    client = served.client(await served.token())
    headers, ann, bob = {"idempotency-key": "order-7"}, {"to": "ann"}, {"to": "bob"}

    first = await client.post("/jobs", json={"type": "send", "input": ann}, headers=headers)
    again = await client.post("/jobs", json={"type": "send", "input": ann}, headers=headers)
    other = await client.post("/jobs", json={"type": "send", "input": bob}, headers=headers)

    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.json()["existing"] is True
    assert (other.status_code, other.json()["error"]) == (409, "IdempotencyConflict")
    assert len(await served.app.ajobs()) == 1


BAD: list[tuple[dict[str, Any], str]] = [
    ({"type": "send", "input": {}}, "$.input.to"),
    ({"type": "send", "input": {"to": "ann", "cc": "bob"}}, "$.input.cc"),
    ({"type": "send", "input": {"to": "a\0b"}}, "$.input.to"),
    ({"type": "send", "input": {"to": "ann", "n": 2**70}}, "$.input.n"),
    ({"type": "sendd", "input": {"to": "ann"}}, "$.type"),
    ({"type": "send", "input": {"to": "ann"}, "attempt": 3}, "$.attempt"),
    ({"type": "send", "input": {"to": "ann"}, "status": "succeeded"}, "$.status"),
    ({"type": "send", "input": {"to": "ann"}, "tenant": "a/\0"}, "$.tenant"),
    ({"type": "send", "input": {"to": "ann"}, "delay": "soon"}, "$.delay"),
    ({"type": "send", "input": {"to": "ann"}, "max_attempts": 0}, "$.max_attempts"),
    ({"type": "send", "input": {"to": "ann"}, "priority": 10**9}, "$.priority"),
]


async def test_bad_input_is_refused_with_its_place(served: Served) -> None:
    client = served.client(await served.token())

    for body, path in BAD:
        answer = await client.post("/jobs", json=body)

        problem = answer.json()
        assert answer.status_code == 422, body
        assert answer.headers["content-type"] == "application/problem+json"
        places = [problem.get("path"), *(each["path"] for each in problem.get("mistakes") or ())]
        assert any(place and place.startswith(path) for place in places), problem
    assert await served.app.ajobs() == []


NO_JSON = [
    '{"type": "send", "input": {"to": "\\ud800"}}',
    '{"type": "send", "input": {"to": "ann", "n": NaN}}',
    '{"type": "send", "input": {"to": "ann", "n": 1e999}}',
    '{"type": "send", "input": ' + "[" * 5_000 + "]" * 5_000 + "}",
    '{"type": "send", "input": {"to": "ann"',
    "[]",
    "",
]


async def test_what_is_no_json_of_ours_is_refused(served: Served) -> None:
    client = served.client(await served.token())

    for text in NO_JSON:
        answer = await client.post("/jobs", content=text, headers={"content-type": "application/json"})
        assert answer.status_code == 422, answer.text
    assert await served.app.ajobs() == []


async def test_a_process_without_the_program_checks_by_announced_types(served: Served, app: Windlass) -> None:
    other = Windlass(app.settings.url)
    async with serving(other) as stranger:
        client = stranger.client(await served.token())
        body = {"type": "send", "input": {"to": "ann"}}
        unknown = await client.post("/jobs", json=body)
        async with app.worker():  # it announces its types when it starts
            known = await client.post("/jobs", json=body)
            wrong = await client.post("/jobs", json={"type": "send", "input": {"to": 1}})
            types = (await client.get("/types")).json()["types"]

    assert (unknown.status_code, unknown.json()["error"]) == (422, "UnknownType")
    assert "windlass worker" in unknown.json()["detail"]
    assert known.status_code == 202
    assert (wrong.status_code, wrong.json()["path"]) == (422, "$.input.to")
    assert next(each for each in types if each["name"] == "send")["parameters"]["required"] == ["to"]


async def test_a_form_enqueues_nothing(served: Served) -> None:
    client = served.client(await served.token())

    answer = await client.post("/jobs", content="type=send", headers={"content-type": "text/plain"})

    assert answer.status_code == 415
    assert await served.app.ajobs() == []
