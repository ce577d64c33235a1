"""`windlass schedules` on both stores: what commands show, change and refuse."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from windlass.model.job import NewJob
from windlass.model.schedule import TEMPLATE_ID, CatchUp, Declared, Overlap, Timing

from .cli_store import CliStore
from .conftest import PATIENCE, Windlass

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NIGHTLY = Timing(cron="0 3 * * *", tz="Asia/Tokyo")

PROGRAM = """
from windlass import Windlass
app = Windlass()

@app.job
def report(day: str) -> str:
    return day

app.schedule("nightly", report.call("today"), cron="0 3 * * *", tz="Asia/Tokyo")
"""


def declare(cli_store: CliStore, name: str = "nightly", timing: Timing = NIGHTLY, **options: Any) -> None:
    job = NewJob(**{"id": TEMPLATE_ID, "type": "send", "input": '{"to":"a@example.org"}', **options})
    declared = Declared(timing=timing, catch_up=CatchUp.ONE, overlap=Overlap.ALLOW, job=job)
    cli_store.call(lambda store: store.declare_schedules({name: declared}))


# Reading


def test_schedules_are_listed_in_plain_words(cli_store: CliStore) -> None:
    declare(cli_store)
    declare(cli_store, "quarter", Timing(every=900.0))
    declare(cli_store, "once", Timing(at=datetime(2999, 1, 1, tzinfo=UTC)))

    rows = [line.split("\t") for line in cli_store.run("schedules").stdout.splitlines()]

    assert [row[:2] for row in rows] == [
        ["nightly", "at 03:00 every day (Asia/Tokyo)"],
        ["once", "once, at 2999-01-01 00:00:00 (UTC)"],
        ["quarter", "every 15 minutes"],
    ]
    assert [row[3:] for row in rows] == [["", "send", "on"]] * 3
    assert datetime.fromisoformat(rows[0][2]).astimezone(UTC).strftime("%H:%M") == "18:00"


def test_a_schedule_is_shown_with_its_next_five_fires(cli_store: CliStore) -> None:
    declare(cli_store, queue="mail", tenant="acme")

    output = cli_store.run("schedules", "show", "nightly").stdout

    assert output.startswith("nightly  next in ")
    assert "at 03:00 every day (Asia/Tokyo)" in output
    assert 'send {"to":"a@example.org"}' in output
    assert "acme" in output
    fires = output.partition("Next fires\n")[2].splitlines()
    assert len(fires) == 5
    assert all(" 03:00:00 JST" in line and line.startswith("  in ") for line in fires)


def test_json_has_every_field_and_five_fires(cli_store: CliStore) -> None:
    declare(cli_store)
    job = cli_store.run_json("schedules", "fire", "nightly")["job"]

    shown = cli_store.run_json("schedules", "show", "nightly")
    (listed,) = cli_store.run_json("schedules")["schedules"]

    assert {name: shown[name] for name in listed} == listed
    assert (shown["cron"], shown["every"], shown["tz"]) == ("0 3 * * *", None, "Asia/Tokyo")
    assert (shown["input"], shown["paused"], shown["edited"], shown["late"]) == (
        {"to": "a@example.org"},
        False,
        [],
        None,
    )
    times = [datetime.fromisoformat(time) for time in shown["next"]]
    assert [later - time for time, later in pairwise(times)] == [timedelta(days=1)] * 4
    (tick,) = shown["ticks"]
    assert (tick["outcome"], tick["job"]) == ("by hand", job)


def test_a_late_schedule_is_marked_with_the_command_that_helps(file_cli_store: CliStore) -> None:
    declare(file_cli_store, "old", Timing(at=datetime(2020, 1, 1, tzinfo=UTC)))

    listed = file_cli_store.run("schedules", "-a", "app.py", WINDLASS_URL=file_cli_store.url)
    seen = file_cli_store.run_json("schedules", "show", "old")

    assert listed.stdout.splitlines()[0].endswith("late")
    assert "old is due since" in listed.stderr
    assert "windlass worker app.py" in listed.stderr
    assert "windlass schedules forget old" in listed.stderr
    assert seen["late"] > 86_400


def test_a_table_at_a_terminal(file_cli_store: CliStore) -> None:
    declare(file_cli_store)
    file_cli_store.run("schedules", "edit", "nightly", "--priority", "3")

    seen, code = file_cli_store.run_in_terminal("schedules", NO_COLOR="1")

    heading, row = seen.splitlines()
    assert code == 0
    assert heading.split() == ["SCHEDULE", "WHEN", "NEXT", "LAST", "TYPE", "STATE"]
    assert row.startswith("nightly   at 03:00 every day (Asia/Tokyo)  in ")
    assert row.endswith("on, edited")


def test_a_tick_that_is_due_is_shown_from_the_first_second_on(file_cli_store: CliStore) -> None:
    declare(file_cli_store, "just", Timing(at=datetime.now(UTC) - timedelta(seconds=9)))

    listed, _ = file_cli_store.run_in_terminal("schedules", NO_COLOR="1")
    output = file_cli_store.run("schedules", "show", "just").stdout

    assert re.search(r"  due since \d+s +– +send  on$", listed.splitlines()[1])
    assert re.match(r"just  due since \d+s\n", output)
    assert file_cli_store.run_json("schedules", "show", "just")["late"] is None


def test_a_story_fits_a_narrow_terminal(file_cli_store: CliStore) -> None:
    recipients = json.dumps([f"somebody-{number}@example.org" for number in range(5)], separators=(",", ":"))
    declare(file_cli_store, timing=Timing(at=datetime(2020, 1, 1, tzinfo=UTC)), input=f'{{"to":{recipients}}}')
    file_cli_store.call(lambda store: store.tick("nightly"))

    seen, _ = file_cli_store.run_in_terminal("schedules", "show", "nightly", width=80, NO_COLOR="1")
    job = file_cli_store.run_json("schedules", "show", "nightly")["last_job"]

    lines = seen.splitlines()
    assert max(map(len, lines)) <= 80
    assert f"job {job.replace('-', '')[-8:]}" in seen
    assert job not in seen
    assert job in file_cli_store.run("schedules", "show", "nightly").stdout
    assert " ".join(seen.split()).endswith("late, missed, and made up for")


def test_without_schedules_it_says_how_to_declare_one(file_cli_store: CliStore) -> None:
    result = file_cli_store.run("schedules", "list")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no schedule is known in sqlite:///" in result.stderr
    assert 'app.schedule("nightly"' in result.stderr


def test_a_zone_that_this_machine_does_not_know(file_cli_store: CliStore) -> None:
    declare(file_cli_store)
    file_cli_store.call(lambda store: store.edit_schedule("nightly", _edit(cron="0 4 * * *")))
    _run(file_cli_store, "UPDATE windlass_schedules SET edited = replace(edited, 'Asia/Tokyo', 'Mars/Base')")

    output = file_cli_store.run("schedules", "show", "nightly")

    assert output.exit_code == 0
    assert "cron 0 4 * * * (Mars/Base)" in output.stdout


def _edit(**change: Any) -> Any:
    from windlass.model.schedule import Edit

    return Edit(**change)


def _run(cli_store: CliStore, sql: str) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(cli_store.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(sql)


# Changes


def test_pause_and_resume(cli_store: CliStore) -> None:
    declare(cli_store)

    paused = cli_store.run("schedules", "pause", "nightly", "--reason", "wrong numbers", WINDLASS_ACTOR="ann")
    shown = cli_store.run_json("schedules", "show", "nightly")
    resumed = cli_store.run_json("schedules", "resume", "nightly")
    again = cli_store.run("schedules", "resume", "nightly")

    assert paused.stdout.startswith("nightly is paused\n")
    assert "windlass schedules resume nightly" in paused.stdout
    assert (shown["paused"], shown["paused_by"], shown["reason"]) == (True, "ann", "wrong numbers")
    assert (resumed["paused"], resumed["changed"], resumed["reason"]) == (False, True, None)
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "nightly was not paused")


def test_a_repeated_change_is_reported_and_changes_nothing(cli_store: CliStore) -> None:
    declare(cli_store)
    words = (["pause", "nightly"], ["edit", "nightly", "--every", "15m"])
    cli_store.run("schedules", "pause", "nightly", "--reason", "wrong numbers", WINDLASS_ACTOR="ann")
    cli_store.run("schedules", "edit", "nightly", "--every", "15m", WINDLASS_ACTOR="ann")

    output = [cli_store.run("schedules", *each).stdout.splitlines() for each in words]
    changed = [cli_store.run_json("schedules", *each)["changed"] for each in words]

    assert [lines[0] for lines in output] == ["nightly was paused already", "nightly was so already"]
    assert output[0][2].startswith("  paused since ")
    assert output[0][2].endswith(" by ann: wrong numbers")
    assert output[0][3] == "  → windlass schedules resume nightly"
    assert changed == [False, False]
    assert len(cli_store.run("audit").stdout.splitlines()) == 2


def test_edit_and_reset(cli_store: CliStore) -> None:
    declare(cli_store)

    edited = cli_store.run(
        "schedules", "edit", "nightly", "--cron", "0 4 * * *", "--catch-up", "all", WINDLASS_ACTOR="ann"
    )
    shown = cli_store.run("schedules", "show", "nightly").stdout
    document = cli_store.run_json("schedules", "show", "nightly")
    reset = cli_store.run("schedules", "reset", "nightly")
    again = cli_store.run("schedules", "reset", "nightly")

    assert edited.stdout.splitlines()[:3] == [
        "nightly is edited",
        "  at 04:00 every day (Asia/Tokyo)",
        "  → windlass schedules reset nightly",
    ]
    assert "timing by ann; in the code: at 03:00 every day (Asia/Tokyo)" in shown
    assert (document["edited"], document["edited_by"]) == (["timing", "catch_up"], "ann")
    assert reset.stdout.splitlines()[:2] == ["nightly is as the code declares it", "  at 03:00 every day (Asia/Tokyo)"]
    assert again.stdout.startswith("nightly was not edited")


@pytest.mark.parametrize(
    ("given", "when"),
    [
        (["--every", "90m"], "every 1 hour 30 minutes"),
        (["--at", "2999-08-01T03:00+02:00"], "once, at 2999-08-01 01:00:00 (UTC)"),
        (["--tz", "Europe/Berlin"], "at 03:00 every day (Europe/Berlin)"),
    ],
)
def test_every_way_to_say_when(file_cli_store: CliStore, given: list[str], when: str) -> None:
    declare(file_cli_store)

    assert file_cli_store.run_json("schedules", "edit", "nightly", *given)["when"] == when


def test_fire_enqueues_a_job_and_prints_its_id(cli_store: CliStore) -> None:
    declare(cli_store, priority=4)
    before = cli_store.run_json("schedules", "show", "nightly")["next"]

    result = cli_store.run("schedules", "fire", "nightly")

    job = cli_store.call(lambda store: store.find(UUID(result.stdout.strip())))
    assert job is not None
    assert (job.type, job.arguments(), job.priority) == ("send", {"to": "a@example.org"}, 4)
    assert cli_store.run_json("schedules", "show", "nightly")["next"] == before


def test_forget(cli_store: CliStore) -> None:
    declare(cli_store)

    assert cli_store.run("schedules", "forget", "nightly").stdout == "nightly is forgotten\n"
    assert cli_store.run_json("schedules")["schedules"] == []


def test_forget_is_refused_while_a_worker_may_fire_it(cli_store: CliStore) -> None:
    declare(cli_store, timing=Timing(at=datetime(2020, 1, 1, tzinfo=UTC)))
    cli_store.call(lambda store: store.tick("nightly"))
    declare(cli_store, "new")
    cli_store.register_worker()

    fired = cli_store.run("schedules", "forget", "nightly")
    new = cli_store.run("schedules", "forget", "new", "--json")
    known = [row["name"] for row in cli_store.run_json("schedules")["schedules"]]

    assert [(each.exit_code, each.stdout) for each in (fired, new)] == [(2, "")] * 2
    assert "schedule 'nightly' is not forgotten: it fired 2" in fired.stderr.replace(",", "")
    assert "would bring it back when its next worker starts" in fired.stderr
    assert "→ windlass schedules pause nightly" in fired.stderr
    assert "→ windlass schedules forget nightly --yes" in fired.stderr
    assert "schedule 'new' is not forgotten: it is not late and a worker is alive" in new.stderr
    assert known == ["new", "nightly"]
    assert cli_store.run("schedules", "forget", "nightly", "--yes").stdout == "nightly is forgotten\n"


def test_a_late_one_is_forgotten_beside_a_worker(cli_store: CliStore) -> None:
    declare(cli_store, timing=Timing(at=datetime(2020, 1, 1, tzinfo=UTC)))
    cli_store.register_worker()

    assert cli_store.run_json("schedules", "forget", "nightly") == {"name": "nightly", "forgotten": True}


def test_everything_is_in_the_audit(cli_store: CliStore) -> None:
    declare(cli_store)
    for words in (
        ["pause", "nightly"],
        ["resume", "nightly"],
        ["edit", "nightly", "--queue", "x"],
        ["reset", "nightly"],
    ):
        cli_store.run("schedules", *words, WINDLASS_ACTOR="ann")
    cli_store.run("schedules", "fire", "nightly", WINDLASS_ACTOR="ann")
    cli_store.run("schedules", "forget", "nightly", WINDLASS_ACTOR="ann")

    rows = [line.split("\t") for line in cli_store.run("audit").stdout.splitlines()]

    words = ["FORGOTTEN", "FIRED", "RESET", "EDITED", "RESUMED", "PAUSED"]
    assert [(row[1], row[2], row[4]) for row in rows] == [
        (f"SCHEDULE_{word}", "schedule:nightly", "ann") for word in words
    ]


# What is refused


@pytest.mark.parametrize("command", ["show", "pause", "resume", "reset", "fire", "forget"])
def test_an_unknown_name_is_answered_with_what_was_meant(cli_store: CliStore, command: str) -> None:
    declare(cli_store)

    result = cli_store.run("schedules", command, "nihgtly", "--json")

    assert (result.exit_code, result.stdout) == (2, "")
    meant = "did you mean 'nightly'? (list them: windlass schedules)"
    assert result.stderr == f"windlass: there is no schedule 'nihgtly'; {meant}\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            [],
            "nothing to edit; there are: --cron, --every, --at, --tz, --catch-up, --overlap, --queue, --priority",
        ),
        (["--cron", "0 0 30 2 *"], "never fires"),
        (["--cron", "at three"], "wrong number of fields"),
        (["--tz", "Asia/Tokio"], "did you mean 'Asia/Tokyo'?"),
        (["--every", "0s"], "--every '0s' is too short; it must be 0.1 s or more"),
        (["--every", "-5m"], "--every '-5m' is no duration; write it like 90s, 15m or 1h30m"),
        (["--every", "1h", "--tz", "Asia/Tokyo"], "a time zone is for a cron line"),
        (["--at", "2020-01-01T00:00+00:00"], "has passed; to fire it now: windlass schedules fire nightly"),
        (["--at", "2999-01-01"], "--at '2999-01-01' has no time zone; write it like 2026-08-01T03:00+02:00, or"),
        (["--at", "tomorrow"], "is no time; write it like 2026-08-01T03:00+02:00"),
        (["--every", "1h", "--cron", "@daily"], "each set the time; give one of them"),
        (["--catch-up", "none"], "--catch-up 'none'; there are: skip, one, all"),
        (["--overlap", "maybe"], "--overlap 'maybe'; there are: allow, skip, cancel"),
        (["--priority", "99999"], "--priority 99999 is not a whole number from"),
        (["--queue", ""], "queue is empty"),
    ],
)
def test_an_invalid_edit_is_refused(file_cli_store: CliStore, given: list[str], message: str) -> None:
    declare(file_cli_store)

    result = file_cli_store.run("schedules", "edit", "nightly", *given)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert file_cli_store.run_json("schedules", "show", "nightly")["edited"] == []


# With a program


def test_a_worker_makes_its_schedules_known(windlass: Windlass, program_dir: Path, start: Any) -> None:
    (program_dir / "reports.py").write_text(PROGRAM)
    assert windlass("migrate").returncode == 0
    worker = start("worker", "reports.py")
    deadline = time.monotonic() + PATIENCE
    while not json.loads(windlass("schedules", "--json").stdout)["schedules"]:
        assert worker.process.poll() is None, worker.output
        assert time.monotonic() < deadline, worker.output

    result = windlass("schedules", "show", "nightly", "-a", "reports.py")

    assert (result.returncode, result.stderr) == (0, "")
    assert 'report {"day":"today"}' in result.stdout
