"""What `windlass doctor` finds about limits, gates, budgets and schedules: each finding, on both stores."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windlass.config import Settings
from windlass.model.admission import Rule
from windlass.store.doctor.admission import (
    RECOUNT,
    AdmissionState,
    MiscountedLimit,
    OverdueSchedule,
    ParkedJobs,
    check_admission,
)
from windlass.store.doctor.checkup import Level

from .cli_store import CliStore
from .test_doctor import execute, findings, is_postgres

KEY = "domain:example.org"
CHECKS = ("limits", "gates", "budgets", "schedules")


def limited(cli_store: CliStore, jobs: int = 4) -> None:
    """A key with two slots, both in use, and the other jobs waiting."""
    cli_store.call(lambda store: store.declare([Rule(name="domain", most=2)]))
    cli_store.enqueue(jobs, limits=(KEY,))
    assert len(cli_store.claim_jobs(cli_store.register_worker())) == 2


def stamp(cli_store: CliStore, moment: datetime) -> Any:
    return moment if is_postgres(cli_store) else int(moment.timestamp() * 1_000_000)


def test_where_all_is_well_each_check_says_so(cli_store: CliStore) -> None:
    limited(cli_store)
    cli_store.run("budgets", "set", "--tenant", "acme", "500", "--per", "day")

    found = findings(cli_store)

    assert [found[check][0] for check in CHECKS] == ["ok"] * 4
    assert found["limits"][1] == "every slot in use is that of a running job, and no job is parked where there is room"
    assert (found["gates"][1], found["budgets"][1]) == ("every gate is open", "none is spent")


def test_slots_in_use_by_no_running_job_are_a_problem_with_a_way_to_count_them_anew(cli_store: CliStore) -> None:
    limited(cli_store)
    execute(cli_store, "UPDATE {0}limit_counters SET most = 9, used = 5")

    level, message, advice = findings(cli_store)["limits"]

    assert (level, message) == ("problem", f"3 slots are in use by no running job: {KEY} (5 in use, 2 running)")
    assert (advice or "").startswith("count them again: ")
    execute(cli_store, RECOUNT["postgres" if is_postgres(cli_store) else "sqlite"])
    assert cli_store.run_json("limits")["limits"][0]["used"] == 2


def test_running_jobs_without_a_slot_are_a_problem(cli_store: CliStore) -> None:
    limited(cli_store)
    execute(cli_store, "UPDATE {0}limit_counters SET used = 0, most = 0 + 1")

    level, message, _ = findings(cli_store)["limits"]

    assert (level, message) == ("problem", f"2 running jobs have no slot of their limit: {KEY} (0 in use, 2 running)")


def test_jobs_that_wait_at_a_limit_with_room_are_a_problem(cli_store: CliStore) -> None:
    limited(cli_store)
    execute(cli_store, "UPDATE {0}limit_counters SET most = 9")

    found = findings(cli_store, WINDLASS_POLL="100ms")["limits"]

    assert found[0] == "problem"
    assert found[1].startswith(f"2 jobs wait at a limit or rate that has room: {KEY}; such as ")
    assert (found[2] or "").startswith("a live worker lets them in within 100ms: windlass worker app.py")


@pytest.mark.parametrize(
    "command", [("gates", "pause", "--tenant", "default"), ("gates", "pause", "--claimed", "finish", "--all")]
)
def test_jobs_behind_a_closed_gate_may_wait_at_a_limit_with_room(cli_store: CliStore, command: tuple[str, ...]) -> None:
    limited(cli_store)
    execute(cli_store, "UPDATE {0}limit_counters SET most = 9")
    cli_store.run(*command)

    assert findings(cli_store, WINDLASS_POLL="100ms")["limits"][0] == "ok"


def test_jobs_that_no_worker_can_run_may_wait_at_a_limit_with_room(cli_store: CliStore) -> None:
    limited(cli_store)
    execute(cli_store, "UPDATE {0}limit_counters SET most = 9")
    execute(cli_store, "UPDATE {0}jobs SET type = 'other' WHERE status = 'queued'")

    found = findings(cli_store, WINDLASS_POLL="100ms")

    assert found["limits"][0] == "ok"
    assert "no live worker serves 'other'" in found["types"][1]


def test_a_limit_that_gets_its_room_meanwhile_is_none(cli_store: CliStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live worker polls between the two reads of the doctor."""
    limited(cli_store)
    execute(cli_store, "UPDATE {0}limit_counters SET most = 9")

    async def let_in(_: float) -> None:
        await asyncio.to_thread(execute, cli_store, "UPDATE {0}jobs SET parked_on = NULL")

    monkeypatch.setattr("windlass.store.doctor.admission.sleep", let_in)

    assert findings(cli_store)["limits"][0] == "ok"


