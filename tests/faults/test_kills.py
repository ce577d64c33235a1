"""Workers killed with -9: at random moments, at the worst ones, and restarted at once."""

from __future__ import annotations

import signal
import time

from windlass import State

from .process import Process
from .rig import LEASE, FaultLab, scaled

WORKERS = 4
POINTS = (
    "claim.committed",
    "process.after",
    "transaction.before_commit",
    "transaction.committed",
    "finish.before",
    "finish.committed",
)


def test_jobs_survive_workers_that_are_killed_again_and_again(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    jobs = lab.enqueue("effect", scaled(200, 20_000), seconds=0.005)
    workers = [lab.start("--concurrency", "50") for _ in range(WORKERS)]
    began, kills = time.monotonic(), 0

    lab.until(lambda: State.SUCCEEDED in lab.counts(), "the first job is done")
    while (done := lab.final()) < 0.95 * len(jobs):
        victim = lab.random.randrange(WORKERS)
        workers[victim].kill()
        workers[victim] = lab.start("--concurrency", "50")
        kills += 1
        pause(lab, lab.random.uniform(0.5, 1.5), after=done)
    lab.until_final(jobs)

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}  # nothing lost, nothing left, nothing dead
    lab.check_effects(jobs)
    lab.check_fences()
    rescues = lab.sql("select rescues, count(*) from {}history group by 1 order by 1")
    print(f"{len(jobs)} jobs, {kills} kills, {time.monotonic() - began:.1f} s; jobs by rescues: {dict(rescues)}")


def pause(lab: FaultLab, seconds: float, *, after: int) -> None:
    """Until the next kill; but first a worker must have made progress, or workers die before they have begun."""
    end = time.monotonic() + seconds
    lab.until(lambda: time.monotonic() >= end and lab.final() > after, "the workers get on")


def test_jobs_survive_kills_at_the_worst_moments(lab: FaultLab) -> None:
    jobs = lab.enqueue("effect", scaled(40, 2_000)) + lab.enqueue("plain", scaled(40, 2_000))
    kills = dict.fromkeys(POINTS, 0)

    def start(point: str) -> Process:
        # The children of a worker die at its failpoints too, and of that many deaths an innocent may seem a poison.
        return lab.start("--concurrency", "5", WINDLASS_FAILPOINTS=f"{point}=kill@0.2", WINDLASS_MAX_CRASHES="1000")

    workers = {point: start(point) for point in POINTS}

    def every_point_killed_somebody() -> bool:
        for point, worker in workers.items():
            if worker.ended() == -signal.SIGKILL:
                kills[point] += 1
                workers[point] = start(point)
            assert workers[point].ended() in (None, -signal.SIGKILL), lab.report()
        if lab.final() + 20 > len(jobs):
            jobs.extend(lab.enqueue("effect", 20) + lab.enqueue("plain", 20))
        return min(kills.values()) > 0

    lab.until(every_point_killed_somebody, "every failpoint killed a worker")
    for worker in workers.values():
        worker.end()
    lab.start()
    lab.until_final(jobs)

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}, kills
    lab.check_effects([job for job in jobs if lab.find(job).type == "effect"])
    lab.check_fences()
    print(f"{len(jobs)} jobs; kills: {kills}")


def test_a_worker_restarted_at_once_does_not_keep_the_dead_one_alive(lab: FaultLab) -> None:
    (job,) = lab.enqueue("gated")
    first = lab.ready()
    lab.until(lambda: len(lab.begins(job)) == 1, "the job began")

    first.kill()
    second = lab.ready()
    took = lab.until(lambda: len(lab.begins(job)) == 2, "the job began again")
    seen = second.descendants()  # a suspect runs in a process of its own
    lab.open_gate()
    lab.until_final([job])

    found = lab.find(job)
    assert (found.status, found.fence, found.attempt, found.rescues) == (State.SUCCEEDED, 2, 1, 1)
    begins = lab.begins(job)
    assert [begin.fence for begin in begins] == [1, 2]
    assert begins[0].pid == first.pid
    assert begins[1].pid in seen
    print(f"begun again {took:.1f} s after the restart, with a lease of {LEASE:g} s")
