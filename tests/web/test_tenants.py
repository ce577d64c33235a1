"""A token of one tenant: it finds no job of another one on any route, list, stream or bulk action, and changes none."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest

from windlass import Context, State, unique

from .rig import CANARY, Served, events
from .samples import call, operations, text_parameters
from .tables import dump, execute
from .test_doors import until

SYSTEM = {
    "GET /health",
    "GET /overview",
    "GET /phases",
    "GET /counts",
    "GET /queues",
    "GET /figures",
    "GET /depths",
    "GET /workers",
    "GET /letters",
    "GET /letters/one",
    "POST /letters/replay",
    "POST /letters/discard",
    "GET /gates",
    "POST /gates/pause",
    "POST /gates/resume",
    "GET /limits",
    "GET /limits/use",
    "POST /limits/hold",
    "POST /limits/release",
    "PUT /budgets",
    "DELETE /budgets",
    "PUT /tenants/weight",
    "GET /schedules",
    "GET /schedules/ticks",
    "POST /schedules/pause",
    "POST /schedules/resume",
    "POST /schedules/edit",
    "POST /schedules/reset",
    "POST /schedules/fire",
    "POST /schedules/forget",
    "GET /tokens",
    "POST /tokens",
    "POST /tokens/revoke",
    "POST /jobs/{id}/reveal",
}
STATES = ("queued", "failed", "waiting", "dead")


class Town:
    """Tenants a and b with jobs in the states of STATES, and a client of each; b's jobs have texts of their own."""

    def __init__(self, served: Served, a: httpx.AsyncClient, b: httpx.AsyncClient, jobs: dict[str, list[str]]) -> None:
        self.served, self.a, self.b, self.jobs = served, a, b, jobs

    def of_b(self) -> list[tuple[Any, ...]]:
        """Everything that the store has of b's jobs."""
        kept = "SELECT * FROM windlass.jobs WHERE tenant = 'b'", "SELECT * FROM windlass.audit WHERE tenant = 'b'"
        return [row for statement in kept for row in sorted(execute(self.served.app, statement), key=repr)]

    def names_b(self, text: str) -> bool:
        """Whether a text shows a job of b: by its id, its tenant, its input or its key."""
        shown = (*self.jobs["b"], '"b"', "bobs", CANARY)
        return any(each in text for each in shown)


@pytest.fixture
async def town(served: Served) -> Town:
    a, b = [served.client(await served.token("operator", tenant=tenant)) for tenant in ("a", "b")]
    return Town(served, a, b, {"a": await settle(served, a, "a"), "b": await settle(served, b, "b")})


async def settle(served: Served, client: httpx.AsyncClient, tenant: str) -> list[str]:
    """New jobs of a tenant, one in each state of STATES: their ids. Those that failed are in one group of errors."""
    text = f"{tenant}obs"
    one = {"type": "send", "input": {"to": text}, "queue": text}
    stored = (await client.post("/jobs/batch", json={"jobs": [one] * len(STATES)})).json()["jobs"]
    failure = json.dumps({"type": text, "message": text, "attempt": 1})
    failed = f", error = '{failure}', fingerprint = '{text}', error_at = created_at, reason = '{text}'"
    for job, state in zip(stored, STATES, strict=True):
        more = failed if state in ("failed", "dead") else ""
        execute(served.app, f"UPDATE windlass.jobs SET status = '{state}'{more} WHERE {is_job(job['id'])}")
    return [job["id"] for job in stored]


def is_job(id: str) -> str:
    return f"CAST(id AS text) = '{id}'"


async def test_every_route_answers_as_if_the_other_tenants_job_did_not_exist(town: Town) -> None:
    with_id = [name for name in await operations(town.served) if "{id}" in name and name not in SYSTEM]
    before = dump(town.served.app)

    for name in with_id:
        for foreign in town.jobs["b"]:
            missing = str(uuid4())
            shown, expected = await call(town.a, name, foreign), await call(town.a, name, missing)
            assert expected.status == 404, name
            assert (shown.status, shown.text) == (404, expected.text.replace(missing, foreign)), name

    assert len(with_id) == 15
    assert dump(town.served.app) == before


