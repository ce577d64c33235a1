"""`windlass worker`: signals, and several processes under a supervisor."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from windlass import State, Windlass
from windlass.cli.process.supervisor import FIRST_PAUSE, LONGEST_PAUSE, restart_delay

from .conftest import PATIENCE, Start
from .conftest import Windlass as Command


def app(program_dir: Path) -> Windlass:
    return Windlass(f"sqlite:///{program_dir}/windlass.db")


def test_sigterm_ends_an_idle_worker_with_exit_0(windlass: Command, start: Start) -> None:
    windlass("migrate")
    worker = start("worker", "app.py")
    worker.expect("worker .* started")

    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0
    worker.expect("worker .* stopped")


def test_a_job_that_outlives_the_grace_time_is_given_back_unharmed(
    windlass: Command, start: Start, program_dir: Path
) -> None:
    windlass("migrate")
    worker = start("worker", "app.py", WINDLASS_GRACE="100ms")
    id = windlass("run", "app:hold", "--no-wait").stdout.strip()
    worker.expect("hold started")

    worker.signal(signal.SIGINT)

    assert worker.wait() == 0
    worker.expect(f"hold released .* job={id}")
    job = app(program_dir).find(id).record()
    assert (job.status, job.attempt, job.crashes) == (State.QUEUED, 0, 0)


def test_a_failing_job_has_its_traceback_under_its_line(windlass: Command, start: Start) -> None:
    """Given a job of one attempt, when it fails, then an ERROR has the traceback, and other lines are indented."""
    windlass("migrate")
    worker = start("worker", "app.py")
    worker.expect("worker .* started")

    id = windlass("run", "app:fail", "--no-wait").stdout.strip()

    worker.expect(
        rf"^\S+Z ERROR   fail dead in \S+ \(attempt 1 of 1\): ValueError: out of rope job={id}$",
    )
    worker.expect(r"^    Traceback \(most recent call last\):$")
    worker.expect(r'^      File ".*app\.py", line \d+, in fail$')
    worker.expect(r"^    ValueError: out of rope$")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_second_signal_ends_it_at_once(windlass: Command, start: Start, program_dir: Path) -> None:
    windlass("migrate")
    worker = start("worker", "app.py", WINDLASS_GRACE="1h")
    id = windlass("run", "app:hold", "--no-wait").stdout.strip()
    worker.expect("hold started")

    worker.signal(signal.SIGTERM)
    worker.expect("stopping; 1 running jobs have 3600 s")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 128 + signal.SIGTERM
    assert app(program_dir).find(id).status() is State.RUNNING


def test_a_worker_without_a_schema_says_so_and_ends(windlass: Command) -> None:
    ended = windlass("worker", "app.py")

    assert ended.returncode == 2
    assert "has no Windlass schema yet; run: windlass migrate" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unknown_type_is_refused(windlass: Command) -> None:
    windlass("migrate")

    ended = windlass("worker", "app.py", "--type", "ad")

    assert ended.returncode == 2
    assert "did you mean 'add'?" in ended.stderr


def test_a_killed_child_is_replaced_and_the_replacement_works(windlass: Command, start: Start) -> None:
    windlass("migrate")
    supervisor = start("worker", "app.py", "--processes", "2")
    pids = {}
    for _ in range(2):
        found = supervisor.expect(r"\[(\d)\] worker \S+:(\d+) started")
        pids[found[1]] = int(found[2])
    assert pids.keys() == {"1", "2"}

    os.kill(pids["1"], signal.SIGKILL)

    supervisor.expect(r"worker process 1 ended \(killed by SIGKILL\); a new one starts in")
    replaced = supervisor.expect(r"\[1\] worker \S+:(\d+) started")
    assert int(replaced[1]) != pids["1"]
    assert windlass("run", "app:add", "2", "3").stdout == "5\n"

    supervisor.signal(signal.SIGTERM)

    assert supervisor.wait() == 0
    supervisor.expect("every worker process has ended")


def test_children_that_always_die_never_end_the_supervisor(start: Start) -> None:
    supervisor = start("worker", "app.py", "--processes", "2")  # there is no schema

    for _ in range(5):
        supervisor.expect(r"worker process \d ended \(exit 2\)")
    assert supervisor.process.poll() is None

    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_children_stop_gracefully_when_their_supervisor_is_killed(windlass: Command, start: Start) -> None:
    windlass("migrate")
    supervisor = start("worker", "app.py", "--processes", "2")
    for _ in range(2):
        supervisor.expect("worker .* started")

    supervisor.signal(signal.SIGKILL)

    for _ in range(2):
        supervisor.expect("worker .* stopped")


def test_a_misspelt_program_ends_the_supervisor_before_it_starts_anything(windlass: Command) -> None:
    ended = windlass("worker", "ap.py", "--processes", "2")

    assert ended.returncode == 2
    assert ended.stderr == f"windlass: ap.py does not exist in {Path.cwd()}; did you mean app.py?\n"


def test_the_pause_doubles_with_jitter_up_to_a_bound() -> None:
    for failures in range(1, 40):
        bound = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1))
        assert all(bound / 2 <= restart_delay(failures) <= bound for _ in range(20))
    assert len({restart_delay(3) for _ in range(20)}) > 1


HANGING = """
import asyncio, threading
from windlass import Windlass

app = Windlass(poll="100ms")

def wait_for_ever(name):
    print(name, "waits", flush=True)
    threading.Event().wait()

async def await_for_ever(name):
    print(name, "waits", flush=True)
    await asyncio.Event().wait()

@app.job
async def in_a_coroutine() -> None:
    await await_for_ever("in_a_coroutine")

@app.job
def in_a_thread() -> None:
    wait_for_ever("in_a_thread")

@app.job(isolation="process")
def in_a_child() -> None:
    wait_for_ever("in_a_child")

@app.job(isolation="process")
async def in_a_childs_coroutine() -> None:
    await await_for_ever("in_a_childs_coroutine")
"""


def test_sigusr1_logs_where_each_handler_is(windlass: Command, start: Start, program_dir: Path) -> None:
    """Given handlers that hang, one of each kind, when the supervisor gets SIGUSR1, then each stack is logged."""
    (program_dir / "hanging.py").write_text(HANGING)
    windlass("migrate")
    worker = start("worker", "hanging.py", "--processes", "2", WINDLASS_GRACE="100ms")
    names = ("in_a_coroutine", "in_a_thread", "in_a_child", "in_a_childs_coroutine")
    for name in names:
        windlass("run", f"hanging:{name}", "--no-wait")
        worker.expect(f"{name} waits")

    worker.signal(signal.SIGUSR1)

    # The frames of a child come when it answers.
    for name in names:
        pattern = re.compile(rf'^    (\[\d\] )?  File ".*hanging\.py", line \d+, in {name}$', re.MULTILINE)
        ends = time.monotonic() + PATIENCE
        while not pattern.search(worker.output):
            assert time.monotonic() < ends, worker.output
            time.sleep(0.02)
    assert len(re.findall(r"stack of in_a_child\w* in the child process \d+ job=", worker.output)) == 2
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
