"""examples/atlas on both stores: mails through three providers, workflows, an hour offline, workers that are killed."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.testing import Harness, harness

from .conftest import EXAMPLES
from .test_link_library import PATIENCE, until

FOLDER = EXAMPLES / "atlas"
sys.path.append(str(FOLDER))

SCALE = float(os.environ.get("WINDLASS_TEST_SCALE", "1"))
MAILS, KILLS, CROWD = (2_000, 10, 3) if SCALE > 1 else (20, 1, 1)
STORES = ["sqlite", "postgres"] if SCALE > 1 else ["sqlite"]
KILLED = [(store, way) for store in STORES for way in ("smtp", "resend")] if SCALE > 1 else [("postgres", "resend")]
ACME, BOLT, OPERATOR = ({"Authorization": f"Bearer {name}-demo"} for name in ("acme", "bolt", "operator"))
ENDED = ("succeeded", "failed", "cancelled")

pytestmark = [pytest.mark.usefixtures("on_path"), pytest.mark.long]


class Atlas:
    """The API, the worker that the story steps, and the mail server."""

    def __init__(self, http: TestClient, windlass: Harness, mails: Any) -> None:
        self.http, self.windlass, self.mails = http, windlass, mails

    def enqueue(self, type: str, who: dict[str, str] = ACME, **order: Any) -> str:
        answer = self.http.post("/jobs", json={"jobType": type, **order}, headers=who)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def mail(self, to: str, **order: Any) -> str:
        return self.enqueue("EMAIL_SEND", input={"to": to, "subject": "Ropes", "text": "Hemp"}, **order)

    def show(self, id: str) -> dict[str, Any]:
        return dict(self.http.get(f"/jobs/{id}", headers=ACME).json())

    def run(self, id: str) -> dict[str, Any]:
        """Let the time pass until the job has ended."""
        while self.show(id)["status"] not in ENDED:
            self.windlass.drain()
            self.windlass.clock.advance("5s")
        return self.show(id)

    def save(self, name: str, *stages: list[dict[str, Any]]) -> Any:
        return self.http.put(f"/workflows/{name}", json=stages, headers=ACME)

    def audit(self, action: str) -> list[dict[str, Any]]:
        return list(self.http.get("/audit", params={"action": action}, headers=ACME).json())


@contextmanager
def running(
    monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path, provider: str = "smtp", **given: str
) -> Iterator[Atlas]:
    """The application on an empty database, with the mail server."""
    certificate = make_certificate(tmp_path) if provider == "graph" else None
    with importlib.import_module("mail_server").MailServer(certificate=certificate) as mails, ExitStack() as stack:
        given |= {"ATLAS_MAIL": provider, "SMTP_URL": mails.smtp, "RESEND_URL": mails.http, "RESEND_API_KEY": "key"}
        given |= {"GRAPH_URL": mails.http, "GRAPH_LOGIN": mails.http, "GRAPH_TENANT": "contoso"}
        given |= {"GRAPH_CLIENT_ID": "atlas", "GRAPH_CLIENT_SECRET": "secret", "WINDLASS_URL": url}
        if certificate is not None:
            given |= {"REQUESTS_CA_BUNDLE": str(certificate), "SSL_CERT_FILE": str(certificate)}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        module = importlib.import_module("atlas")
        windlass = stack.enter_context(harness(module.app, url if url.startswith("postgresql") else None))
        yield Atlas(stack.enter_context(TestClient(module.api)), windlass, mails)


def make_certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 and its key, in one file."""
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=stand-in -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", *request.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


@pytest.fixture
def atlas(monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path) -> Iterator[Atlas]:
    with running(monkeypatch, url, tmp_path) as atlas:
        yield atlas


