"""An upgrade and a rollback while jobs run: the next release is a copy of this one with one more migration.

The migration does all that a migration may do: it adds a column with a value to every table, an index and a table. So
each statement of this program meets a schema that is wider than the one it was written for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from windlass import State
from windlass.store import dialect_of
from windlass.store.migrate import migrations, newest

from .process import Process
from .rig import HERE, FaultLab, scaled
from .test_admission import fullest
from .test_schedules import EVERY, Timetable

PACKAGE = Path(sys.modules["windlass"].__file__ or "").parent
KEY, MOST = ("key",), 2  # of program.counted
PATIENCE = scaled(60, 600)  # seconds
LOAD = scaled(8, 840)  # jobs of each kind per stage
PAUSE = 0.01  # seconds between two enqueues of a producer
MOST_PRODUCED = scaled(80, 800)  # jobs: on a busy machine a migration takes long
CREATED = re.compile(r"^CREATE TABLE (?:windlass\.|windlass_)(\w+)\b(?! PARTITION)", re.MULTILINE)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the next release, for PYTHONPATH."""
    place = tmp_path_factory.mktemp("release")
    shutil.copytree(PACKAGE, place / "windlass", ignore=shutil.ignore_patterns("__pycache__", "dashboard"))
    for dialect, prefix in (("postgres", "windlass."), ("sqlite", "windlass_")):
        sql = "\n".join(step.sql for step in migrations(dialect))
        exists = " IF NOT EXISTS" if dialect == "postgres" else ""
        parts = [
            f"ALTER TABLE {prefix}{table} ADD COLUMN{exists} added_to_{table} integer NOT NULL DEFAULT 7;"
            for table in dict.fromkeys(CREATED.findall(sql))
        ]
        concurrently = " CONCURRENTLY IF NOT EXISTS" if dialect == "postgres" else ""
        jobs = f"{prefix}jobs" if dialect == "postgres" else "windlass_jobs"
        parts.append(f"CREATE INDEX{concurrently} jobs_next ON {jobs} (type, id);")
        parts.append(f"CREATE TABLE IF NOT EXISTS {prefix}next (id integer);")
        path = place / "windlass/store" / dialect / "migrations" / f"{newest(dialect) + 1:04}_next.sql"
        path.write_text("\n-- then\n".join(parts))
    return place


class Upgrade:
    """Jobs, producers and workers of two releases on one database."""

    def __init__(self, lab: FaultLab, release: Path) -> None:
        self.lab = lab
        self.release = str(release)
        self.effects: list[UUID] = []
        self.counted: list[UUID] = []
        self.enqueued = 0

    def load(self) -> None:
        """Enqueue jobs of every kind, and wait for all of those before: the newest are on their way when this ends."""
        lab, before = self.lab, self.enqueued
        joins = lab.enqueue("fan_out", LOAD // 4, children=3)
        self.effects += [*lab.enqueue("effect", LOAD, seconds=0.02), *joins]
        self.counted += lab.enqueue("counted", LOAD, limits=KEY, seconds=0.02)
        self.enqueued += 2 * LOAD + 4 * len(joins)  # a join has three children
        lab.until(lambda: self.ended() >= before + LOAD // 4, "jobs end", within=PATIENCE)

    @contextmanager
    def producing(self) -> Iterator[None]:
        """A program of this release that enqueues until the block ends, one job after another."""
        ends, most = threading.Event(), self.enqueued + MOST_PRODUCED

        def produce() -> None:
            while not ends.wait(PAUSE) and self.enqueued < most:
                self.effects += self.lab.enqueue("effect")
                self.enqueued += 1

        with ThreadPoolExecutor(1) as thread:
            producing = thread.submit(produce)
            try:
                yield
            finally:
                ends.set()
        producing.result()  # raises what an enqueue raised

    def ended(self) -> int:
        """How many jobs are final, beside those of the schedule."""
        return int(self.lab.sql("SELECT count(*) FROM {}history WHERE type <> 'ticked'")[0][0])

    def run(self, *arguments: str, release: str = "") -> subprocess.CompletedProcess[str]:
        """`windlass …` of a release; empty: this one."""
        given = {"WINDLASS_URL": self.lab.url, "PYTHONPATH": release, "FAULT_LEDGER": os.devnull}
        return subprocess.run(
            [sys.executable, "-m", "windlass", *arguments],
            cwd=HERE,
            env={**os.environ, **given, "FAULT_GATE": os.devnull},
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, release: str = "") -> Process:
        return self.lab.ready("--concurrency", "6", **EVERY, PYTHONPATH=release)

    def stop(self, worker: Process) -> None:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.output()

    def known(self) -> list[int]:
        """The schema numbers that the programs of live workers know."""
        found = self.lab.sql("SELECT schema_number FROM {}workers WHERE NOT dead ORDER BY schema_number")
        return [number for (number,) in found]

    def most_at_once(self) -> int:
        """How many jobs of the limit ran at a time."""
        lines = [entry for entry in self.lab.ledger() if entry.job in set(self.counted)]
        ends = {(entry.job, entry.fence): entry.at for entry in lines if entry.event == "end"}
        return fullest([(entry, ends[entry.job, entry.fence]) for entry in lines if entry.event == "begin"])


def test_old_and_new_run_side_by_side_through_an_upgrade_and_a_rollback(lab: FaultLab, release: Path) -> None:
    """Given load, when schema and workers change twice, then nothing is lost, nothing doubled, and no limit passed."""
    up = Upgrade(lab, release)
    old, table = up.start(), Timetable(lab)
    begin = table.begins()
    up.load()

    early = up.run("worker", "program.py", release=up.release)  # the wrong order: the new program comes first
    assert (early.returncode, "windlass migrate program.py" in early.stderr) == (2, True), early.stderr
    before = up.enqueued
    with up.producing():
        migrated = up.run("migrate", release=up.release)
    assert up.enqueued > before
    assert (migrated.returncode, " next\n" in migrated.stdout) == (0, True), migrated.stderr
    up.load()

    new = up.start(up.release)
    assert up.known() == [newest(dialect_of(lab.url)), newest(dialect_of(lab.url)) + 1]  # two programs, side by side
    enqueued = up.run("enqueue", "program.py:effect", "seconds=0.02", "--json", release=up.release)
    up.effects.append(UUID(json.loads(enqueued.stdout)["id"]))
    up.enqueued += 1
    up.stop(old)
    up.load()

    back = up.start()  # the rollback: this release on the schema of the next one
    assert "one ahead of this program" in up.run("migrate").stdout
    up.stop(new)
    up.load()
    table.pause()
    lab.until(lambda: lab.final() == up.enqueued + len(table.jobs()), "every job is final", within=PATIENCE)
    up.stop(back)

    assert set(lab.counts()) == {State.SUCCEEDED}
    lab.check_effects(up.effects)
    lab.check_fences()
    assert up.most_at_once() <= MOST
    table.check(begin, least=1)
