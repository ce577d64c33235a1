"""`windlass dev`: prints jobs, and restarts with the file that was just saved."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import windlass as windlass_package
from windlass import State, Windlass
from windlass.cli.process.watch import FileWatch
from windlass.cli.show.live_log import own_frames

from .conftest import APP, Start
from .conftest import Windlass as Command


def test_it_migrates_runs_jobs_and_ends_with_exit_0_on_ctrl_c(windlass: Command, start: Start) -> None:
    dev = start("dev")
    dev.expect("applied \\d+ migrations?")
    dev.expect(r"app\.py works on sqlite:///windlass\.db; job types: add, fail, greet, hold$")

    assert windlass("run", "app:add", "2", "3").stdout == "5\n"
    windlass("run", "app:fail")

    dev.expect(r"^\d\d:\d\d:\d\d  [0-9a-f]{8}  add  +succeeded in \d+ms$")
    dev.expect(r"fail  +dead in \S+ \(attempt 1 of 1\): ValueError: out of rope$")
    dev.expect(r"^ {10}app\.py:\d+ in fail$")  # the program's own frame, and none of Windlass
    dev.expect(r"^ {12}raise ValueError\(\"out of rope\"\)$")
    shown = dev.expect(r"^ {10}the rest: windlass jobs show (\w{8})$")
    assert "ValueError: out of rope" in windlass("jobs", "show", shown[1]).stdout
    assert "handler_call.py" not in dev.output
    dev.signal(signal.SIGINT)
    assert dev.wait() == 0
    assert "\x1b" not in dev.output


def test_only_the_user_s_own_frames_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a traceback through libraries, with a cause, then the user's own frames of the last error are left."""
    monkeypatch.chdir(tmp_path)
    text = f"""Traceback (most recent call last):
  File "{tmp_path}/cause.py", line 1, in cause
    old()
KeyError: 1

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "{Path(windlass_package.__file__).parent}/runtime/handler_call.py", line 37, in call_coroutine
    value = await definition.fn(*args)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{tmp_path}/shop/jobs.py", line 7, in send
    post(to)
  File "{tmp_path}/.venv/lib/python3.11/site-packages/httpx/_api.py", line 100, in post
    return request()
  File "{json.__file__}", line 346, in loads
    return decode(s)
  File "/srv/common/parse.py", line 3, in parse
    raise ValueError("\\x1b[31mno")
  File "<frozen importlib._bootstrap>", line 1, in load
ValueError: \x1b[31mno
"""

    assert own_frames(text) == [
        "shop/jobs.py:7 in send",
        "  post(to)",
        "/srv/common/parse.py:3 in parse",
        '  raise ValueError("\\x1b[31mno")',
    ]
    assert own_frames("ValueError: no frames") == []


def test_pipelines_and_schedules_are_listed_where_there_are_some(start: Start, program_dir: Path) -> None:
    (program_dir / "app.py").write_text(
        f'{APP}\napp.pipeline("site", greet, hold)\napp.schedule("nightly", greet.call("ann"), cron="0 3 * * *")\n'
    )

    dev = start("dev")

    dev.expect(r"; job types: add, fail, greet, hold; pipelines: site; schedules: nightly$")


def test_the_command_for_the_rest_names_the_program_where_it_must(
    windlass: Command, start: Start, program_dir: Path
) -> None:
    """Given a program with a database of its own, when a job fails, then the printed command finds the job there."""
    (program_dir / "app.py").write_text(APP.replace("Windlass()", 'Windlass("sqlite:///other.db")'))
    dev = start("dev", "app.py")
    dev.expect("works on")

    windlass("run", "app:fail")

    shown = dev.expect(r"the rest: windlass (jobs show \w{8} --app app\.py)$")
    assert "ValueError: out of rope" in windlass(*shown[1].split()).stdout


def test_a_change_starts_the_new_code_and_loses_no_running_job(
    windlass: Command, start: Start, program_dir: Path
) -> None:
    dev = start("dev", "app.py")
    dev.expect("works on")
    id = windlass("run", "app:hold", "--no-wait").stdout.strip()
    dev.expect("hold  +runs since")

    (program_dir / "app.py").write_text(APP.replace("a + b", "a + b + 100"))

    dev.expect(r"app\.py changed; restarting")
    dev.expect("hold  +released")
    dev.expect("works on")
    assert windlass("run", "app:add", "2", "3").stdout == "105\n"
    dev.expect("hold  +runs since")  # the job was released, and is claimed again
    dev.signal(signal.SIGINT)
    assert dev.wait() == 0
    job = Windlass(f"sqlite:///{program_dir}/windlass.db").find(id).record()
    assert (job.status, job.attempt, job.crashes) == (State.QUEUED, 0, 0)


def test_a_syntax_error_is_shown_and_the_next_change_repairs_it(start: Start, program_dir: Path) -> None:
    dev = start("dev", "app.py")
    dev.expect("works on")

    (program_dir / "app.py").write_text("def add(:\n")
    dev.expect(r"app\.py, line 1: invalid syntax")
    dev.expect(r"def add\(:")
    dev.expect("waiting for a change")

    (program_dir / "app.py").write_text(APP)
    dev.expect("works on")
    dev.signal(signal.SIGTERM)
    assert dev.wait() == 0


def test_the_worker_goes_when_dev_is_killed(start: Start) -> None:
    dev = start("dev", "app.py", "--log-level", "INFO")
    dev.expect("works on")

    dev.signal(signal.SIGKILL)

    dev.wait_closed()  # the worker was the last to hold the pipe


def test_a_watch_sees_changed_new_and_removed_files(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    changed, removed = tmp_path / "changed.py", tmp_path / "package" / "removed.py"
    changed.write_text("1")
    removed.write_text("1")
    watch = FileWatch([tmp_path])
    assert watch.read_changes() == []

    changed.write_text("22")
    removed.unlink()
    (tmp_path / "package" / "new.py").write_text("1")

    assert [path.name for path in watch.read_changes()] == ["changed.py", "new.py", "removed.py"]
    assert watch.read_changes() == []


def test_a_watch_sees_a_change_that_keeps_the_size(tmp_path: Path) -> None:
    file = tmp_path / "same.py"
    file.write_text("1")
    watch = FileWatch([tmp_path])

    os.utime(file, ns=(1, 1))

    assert watch.read_changes() == [file]


def test_a_watch_leaves_environments_and_other_files_alone(tmp_path: Path) -> None:
    watch = FileWatch([tmp_path])

    for folder in (".venv", ".git", "node_modules", "__pycache__", "env/lib"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "new.py").write_text("1")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "notes.txt").write_text("1")

    assert watch.read_changes() == []
