"""Whom the audit names: the setting, else user@host, and never an error where nobody knows the user."""

from __future__ import annotations

import getpass
import socket
from types import SimpleNamespace
from typing import Any, Never

import pytest

from windlass import Windlass
from windlass.config import Settings
from windlass.errors import ConfigError
from windlass.model.job import new_id
from windlass.runtime.duties.leader import Leader
from windlass.testing import harness
from windlass.testing.clock import ManualClock


def test_the_setting_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_ACTOR", "deploy")

    assert Windlass("sqlite:///jobs.db").settings.acting == "deploy"
    assert Windlass("sqlite:///jobs.db", actor="ann").settings.acting == "ann"


def test_without_it_user_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setattr(socket, "gethostname", lambda: "ship")

    assert Settings.load({}).acting == "ann@ship"


@pytest.mark.parametrize("error", [KeyError("uid not found: 1000"), OSError("no user"), ImportError("pwd")])
def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> Never:
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr(socket, "gethostname", lambda: "ship")

    assert Settings.load({}).acting == "1000@ship"


def test_a_strange_name_can_still_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "a\nb\x1b\udc80" + "n" * 500)
    monkeypatch.setattr(socket, "gethostname", lambda: "ship")

    acting = Settings.load({}).acting

    assert acting.startswith("a?b??nnn")
    assert len(acting) == 200


def test_nobody_is_asked_before_somebody_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: pytest.fail("asked"))

    Settings.load({})


@pytest.mark.parametrize("actor", ["", " ", "a\nb", "x" * 201])
def test_a_name_that_is_none_is_refused(actor: str) -> None:
    with pytest.raises(ConfigError, match=r"^actor .*ann@ship"):
        Settings.load({}, actor=actor)


def test_what_is_done_through_a_handle_is_audited_under_that_name() -> None:
    app = Windlass("sqlite:///jobs.db", actor="ann")

    @app.job
    def send() -> None: ...

    with harness(app) as windlass:
        job = send.enqueue()
        job.cancel()
        job.resume()

        rows = windlass.fetch("select action, actor from windlass_audit order by number")

    assert rows == [{"action": "JOB_CANCELLED", "actor": "ann"}, {"action": "JOB_RESUMED", "actor": "ann"}]


async def test_the_leader_drops_what_is_older() -> None:
    kept: list[dict[str, float]] = []

    class House:
        async def lead(self, *_: object) -> bool:
            return True

        async def prune(self, **ages: float) -> None:
            kept.append(ages)

    settings = Settings.load({}, history="1d", audit="2d")
    state: Any = SimpleNamespace(store=House(), clock=ManualClock(), settings=settings, worker=new_id())

    await Leader(state).round()

    assert kept == [{"history": 86_400.0, "audit": 172_800.0}]


def test_the_audit_is_kept_for_some_time() -> None:
    assert Settings.load({}).audit == 90 * 86_400
    assert Settings.load({"WINDLASS_AUDIT": "1h"}).audit == 3_600
    with pytest.raises(ConfigError, match="audit must be longer than nothing"):
        Settings.load({}, audit=0)
