"""A fresh database for every story, on the clock of the machine: worker processes share no other."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers import postgres_database
from windlass.testing.databases import write_migrated_file

from .rig import SEED, FaultLab

# Sessions that hold locks, or are about to: a worker that is frozen inside a transaction keeps its locks.
BUSY = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend' AND state <> 'idle'"
)

EFFECTS = "CREATE TABLE effects (job text NOT NULL, fence bigint NOT NULL)"


@pytest.fixture(autouse=True)
def seed() -> None:
    """Shown with the output of a test that failed."""
    print(f"to repeat the random choices: WINDLASS_FAULT_SEED={SEED}")


@pytest.fixture(params=["sqlite", "postgres"])
def lab(request: pytest.FixtureRequest) -> FaultLab:
    """Both stores."""
    lab: FaultLab = request.getfixturevalue(f"{request.param}_lab")
    return lab


@pytest.fixture
def sqlite_lab(tmp_path: Path) -> Iterator[FaultLab]:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    write_migrated_file(path)

    def run(sql: str) -> list[Any]:
        with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
            return connection.execute(sql.replace("{}", "windlass_")).fetchall()

    def free() -> bool:
        with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    run(EFFECTS)
    with working(url, tmp_path, run, free=free) as lab:
        yield lab


@pytest.fixture
def postgres_lab(tmp_path: Path) -> Iterator[FaultLab]:
    with (
        postgres_database(given=EFFECTS) as database,
        working(database.url, tmp_path, postgres_runner(database.url), busy=BUSY) as lab,
    ):
        yield lab


def postgres_runner(url: str) -> Callable[[str], list[Any]]:
    def run(sql: str) -> list[Any]:
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(sql.replace("{}", "windlass.").encode())
            return cursor.fetchall() if cursor.description else []

    return run


@contextmanager
def working(url: str, directory: Path, run: Callable[[str], list[Any]], **options: Any) -> Iterator[FaultLab]:
    """A lab whose processes are gone when the block ends, however it ends."""
    lab = FaultLab(url, directory, run, **options)
    try:
        yield lab
    finally:
        lab.close()
