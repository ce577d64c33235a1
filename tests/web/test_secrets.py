"""A secret in an input stays hidden in every answer, stream and log line, however the program repeats it."""

from __future__ import annotations

import json
import logging
import socket
from itertools import product
from typing import Any

import httpx2 as httpx
import pytest

from windlass import Context, Dead, State, Windlass
from windlass.declare.named_calls import NamedCall

from .rig import CANARY, Served, events, serving
from .test_doors import until

LISTS = ("overview", "figures", "jobs")


@pytest.fixture
async def jobs(served: Served) -> dict[str, str]:
    """Jobs that have ended: the secret is in the input of each, and in its output, its error or its reason."""
    app = served.app

    @app.job
    async def refuse(password: str) -> None:
        raise Dead(f"the server refused {password}")

    stored = await app.aenqueue_named(
        [
            NamedCall("send", {"to": "ann", "password": CANARY}),
            NamedCall("send", {"to": "nowhere", "password": CANARY}, {"max_attempts": 1}),
            NamedCall("refuse", {"password": CANARY}),
        ]
    )
    ids = [str(handle.id) for handle in stored]
    async with app.worker():
        for id, state in zip(ids, (State.SUCCEEDED, State.DEAD, State.DEAD), strict=True):
            await until(app, id, state)
    return dict(zip(("output", "error", "reason"), ids, strict=True))


async def everything_shown(served: Served, token: str, jobs: dict[str, str]) -> dict[str, str]:
    """The text of every answer and stream that shows a job."""
    client = served.client(token)
    shown: dict[str, str] = {}
    lists = ("/jobs", "/audit", "/schedules", "/types", "/tenants", "/limits", "/limits/use?key=host", "/workers")
    typed = ("error:", "reason:", "key:", "-error:", "-reason:", "-key:", "error:a,", "reason:a,", "key:a,")
    texts = tuple(f"/suggestions?text={text}" for text in typed)
    for path in (*lists, *texts, "/facets", "/errors", "/health", "/overview?range=1h"):
        shown[path] = (await client.get(path)).text
    for id in jobs.values():
        for part in ("", "/details", "/story", "/result", "/events"):
            shown[f"/jobs/{id}{part}"] = (await client.get(f"/jobs/{id}{part}")).text
    for name in LISTS:
        async with client.stream("GET", "/stream", params={"list": name}) as stream:
            shown[f"/stream {name}"] = repr(await anext(events(stream)))
    bulk = {"verb": "replay", "filter": "state:dead", "dry_run": True}
    shown["bulk"] = (await client.post("/jobs/bulk", json=bulk)).text
    return shown


