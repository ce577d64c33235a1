"""The doors of the API: tokens, the local door, roles on every route, sessions, and the actor of every change."""

from __future__ import annotations

import asyncio
import inspect
from uuid import UUID, uuid4

import httpx2 as httpx
import pytest

from windlass import State, Windlass
from windlass.actor import user_and_host
from windlass.web import auth
from windlass.web.caller import Caller, permission_of
from windlass.web.live import feed
from windlass.web.service.jobs import ApiService

from .raw import until_true
from .rig import PATIENCE, Served, serving
from .samples import SAMPLES, call, operations
from .tables import dump, execute

SESSION = {"POST /session", "DELETE /session"}
ADMIN_ONLY = {
    "POST /jobs/{id}/reveal",
    "PUT /budgets",
    "DELETE /budgets",
    "PUT /tenants/weight",
    "POST /schedules/forget",
    "GET /tokens",
    "POST /tokens",
    "POST /tokens/revoke",
}


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks the store about a token each time."""
    monkeypatch.setattr(auth, "KNOWN_FOR", -1.0)


def assert_refused(answer: httpx.Response, command: str) -> None:
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"] == "TokenRefused"
    assert command in answer.json()["detail"]


# Tokens


async def test_every_route_needs_a_token(served: Served) -> None:
    nobody = served.client()

    refused = {name: (await call(nobody, name, uuid4())).status for name in await operations(served)}

    assert {name for name, status in refused.items() if status != 401} == {"DELETE /session"}
    assert_refused(await nobody.get("/jobs"), "windlass token create NAME --role viewer")
    assert await served.app.ajobs() == []


async def test_an_unknown_token_is_refused(served: Served) -> None:
    known = await served.token("admin")
    unknown = ["wl_unknown", "wl_" + "x" * 43, "unknown", "wl_\xe4", "wl_" + "x" * 5_000, known[:-1], known + "x"]

    for secret in unknown:
        headers = {b"authorization": f"Bearer {secret}".encode("latin-1")}
        assert_refused(await served.client().get("/jobs", headers=headers), "windlass token list")
    assert (await served.client(known).get("/jobs")).status_code == 200


@pytest.mark.usefixtures("forgetful")
async def test_a_revoked_token_is_refused(served: Served) -> None:
    client = served.client(await served.token("viewer", name="ci"))
    before = await client.get("/jobs")

    await served.app.arevoke_token("ci")

    assert before.status_code == 200
    assert_refused(await client.get("/jobs"), "windlass token list")


async def test_a_token_that_is_revoked_through_the_server_is_refused_at_once(served: Served) -> None:
    """The server has just seen the token, and would believe it for five seconds more."""
    ci, admin = served.client(await served.token(name="ci")), served.client(await served.token("admin"))
    assert (await ci.get("/session")).status_code == 200

    revoked = await admin.post("/tokens/revoke", json={"token": "ci"})

    assert (revoked.status_code, (await ci.get("/session")).status_code) == (200, 401)


async def test_a_revoked_token_works_no_longer_than_it_is_known(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = served.client(await served.token("viewer", name="ci"))
    await client.get("/jobs")
    await served.app.arevoke_token("ci")

    known = await client.get("/jobs")
    monkeypatch.setattr("windlass.web.auth.asyncio", LaterLoop(auth.KNOWN_FOR))

    assert known.status_code == 200
    assert (await client.get("/jobs")).status_code == 401


class LaterLoop:
    """Stands for asyncio in auth.py: its loop's clock is some seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self._time, self._seconds = asyncio.get_running_loop().time, seconds

    def get_running_loop(self) -> LaterLoop:
        return self

    def time(self) -> float:
        return self._time() + self._seconds


@pytest.mark.usefixtures("forgetful")
async def test_an_expired_token_is_refused(served: Served) -> None:
    made = await served.app.acreate_token("short", role="admin", expires="1h")
    client = served.client(made.secret)
    before = await client.get("/jobs")

    execute(served.app, "UPDATE windlass.tokens SET expires_at = created_at")

    assert before.status_code == 200
    assert_refused(await client.get("/jobs"), "windlass token list")


async def test_a_token_in_the_address_is_not_accepted(served: Served) -> None:
    secret = await served.token("admin")

    for name in ("token", "access_token", "authorization", "windlass_token"):
        assert (await served.client().get("/jobs", params={name: secret})).status_code == 401
    for scheme in ("Basic", "Token", "wl"):
        assert (await served.client(authorization=f"{scheme} {secret}").get("/jobs")).status_code == 401


# The local door


async def test_the_local_door_is_open_until_there_is_a_token(
    app: Windlass, open_door: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "KNOWN_FOR", -1.0)
    client = open_door.client()
    desk = await client.post("/gates/pause", json={"kind": "queue", "name": "mail"})

    await open_door.token("viewer", name="first")
    closed = await client.get("/jobs")
    await app.arevoke_token("first")
    still_closed = await client.get("/jobs")

    assert (desk.status_code, closed.status_code, still_closed.status_code) == (200, 401, 401)
    assert [row.actor for row in await app.aaudit(action="GATE_PAUSED")] == [user_and_host()]