async def test_no_read_shows_what_another_tenant_has(town: Town) -> None:
    """Every parameter of every read in the OpenAPI document, filled in with what is b's and with what lists values."""
    everyone, own, foreign = town.served.client(await town.served.token("admin")), town.jobs["a"][3], town.jobs["b"][3]
    texts = ("b", "bobs", foreign, *(f"{name}:" for name in ("tenant", "queue", "error", "reason", "input.to", "id")))
    texts += tuple(f"{name}:{value}" for name, value in (("tenant", "*"), ("error", "bo"), ("fingerprint", "bobs")))
    reads = {name: about for name, about in (await operations(town.served)).items() if name.startswith("GET")}
    shown = 0

    for name in reads.keys() - SYSTEM:
        for params in [{}, *({place: text} for place in text_parameters(reads[name]) for text in texts)]:
            if "list" in name:  # a live list: its listeners share one read
                await call(everyone, name, own, **params)
            reply = await call(town.a, name, own, **params)
            assert reply.status in (200, 403, 404, 422), (name, params)
            told = reply.text
            for sent in params.values():  # a suggestion repeats what was typed, and a page its filter
                told = told.replace(sent, "") if len(sent) > 1 else told
            assert reply.status != 200 or not town.names_b(told), (name, params, reply.text)
            shown += own in reply.text

    assert shown >= 10


async def test_what_concerns_every_tenant_is_refused(town: Town) -> None:
    before = dump(town.served.app)
    names = await operations(town.served)

    statuses = {name: (await call(town.a, name, uuid4())).status for name in names if name in SYSTEM}
    overview = await town.a.get("/stream", params={"list": ["overview", "jobs"]})
    figures = await town.a.get("/stream", params={"list": "figures"})

    assert statuses == dict.fromkeys(SYSTEM, 403)
    assert (overview.status_code, figures.status_code) == (403, 403)
    assert dump(town.served.app) == before


FILTERS = [
    "",
    "tenant:b",
    "-tenant:a",
    "tenant:*",
    "tenant:a,b",
    "input.to:bobs",
    "input.to:*",
    "state:dead",
    "id:{id}",
]


async def test_no_filter_reaches_the_other_tenants_jobs(town: Town) -> None:
    for filter in FILTERS:
        town.jobs["a"] += await settle(town.served, town.a, "a")  # the filter before has changed the others
        await try_filter(town, filter)


async def try_filter(town: Town, filter: str) -> None:
    chosen, before = filter.format(id=town.jobs["b"][3]), town.of_b()

    listed = await town.a.get("/jobs", params={"filter": chosen, "count": 1_000})
    asked = town.a.stream("GET", "/stream", params={"list": "jobs", "filter": chosen})
    async with asked as stream:
        snapshot = await anext(events(stream))
    dry = [await town.a.post("/jobs/bulk", json={"verb": v, "filter": chosen, "dry_run": True}) for v in VERBS]
    wet = [await town.a.post("/jobs/bulk", json={"verb": v, "filter": chosen}) for v in VERBS]

    own = set(town.jobs["a"])
    assert listed.status_code == 200
    assert {job["id"] for job in listed.json()["jobs"]} <= own
    assert set(snapshot.data["rows"]) <= own
    assert all(answer.json()["matched"] <= len(own) for answer in dry)
    shows_own = filter in ("", "tenant:*", "tenant:a,b", "input.to:*", "state:dead")
    assert bool(listed.json()["jobs"]) is bool(snapshot.data["rows"]) is shows_own
    assert any(answer.json()["matched"] for answer in dry) is shows_own
    assert any(answer.json()["changed"] for answer in wet) is shows_own
    assert not any(map(town.names_b, (answer.text.replace(chosen, "") for answer in (*dry, *wet))))
    assert town.of_b() == before


VERBS = ("replay", "retry", "cancel", "resume", "discard")


async def test_the_audit_budgets_and_tenants_show_the_callers_own(town: Town) -> None:
    app = town.served.app
    await app.aset_budget(tenant="a", cents=5, per="day")
    await app.aset_budget(tenant="b", cents=5, per="day")
    await app.aset_budget(queue="mail", cents=5, per="day")
    for client, tenant in ((town.a, "a"), (town.b, "b")):
        assert (await client.post(f"/jobs/{town.jobs[tenant][0]}/cancel")).status_code == 200

    asked: list[dict[str, str]] = [{}, {"tenant": "b"}, {"job": town.jobs["b"][0]}, {"actor": "operator-b"}]
    pages = [(await town.a.get("/audit", params=params)).json()["audit"] for params in asked]
    budgets = (await town.a.get("/budgets")).json()["budgets"]
    tenants = (await town.a.get("/tenants")).json()["tenants"]

    assert [[row["job"] for row in page] for page in pages] == [[town.jobs["a"][0]], [town.jobs["a"][0]], [], []]
    assert [(row["kind"], row["name"]) for row in budgets] == [("tenant", "a")]
    assert [row["tenant"] for row in tenants] == ["a"]