async def test_a_secret_is_in_no_answer_and_in_no_log_line(
    served: Served, jobs: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    for role in ("viewer", "operator", "admin"):
        shown = await everything_shown(served, await served.token(role), jobs)
        assert {path for path, text in shown.items() if CANARY in text} == set(), role

    assert all("[redacted]" in shown[f"/jobs/{id}"] for id in jobs.values())
    assert CANARY not in caplog.text
    assert all(jobs[name] in shown["/stream jobs"] for name in jobs)  # the lists were not empty
    assert "cannot log in at nowhere with [redacted]" in shown["/errors"]


async def test_an_admin_reveals_it_and_the_audit_says_so(served: Served, jobs: dict[str, str]) -> None:
    admin, operator = [served.client(await served.token(role, name=role)) for role in ("admin", "operator")]
    path = f"/jobs/{jobs['error']}/reveal"

    refused = await operator.post(path)
    unseen = await served.app.aaudit(action="JOB_REVEALED")
    shown = await admin.post(path)

    assert (refused.status_code, unseen) == (403, [])
    assert shown.json()["input"]["password"] == CANARY
    assert CANARY in shown.json()["error"]["message"]
    rows = await served.app.aaudit(action="JOB_REVEALED")
    assert [(row.actor, str(row.job)) for row in rows] == [("admin", jobs["error"])]


async def test_only_an_admin_changes_what_stands_beside_a_hidden_value(served: Served, jobs: dict[str, str]) -> None:
    admin, operator = [served.client(await served.token(role, name=role)) for role in ("admin", "operator")]
    path, edited = f"/jobs/{jobs['output']}", {"input": {"to": "evil", "password": "[redacted]"}}

    for verb in ("dry-run", "rerun"):
        refused = await operator.post(f"{path}/{verb}", json=edited)
        assert (refused.status_code, refused.json()["path"]) == (422, "$.password")
        unchanged = {"input": {"to": "ann", "password": "[redacted]"}}
        assert (await operator.post(f"{path}/{verb}", json=unchanged)).is_success
        assert (await admin.post(f"{path}/{verb}", json=edited)).is_success
    inputs = [row.input for row in await served.app.ajobs("type:send", count=2)]
    assert [json.loads(text) for text in inputs] == [{"to": to, "password": CANARY} for to in ("evil", "ann")]


async def test_a_parent_shows_no_secret_of_a_child_and_a_story_no_part_of_one(served: Served) -> None:
    """Given children whose errors repeat their input, one so late that its line in a story ends inside the secret."""

    @served.app.job(max_attempts=1)
    async def login(url: str, password: str) -> None:
        raise RuntimeError(url + password)

    @served.app.job(max_attempts=1)
    async def crawl(ctx: Context) -> None:
        await ctx.wait(ctx.spawn_many("login", [login.call(url, CANARY) for url in ("at ", "x" * 103)]))

    parent = await crawl.aenqueue()
    async with served.app.worker():
        await until(served.app, str(parent.id), State.DEAD)
        for child in await served.app.ajobs("type:login"):
            await until(served.app, str(child.id), State.DEAD)
    jobs = await served.app.ajobs("type:login,crawl")
    viewer = served.client(await served.token("viewer"))

    stories = {job.id: (await viewer.get(f"/jobs/{job.id}/story")).text for job in jobs}
    pages = [(await viewer.get(f"/jobs/{job.id}")).text for job in jobs]

    assert len(jobs) == 3
    assert not any(CANARY[:2] in text for text in (*stories.values(), *pages))
    assert "RuntimeError: at [redacted]" in stories[parent.id]


async def test_a_refusal_and_a_dry_run_show_no_secret_that_a_key_repeats(served: Served) -> None:
    """Given a dead job whose unique key is its password, and another job that holds the key now."""

    @served.app.job(unique="password", max_attempts=1)
    async def login(password: str, wait: str = "") -> None:
        raise Dead("no")

    dead = await login.aenqueue(CANARY)
    async with served.app.worker():
        await until(served.app, str(dead.id), State.DEAD)
    await login.options(delay="1h").aenqueue(CANARY, "more")
    operator = served.client(await served.token())

    tried = await operator.post(f"/jobs/{dead.id}/dry-run", json={})
    refused = [await operator.post(f"/jobs/{dead.id}/{verb}", json={}) for verb in ("replay", "rerun")]

    assert "key [redacted]" in tried.text
    assert [answer.status_code for answer in refused] == [409, 409]
    assert not any(CANARY in answer.text for answer in (tried, *refused))


GUESSES = [
    f"input.password:{CANARY[:4]}*",
    f"output.token:{CANARY}",
    f'input."password":"{CANARY}"',
    "-input.password:x",
]


@pytest.mark.usefixtures("jobs")
async def test_only_an_admin_filters_by_a_hidden_value(served: Served) -> None:
    admin, operator, viewer = [
        served.client(await served.token(role, name=role)) for role in ("admin", "operator", "viewer")
    ]

    for filter in GUESSES:
        for client in (viewer, operator):
            assert (await client.get("/jobs", params={"filter": filter})).status_code == 403
            assert (await client.get("/stream", params={"list": "jobs", "filter": filter})).status_code == 403
        bulk = await operator.post("/jobs/bulk", json={"verb": "replay", "filter": filter, "dry_run": True})

        assert bulk.status_code == 403
        assert (await admin.get("/jobs", params={"filter": filter})).json()["jobs"] != []


@pytest.mark.usefixtures("jobs")
async def test_without_the_right_to_reveal_a_guess_tells_nothing(served: Served) -> None:
    """Given a secret that an error and a reason repeat, when a filter guesses it, then it answers as to a miss."""

    async def seen(client: httpx.AsyncClient, filter: str, **params: Any) -> list[Any]:
        page = await client.get("/jobs", params={"filter": filter, **params})
        async with client.stream("GET", "/stream", params={"list": "jobs", "filter": filter}) as stream:
            snapshot = await anext(events(stream))
        counted = await client.get("/facets", params={"filter": filter})
        suggested = await client.get("/suggestions", params={"text": f"{filter} state:"})
        bulk = await client.post("/jobs/bulk", json={"verb": "replay", "filter": filter, "dry_run": True})
        assert page.status_code == 200, page.text
        told = [page.json()["jobs"], page.json()["next"], snapshot.data["rows"], suggested.json()["suggestions"]]
        return [*told, counted.status_code, bulk.status_code, bulk.json().get("matched")]

    filters = (("error:{}", 1), ("error:with*{}", 2), ("reason:*{}*", 50))
    for role, bulk in (("viewer", (403, None)), ("operator", (200, 0))):
        client = served.client(await served.token(role))
        for begin, (filter, count) in product((CANARY[:3], CANARY, "*canary", "zzz"), filters):
            told = await seen(client, filter.format(begin), count=count)
            assert told == [[], None, {}, [], 403, *bulk], (role, filter, begin)


async def test_a_filter_finds_no_job_by_what_is_hidden_in_its_input(served: Served) -> None:
    """Given a secret in a URL, beside its name and in a text that repeats it, when a filter guesses it or excludes it,
    then the job is left out, and the one that hides nothing there is found."""

    @served.app.job
    async def visit(url: str, headers: list[dict[str, str]], names: dict[str, int], password: str) -> None: ...

    secret = {
        "url": f"http://u:{CANARY}@a.org",
        "headers": [{"name": "x-token", "value": CANARY}],
        "names": {CANARY: 1},
    }
    plain = {"url": "http://a.org", "headers": [{"name": "x-agent", "value": "b"}], "names": {"b": 1}}
    calls = [NamedCall("visit", {**each, "password": CANARY}, {"delay": "1h"}) for each in (secret, plain)]
    hides, shows = [str(job.id) for job in await served.app.aenqueue_named(calls)]
    viewer, operator, admin = [served.client(await served.token(role)) for role in ("viewer", "operator", "admin")]
    found = {
        "input.url:*a.org": [shows],
        "-input.url:zzz": [shows],
        "input.headers.0.value:*": [shows],
        "-input.headers.0.value:zzz": [shows],
        "input.names.b:1": [shows],
        "-input.names.b:zzz": [shows],
        f"input.url:*{CANARY[:3]}*": [],
        f"input.headers.0.value:{CANARY}": [],
        f"input.names.{CANARY}:1": [],
        "input.names.b:1..": [shows],
    }

    for filter, expected in found.items():
        for client in (viewer, operator):
            page = (await client.get("/jobs", params={"filter": f"type:visit {filter}"})).json()
            assert [job["id"] for job in page["jobs"]] == expected, filter
            live = (await client.get("/lists", params={"list": "jobs", "filter": f"type:visit {filter}"})).json()
            assert list(live["lists"]["jobs"]) == expected, filter
            counted = await client.get("/facets", params={"filter": filter})
            assert counted.status_code == (200 if ".." in filter else 403), filter
        bulk = await operator.post("/jobs/bulk", json={"verb": "cancel", "filter": filter, "dry_run": True})
        assert bulk.json()["matched"] == len(expected), filter
    everything = (await admin.get("/jobs", params={"filter": "input.url:*a.org"})).json()
    assert {job["id"] for job in everything["jobs"]} == {hides, shows}


async def test_only_an_admin_excludes_by_a_text_that_may_repeat_a_secret(served: Served) -> None:
    viewer, operator, admin = [served.client(await served.token(role)) for role in ("viewer", "operator", "admin")]

    for filter in (f"-error:{CANARY[:3]}", f"-reason:*{CANARY}*", "-key:x"):
        for client in (viewer, operator):
            assert (await client.get("/jobs", params={"filter": filter})).status_code == 403
            assert (await client.get("/stream", params={"list": "jobs", "filter": filter})).status_code == 403
            assert (await client.get("/suggestions", params={"text": f"{filter} state:"})).json()["suggestions"] == []
        assert (await admin.get("/jobs", params={"filter": filter})).status_code == 200


async def test_errors_are_found_and_changed_by_what_they_show(served: Served, jobs: dict[str, str]) -> None:
    viewer, operator = [served.client(await served.token(role)) for role in ("viewer", "operator")]

    for filter in ("error:valueError", 'error:"cannot log in"', f"error:nowhere,{CANARY}", "error:cannot*nowhere"):
        for client in (viewer, operator):
            for count in (1, 50):
                page = (await client.get("/jobs", params={"filter": filter, "count": count})).json()
                assert [job["id"] for job in page["jobs"]] == [jobs["error"]], filter
        body = {"verb": "replay", "filter": filter, "dry_run": True}
        assert (await operator.post("/jobs/bulk", json=body)).json()["matched"] == 1
    changed = await operator.post("/jobs/bulk", json={"verb": "discard", "filter": "error:cannot"})
    assert changed.json()["changed"] == 1
    assert (await operator.get(f"/jobs/{jobs['error']}")).status_code == 404


async def test_reasons_and_errors_without_a_secret_are_suggested_and_counted(served: Served) -> None:
    @served.app.job
    async def stop(why: str) -> None:
        raise Dead(f"robots.txt of {why}")

    job = await stop.aenqueue("example.org")
    async with served.app.worker():
        await until(served.app, str(job.id), State.DEAD)
    client = served.client(await served.token("viewer"))

    suggested, *_ = (await client.get("/suggestions", params={"text": "reason:robots"})).json()["suggestions"]
    errors = (await client.get("/suggestions", params={"text": "state:dead error:robots"})).json()["suggestions"]
    reasons = (await client.get("/facets", params={"filter": "state:dead"})).json()["reasons"]

    operator = served.client(await served.token("operator"))
    for filter, count in (("reason:exhausted", 0), ("-reason:exhausted,crashed state:dead", 1)):  # the engine's own
        counted = await operator.get("/facets", params={"filter": filter})
        assert (counted.status_code, counted.json()["count"]) == (200, count)
    assert (await operator.get("/facets", params={"filter": "reason:exhausted*"})).status_code == 403
    assert (suggested["text"], suggested["count"]) == ('reason:"robots.txt of example.org"', 1)
    assert errors[0]["count"] == 1
    assert reasons == {"robots.txt of example.org": 1}


@pytest.mark.parametrize("scheme", ["postgresql", "sqlite"])
async def test_the_address_of_the_database_is_in_no_answer(scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # closed again below: connections to it are refused
    url = (
        f"postgresql://worker:{CANARY}@127.0.0.1:{port}/jobs" if scheme == "postgresql" else f"sqlite:///{CANARY}/no.db"
    )
    app = Windlass(url)

    async with serving(app, local=True) as served:
        answers = [await served.client("wl_" + "x" * 43).get("/jobs"), await served.client().get("/jobs")]

    await app.aclose()
    assert {answer.status_code for answer in answers} == {503}
    assert all(answer.headers["retry-after"] == "2" for answer in answers)
    assert all(CANARY not in answer.text and str(port) not in answer.text for answer in answers)
    assert scheme == "sqlite" or CANARY not in caplog.text
