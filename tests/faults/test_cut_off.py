"""A database that is away for longer than a lease proves nothing about the jobs that ran: none becomes a suspect."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg

from windlass import State
from windlass.store.protocol import Claim, Claimed, NewWorker, Store

from .process import Process
from .rig import LEASE, FaultLab

JOBS = 8
LOST = "lost its leases"


@contextmanager
def away(lab: FaultLab) -> Iterator[None]:
    """No worker can beat, claim, finish or sweep while this block is open; each statement waits or is refused."""
    connection: Any
    if lab.url.startswith("sqlite"):
        path = lab.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
    else:
        with psycopg.connect(lab.url) as connection:
            connection.execute("SET lock_timeout = '60s'")
            connection.execute("LOCK TABLE windlass.workers, windlass.jobs IN ACCESS EXCLUSIVE MODE")
            yield


def until_lost(lab: FaultLab, *workers: Process) -> None:
    for worker in workers:
        lab.until(lambda worker=worker: LOST in worker.output(), f"worker {worker.pid} lost its leases")  # type: ignore[misc]


def runs(lab: FaultLab, jobs: list[UUID], times: int) -> bool:
    return all(len(lab.begins(job)) == times for job in jobs)


def unharmed(lab: FaultLab, jobs: list[UUID]) -> None:
    records = [lab.find(job) for job in jobs]
    assert {(job.status, job.attempt, job.crashes) for job in records} == {(State.SUCCEEDED, 1, 0)}


def test_a_worker_that_was_cut_off_gives_its_jobs_back_without_a_crash(lab: FaultLab) -> None:
    worker = lab.ready("--concurrency", str(JOBS))
    jobs = lab.enqueue("gated", JOBS)
    lab.until(lambda: runs(lab, jobs, 1), "all jobs run")

    with away(lab):
        until_lost(lab, worker)
    lab.until(lambda: runs(lab, jobs, 2), "all jobs run again")
    lab.open_gate()
    lab.until_final(jobs)

    unharmed(lab, jobs)
    assert {entry.pid for entry in lab.ledger()} == {worker.pid}  # none was kept in a process of its own
    assert {lab.find(job).rescues for job in jobs} == {0}  # the worker was faster than any sweep
    lab.check_fences()


def test_what_ended_before_the_outage_was_noticed_is_written_after_it(lab: FaultLab) -> None:
    worker = lab.ready("--concurrency", str(JOBS))
    jobs = lab.enqueue("gated", JOBS)
    lab.until(lambda: runs(lab, jobs, 1), "all jobs run")

    with away(lab):
        lab.open_gate()
        lab.until(lambda: len([e for e in lab.ledger() if e.event == "end"]) == JOBS, "all jobs ended")
        until_lost(lab, worker)
    lab.until_final(jobs)

    unharmed(lab, jobs)
    assert runs(lab, jobs, 1)


def test_an_outage_for_a_fleet_makes_no_suspects(lab: FaultLab) -> None:
    """The first worker that is back sweeps at once, and finds the other one silent beyond its lease."""
    workers = [lab.ready("--concurrency", str(JOBS // 2)) for _ in range(2)]
    jobs = lab.enqueue("gated", JOBS)
    lab.until(lambda: runs(lab, jobs, 1), "all jobs run")
    frozen, first = workers
    lab.freeze(frozen)

    with away(lab):
        until_lost(lab, first)
    lab.open_gate()
    lab.until_final(jobs)
    frozen.thaw()

    unharmed(lab, jobs)
    lab.check_fences()


def test_a_sweep_that_is_faster_than_the_worker_that_comes_back_keeps_what_it_did(lab: FaultLab) -> None:
    """The race: the job was rescued, and claimed anew, before its first worker could give it back."""
    worker = lab.ready("--concurrency", "1")
    (job,) = lab.enqueue("gated")
    lab.until(lambda: runs(lab, [job], 1), "the job runs")

    with away(lab):
        until_lost(lab, worker)
        worker.freeze()
    successor = NewWorker(id=uuid4(), name="other", lease=600.0, queues=None, types=("gated",), concurrency=1)
    lab.until(lambda: rescue(lab) == 1, "another worker's sweep rescued the job", within=10 * LEASE)
    claimed = lab.ask(lambda store: take_over(store, successor))
    worker.thaw()
    lab.until(lambda: "0 of 1" in worker.output(), "the worker came back, and released nothing")

    found = lab.find(job)
    assert [each.id for each in claimed.jobs] == [job]
    assert (found.status, found.worker, found.token) == (State.RUNNING, successor.id, claimed.jobs[0].token)
    assert found.fence == claimed.jobs[0].fence == 2
    assert found.crashes == 1
    assert runs(lab, [job], 1)


def rescue(lab: FaultLab) -> int:
    return lab.ask(lambda store: store.sweep(max_crashes=3)).rescued


async def take_over(store: Store, worker: NewWorker) -> Claimed:
    await store.register(worker)
    return await store.claim(Claim(worker=worker.id, room=1, types=worker.types, rescan=True))