def test_a_mail_is_sent_and_its_job_has_the_fields_of_the_seed(atlas: Atlas) -> None:
    body = {"to": "ann@example.org", "subject": "Röpes", "text": ".Hemp", "html": "<b>Hemp</b>"}
    id = atlas.enqueue("EMAIL_SEND", input=body, priority=5)
    fresh = atlas.show(id)
    atlas.windlass.drain()
    sent = atlas.show(id)

    empty: dict[str, Any] = {"output": {}, "error": {}, "nextRetryAt": None, "startedAt": None, "finishedAt": None}
    same = {"id": id, "tenantId": "acme", "jobType": "EMAIL_SEND", "priority": 5, "input": body, "maxRetries": 3}
    assert fresh == same | empty | {
        "status": "queued",
        "costCents": 0,
        "retryCount": 0,
        "createdAt": fresh["createdAt"],
    }
    assert (sent["status"], sent["costCents"], sent["error"], sent["nextRetryAt"]) == ("succeeded", 1, {}, None)
    assert sent["output"] == {"messageId": f"<{id}@atlas>", "provider": "smtp"}
    assert None not in (sent["startedAt"], sent["finishedAt"])
    assert atlas.mails.taken == [("smtp", id, "ann@example.org", "Röpes", ".Hemp")]
    assert [(row["job"], row["jobType"]) for row in atlas.audit("EMAIL_SENT")] == [(id, "EMAIL_SEND")]
    assert atlas.http.get(f"/jobs/{id}", headers=BOLT).status_code == 404
    assert atlas.http.get(f"/jobs/{id}").status_code == 401


