"""What an operator does beside jobs, over HTTP: gates, limits, budgets, tenants, schedules, tokens; and the lists."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from windlass import NamedCall

from .rig import Served

EDITS = {"edit": {"priority": 1}}


@pytest.fixture
async def admin(served: Served) -> httpx.AsyncClient:
    return served.client(await served.token("admin", name="root"))


async def send(served: Served, count: int = 1, **options: Any) -> None:
    await served.app.aenqueue_named([NamedCall("send", {"to": str(n)}, options) for n in range(count)])


async def run_all(served: Served, admin: httpx.AsyncClient) -> None:
    """Let a worker run until no job is queued."""
    async with served.app.worker():
        for job in (await admin.get("/jobs")).json()["jobs"]:
            await admin.get(f"/jobs/{job['id']}/result", params={"timeout": 30})


@pytest.mark.parametrize("body", [{"kind": "queue", "name": "mail"}, {"kind": "type", "name": "send"}, {"kind": "all"}])
async def test_a_gate_is_paused_and_resumed(served: Served, admin: httpx.AsyncClient, body: dict[str, Any]) -> None:
    paused = await admin.post("/gates/pause", json={**body, "reason": "it moves"})
    again = await admin.post("/gates/pause", json={**body, "reason": "it moves"})
    (gate,) = (await admin.get("/gates")).json()["gates"]
    resumed = await admin.post("/gates/resume", json=body)

    assert (paused.json(), again.json(), resumed.json()) == ({"changed": True}, {"changed": False}, {"changed": True})
    assert (gate["kind"], gate["state"], gate["reason"], gate["actor"]) == (body["kind"], "paused", "it moves", "root")


async def test_queues_counts_workers_and_types_are_read(served: Served, admin: httpx.AsyncClient) -> None:
    await send(served, 3)

    (queue,) = (await admin.get("/queues")).json()["queues"]
    counts = (await admin.get("/counts")).json()
    async with served.app.worker(queues=["other"]):
        (worker,) = (await admin.get("/workers")).json()["workers"]
    types = {each["name"]: each for each in (await admin.get("/types")).json()["types"]}

    assert (queue["queue"], queue["queued"], queue["gate"]) == ("mail", 3, "open")
    assert counts["counts"]["queued"] == 3
    assert (worker["queues"], worker["types"]) == (["other"], ["send", "approve"])
    assert types["send"]["parameters"]["properties"]["n"] == {"type": "integer", "default": 1}


async def test_figures_agree_with_the_jobs(served: Served, admin: httpx.AsyncClient) -> None:
    await send(served, 5)
    await served.app.aenqueue_named([NamedCall("send", {"to": "nowhere"}, {"max_attempts": 1})])
    await run_all(served, admin)

    answer = (await admin.get("/figures", params={"since": "10m", "step": "10s"})).json()
    rows, counts = answer["figures"], (await admin.get("/counts")).json()["counts"]

    assert sum(row["succeeded"] for row in rows) == counts["succeeded"] == 5
    assert sum(row["dead"] for row in rows) == counts["dead"] == 1
    assert sum(sum(row["runs"]) for row in rows) == 6
    assert len(rows[0]["runs"]) == len(answer["bounds"]) + 1
    assert (await admin.get("/depths")).status_code == 200


async def test_a_limit_is_held_back_and_released(served: Served, admin: httpx.AsyncClient) -> None:
    async with served.app.worker():  # it declares the limits of its program
        pass

    held = await admin.post("/limits/hold", json={"key": "host", "seconds": 60})
    limits = (await admin.get("/limits", params={"name": "host"})).json()
    use = (await admin.get("/limits/use", params={"key": "host"})).json()
    released = await admin.post("/limits/release", json={"key": "host"})
    unknown = await admin.get("/limits/use", params={"key": "nonsense"})

    assert 0 < held.json()["held"] <= 60
    assert (use["key"], use["most"], use["held"] > 0) == ("host", 1, True)
    assert limits["total"] == len(limits["limits"])
    assert released.json() == {"changed": True}
    assert unknown.status_code == 404


async def test_budgets_and_weights_are_set(served: Served, admin: httpx.AsyncClient) -> None:
    await send(served, tenant="acme")

    await admin.put("/budgets", json={"kind": "tenant", "name": "acme", "cents": 500, "per": "day"})
    await admin.put("/tenants/weight", json={"tenant": "acme", "weight": 2.5})
    (budget,) = (await admin.get("/budgets")).json()["budgets"]
    (tenant,) = (await admin.get("/tenants")).json()["tenants"]
    dropped = await admin.delete("/budgets", params={"kind": "tenant", "name": "acme"})

    assert (budget["name"], budget["cents"], budget["left"]) == ("acme", 500, 500)
    assert (tenant["tenant"], tenant["weight"], tenant["queued"]) == ("acme", 2.5, 1)
    assert dropped.json() == {"changed": True}
    assert (await admin.get("/budgets")).json()["budgets"] == []


async def test_a_schedule_is_operated(served: Served, admin: httpx.AsyncClient) -> None:
    async with served.app.worker():  # it declares the schedules of its program
        pass
    name = {"name": "nightly"}

    paused = await admin.post("/schedules/pause", json={**name, "reason": "it moves"})
    (schedule,) = (await admin.get("/schedules")).json()["schedules"]
    await admin.post("/schedules/resume", json=name)
    await admin.post("/schedules/edit", json={**name, "cron": "0 5 * * *"})
    (edited,) = (await admin.get("/schedules")).json()["schedules"]
    reset = await admin.post("/schedules/reset", json=name)
    fired = await admin.post("/schedules/fire", json=name)
    ticks = await admin.get("/schedules/ticks", params=name)

    assert paused.json() == {"changed": True}
    assert (schedule["paused"], schedule["paused_by"], schedule["reason"]) == (True, "root", "it moves")
    assert (edited["cron"], edited["edited"], edited["edited_by"]) == ("0 5 * * *", ["timing"], "root")
    assert reset.json() == {"changed": True}
    assert (fired.status_code, fired.headers["location"]) == (202, fired.json()["url"])
    assert (await admin.get(f"/jobs/{fired.json()['id']}")).json()["type"] == "send"
    assert ticks.status_code == 200
    for path in ("pause", "resume", "edit", "reset", "fire", "forget"):
        missing = await admin.post(f"/schedules/{path}", json={"name": "nonsense", **EDITS.get(path, {})})
        assert missing.status_code == 404, (path, missing.text)


async def test_tokens_are_made_listed_and_revoked(served: Served, admin: httpx.AsyncClient) -> None:
    made = await admin.post("/tokens", json={"name": "ci", "role": "operator", "tenant": "acme", "expires_in": 3600})
    again = await admin.post("/tokens", json={"name": "ci", "role": "viewer"})
    own = served.client(made.json()["secret"])
    whoami = (await own.get("/session")).json()
    listed = {each["name"]: each for each in (await admin.get("/tokens")).json()["tokens"]}
    revoked = await admin.post("/tokens/revoke", json={"token": "ci"})

    assert made.status_code == 201
    assert (again.status_code, again.json()["error"]) == (409, "TokenExists")
    assert (whoami["name"], whoami["role"], whoami["tenant"], whoami["store"]) == ("ci", "operator", "acme", "")
    assert (listed["ci"]["state"], listed["ci"]["created_by"]) == ("live", "root")
    assert "secret" not in listed["ci"]
    assert (revoked.json()["state"], revoked.json()["revoked_by"]) == ("revoked", "root")


async def test_the_audit_is_read_in_pages(served: Served, admin: httpx.AsyncClient) -> None:
    for n in range(3):
        await admin.post("/gates/pause", json={"kind": "queue", "name": f"q{n}"})

    first = (await admin.get("/audit", params={"actor": "root", "count": 2})).json()
    second = (await admin.get("/audit", params={"actor": "root", "count": 2, "below": first["next"]})).json()

    assert [row["subject"] for row in first["audit"] + second["audit"]] == ["queue:q2", "queue:q1", "queue:q0"]
    assert second["next"] is None
