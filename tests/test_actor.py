"""Whom the audit names: the setting, else user@host, and never an error where nobody knows the user."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Never

import pytest

from servers import url_of
from windlass import JobType, Windlass, acting_as
from windlass.config import Settings
from windlass.errors import ConfigError
from windlass.model.job import new_id
from windlass.runtime.duties.leader import Leader
from windlass.testing import Harness, harness
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


async def test_the_leader_drops_what_is_older_and_folds_it_in_the_same_round() -> None:
    kept: list[dict[str, float]] = []
    folded: list[bool] = []  # whether into minutes, too

    class House:
        async def lead(self, *_: object) -> bool:
            return True

        async def prune(self, **ages: float) -> None:
            kept.append(ages)

        async def fold_figures(self, *, minutes: bool) -> None:
            folded.append(minutes)

        async def sample_depths(self) -> None: ...

    settings = Settings.load({}, history="1d", audit="2d")
    state: Any = SimpleNamespace(store=House(), clock=ManualClock(), settings=settings, worker=new_id())

    leader = Leader(state)
    await leader.round()
    await leader.round()

    assert kept == [{"history": 86_400.0, "audit": 172_800.0}]
    assert folded == [True, False]


def test_the_audit_is_kept_for_some_time() -> None:
    assert Settings.load({}).audit == 90 * 86_400
    assert Settings.load({"WINDLASS_AUDIT": "1h"}).audit == 3_600
    with pytest.raises(ConfigError, match="audit must be longer than nothing"):
        Settings.load({}, audit=0)


# acting_as


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///jobs.db", actor="deploy")


@pytest.fixture
def send(app: Windlass) -> JobType[[], None]:
    @app.job
    def send() -> None: ...

    return send


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, send: JobType[[], None]) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


def audited(app: Windlass) -> list[tuple[str, str | None]]:
    return [(row.action, row.actor) for row in reversed(app.audit())]


def test_blocking_changes_name_the_actor_of_their_block(app: Windlass, send: JobType[[], None], bench: Harness) -> None:
    job = send.enqueue()

    with acting_as("ann"):
        job.cancel()
        job.resume()
        job.signal("approved")
        app.pause(queue="mail")
        app.set_budget(tenant="acme", cents=5, per="day")
        app.drop_budget(tenant="acme")
        app.set_weight("acme", 2)
    app.resume(queue="mail")

    on_job = ["JOB_CANCELLED", "JOB_RESUMED", "JOB_SIGNALLED"]
    actions = [*on_job, "GATE_PAUSED", "BUDGET_SET", "BUDGET_DROPPED", "TENANT_WEIGHED"]
    assert audited(app) == [*((action, "ann") for action in actions), ("GATE_RESUMED", "deploy")]


def test_awaited_changes_at_once_name_each_its_own_actor(
    app: Windlass, send: JobType[[], None], bench: Harness
) -> None:
    """Two requests on one loop, each in a block that is open while the other one writes."""
    jobs = {name: send.enqueue() for name in ("ann", "bob")}

    async def change(name: str, both: asyncio.Barrier) -> None:
        with acting_as(name):
            await both.wait()
            await jobs[name].acancel()
            await app.apause(queue=name)

    async def run() -> None:
        both = asyncio.Barrier(2)
        await asyncio.gather(change("ann", both), change("bob", both))
        await app.aresume(queue="ann")

    asyncio.run(run())

    rows = app.audit()
    assert {(row.job, row.actor) for row in rows if row.job} == {(job.id, name) for name, job in jobs.items()}
    assert {(row.subject, row.actor) for row in rows if row.action == "GATE_PAUSED"} == {
        ("queue:ann", "ann"),
        ("queue:bob", "bob"),
    }
    assert rows[0].actor == "deploy"


def test_a_schedules_changes_name_the_actor(app: Windlass, send: JobType[[], None], bench: Harness) -> None:
    nightly = app.schedule("nightly", send.call(), every="1d")

    with acting_as("ann"):
        nightly.pause()
        nightly.resume()
        nightly.fire()

    assert {row.actor for row in app.audit() if row.subject == "schedule:nightly"} == {"ann"}


def test_an_inner_block_counts_and_ends(app: Windlass) -> None:
    with acting_as("ann"):
        with acting_as("bob"):
            assert app.settings.acting == "bob"
        with pytest.raises(ZeroDivisionError), acting_as("bob"):
            raise ZeroDivisionError
        assert app.settings.acting == "ann"
    assert app.settings.acting == "deploy"


@pytest.mark.parametrize("actor", ["", " ", "a\nb", "x" * 201])
def test_a_block_needs_a_name(actor: str) -> None:
    with pytest.raises(ConfigError, match=r"^actor .*ann@ship"), acting_as(actor):
        pytest.fail("entered")
