"""Prefork servers (gunicorn, uWSGI): the app is imported and used, then the process forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from . import prefork
from .rig import PATIENCE, Database

ENQUEUED = 3 + prefork.CHILDREN * (1 + prefork.THREADS)


def test_an_enqueue_works_in_the_parent_and_in_every_child_after_a_fork(database: Database) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("prefork.py")), database.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert len(set(done.stdout.split())) == ENQUEUED
    assert database.jobs() == ENQUEUED
