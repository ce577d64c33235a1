"""Workers killed with -9: at random moments, at the worst ones, and restarted at once."""

from __future__ import annotations

import signal
import time

from windlass import State

from .process import Process
from .rig import LEASE, Yard, scaled

WORKERS = 4
POINTS = (
    "claim.committed",
    "process.after",
    "transaction.before_commit",
    "transaction.committed",
    "finish.before",
    "finish.committed",
)


def test_jobs_survive_workers_that_are_killed_again_and_again(postgres_yard: Yard) -> None:
    yard = postgres_yard
    jobs = yard.enqueue("effect", scaled(200, 20_000), seconds=0.005)
    workers = [yard.start("--concurrency", "50") for _ in range(WORKERS)]
    began, kills = time.monotonic(), 0

    yard.until(lambda: State.SUCCEEDED in yard.counts(), "the first job is done")
    while (done := yard.final()) < 0.95 * len(jobs):
        victim = yard.random.randrange(WORKERS)
        workers[victim].kill()
        workers[victim] = yard.start("--concurrency", "50")
        kills += 1
        pause(yard, yard.random.uniform(0.5, 1.5), after=done)
    yard.until_final(jobs)

    assert yard.counts() == {State.SUCCEEDED: len(jobs)}  # nothing lost, nothing left, nothing dead
    yard.check_effects(jobs)
    yard.check_fences()
    rescues = yard.sql("select rescues, count(*) from {}history group by 1 order by 1")
    print(f"{len(jobs)} jobs, {kills} kills, {time.monotonic() - began:.1f} s; jobs by rescues: {dict(rescues)}")


def pause(yard: Yard, seconds: float, *, after: int) -> None:
    """Until the next kill; but first somebody must have got on, or workers die before they have begun."""
    end = time.monotonic() + seconds
    yard.until(lambda: time.monotonic() >= end and yard.final() > after, "the workers get on")


def test_jobs_survive_kills_at_the_worst_moments(yard: Yard) -> None:
    jobs = yard.enqueue("effect", scaled(40, 2_000)) + yard.enqueue("plain", scaled(40, 2_000))
    kills = dict.fromkeys(POINTS, 0)

    def start(point: str) -> Process:
        # The children of a worker die at its failpoints too, and of that many deaths an innocent may seem a poison.
        return yard.start("--concurrency", "5", WINDLASS_FAILPOINTS=f"{point}=kill@0.2", WINDLASS_MAX_CRASHES="1000")

    workers = {point: start(point) for point in POINTS}

    def every_point_killed_somebody() -> bool:
        for point, worker in workers.items():
            if worker.ended() == -signal.SIGKILL:
                kills[point] += 1
                workers[point] = start(point)
            assert workers[point].ended() in (None, -signal.SIGKILL), yard.told()
        if yard.final() + 20 > len(jobs):
            jobs.extend(yard.enqueue("effect", 20) + yard.enqueue("plain", 20))
        return min(kills.values()) > 0

    yard.until(every_point_killed_somebody, "every failpoint killed somebody")
    for worker in workers.values():
        worker.end()
    yard.start()
    yard.until_final(jobs)

    assert yard.counts() == {State.SUCCEEDED: len(jobs)}, kills
    yard.check_effects([job for job in jobs if yard.find(job).type == "effect"])
    yard.check_fences()
    print(f"{len(jobs)} jobs; kills: {kills}")


def test_a_worker_restarted_at_once_does_not_keep_the_dead_one_alive(yard: Yard) -> None:
    (job,) = yard.enqueue("gated")
    first = yard.ready()
    yard.until(lambda: len(yard.begins(job)) == 1, "the job began")

    first.kill()
    second = yard.ready()
    took = yard.until(lambda: len(yard.begins(job)) == 2, "the job began again")
    seen = second.offspring()  # a suspect runs in a process of its own
    yard.open_gate()
    yard.until_final([job])

    found = yard.find(job)
    assert (found.status, found.fence, found.attempt, found.rescues) == (State.SUCCEEDED, 2, 1, 1)
    begins = yard.begins(job)
    assert [begin.fence for begin in begins] == [1, 2]
    assert begins[0].pid == first.pid
    assert begins[1].pid in seen
    print(f"begun again {took:.1f} s after the restart, with a lease of {LEASE:g} s")
