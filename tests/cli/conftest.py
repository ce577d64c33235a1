"""A directory with a small program, and `windlass` as a user starts it: as a process."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from servers import postgres_database
from windlass.cli.main import cli
from windlass.cli.process.child import COMMAND
from windlass.testing.databases import write_migrated_file

from .brokers import CliBroker, private_broker
from .cli_store import CliStore

PATIENCE = 30.0  # seconds until a test gives up; no test that passes waits that long

APP = """
import time
from windlass import Windlass

app = Windlass()

@app.job
def add(a: int, b: int) -> int:
    return a + b

@app.job
def greet(name: str) -> str:
    return "hello " + name

@app.job(max_attempts=1)
def fail() -> None:
    raise ValueError("out of rope")

@app.job
def hold() -> None:
    time.sleep(600)
"""

IN_PROCESS = ("migrate", "token", "jobs", "run")  # commands; test_run.py interrupts a `run` that is a process

Start = Callable[..., "Running"]
Windlass = Callable[..., "subprocess.CompletedProcess[str]"]


class Running:
    """A `windlass` process; a test can wait for a line of its output."""

    def __init__(self, arguments: tuple[str, ...], cwd: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windlass", *arguments],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait for the next line that matches; lines before it are skipped."""
        while True:
            try:
                line = self._queue.get(timeout=PATIENCE)
            except queue.Empty:
                pytest.fail(f"no line like {pattern!r} within {PATIENCE:g} s; there were:\n{self.output}")
            if line is None:
                pytest.fail(f"it ended without a line like {pattern!r}; there were:\n{self.output}")
            found = re.search(pattern, line)
            if found:
                return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def wait_closed(self) -> None:
        """Wait until the process and each of its children have closed the output."""
        while self._queue.get(timeout=PATIENCE) is not None:
            pass

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line)
                self._queue.put(line)
        self._queue.put(None)


@pytest.fixture
def program_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with `app.py` in it; modules that a test imports from it are unloaded afterwards."""
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def windlass(program_dir: Path) -> Windlass:
    """Run a command to its end: in this process where a process of its own is not the point."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        if arguments[0] in IN_PROCESS:
            done = CliRunner(env={COMMAND: "windlass", **environment}).invoke(cli, arguments, prog_name="windlass")
            return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
        return subprocess.run(
            [sys.executable, "-m", "windlass", *arguments],
            cwd=program_dir,
            env={**os.environ, COMMAND: "windlass", **environment},
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )

    return run


@pytest.fixture
def start(program_dir: Path) -> Iterator[Start]:
    """Start a command that goes on; whatever still runs at the end of the test is killed."""
    started: list[Running] = []

    def begin(*arguments: str, **environment: str) -> Running:
        running = Running(arguments, program_dir, {**os.environ, COMMAND: "windlass", **environment})
        started.append(running)
        return running

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()


@pytest.fixture(params=["file_cli_store", "server_cli_store"])
def cli_store(request: pytest.FixtureRequest) -> CliStore:
    """An empty store of each kind, and the commands on it."""
    made: CliStore = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def file_cli_store(program_dir: Path) -> CliStore:
    """SQLite alone: for behaviour that is the same on both stores, or that only a file has."""
    write_migrated_file(program_dir / "jobs.db")
    return CliStore(f"sqlite:///{program_dir}/jobs.db")


@pytest.fixture
def server_cli_store(program_dir: Path) -> Iterator[CliStore]:
    """PostgreSQL alone."""
    with postgres_database() as database:
        yield CliStore(database.url)


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, program_dir: Path) -> Iterator[CliBroker]:
    """A broker for the commands of this story."""
    with private_broker(request.param) as broker:
        monkeypatch.setenv("WINDLASS_BROKER", broker.url)
        yield broker