def test_a_failed_mail_is_queued_again_and_failed_after_three_retries(
    atlas: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("SMTP_URL", f"smtp://127.0.0.1:{free.getsockname()[1]}")
    id, waits = atlas.mail("ann@example.org"), []
    for retries in (1, 2, 3):
        atlas.windlass.drain()
        shown = atlas.show(id)
        assert (shown["status"], shown["retryCount"], set(shown["error"])) == (
            *("queued", retries),
            {"message", "attemptedAt"},
        )
        due = datetime.fromisoformat(shown["nextRetryAt"])
        waits.append(round((due - atlas.windlass.clock.now()).total_seconds()))
        atlas.windlass.clock.advance_to(due)
    atlas.windlass.drain()

    shown = atlas.show(id)
    assert waits == [10, 20, 40]
    assert (shown["status"], shown["retryCount"], shown["nextRetryAt"], shown["output"]) == ("failed", 3, None, {})
    assert [row["job"] for row in atlas.audit("JOB_EXHAUSTED_RETRIES")] == [id]


def test_a_refused_recipient_is_final_and_wrong_input_never_gets_in(atlas: Atlas) -> None:
    id = atlas.mail("refused@example.org")
    (ran,) = atlas.windlass.drain()
    wrong = [
        ("EMAIL_SND", {}, "did you mean EMAIL_SEND?"),
        ("EMAIL_SEND", {"to": "ann", "subject": "x"}, "to"),
        ("EMAIL_SEND", {"to": "ann@example.org", "subject": "x\nBcc: all@example.org"}, "subject"),
        ("EMAIL_SEND", {"to": "ann@example.org", "subject": "x", "self": 1}, "self"),
        ("ENGINE_RUN", {"workflow": "none"}, "there are housekeeping, mail_report"),
        ("ENGINE_RUN", {"workflow": ["none"]}, "there are housekeeping, mail_report"),
        ("ENGINE_RUN", {}, "there are housekeeping, mail_report"),
    ]
    for type, input, word in wrong:
        answer = atlas.http.post("/jobs", json={"jobType": type, "input": input}, headers=ACME)
        assert (answer.status_code, word in answer.json()["detail"]) == (422, True), answer.text

    assert (ran.state, atlas.show(id)["status"]) == ("dead", "failed")
    assert "no such mailbox" in atlas.show(id)["error"]["message"]
    assert atlas.audit("JOB_DEAD")[0]["job"] == id
    assert sum(atlas.windlass.app.counts().values()) == 1


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # the store plays no part
@pytest.mark.parametrize("provider", ["smtp", "resend", "graph"])
def test_a_provider_that_fails_after_accepting_or_is_slow(
    monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path, provider: str
) -> None:
    """With Resend's keys there is one mail. SMTP and Graph send a second one, which has the same id of a job."""
    with running(monkeypatch, url, tmp_path, provider) as atlas:
        ids = {to: atlas.mail(f"{to}@example.org") for to in ("ann", "broken", "busy")}
        refused = atlas.run(atlas.mail("refused@example.org"))
        ids["slow"] = atlas.mail("slow@example.org")
        atlas.mails.slow = 3.0  # seconds; an SMTP client waits that long to say goodbye
        atlas.mails.tell = lambda mail: atlas.windlass.clock.advance("2m")  # past the time limit of the attempt
        ran = atlas.windlass.run_one(atlas.windlass.app.find(ids["slow"]))
        atlas.mails.slow, atlas.mails.tell = 0.0, lambda mail: None
        shown = {to: atlas.run(id) for to, id in ids.items()}

    again = 1 if provider == "resend" else 2
    copies = Counter(mail.key for mail in atlas.mails.taken)
    assert {each["status"] for each in shown.values()} == {"succeeded"}
    assert {to: copies[id] for to, id in ids.items()} == {"ann": 1, "broken": again, "busy": 1, "slow": again}
    assert ran.ending == "timeout"
    assert (refused["status"], "no such mailbox" in refused["error"]["message"]) == ("failed", True)
    assert [shown[to]["retryCount"] for to in ids] == [0, 1, 0, 1]
    assert {mail.way for mail in atlas.mails.taken} == {provider}


def test_a_workflow_creates_tasks_and_waits_for_them(atlas: Atlas) -> None:
    mail = {"to": "$tenant@example.org", "subject": "Report", "text": "$report; $purge"}
    first = [{"name": "report", "type": "REPORT_BUILD"}, {"name": "purge", "type": "MAIL_LOG_PURGE"}]
    inner = atlas.save("inner", first, [{"name": "mail", "type": "EMAIL_SEND", "input": mail}])
    outer = atlas.save("outer", [{"name": "inner", "type": "ENGINE_RUN", "input": {"workflow": "inner"}}])
    id = atlas.enqueue("ENGINE_RUN", input={"workflow": "outer"})
    atlas.windlass.run_one()
    waiting = atlas.show(id)["status"]
    ended = atlas.run(id)

    assert (inner.status_code, outer.status_code, waiting) == (200, 200, "running")
    assert ended["output"]["inner"]["report"] == {"text": "acme: 0 mails to 0 addresses in 7 days"}
    (mail,) = atlas.mails.taken
    assert (mail.to, mail.text) == ("acme@example.org", 'acme: 0 mails to 0 addresses in 7 days; {"deleted": 0}')


def test_a_workflow_whose_task_fails_is_failed_and_can_be_replayed(atlas: Atlas) -> None:
    atlas.save("greet", [{"name": "mail", "type": "EMAIL_SEND", "input": {"to": "refused@a.org", "subject": "x"}}])
    ended = atlas.run(atlas.enqueue("ENGINE_RUN", input={"workflow": "greet"}))

    assert ended["status"] == "failed"
    assert "its task mail ended dead" in ended["error"]["message"]
    assert "no such mailbox" in ended["error"]["message"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_workflow_that_cannot_run_is_refused_at_the_door(atlas: Atlas) -> None:
    def run(name: str) -> dict[str, Any]:
        return {"name": "run", "type": "ENGINE_RUN", "input": {"workflow": name}}

    assert atlas.save("b", [{"name": "purge", "type": "MAIL_LOG_PURGE"}]).status_code == 200
    assert atlas.save("a", [run("b")]).status_code == 200
    wrong: list[tuple[str, list[Any], str]] = [
        ("c", [[{"name": "x", "type": "EMAIL_SND"}]], "unknown type 'EMAIL_SND'"),
        ("c", [[run("c")]], "'c' would run itself without end: c → c"),
        ("b", [[run("a")]], "'b' would run itself without end: b → a → b"),
        ("c", [[run("$report")]], "there is no workflow '$report'"),
        ("c", [[run("none")]], "there is no workflow 'none'; there are a, b, c"),
        ("c", [[run("b")], [run("b")]], "two tasks of one name"),
        ("c", [[{"name": "x", "type": "MAIL_LOG_PURGE", "input": {"days": -1}}]], "days"),
        ("c", [[]], "at least 1 item"),
        ("c", [], "at least 1 item"),
    ]
    for name, stages, word in wrong:
        answer = atlas.save(name, *stages)
        assert (answer.status_code, word in answer.text) == (422, True), answer.text
    assert set(atlas.http.get("/workflows", headers=ACME).json()) == {"a", "b", "mail_report", "housekeeping"}
    assert set(atlas.http.get("/workflows", headers=BOLT).json()) == {"mail_report", "housekeeping"}


async def test_two_saves_at_the_same_moment_make_no_circle(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Given `a` that runs `b`, not committed yet, when `b` that runs `a` is saved, it waits for that commit."""
    monkeypatch.setenv("WINDLASS_URL", url)
    atlas, workflows = importlib.import_module("atlas"), importlib.import_module("workflows")

    def run(name: str) -> list[list[Any]]:
        return [[workflows.Task(name="run", type="ENGINE_RUN", input={"workflow": name})]]

    async def save(connection: AsyncConnection, name: str, stages: list[list[Any]]) -> None:
        await workflows.save_workflow(connection, "acme", name, stages)
        await connection.commit()

    async with atlas.open_tables() as state, state["engine"].connect() as first, state["engine"].connect() as second:
        for name in ("a", "b"):
            await save(first, name, workflows.BUILT_IN["housekeeping"])
        await workflows.save_workflow(first, "acme", "a", run("b"))
        other = asyncio.create_task(save(second, "b", run("a")))
        await asyncio.wait([other], timeout=0.2)  # a save that does not wait has ended by then, and the story fails
        await first.commit()
        with pytest.raises(workflows.Unusable, match="b → a → b"):
            await other


def test_an_hour_offline_leaves_one_run_of_each_scheduled_workflow(atlas: Atlas) -> None:
    switched = [atlas.http.put("/online", json={"online": False}, headers=who).status_code for who in (ACME, OPERATOR)]
    started = atlas.windlass.clock.now()
    id = atlas.mail("ann@example.org")
    ran = []
    while atlas.windlass.clock.now() < started + timedelta(hours=1):
        atlas.windlass.clock.advance("15m")
        ran += atlas.windlass.drain()
    waiting = Counter((job.tenant, job.arguments()["workflow"]) for job in atlas.windlass.jobs("ENGINE_RUN"))
    offline = atlas.http.get("/online").json()
    why = atlas.windlass.app.find(id).why()
    atlas.http.put("/online", json={"online": True}, headers=OPERATOR)
    ended = atlas.run(id)

    assert (switched, ran, offline) == ([401, 200], [], {"online": False})
    assert waiting == {(who, name): 1 for who in ("acme", "bolt") for name in ("mail_report", "housekeeping")}
    assert why is not None
    assert why.text == "queue atlas is paused by operator: atlas is offline"
    assert [gate.describe() for gate in atlas.windlass.app.gates() if gate.is_closed] == []
    assert ended["status"] == "succeeded"
    assert {mail.to for mail in atlas.mails.taken} >= {"owner@acme.example", "owner@bolt.example"}


def test_an_hour_without_workers_leaves_one_run_of_each_scheduled_workflow(atlas: Atlas) -> None:
    atlas.windlass.clock.advance("1h")
    ran = atlas.windlass.drain()

    runs = Counter((each.job.tenant, each.job.arguments()["workflow"]) for each in ran if each.job.parent is None)
    assert {count for key, count in runs.items() if key[1] == "housekeeping"} == {2}, "a start and one continuation"
    assert len(atlas.windlass.jobs("ENGINE_RUN")) == 4


def test_a_spent_budget_stops_a_tenant_until_the_next_day(atlas: Atlas) -> None:
    put, path = atlas.http.put, "/tenants/acme/budget"
    wrong = [put(path, json={"cents": 2, "per": per}, headers=OPERATOR).status_code for per in ("blue", "0s")]
    answer = put(path, json={"cents": 2, "per": "day"}, headers=OPERATOR)
    mine = [atlas.mail("ann@example.org") for _ in range(4)]
    other = atlas.enqueue("EMAIL_SEND", BOLT, input={"to": "bob@example.org", "subject": "x"})
    atlas.windlass.drain()
    states = Counter(atlas.show(id)["status"] for id in mine)
    budget = atlas.http.get("/budget", headers=ACME).json()
    atlas.windlass.clock.advance("24h")
    atlas.windlass.drain()

    assert (wrong, answer.status_code, states) == ([422, 422], 200, {"succeeded": 2, "queued": 2})
    assert (budget["cents"], budget["spent"]) == (2, 2)
    assert atlas.http.get(f"/jobs/{other}", headers=BOLT).json()["status"] == "succeeded"
    assert put(path, json={"cents": 9}, headers=ACME).status_code == 401
    assert sum(atlas.show(id)["status"] == "succeeded" for id in mine) >= 3


def test_a_repeated_request_makes_one_job(atlas: Atlas) -> None:
    order = {"jobType": "EMAIL_SEND", "input": {"to": "ann@example.org", "subject": "x"}}
    headers = ACME | {"Idempotency-Key": "order-7"}
    first, second = (atlas.http.post("/jobs", json=order, headers=headers).json()["id"] for _ in range(2))
    other = atlas.http.post("/jobs", json=order | {"priority": 1}, headers=headers)

    assert (first == second, other.status_code) == (True, 409)


class Workers:
    """E-mail workers in processes of their own, and the app that enqueues for them."""

    def __init__(self, folder: Path) -> None:
        self.app = importlib.import_module("atlas").app
        self.send = importlib.import_module("operations").send_email
        self._log = (folder / "workers.log").open("wb")
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        command = [sys.executable, "-m", "windlass", "worker", "atlas.py", "--type", "EMAIL_SEND"]
        for _ in range(count):
            self._workers.append(subprocess.Popen(command, cwd=FOLDER, stdout=self._log, stderr=self._log))

    def kill(self) -> None:
        for worker in self._workers:
            worker.kill()  # -9
            worker.wait()
        self._workers.clear()

    def close(self) -> None:
        self.kill()
        self._log.close()


@pytest.mark.parametrize(("url", "provider"), KILLED, indirect=["url"])
def test_each_mail_is_sent_while_workers_are_killed(
    monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path, provider: str
) -> None:
    """SMTP cannot promise that a mail comes once: a worker that dies before it has read the answer leaves a copy."""
    with importlib.import_module("mail_server").MailServer(slow=0.0) as mails, ExitStack() as stack:
        given = {"WINDLASS_URL": url, "WINDLASS_LEASE": "3s", "WINDLASS_SWEEP": "1s", "WINDLASS_POLL": "200ms"}
        given |= {"WINDLASS_CONCURRENCY": "5", "WINDLASS_MAX_CRASHES": "20", "ATLAS_MAIL": provider}
        given |= {"SMTP_URL": mails.smtp, "RESEND_URL": mails.http, "RESEND_API_KEY": "key"}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        workers = Workers(tmp_path)
        stack.callback(workers.close)
        asyncio.run(importlib.import_module("atlas").prepare())
        jobs = workers.app.enqueue_many(workers.send.call("slow@example.org", f"{n}") for n in range(MAILS))
        for kill in range(KILLS):
            workers.start(CROWD)
            until(partial(has_taken, mails, MAILS * kill // KILLS))
            mails.slow = 60.0  # seconds: from here on mails are accepted, and not answered in time
            until(partial(has_taken, mails, len(mails.taken) + 5))
            workers.kill()
            mails.slow = 0.0
        workers.start(CROWD)
        until(lambda: workers.app.counts()["succeeded"] == MAILS)
        sent = workers.app.audit(action="EMAIL_SENT", count=1_000)

    copies = Counter(mail.key for mail in mails.taken)
    assert set(copies) == {str(job.id) for job in jobs}
    assert len(sent) == min(MAILS, 1_000)
    again = sum(mails.asked.values()) - MAILS
    doubled = sum(copies.values()) - MAILS
    said = f"{CROWD * KILLS} workers killed, {again} asked for again, {doubled} sent twice"
    print(f"{url[:8]} {provider}: {MAILS} mails, {said}")
    assert 5 * KILLS <= again <= MAILS / 2, "what a killed worker held, and what one held whose beat came too late"
    assert doubled == (0 if provider == "resend" else again)


def has_taken(mails: Any, count: int) -> bool:
    return len(mails.taken) >= count


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_one_command_serves_and_runs_three_workers(monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path) -> None:
    """Given a mail under way, when Ctrl-C reaches the whole process group, the mail ends, and then its worker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gate, said = threading.Event(), tmp_path / "atlas.log"
    held = importlib.import_module("mail_server").MailServer(tell=lambda mail: mail.subject == "held" and gate.wait())
    with held as mails, said.open("wb") as log:
        given = {"WINDLASS_URL": url, "PORT": str(port), "WINDLASS_POLL": "200ms", "SMTP_URL": mails.smtp}
        command = [sys.executable, str(FOLDER / "atlas.py")]
        atlas = subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | given, stdout=log, stderr=log, start_new_session=True
        )
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=ACME) as http:
                until(lambda: answers(http))
                mail = {"to": "ann@example.org", "subject": "$report", "text": "$report"}
                stages = [
                    [{"name": "report", "type": "REPORT_BUILD"}],
                    [{"name": "mail", "type": "EMAIL_SEND", "input": mail}],
                ]
                assert http.put("/workflows/weekly", json=stages).status_code == 200
                id = http.post("/jobs", json={"jobType": "ENGINE_RUN", "input": {"workflow": "weekly"}}).json()["id"]
                until(lambda: http.get(f"/jobs/{id}").json()["status"] == "succeeded")
                http.post("/jobs", json={"jobType": "EMAIL_SEND", "input": mail | {"subject": "held"}})
                until(partial(has_taken, mails, 2))
            monkeypatch.setenv("WINDLASS_URL", url)
            app = importlib.import_module("atlas").app
            workers = app.workers()
            os.killpg(atlas.pid, signal.SIGINT)
            until(lambda: "Finished server process" in said.read_text())
            until(lambda: "1 running jobs have" in said.read_text())
        except BaseException:
            atlas.terminate()
            raise
        finally:
            gate.set()
            atlas.wait(PATIENCE)

    rest = ("MAIL_LOG_PURGE", "REPORT_BUILD")
    assert sorted(tuple(sorted(row.types)) for row in workers) == [("EMAIL_SEND",), ("ENGINE_RUN",), rest]
    assert all(row.dead for row in app.workers()), "its end stops the workers"
    assert {job.status for job in app.jobs()} == {"succeeded"}
    assert len(mails.taken) == 2


def answers(http: httpx2.Client) -> bool:
    try:
        return http.get("/online").is_success
    except httpx2.ConnectError:
        return False