async def test_the_local_door_is_closed_where_a_token_was_before_the_start(app: Windlass) -> None:
    await app.acreate_token("first", role="viewer")

    async with serving(app, local=True) as served:
        assert (await served.client().get("/jobs")).status_code == 401


async def test_the_local_door_is_not_for_what_a_proxy_forwards(open_door: Served) -> None:
    assert (await open_door.client().get("/jobs")).status_code == 200
    for header in ("x-forwarded-for", "x-forwarded-host", "x-real-ip", "forwarded"):
        assert (await open_door.client(**{header: "127.0.0.1"}).get("/jobs")).status_code == 401, header


async def test_the_local_door_is_not_for_a_foreign_host(app: Windlass) -> None:
    async with serving(app, local=True, hosts=("jobs.example.org",)) as served:
        assert (await served.client(host="jobs.example.org").get("/jobs")).status_code == 401
        assert (await served.client(host="evil.example.org").get("/jobs")).status_code == 421
        assert (await served.client(host="localhost:80").get("/jobs")).status_code == 200


# Roles


async def test_a_viewer_reads_everything_and_changes_nothing(served: Served) -> None:
    client = served.client(await served.token("viewer"))
    job = await enqueue(served)
    before = dump(served.app)

    statuses = {name: (await call(client, name, job)).status for name in await operations(served)}

    changing = {name for name in statuses if not name.startswith("GET")} - SESSION
    denied = {name for name, status in statuses.items() if status == 403}
    assert denied == changing | {"GET /tokens"}
    assert all(statuses[name] in (200, 404, 422) for name in set(statuses) - denied - SESSION)
    assert dump(served.app) == before


async def test_an_operator_is_no_admin(served: Served) -> None:
    client = served.client(await served.token("operator"))
    job = await enqueue(served)

    statuses = {name: (await call(client, name, job)).status for name in await operations(served)}

    assert {name for name, status in statuses.items() if status == 403} == ADMIN_ONLY
    assert all(status < 500 for status in statuses.values())


async def test_an_admin_may_call_every_route(served: Served) -> None:
    client = served.client(await served.token("admin"))
    job = await enqueue(served)

    statuses = {name: (await call(client, name, job)).status for name in await operations(served)}

    assert {name for name, status in statuses.items() if status in (401, 403) or status >= 500} == {"POST /session"}


def test_every_method_of_the_service_has_a_permission() -> None:
    methods = {
        name: method for name, method in inspect.getmembers(ApiService, inspect.isfunction) if not name.startswith("_")
    }

    assert [name for name, method in methods.items() if permission_of(method) is None] == []
    assert len(methods) > 30


# Sessions


async def test_a_page_trades_its_token_for_a_cookie(served: Served) -> None:
    secret = await served.token("operator", name="page")
    page = served.client(**{"sec-fetch-site": "same-origin", "origin": served.origin})

    begun = await page.post("/session", json={"token": secret})
    cookie = begun.headers["set-cookie"].lower()
    read, written = await page.get("/session"), await page.post("/jobs", json=SAMPLES["POST /jobs"]["json"])
    ended = await page.delete("/session")

    who = begun.json()
    assert (who["name"], who["role"], who["tenant"]) == ("page", "operator", None)
    assert who["store"].startswith(("sqlite · ", "postgresql · "))
    assert secret not in begun.text
    assert {"httponly", "samesite=strict"} <= {each.strip() for each in cookie.split(";")}
    assert "domain" not in cookie
    assert (read.json()["name"], written.status_code, ended.status_code) == ("page", 202, 204)
    assert not page.cookies
    assert (await page.get("/session")).status_code == 401


async def test_a_session_ends_although_the_prefix_is_newer_than_its_cookie(app: Windlass) -> None:
    async with serving(app, root_path="/board") as behind:
        page = behind.client(**{"sec-fetch-site": "same-origin", "origin": behind.origin})
        page.cookies.set("windlass_token", await behind.token("viewer"), domain="127.0.0.1", path="/")
        assert (await page.get("/session")).status_code == 200

        ended = await page.delete("/session")

        paths = {each.split("Path=")[1].split(";")[0] for each in ended.headers.get_list("set-cookie")}
        assert paths == {"/", "/board"}
        assert (await page.get("/session")).status_code == 401


async def test_a_wrong_token_begins_no_session(served: Served) -> None:
    page = served.client()

    begun = await page.post("/session", json={"token": "wl_" + "x" * 43})

    assert_refused(begun, "windlass token list")
    assert "set-cookie" not in begun.headers


