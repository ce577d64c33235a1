"""A worker process of the demo: an ordinary worker, with a subscriber that reports what its processors do."""

from __future__ import annotations

import os
from pathlib import Path

from windlass.cli.demo.reports import WorkerReporter
from windlass.cli.process.run_worker import run_worker
from windlass.declare.program import load
from windlass.observe.logs import set_up

PROGRAM = "windlass.cli.demo.program:app"


def arguments(number: int, folder: Path) -> list[str]:
    """The command line of a worker, for the supervisor."""
    return ["demo", "--worker", str(number), "--folder", str(folder)]


def work(number: int, folder: Path, lifeline: int | None) -> None:
    """Run until a signal, or until the demo's own process ends."""
    _redirect_output(log_path(number, folder))
    set_up("WARNING", name=str(number))
    app = load(PROGRAM)
    reporter = WorkerReporter(folder, number)
    run_worker(lambda: reporter.follow(app.worker()), subscribers=(reporter,), lifeline=lifeline)


def log_path(number: int, folder: Path) -> Path:
    return folder / f"worker-{number}.log"


def _redirect_output(log: Path) -> None:
    """Write the output of this process and its children to the log: the terminal belongs to the demo's screen."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
