"""Pipelines under workers that are killed: every phase has its transactional effect exactly once."""

from __future__ import annotations

import signal
import time
from collections import Counter
from uuid import UUID

from windlass import State
from windlass.model.job import NewJob, new_id

from .process import Process
from .rig import FaultLab, scaled
from .test_kills import POINTS

WORKERS = 3
TRACES = ("first ", "first second ", "first second third ")


def test_every_phase_happens_once_although_workers_are_killed(lab: FaultLab) -> None:
    jobs = enqueue(lab, scaled(20, 5_000))
    workers = [start(lab) for _ in range(WORKERS)]
    began, kills = time.monotonic(), 0

    def nearly_done() -> bool:
        nonlocal kills
        for place, worker in enumerate(workers):
            if worker.ended() is not None:
                assert worker.ended() == -signal.SIGKILL, lab.report()
                workers[place] = start(lab)
                kills += 1
        return lab.final() >= 0.9 * len(jobs) and kills >= WORKERS

    lab.until(nearly_done, "most jobs are done, and a worker was killed", within=600)
    for worker in workers:
        worker.end()
    lab.start()
    lab.until_final(jobs)

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    effects = Counter(job for job, _ in lab.sql("select job, fence from effects"))
    assert effects == Counter(f"{job} {trace}" for job in jobs for trace in TRACES)
    lab.check_fences()
    print(f"{len(jobs)} jobs of three phases, {kills} kills, {time.monotonic() - began:.1f} s")


def enqueue(lab: FaultLab, count: int) -> list[UUID]:
    jobs = [NewJob(id=new_id(), type="first", input="{}", pipeline="line", phase="first") for _ in range(count)]
    lab._app._client.ask(lambda store: store.enqueue(jobs))
    return [job.id for job in jobs]


def start(lab: FaultLab) -> Process:
    """A worker that may die at any of the worst moments."""
    points = ";".join(f"{point}=kill@0.02" for point in POINTS)
    return lab.start("--concurrency", "8", WINDLASS_FAILPOINTS=points, WINDLASS_MAX_CRASHES="1000")
