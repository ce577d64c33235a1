"""The database itself fails: a PostgreSQL that crashes under load, a SQLite file with writers that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass import State, Windlass

from .conftest import EFFECTS, postgres_runner, working
from .rig import LEASE, FaultLab, scaled
from .server import Server, private_server

PROCESSES = scaled(5, 8)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


@pytest.fixture
def crashing_lab(server: Server, tmp_path: Path) -> Iterator[FaultLab]:
    Windlass(server.url).migrate()
    run = postgres_runner(server.url)
    run("DROP TABLE IF EXISTS effects")
    run("DELETE FROM {}jobs; DELETE FROM {}history; DELETE FROM {}workers")
    run(EFFECTS)
    with working(server.url, tmp_path, run) as lab:
        yield lab


def test_workers_survive_crashes_of_postgresql(server: Server, crashing_lab: FaultLab) -> None:
    lab = crashing_lab
    jobs = lab.enqueue("effect", scaled(150, 10_000), seconds=0.02) + lab.enqueue("plain", scaled(150, 10_000))
    workers = [lab.start("--concurrency", "5") for _ in range(2)]

    for round in range(1, scaled(2, 5) + 1):
        lab.until(lambda round=round: lab.final() > round * len(jobs) // 8, "jobs get on")  # type: ignore[misc]
        server.crash()
        server.start()
    lab.until_final(jobs)

    assert [worker.ended() for worker in workers] == [None, None]
    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    lab.check_effects([job for job in jobs if lab.find(job).type == "effect"])


def test_workers_survive_an_outage_longer_than_their_lease(server: Server, crashing_lab: FaultLab) -> None:
    lab = crashing_lab
    jobs = lab.enqueue("effect", 50, seconds=0.2) + lab.enqueue("plain", 50, seconds=0.2)
    workers = [lab.start("--concurrency", "10") for _ in range(2)]
    lab.until(lambda: lab.final() > 10, "jobs get on")
    # A worker that is not registered yet has no leases to lose.
    lab.until(lambda: lab.sql("SELECT count(*) FROM {}workers WHERE NOT dead") == [(2,)], "both workers are registered")

    server.crash()
    lab.until(
        lambda: all("lost its leases" in worker.output() for worker in workers), "the workers gave up their leases"
    )
    server.start()
    took = lab.until_final(jobs)

    assert [worker.ended() for worker in workers] == [None, None]
    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    lab.check_effects([job for job in jobs if lab.find(job).type == "effect"])
    print(f"{took:.1f} s after the outage, with a lease of {LEASE:g} s")


def test_writers_killed_in_one_sqlite_file_leave_it_whole(sqlite_lab: FaultLab) -> None:
    lab = sqlite_lab
    jobs = lab.enqueue("effect", scaled(80, 2_000)) + lab.enqueue("plain", scaled(80, 2_000))
    workers = [lab.start("--concurrency", "4") for _ in range(PROCESSES)]

    for round in range(1, scaled(4, 40) + 1):
        lab.until(lambda round=round: lab.final() > round * len(jobs) // scaled(8, 60), "jobs get on")  # type: ignore[misc]
        victim = lab.random.randrange(PROCESSES)
        workers[victim].kill()
        workers[victim] = lab.start("--concurrency", "4")
    lab.until_final(jobs)

    assert lab.sql("PRAGMA integrity_check") == [("ok",)]
    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    lab.check_effects([job for job in jobs if lab.find(job).type == "effect"])
    lab.check_fences()
    assert [told for told in (process.output() for process in lab.processes) if "locked" in told] == []
