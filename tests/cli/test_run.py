"""`windlass run`: from a shell to a result."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from uuid import UUID

from windlass.cli.main import cli

from .conftest import Start, Windlass


def test_a_job_runs_and_its_result_is_printed(windlass: Windlass, start: Start) -> None:
    windlass("migrate")
    start("worker", "app.py").expect("worker .* started")

    added = windlass("run", "app:add", "2", "3")
    below = windlass("run", "app.py:add", "b=3", "a=-5")
    negative = windlass("run", "app.py:add", "-5", "3")
    greeted = windlass("run", "app:greet", "2")

    assert (added.stdout, added.stderr, added.returncode) == ("5\n", "", 0)
    assert below.stdout == negative.stdout == "-2\n"
    assert greeted.stdout == "hello 2\n"


def test_a_dead_job_is_reported_with_its_id_and_exit_1(windlass: Windlass, start: Start) -> None:
    windlass("migrate")
    start("worker", "app.py").expect("worker .* started")

    ended = windlass("run", "app:fail")

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "(fail) is dead (exhausted): ValueError: out of rope" in ended.stderr


def test_without_a_worker_it_says_which_command_starts_one_and_times_out(windlass: Windlass) -> None:
    windlass("migrate")

    ended = windlass("run", "app.py:add", "2", "3", "--timeout", "2500ms")

    assert ended.returncode == 124
    assert "no live worker serves 'add' on queue 'default'; start one with: windlass worker app.py" in ended.stderr
    assert "has not ended within 2.5 s; it goes on" in ended.stderr


def test_a_worker_of_another_queue_does_not_serve_the_job(windlass: Windlass, start: Start) -> None:
    windlass("migrate")
    start("worker", "app.py", "--queue", "mail").expect("worker .* started")

    ended = windlass("run", "app.py:add", "2", "3", "--timeout", "2500ms")
    mailed = windlass("run", "app.py:add", "2", "3", "--queue", "mail")

    assert "no live worker serves" in ended.stderr
    assert mailed.stdout == "5\n"


def test_no_wait_prints_the_id_alone(windlass: Windlass) -> None:
    windlass("migrate")

    ended = windlass("run", "app:add", "2", "3", "--no-wait")

    assert UUID(ended.stdout.strip())
    assert ended.returncode == 0


def test_ctrl_c_leaves_the_job_and_says_so(windlass: Windlass, start: Start) -> None:
    windlass("migrate")
    running = start("run", "app.py:add", "2", "3")
    id = running.expect(r"job (\S+) waits: no live worker")[1]

    running.signal(signal.SIGINT)

    assert running.wait() == 130
    running.expect(f"job {id} goes on; it was not cancelled")


def test_without_a_schema_it_names_the_command(windlass: Windlass, program_dir: Path) -> None:
    ended = windlass("run", "app.py:add", "2", "3")

    assert ended.returncode == 2
    assert "has no Windlass schema yet; run: windlass migrate app.py (or: windlass dev app.py)" in ended.stderr
    assert not (program_dir / "windlass.db").exists()


def test_run_takes_every_option_of_enqueue() -> None:
    enqueue, run = ({param.opts[0] for param in cli.commands[name].params} for name in ("enqueue", "run"))

    assert enqueue < run
    assert run - enqueue == {"--timeout", "--no-wait"}


def test_run_finds_a_job_by_its_type_and_reads_its_input_as_json(windlass: Windlass) -> None:
    windlass("migrate")

    one = windlass("run", "-a", "app.py", "add", "2", "3", "--priority", "7", "--tenant", "acme", "--no-wait", "--json")
    two = windlass("run", "app.py", "--type", "add", "--input", '{"a": 2, "b": 3}', "--no-wait", "--json")

    assert (json.loads(one.stdout)["priority"], json.loads(one.stdout)["tenant"]) == (7, "acme")
    assert json.loads(two.stdout)["input"] == {"a": 2, "b": 3}


def test_wrong_arguments_are_refused_before_anything_is_written(windlass: Windlass) -> None:
    ended = windlass("run", "app:add", "two", "3")

    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "windlass: add(): $.a: Expected `int`, got `str`; write it like: windlass run app:add"
    )