def test_a_closed_gate_is_a_warning_with_its_reason_and_the_way_to_open_it(cli_store: CliStore) -> None:
    cli_store.run("gates", "pause", "--queue", "night shift", "--reason", "the server moves", WINDLASS_ACTOR="ann")
    execute(cli_store, "UPDATE {0}gates SET since = {1}", stamp(cli_store, datetime.now(UTC) - timedelta(hours=2)))

    level, message, advice = findings(cli_store)["gates"]

    assert level == "warning"
    assert message.startswith("queue night shift is paused since 2h")
    assert message.endswith(" by ann: the server moves")
    assert advice == "windlass gates resume --queue 'night shift'"
    cli_store.run("gates", "pause", "--claimed", "finish", "--all")
    assert "warning\tgates\teverything is draining since " in cli_store.run("doctor").stdout
    assert "\twindlass gates resume --all\n" in cli_store.run("doctor").stdout


def test_a_spent_budget_is_a_warning(cli_store: CliStore) -> None:
    cli_store.run("budgets", "set", "--tenant", "acme", "500", "--per", "day")
    execute(cli_store, "UPDATE {0}budgets SET spent = 520")

    level, message, advice = findings(cli_store)["budgets"]

    assert level == "warning"
    assert message.startswith("the budget of tenant acme is spent, 520 of 500 cents: nothing of it starts for ")
    assert "windlass budgets set --tenant acme CENTS --per" in (advice or "")
    execute(cli_store, "UPDATE {0}budgets SET until = {1}", stamp(cli_store, datetime.now(UTC) - timedelta(seconds=1)))
    assert findings(cli_store)["budgets"][0] == "ok", "its next window has begun"


def test_a_budget_of_0_is_a_warning_that_promises_no_window(cli_store: CliStore) -> None:
    cli_store.run("budgets", "set", "--tenant", "acme", "0", "--per", "day")

    assert findings(cli_store)["budgets"] == (
        "warning",
        "the budget of tenant acme is 0: nothing of it starts",
        "windlass budgets drop --tenant acme",
    )


def test_a_schedule_that_is_overdue_is_a_problem(cli_store: CliStore) -> None:
    columns = "name, declared, next_at" + ("" if is_postgres(cli_store) else ", declared_at, updated_at")
    more = "" if is_postgres(cli_store) else ", 0, 0"
    now = datetime.now(UTC)
    for name, late in (("nightly", 90), ("soon", 5), ("later", -600)):
        at = stamp(cli_store, now - timedelta(seconds=late))
        execute(cli_store, f"INSERT INTO {{0}}schedules ({columns}) VALUES ('{name}', '{{{{}}}}', {{1}}{more})", at)

    level, message, advice = findings(cli_store)["schedules"]

    assert level == "problem"
    assert re.fullmatch(r"overdue: nightly \(for \d+m(\d+s)?\)", message)
    assert (advice or "").startswith("a live worker fires them: windlass worker app.py")
    execute(cli_store, "UPDATE {0}schedules SET paused = {1}", True if is_postgres(cli_store) else 1)
    assert findings(cli_store)["schedules"][0] == "ok", "a paused schedule needs no worker"


# How it is judged


def test_of_many_keys_some_are_named() -> None:
    settings = Settings.load({}, url="sqlite:///x.db")
    lost = [MiscountedLimit(f"domain:{number}", 2, 1) for number in range(8)]
    short = [MiscountedLimit("tenant:acme", 1, 3)]

    first, second = check_admission(settings, AdmissionState(slots=[*lost, *short]))[:2]

    assert first.said.startswith("8 slots are in use by no running job: domain:0 (2 in use, 1 running), ")
    assert first.said.endswith(" and 3 keys more")
    assert second.said == "2 running jobs have no slot of their limit: tenant:acme (1 in use, 3 running)"
    assert {first.level, second.level} == {Level.PROBLEM}


def test_a_single_finding_is_written_in_the_singular() -> None:
    seen = AdmissionState(
        slots=[MiscountedLimit("a", 2, 1), MiscountedLimit("b", 1, 2)], parked=[ParkedJobs("c", 1, "9f3c21ab")]
    )

    message = [finding.said for finding in check_admission(Settings.load({}, url="sqlite:///x.db"), seen)[:3]]

    assert message == [
        "1 slot is in use by no running job: a (2 in use, 1 running)",
        "1 running job has no slot of its limit: b (1 in use, 2 running)",
        "1 job waits at a limit or rate that has room: c; such as 9f3c21ab",
    ]


def test_where_workers_poll_seldom_a_full_round_may_take_longer_than_the_doctor() -> None:
    slow = Settings.load({}, url="sqlite:///x.db", pace="steady")

    assert check_admission(slow, AdmissionState(parked=[ParkedJobs(KEY, 3, "01")]))[0].level is Level.WARNING


def test_of_many_overdue_schedules_some_are_named() -> None:
    settings = Settings.load({}, url="sqlite:///x.db")
    overdue = [OverdueSchedule(f"tick-{number}", 100.0) for number in range(7)]

    (found,) = [
        each for each in check_admission(settings, AdmissionState(schedules=overdue)) if each.check == "schedules"
    ]

    assert found.said.endswith("tick-4 (for 1m40s) and 2 more")
