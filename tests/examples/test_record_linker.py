"""examples/record_linker on both stores and over both brokers, against a stand-in for Wikidata."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

import with_redis
from servers import url_of

from .conftest import EXAMPLES

sys.path.append(str(EXAMPLES / "record_linker"))

from wikidata_server import WikidataServer, born, entities

SCALE = float(os.environ.get("WINDLASS_TEST_SCALE", "1"))
COUNT = 10_000 if SCALE >= 10 else 1_000 if SCALE > 1 else 15
PATIENCE = 60.0 + COUNT / 2  # seconds until a story gives up

pytestmark = [pytest.mark.usefixtures("on_path"), pytest.mark.long]


class Linker:
    """The application's API with its worker, and the stand-in."""

    def __init__(self, http: TestClient, module: Any, server: WikidataServer) -> None:
        self.http, self.module, self.app, self.server = http, module, module.app, server

    def project(self, names: list[str]) -> str:
        """A project with these names; the path of its routes."""
        path = f"/projects/{self.http.post('/projects', json={'name': 'Ropes'}).json()['id']}"
        rows = [f"{name},{born(name)},{born(name) + 60},a person" for name in names]
        answer = self.http.post(f"{path}/entries", content="\n".join(["\ufeffname,born,died,description", *rows]))
        assert answer.json() == {"entries": len(names)}
        return path

    def match(self, path: str) -> int:
        answer = self.http.post(f"{path}/match")
        assert answer.status_code == 202, answer.text
        return int(answer.json()["jobs"])

    def ended(self, path: str) -> dict[str, dict[str, Any]]:
        """The tasks by the names of their entries, when none is QUEUED any more."""
        until(lambda: "QUEUED" not in self.http.get(path).json()["tasks"])
        tasks: list[dict[str, Any]] = []
        above = 0
        while page := self.http.get(f"{path}/tasks", params={"above": above, "count": 1_000}).json():
            tasks, above = tasks + page, page[-1]["id"]
        return {task["name"]: task for task in tasks}

    def is_quiet(self) -> bool:
        return not self.app.jobs("state:queued,running,failed,waiting type:entity.match", count=1)

    @contextmanager
    def held(self) -> Iterator[list[str]]:
        """Requests are logged and not answered until the block ends. Gives what they are about."""
        inside: list[str] = []
        gate, admit = threading.Event(), self.server.admit

        def wait(action: str, about: str, agent: str, most: int) -> int:
            status = admit(action, about, agent, most)
            inside.append(about)
            gate.wait(PATIENCE)
            return status

        self.server.admit = wait  # type: ignore[method-assign]
        try:
            yield inside
        finally:
            self.server.admit = admit  # type: ignore[method-assign]
            gate.set()

    def execute(self, statement: Any) -> None:
        async def run() -> None:
            async with self.module.engine.begin() as connection:
                await connection.execute(statement)

        assert self.http.portal is not None
        self.http.portal.call(run)