async def test_details_and_a_story_link_to_no_job_of_another_tenant(town: Town) -> None:
    job, own, foreign = town.jobs["a"][0], town.jobs["a"][1], town.jobs["b"][0]
    for name, other in (("mine", own), ("theirs", foreign)):
        at = f"(SELECT created_at FROM windlass.jobs WHERE {is_job(job)})"
        values = f"'{job}', '{name}', '{other}', {at}"
        execute(town.served.app, f"INSERT INTO windlass.links (job, name, target, at) VALUES ({values})")
    everyone = town.served.client(await town.served.token("viewer"))

    shown = (await town.a.get(f"/jobs/{job}/details")).json()["links"]
    whole = (await everyone.get(f"/jobs/{job}/details")).json()["links"]
    told, all_told = [await client.get(f"/jobs/{job}/story") for client in (town.a, everyone)]

    assert [(link["name"], link["id"]) for link in shown] == [("mine", own)]
    assert {link["id"] for link in whole} == {own, foreign}
    assert [link["id"] for link in told.json()["links"]] == [own]
    assert not town.names_b(told.text)
    assert foreign in all_told.text


async def test_a_bulk_cancel_leaves_a_child_of_another_tenant_alone(served: Served) -> None:
    """Given a job of a that waits for children of a and of b, when a's operator cancels all, then b's child stays."""
    app = served.app

    @app.job
    async def rest(name: str) -> None: ...

    @app.job
    async def share(ctx: Context) -> None:
        children = [rest.options(tenant=name, delay="1h").call(name) for name in ("a", "b")]
        await ctx.wait(ctx.spawn_many("child", children))

    parent = await share.options(tenant="a").aenqueue()
    async with app.worker():
        await until(app, str(parent.id), State.WAITING)
        client = served.client(await served.token("operator", tenant="a"))

        done = (await client.post("/jobs/bulk", json={"verb": "cancel"})).json()
        await until(app, str(parent.id), State.CANCELLED)  # it may run again, as its child has ended: then it is asked

    states = {(job.type, job.tenant): job.status.value for job in await app.ajobs()}
    assert (done["changed"] + done["asked"], done["refused"]) == (2, 0)
    assert states == {("share", "a"): "cancelled", ("rest", "a"): "cancelled", ("rest", "b"): "queued"}


async def test_a_tenant_enqueues_for_itself_only(town: Town) -> None:
    body, before = {"type": "send", "input": {"to": "eve"}}, town.of_b()

    own = await town.a.post("/jobs", json=body)
    named = await town.a.post("/jobs", json={**body, "tenant": "a"})
    foreign = await town.a.post("/jobs", json={**body, "tenant": "b"})
    mixed = await town.a.post("/jobs/batch", json={"jobs": [body, {**body, "tenant": "b"}]})

    assert (own.status_code, named.status_code) == (202, 202)
    assert (foreign.status_code, mixed.status_code) == (422, 422)
    assert len(await town.served.app.ajobs("input.to:eve tenant:a")) == 2
    assert len(await town.served.app.ajobs("input.to:eve")) == 2
    assert town.of_b() == before


async def test_an_idempotency_key_is_the_tenants_own(town: Town) -> None:
    body, headers = {"type": "send", "input": {"to": "eve"}}, {"idempotency-key": "order-7"}

    first, second, again = [
        await client.post("/jobs", json=body, headers=headers) for client in (town.b, town.a, town.a)
    ]

    assert first.json()["id"] != second.json()["id"] == again.json()["id"]
    assert [answer.json()["existing"] for answer in (first, second, again)] == [False, False, True]


async def test_a_global_key_shows_the_id_and_the_state_of_another_tenants_job(town: Town) -> None:
    @town.served.app.job(unique=unique("order", scope="global"))
    async def ship(order: int, note: str) -> None: ...

    held = await town.b.post("/jobs", json={"type": "ship", "input": {"order": 7, "note": "for bobs eyes"}})
    before = town.of_b()
    found = await town.a.post("/jobs", json={"type": "ship", "input": {"order": 7, "note": "mine"}})

    id = held.json()["id"]
    assert found.json() == {"id": id, "existing": True, "state": "queued", "url": f"/api/v1/jobs/{id}"}
    assert (await town.a.get(f"/jobs/{id}")).status_code == 404
    assert town.of_b() == before
