"""Attacks on the running server: other sites' pages, foreign hosts, endless bodies and headers, SQL, absurd sizes."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any
from uuid import uuid4

import pytest

from windlass import Windlass
from windlass.web import guard, server

from .raw import connected, request, until_true
from .rig import Served, serving
from .samples import NEW, call, operations
from .tables import dump, execute

MEGABYTE = 1024 * 1024
ENQUEUE = json.dumps(NEW).encode()


@pytest.fixture
async def token(served: Served) -> str:
    return await served.token("admin")


async def healthy(served: Served, token: str) -> bool:
    return (await served.client(token).get("/session")).status_code == 200


# Pages of other sites

FOREIGN = [
    {"origin": "http://evil.example.org"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://["},
    {"origin": "http://127.0.0.1.evil.example.org"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site", "origin": "http://127.0.0.1"},
    {"sec_fetch_site": "CROSS-SITE"},
]


async def test_a_page_of_another_site_changes_nothing(served: Served, token: str) -> None:
    for headers in FOREIGN:
        for way in ({"token": token}, {"cookie": f"windlass_token={token}"}):
            async with connected(served) as raw:
                await raw.send(request("POST", "/jobs", body=ENQUEUE, **way, **headers))
                status, body = await raw.answer()
            assert status == 403, headers
            assert b"another site" in body
    assert await served.app.ajobs() == []


async def test_a_page_of_the_own_site_and_a_program_may_change(served: Served, token: str) -> None:
    own: list[dict[str, str]] = [{}, {"origin": "http://127.0.0.1"}, {"sec_fetch_site": "same-origin"}]
    for headers in own:
        async with connected(served) as raw:
            await raw.send(request("POST", "/jobs", token, ENQUEUE, **headers))
            assert (await raw.answer())[0] == 202, headers


async def test_no_read_changes_anything(served: Served, token: str) -> None:
    client = served.client(token)
    job = (await client.post("/jobs", json=NEW)).json()["id"]
    before = dump(served.app)

    statuses = {name: (await call(client, name, job)).status for name in await operations(served) if name[:3] == "GET"}

    assert dump(served.app) == before
    assert set(statuses.values()) <= {200, 404}
    assert len(statuses) > 20


async def test_a_name_that_was_pointed_here_is_refused(app: Windlass) -> None:
    hosts = {
        "evil.example.org": 421,
        "jobs.example.org": 200,
        "JOBS.example.org.:80": 200,
        "": 421,
        "127.0.0.1.x.org": 421,
    }
    hosts |= {"localhost": 200, "[::1]:80": 200, "127.0.0.1": 200, "[": 421, "169.254.169.254": 421, "0.0.0.0": 421}

    async with serving(app, local=True, hosts=("jobs.example.org",)) as served:
        token = await served.token("admin")
        for host, expected in hosts.items():
            async with connected(served) as raw:
                text = request("GET", "/session", token).replace(b"127.0.0.1", host.encode())
                await raw.send(text)
                status, body = await raw.answer()
            assert status == expected, host
            assert status == 200 or b"--allow-host" in body


# Bodies and headers


async def test_a_large_body_is_refused_before_it_is_read(served: Served, token: str) -> None:
    async with connected(served) as raw:
        await raw.send(request("POST", "/jobs", token, content_length=str(50 * MEGABYTE)))  # and not a byte of it
        status, body = await raw.answer()

    assert status == 413, body
    assert await healthy(served, token)


async def test_a_body_without_a_length_ends_at_the_limit(served: Served, token: str) -> None:
    chunk = b"%x\r\n" % 65_536 + b" " * 65_536 + b"\r\n"
    tracemalloc.start()
    async with connected(served) as raw:
        await raw.send(request("POST", "/jobs", token, transfer_encoding="chunked"))
        for _ in range(1 + guard.LARGEST_BODY // 65_536):
            await raw.send(chunk)
        status, body = await raw.answer()
        for _ in range(20 * MEGABYTE // 65_536):
            await raw.send(chunk)  # what follows is dropped
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert status == 413, body
    assert peak < 8 * guard.LARGEST_BODY
    assert await healthy(served, token)


async def test_a_compressed_body_is_refused(served: Served, token: str) -> None:
    for encoding in ("gzip", "br", "identity, gzip", "GZIP"):
        async with connected(served) as raw:
            await raw.send(request("POST", "/jobs", token, ENQUEUE, content_encoding=encoding))
            assert (await raw.answer())[0] == 415, encoding


async def test_a_body_that_drips_is_refused_and_then_cut_off(
    served: Served, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_WITHIN", 0.05)
    monkeypatch.setattr(server, "HEADERS_WITHIN", 0.05)
    async with connected(served) as raw:
        await raw.send(request("POST", "/jobs", token, content_length=str(guard.LARGEST_BODY)) + b" ")
        status, body = await raw.answer()
        await drip(served, raw)

    assert status == 408, body
    assert await healthy(served, token)


async def test_headers_that_drip_are_cut_off(served: Served, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADERS_WITHIN", 0.05)
    for begin in (b"", b"GET /api/v1/ses", request("GET", "/session", token) + b"GET /api/v1/session HTTP/1.1\r\n"):
        async with connected(served) as raw:
            await raw.send(begin)
            await drip(served, raw)
    assert await healthy(served, token)


async def drip(served: Served, raw: Any) -> None:
    """Send a byte again and again until the server has closed the connection."""

    def gone() -> bool:
        raw.writer.write(b"x")
        return not served.server.server_state.connections

    await until_true(gone)


# SQL and absurd sizes

SQL = "'; DROP TABLE windlass.jobs; DROP TABLE windlass_jobs; --"


async def test_sql_in_names_keys_and_filters_is_text(served: Served, token: str) -> None:
    client = served.client(token)
    job = {**NEW, "queue": SQL, "tenant": SQL, "key": SQL, "input": {"to": SQL}}
    stored = (await client.post("/jobs", json=job, headers={"idempotency-key": SQL})).json()["id"]
    quoted = json.dumps(SQL)
    await client.put("/tenants/weight", json={"tenant": SQL, "weight": 2})
    await client.post("/gates/pause", json={"kind": "queue", "name": SQL, "reason": SQL})

    for field in ("queue", "tenant", "key", "input.to", "-type", "-error"):
        page = await client.get("/jobs", params={"filter": f"{field}:{quoted}"})
        assert [each["id"] for each in page.json()["jobs"]] == [stored], field
    odd = [
        f'input."{SQL}":1',
        f"input.{quoted}.{quoted}:*",
        "queue:%",
        "queue:*'*",
        "error:%",
        "key:_",
        f"reason:{quoted}",
    ]
    for filter in odd:
        assert (await client.get("/jobs", params={"filter": filter})).status_code in (200, 422), filter
    for path, name in (("/audit", "actor"), ("/audit", "tenant"), ("/limits", "name"), ("/figures", "queue")):
        assert (await client.get(path, params={name: SQL})).status_code == 200
    for path, name in (("/limits/use", "key"), ("/schedules/ticks", "name")):
        assert (await client.get(path, params={name: SQL})).status_code == 404

    assert execute(served.app, "SELECT count(*) FROM windlass.jobs") == [(1,)]
    assert [gate.name for gate in await served.app.agates()] == [SQL]


ABSURD: list[tuple[str, dict[str, Any]]] = [
    ("/jobs", {"count": "1e9"}),
    ("/jobs", {"count": 10**9}),
    ("/jobs", {"count": 0}),
    ("/jobs", {"count": 2**64}),
    ("/jobs", {"below": "x"}),
    ("/jobs", {"filter": "a" * 3_000}),
    ("/jobs", {"filter": "state:dead " * 1_000}),
    ("/jobs", {"filter": "state:dead " * 100}),
    ("/jobs", {"filter": "queue:" + ",".join("abc" for _ in range(400))}),
    ("/jobs", {"filter": "queue:a\0b"}),
    ("/jobs", {"filter": "input" + ".a" * 500 + ":1"}),
    ("/jobs", {"filter": f"priority:{10**25}"}),
    ("/audit", {"below": 2**64}),
    ("/audit", {"actor": "a\0b"}),
    ("/audit", {"count": -1}),
    ("/figures", {"since": "9" * 30 + "d"}),
    ("/figures", {"since": "1h", "step": "0"}),
    ("/limits/use", {"key": ""}),
    ("/schedules/ticks", {"name": "x" * 1_000}),
    ("/stream", {"list": "jobs", "filter": "a" * 3_000}),
    ("/stream", {"list": "everything"}),
    ("/stream", {}),
    (f"/jobs/{uuid4()}/result", {"timeout": "inf"}),
    (f"/jobs/{uuid4()}/result", {"timeout": "nan"}),
    (f"/jobs/{uuid4()}/result", {"timeout": 10**9}),
]


async def test_absurd_questions_are_refused(served: Served, token: str) -> None:
    client = served.client(token)

    for path, params in ABSURD:
        answer = await client.get(path, params=params)
        assert answer.status_code == 422, (path, params, answer.text[:200])
    resumed = await client.get("/stream", params={"list": "jobs"}, headers={"last-event-id": "9" * 5_000})
    assert resumed.status_code == 422


WORSE: list[tuple[str, str]] = [
    ("/jobs/{id}/signal", '{"name": "answer", "value": "\\ud800"}'),
    ("/jobs/{id}/signal", '{"name": "answer", "value": "\\u0000"}'),
    ("/jobs/{id}/signal", '{"name": "answer", "value": NaN}'),
    ("/jobs/{id}/signal", '{"name": "answer", "value": 1e999}'),
    ("/jobs/{id}/signal", '{"name": "a\\u0000", "value": 1}'),
    ("/jobs/{id}/rerun", '{"input": {"to": "\\u0000"}}'),
    ("/jobs/{id}/rerun", '{"input": {"to": "\\ud800"}}'),
    ("/jobs/{id}/rerun", '{"input": {"to": "ann", "n": 18446744073709551616}}'),
    ("/jobs/bulk", '{"verb": "cancel", "filter": "queue:\\u0000"}'),
    ("/jobs/bulk", '{"verb": "cancel", "filter": "queue:\\ud800"}'),
    ("/jobs/bulk", '{"verb": "claim"}'),
    ("/gates/pause", '{"kind": "queue", "name": "\\ud800"}'),
    ("/gates/pause", '{"kind": "queue", "name": "a", "reason": "a\\u0000b"}'),
    ("/limits/hold", '{"key": "\\u0000", "seconds": 1}'),
    ("/limits/hold", '{"key": "\\ud800", "seconds": 1}'),
    ("/limits/hold", '{"key": "host", "seconds": NaN}'),
    ("/limits/hold", '{"key": "host", "seconds": 1e300}'),
    ("/limits/release", '{"key": "a\\u0000"}'),
    ("/schedules/edit", '{"name": "nightly", "cron": "\\u0000 3 * * *"}'),
    ("/schedules/edit", '{"name": "nightly", "cron": "* * * * * * * * *"}'),
    ("/schedules/edit", '{"name": "nightly", "every": NaN}'),
    ("/schedules/pause", '{"name": "nightly", "reason": "\\ud800"}'),
    ("/tokens", '{"name": "x", "role": "admin", "tenant": "a"}'),
    ("/tokens", '{"name": "x", "role": "viewer", "expires_in": NaN}'),
    ("/tokens", '{"name": "x", "role": "viewer", "expires_in": 1e300}'),
    ("/tokens/revoke", '{"token": "\\u0000"}'),
]


async def test_absurd_bodies_are_refused(served: Served, token: str) -> None:
    client = served.client(token)
    job = (await client.post("/jobs", json={"type": "approve", "input": {"who": "ann"}})).json()["id"]
    async with served.app.worker():  # it declares the limit before it claims; the schedule it may not come to
        pass
    for change in ("pause", "resume"):  # a change of a schedule declares it
        assert (await client.post(f"/schedules/{change}", json={"name": "nightly"})).status_code == 200
    before, headers = dump(served.app), {"content-type": "application/json"}

    for path, body in WORSE:
        answer = await client.post(path.replace("{id}", job), content=body, headers=headers)
        assert answer.status_code == 422, (path, body, answer.status_code, answer.text[:200])
    budgets = '{"kind": "tenant", "name": "a", "cents": 18446744073709551616, "per": "day"}'
    assert (await client.put("/budgets", content=budgets, headers=headers)).status_code == 422
    assert dump(served.app) == before