def until(read: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (value := read()):
        assert time.monotonic() < end, "the story waited too long"
        time.sleep(0.05)
    return value


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, url: str, broker: str = "", **fates: Any) -> Iterator[Linker]:
    given = {"WINDLASS_URL": url, "LINKER_WIKIDATA_TOKEN": "secret", "WINDLASS_POLL": "200ms"}
    if broker:  # and nothing else brings a job to the worker
        given |= {"WINDLASS_BROKER": broker, "WINDLASS_FALLBACK": "10m"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with WikidataServer(**fates) as server:
        monkeypatch.setenv("LINKER_WIKIDATA_URL", server.url)
        module = importlib.import_module("linker")
        with TestClient(module.api) as http:
            yield Linker(http, module, server)


def is_failed(job: Any) -> bool:
    return bool(job.status() == "failed")


def is_right(task: dict[str, Any]) -> bool:
    return (task["status"], task["entity"]) == ("COMPLETED", list(entities(task["name"]))[1])


@pytest.fixture(params=["amqp", "redis"])
def broker(request: pytest.FixtureRequest) -> str:
    """The URL of a part of a broker that no other story uses."""
    if request.param == "amqp":
        return f"{url_of('amqp').rstrip('/')}/?prefix=t{uuid4().hex[:12]}"
    return f"{url_of('redis').removesuffix('/0')}/{uuid4().int % (with_redis.DATABASES - 1) + 1}"


def test_all_records_are_matched_at_the_rate_whatever_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Given a peer that refuses some requests, when a project is matched twice, each record has one job."""
    names = [f"Record {n}" for n in range(COUNT)]
    with running(monkeypatch, url, busy=500 if SCALE > 1 else 20, retry_after="1") as linker:
        path = linker.project([*names, "Unknown Person"])
        first, second = linker.match(path), linker.match(path)
        found = linker.ended(path)
        until(linker.is_quiet)
        ended = linker.app.jobs("type:entity.match", count=1_000)
        log, most, most_in_a_second = linker.server.log, linker.server.most(0.25), linker.server.most()

    assert (first, second) == (COUNT + 1, 0)
    assert [name for name in names if not is_right(found[name])] == []
    assert (found["Unknown Person"]["status"], found["Unknown Person"]["entity"]) == ("COMPLETED", None)
    assert found["Record 0"]["candidates"][0]["id"] == found["Record 0"]["entity"]
    assert {(row.status, row.attempt) for row in ended} == {("succeeded", 1)}, "a 429 burns no attempt"
    refused = [request.at for request in log if request.status == 429]
    assert refused
    assert not [1 for at in refused for request in log if at + 0.5 < request.at < at + 1.0], "the peer is left alone"
    assert {request.agent.partition("/")[0] for request in log} == {"record_linker"}
    assert most_in_a_second <= 50
    assert most <= 20, "in a quarter of a second there are 11, and some more where the machine is slow"


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_brokers_carry_the_jobs(monkeypatch: pytest.MonkeyPatch, url: str, broker: str) -> None:
    count = COUNT if SCALE > 1 else 4
    with running(monkeypatch, url, broker, busy=500 if SCALE > 1 else 6, retry_after="1") as linker:
        path = linker.project([f"Record {n}" for n in range(count)])
        assert linker.match(path) == count
        assert sum(map(is_right, linker.ended(path).values())) == count
        assert linker.server.most() <= 50


def test_a_project_is_deleted_and_another_cancelled_in_the_middle(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    names = [f"Record {n}" for n in range(20)]
    with running(monkeypatch, url) as linker:
        deleted, cancelled = linker.project(names), linker.project(names)
        assert (linker.match(deleted), linker.match(cancelled)) == (20, 20)
        with linker.held() as inside:
            until(lambda: len(inside) >= 10)
            gone = linker.http.delete(deleted)
            stopped = linker.http.post(f"{cancelled}/cancel").json()["cancelled"]
        until(linker.is_quiet)
        found = linker.ended(cancelled)
        states = {state.value: count for state, count in linker.app.counts().items() if count}
        again = linker.match(cancelled)
        assert all(map(is_right, linker.ended(cancelled).values()))
        routes = [("GET", ""), ("POST", "/match"), ("POST", "/cancel"), ("DELETE", "")]
        missing = [linker.http.request(method, deleted + path).status_code for method, path in routes]

    assert (gone.status_code, stopped, again) == (204, 20, 20)
    assert {task["status"] for task in found.values()} == {"CANCELLED"}
    assert states == {"succeeded": 40}, "a job whose task is gone or cancelled has nothing to do"
    assert missing == [404] * 4


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_match_right_after_a_cancel_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """The race: a match finds the job of a cancelled task unfinished while that job is about to do nothing."""
    with running(monkeypatch, url) as linker:
        path, tasks = linker.project(["Record 1"]), linker.module.tasks
        linker.match(path)

        async def match_again() -> None:
            async with linker.module.engine.begin() as connection:
                await connection.execute(sa.update(tasks).values(status="QUEUED"))
                gate.__exit__(None, None, None)
                while not await connection.scalar(sa.text(BLOCKED)):
                    await connection.execute(sa.text("SELECT pg_stat_clear_snapshot()"))

        gate = linker.held()
        inside = gate.__enter__()
        until(lambda: inside)
        linker.http.post(f"{path}/cancel")
        assert linker.http.portal is not None
        linker.http.portal.call(match_again)
        assert is_right(linker.ended(path)["Record 1"])


BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def test_what_wikidata_refuses_or_never_answers_is_failed(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with running(monkeypatch, url) as linker:
        statuses = {"Bad": 400, "Broken": 500, "Lost": 0}
        admit = linker.server.admit
        linker.server.admit = (  # type: ignore[method-assign]
            lambda action, about, agent, most: (
                statuses.get(about) or admit(action, about, agent, most) * (about != "Lost")
            )
        )
        path = linker.project([*statuses, "Record 1", "Cancelled"])
        linker.app.pause(type="entity.match", reason="first, an operator cancels one")
        linker.match(path)
        tasks = {task["name"]: task for task in linker.http.get(f"{path}/tasks").json()}
        linker.app.find(tasks["Cancelled"]["job_id"]).cancel()
        linker.app.resume(type="entity.match")
        for _ in range(2):  # instead of delays of 5 s and 30 s
            jobs = [linker.app.find(tasks[name]["job_id"]) for name in ("Broken", "Lost")]
            for job in jobs:
                until(functools.partial(is_failed, job))
                job.retry()
        found = linker.ended(path)
        attempts = {name: linker.app.find(found[name]["job_id"]).record().attempt for name in statuses}

    assert {name: task["status"] for name, task in found.items()} == {
        **dict.fromkeys(statuses, "FAILED"),
        "Record 1": "COMPLETED",
        "Cancelled": "CANCELLED",
    }
    assert attempts == {"Bad": 1, "Broken": 3, "Lost": 3}
    assert "Wikidata answered 400" in found["Bad"]["error"]
    assert "Wikidata answered 500" in found["Broken"]["error"]
    assert "RemoteProtocolError" in found["Lost"]["error"]


def test_the_sweep_gives_a_lost_task_one_job_again(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with running(monkeypatch, url) as linker:
        linker.app.pause(type="entity.match", reason="not part of this story")
        lost, live = linker.project(["Record 1", "Record 2"]), linker.project(["Record 3"])
        linker.match(live)
        tasks = linker.module.tasks
        linker.execute(sa.update(tasks).values(status="QUEUED"))  # as of a producer that stopped before it enqueued
        young = linker.app.find_schedule("sweep-tasks").fire().result(timeout=PATIENCE)
        linker.execute(sa.update(tasks).values(updated_at=sa.text("'2020-01-01 00:00:00'")))
        old = [linker.app.find_schedule("sweep-tasks").fire().result(timeout=PATIENCE) for _ in range(2)]
        linker.app.resume(type="entity.match")
        found = {**linker.ended(lost), **linker.ended(live)}

    assert (young, old) == (0, [2, 0])
    assert all(map(is_right, found.values()))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_csv_files_of_all_kinds_are_read_or_refused_in_words(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    good = "name;born\nÅsa Öberg;1901\n\n"
    bad = {
        "name\nÅsa\n".encode("latin-1"): (422, "line 2 is not in UTF-8"),
        b"": (422, "no column `name`"),
        b"born,died\n1,2\n": (422, "no column `name`"),
        b"name,born\n": (422, "no rows"),
        b"name,born\nAnn\nBob,1901\nEve,1,2\n": (422, "line 2 has 1 columns, and the first line 2; line 4 has 3"),
        b"name,born\n,1901\n": (422, "line 2: a name has 1 to 250 characters, not 0"),
        b'name,born\n"Ann,1901\n': (422, "unexpected end of data"),
        b'name\n"' + b"a" * 200_000 + b'"\n': (422, "line 2: field larger than field limit"),
        b"name\nAnn\0\n": (422, "NUL"),
        b"name\n" + b"\n" * 20 + b"a,b\n" * 20: (422, "and 10 lines more"),
        b"name\n" + b"a\n" * 1_000_000: (413, "100,000 rows at most"),
    }
    with running(monkeypatch, url) as linker:
        path = linker.project(["Ann"])
        for file in (good.encode(), good.encode("utf-8-sig"), good.encode("utf-16"), good.replace(";", "\t").encode()):
            assert linker.http.post(f"{path}/entries", content=file).json() == {"entries": 1}
        monkeypatch.setattr(linker.module, "LARGEST", 3_000_000)
        for file, (status, why) in bad.items():
            answer = linker.http.post(f"{path}/entries", content=file)
            assert (answer.status_code, why in answer.json()["detail"]) == (status, True), answer.text
        large = linker.http.post(f"{path}/entries", content=b"a" * 3_000_001)
        found = [task["name"] for task in linker.http.get(f"{path}/tasks").json()]

    assert (large.status_code, large.json()["detail"]) == (413, "a file has 3,000,000 bytes at most; split it")
    assert found == ["Ann", *["Åsa Öberg"] * 4], "of a refused file nothing is written"


async def test_a_retry_after_is_believed_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a peer that says nothing, nonsense or a lie, when it refuses again, each wait is longer."""
    with WikidataServer(busy=1) as server:
        monkeypatch.setenv("LINKER_WIKIDATA_URL", server.url)
        module = importlib.import_module("wikidata")
        now = [0.0]
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
        client = module.Wikidata()

        async def waits() -> float:
            with pytest.raises(module.Busy) as busy:
                await client.search("Ann")
            return float(busy.value.wait)

        found = []
        for told in ("0", "-5", "soon", "nan", "Wed, 18 Nov 1998 16:30:00 GMT", "20", "1e9", "1" * 30):
            server.retry_after = told
            found.append(await waits())
            now[0] += found[-1] / 2
            asked = len(server.log)
            assert await waits() == pytest.approx(found[-1] / 2)
            assert len(server.log) == asked, "while the peer wants to be left alone, it is not asked"
            now[0] += found[-1]
        await client.close()

    assert found == [1, 2, 4, 8, 16, 32, 3_600, 60]


def test_candidates_are_scored_by_name_dates_and_description() -> None:
    score, wikidata = importlib.import_module("scoring"), importlib.import_module("wikidata")
    entry = importlib.import_module("entries").Entry
    ada = wikidata.Entity("Q7259", ["Ada Lovelace", "Augusta Ada King"], "English mathematician", 1815, 1852)
    namesake = wikidata.Entity("Q1", ["Ada Lovelace"], "a street", None, None)

    wanted = entry("LOVELACE, Ada", "1815-12-10", "c. 1852", "mathematician")
    ranked = score.rank(wanted, [namesake, ada])

    assert [entity.id for _, entity in ranked] == ["Q7259", "Q1"]
    assert ranked[0][0] == 100
    assert ranked[1][0] < score.ENOUGH
    assert score.score(entry("Augusta Ada King"), ada) == 100
    assert score.score(entry("Ada Lovelace", "1900"), ada) == pytest.approx(66.7)
    assert score.score(entry("Grace Hopper"), ada) < 50
    assert [score.year_of(date) for date in ("10.12.1815", "1815", "unknown", "")] == [1815, 1815, None, None]