async def test_a_page_of_another_site_uses_no_cookie(served: Served) -> None:
    secret = await served.token("operator")
    page = served.client(**{"sec-fetch-site": "cross-site"})
    page.cookies.set("windlass_token", secret)

    assert (await page.post("/jobs", json=SAMPLES["POST /jobs"]["json"])).status_code == 403
    assert await served.app.ajobs() == []


async def test_a_stream_of_a_page_lives_on_behind_a_proxy_with_its_own_password(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BEAT", 0.01)
    page = served.client(authorization="Basic YW5uOnNlY3JldA==")
    page.cookies.set("windlass_token", await served.token("viewer"))
    asked: list[bool] = []
    find = auth.Doors.find

    async def ask(doors: auth.Doors, secret: str) -> Caller | None:
        caller = await find(doors, secret)
        asked.append(caller is not None)
        return caller

    monkeypatch.setattr(auth.Doors, "find", ask)
    async with page.stream("GET", "/stream", params={"list": "jobs"}) as stream:
        assert stream.status_code == 200
        await until_true(lambda: len(asked) >= 4 or False in asked)

    assert set(asked) == {True}


# Actors


async def enqueue(served: Served, to: str = "ann", tenant: str = "a") -> str:
    client = served.client(await served.token("operator", name=f"seed-{uuid4()}"))
    answer = await client.post("/jobs", json={"type": "send", "input": {"to": to}, "tenant": tenant})
    return str(answer.json()["id"])


CHANGES = (
    ("POST /jobs/{id}/retry", "failed"),
    ("POST /jobs/{id}/replay", "dead"),
    ("POST /jobs/{id}/cancel", "dead"),
    ("POST /jobs/{id}/resume", "dead"),
    ("POST /jobs/{id}/rerun", "done"),
    ("POST /jobs/{id}/reveal", "done"),
    ("POST /jobs/{id}/discard", "dead too"),
    ("POST /jobs/{id}/signal", "waits"),
    ("POST /jobs/bulk", ""),
    ("POST /gates/pause", ""),
    ("POST /gates/resume", ""),
    ("POST /limits/hold", ""),
    ("POST /limits/release", ""),
    ("PUT /budgets", ""),
    ("DELETE /budgets", ""),
    ("PUT /tenants/weight", ""),
    ("POST /schedules/pause", ""),
    ("POST /schedules/resume", ""),
    ("POST /schedules/edit", ""),
    ("POST /schedules/reset", ""),
    ("POST /schedules/fire", ""),
    ("POST /schedules/forget", ""),
    ("POST /tokens", ""),
    ("POST /tokens/revoke", ""),
)
# The audit has no row per enqueue, since the job itself is the record, and a dry run changes nothing. The rows of a
# bulk action are those of its jobs, and follow the answer (tests/web/test_bulk.py). Letters need a broker
# (tests/web/test_letters.py).
UNRECORDED = {"POST /jobs", "POST /jobs/batch", "POST /jobs/{id}/dry-run", "POST /bulk", "POST /bulk/{id}/stop"}
UNRECORDED |= {"POST /letters/replay", "POST /letters/discard"}


async def test_every_change_names_its_actor(served: Served) -> None:
    client, app = served.client(await served.token("admin", name="ann")), served.app
    jobs = [
        {"type": "send", "input": {"to": "ann"}},
        {"type": "send", "input": {"to": "nowhere"}},
        *[{"type": "send", "input": {"to": "nowhere"}, "max_attempts": 1}] * 2,
        {"type": "approve", "input": {"who": "bob"}},
    ]
    stored = (await client.post("/jobs/batch", json={"jobs": jobs})).json()["jobs"]
    ids = dict(zip(("done", "failed", "dead", "dead too", "waits"), (job["id"] for job in stored), strict=True))
    states = (State.SUCCEEDED, State.FAILED, State.DEAD, State.DEAD, State.WAITING)
    async with app.worker():  # it also writes the rows of the schedule and of the limit's key
        for job, state in zip(ids, states, strict=True):
            await until(app, ids[job], state)
    changed: dict[str, int] = {}

    for operation, job in CHANGES:
        last = (await app.aaudit(count=1))[0].number
        changed[operation] = (await call(client, operation, ids.get(job, ""))).status
        rows = [row for row in await app.aaudit(count=10) if row.number > last]
        assert rows, f"{operation} answers {changed[operation]} and has no row in the audit"
        assert {row.actor for row in rows} == {"ann"}, operation

    assert all(status < 300 for status in changed.values()), changed
    changing = {name for name in await operations(served) if not name.startswith("GET")} - SESSION
    assert changing == set(changed) | UNRECORDED


async def until(app: Windlass, id: str, state: State) -> None:
    """Return when a job is in a state; the suite's own limit ends a story in which it never is."""
    async with asyncio.timeout(PATIENCE):
        while (await app.astates([id]))[UUID(id)].state is not state:
            pass
