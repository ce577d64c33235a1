"""examples/site_analyst on both stores and at both paces, against real sites and a stand-in model."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from .conftest import EXAMPLES

sys.path.append(str(EXAMPLES / "site_analyst"))

SCALE = float(os.environ.get("WINDLASS_TEST_SCALE", "1"))
COUNT = 200 if SCALE > 1 else 12
PATIENCE = 300.0  # seconds until a story gives up
FAST = {"POLL": "100ms", "UNTOUCHED": "0", "ASSIGN_EVERY": "50ms", "GRACE": "5s"}
"""The timetable of the steady pace, hundreds of times faster."""

REFUSED = ("file:///etc/passwd", "http://", "", "http://a%20b/", "http://a.org:65536/", "http://a.org:-1/", "http://./")
CUT = {"endless": "endless", "bomb": "boom", "long": "long"}
"""Sites of which the beginning is read, and their titles."""

pytestmark = [pytest.mark.usefixtures("on_path"), pytest.mark.long]


@contextmanager
def running(
    monkeypatch: pytest.MonkeyPatch, url: str, pace: str, **environment: str
) -> Iterator[tuple[TestClient, Any]]:
    """The application's API with its worker, and the stand-in for a model."""
    given = {"WINDLASS_URL": url, "WINDLASS_PACE": pace, "ANALYST_ALLOW": "127.0.0.1", "WINDLASS_MAX_ATTEMPTS": "2"}
    if pace == "steady":
        given |= {f"WINDLASS_{name}": value for name, value in FAST.items()}
    for name, value in (given | environment).items():
        monkeypatch.setenv(name, value)
    server = importlib.import_module("model_server").ModelServer()
    with server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        analyst = importlib.import_module("analyst")
        with TestClient(analyst.api) as http:
            yield http, (analyst, server)


def ended(http: TestClient, id: str, states: tuple[str, ...] = ("completed", "failed")) -> dict[str, Any]:
    end = time.monotonic() + PATIENCE
    while (report := http.get(f"/sites/{id}").json())["state"] not in states:
        assert time.monotonic() < end, report
        time.sleep(0.05)
    return dict(report)


@pytest.mark.parametrize("pace", ["steady", "eager"])
def test_sites_go_through_three_phases(monkeypatch: pytest.MonkeyPatch, url: str, sites: str, pace: str) -> None:
    with running(monkeypatch, url, pace, ANALYST_MODELS="stand-in,other") as (http, (_, server)):
        posted = [http.post("/sites", json={"website": f"{sites}/good/{n}"}) for n in range(COUNT)]
        again = http.post("/sites", json={"website": f"{sites.replace('http', 'HTTP')}/good/{COUNT - 1}#top"})
        reports = [ended(http, each.json()["id"]) for each in posted]
        third = http.post("/sites", json={"website": f"{sites}/good/0"}).json()
        assert http.get("/sites/01a1f077-1734-724f-a2b2-bb4432001c5a").status_code == 404
        ended(http, third["id"])

    assert {each.status_code for each in posted} == {202}
    assert (again.json()["id"], again.json()["existing"]) == (posted[-1].json()["id"], True)
    assert third["existing"] is False
    assert {report["state"] for report in reports} == {"completed"}
    page = reports[1]["page"]
    assert (page["title"], page["description"], page["language"]) == ("Ropes 1", "All about ropes", "en")
    assert (page["headings"], page["links"]) == (["Knots & 1"], [f"{sites}/good/0"])
    assert "Hemp and steel" in page["text"]
    assert "menu" not in page["text"]
    assert "var no" not in page["text"]
    assert [answer["model"] for answer in reports[1]["answers"]] == ["stand-in", "other"]
    assert (reports[1]["cents"], reports[1]["answers"][0]["cents"]) == (1, 0.5)
    assert len(server.asked) == 2 * (COUNT + 1)


def test_bad_sites_and_bad_models_end_in_words(monkeypatch: pytest.MonkeyPatch, url: str, sites: str) -> None:
    wrong = {
        "http://10.0.0.1/": "which is not public",
        f"{sites}/inside": "10.0.0.1, which is not public",
        f"{sites}/circle": "in a circle",
    }
    with running(monkeypatch, url, "eager", ANALYST_MODELS="nothing", WINDLASS_MAX_ATTEMPTS="1") as (
        http,
        (analyst, _),
    ):
        refused = [
            http.post("/sites", json={"website": bad}).status_code for bad in (*REFUSED, f"http://a.org/{2_000 * 'a'}")
        ]
        found = {website: http.post("/sites", json={"website": website}).json()["id"] for website in wrong}
        missing = http.post("/sites", json={"website": f"{sites}/missing"}).json()["id"]
        cut = [http.post("/sites", json={"website": f"{sites}/{name}"}).json()["id"] for name in CUT]
        for website, why in wrong.items():
            report = ended(http, found[website])
            assert (report["state"], why in report["error"]) == ("failed", True), report
        assert "answered 404" in ended(http, missing)["error"]
        for id, title in zip(cut, CUT.values(), strict=True):
            report = ended(http, id)
            assert (report["page"]["title"], report["state"]) == (title, "failed")
            assert "nothing did not answer as it was asked to" in report["error"]
        for model in ("nonsense", "null"):
            analyst.MODELS[:] = [model]
            report = ended(http, http.post("/sites", json={"website": f"{sites}/good/{model}"}).json()["id"])
            assert (report["state"], f"{model} did not answer as it was asked to" in report["error"]) == (
                "failed",
                True,
            )
            assert (report["answers"], report["page"]["title"]) == ([], f"Ropes {model}")

    assert refused == [422] * 8


def test_an_answer_that_was_paid_for_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, url: str, sites: str
) -> None:
    with running(monkeypatch, url, "eager", ANALYST_MODELS="stand-in,broken") as (http, (analyst, server)):
        id = http.post("/sites", json={"website": f"{sites}/good/1"}).json()["id"]
        end = time.monotonic() + PATIENCE
        while analyst.app.find(id).status() != "failed":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert http.get(f"/sites/{id}").json()["state"] == "model-analysis"
        analyst.app.find(id).retry()
        report = ended(http, id)

    assert (report["state"], len(report["answers"])) == ("completed", 2)
    assert [model for model, _ in server.asked] == ["stand-in", "broken", "broken"]
    assert report["cents"] == 2  # of two attempts, each rounded up


def test_a_page_that_grows_in_the_parser_ends_its_own_process_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sites: str
) -> None:
    with running(monkeypatch, f"sqlite:///{tmp_path / 'jobs.db'}", "eager", WINDLASS_MAX_ATTEMPTS="1") as (http, _):
        ids = [http.post("/sites", json={"website": f"{sites}/{name}"}).json()["id"] for name in ("grows", "good/1")]
        grown, good = (ended(http, id) for id in ids)

    assert (grown["state"], "more than its limit of 512 MiB" in grown["error"]) == ("failed", True), grown
    assert good["state"] == "completed"
