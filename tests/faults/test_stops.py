"""SIGTERM, one worker after the other, while jobs of every length run."""

from __future__ import annotations

import signal

from windlass import State

from .rig import FaultLab, scaled


def test_a_rolling_restart_loses_nothing_and_burns_no_attempt(lab: FaultLab) -> None:
    gated = lab.enqueue("gated", 2)  # they outlive every grace time, until the gate opens
    lengths = [lab.random.choice((0.0, 0.05, 0.3, 2.0)) for _ in range(scaled(60, 1_000))]
    jobs = [lab.enqueue(lab.random.choice(("effect", "plain")), seconds=length)[0] for length in lengths] + gated
    workers = [lab.ready("--concurrency", "10", WINDLASS_GRACE="0.3s") for _ in range(2)]
    lab.until(lambda: all(lab.begins(job) for job in gated), "the long jobs run")

    codes: list[int] = []
    for _ in range(scaled(4, 40)):
        worker = workers.pop(0)
        worker.signal(signal.SIGTERM)
        workers.append(lab.ready("--concurrency", "10", WINDLASS_GRACE="0.3s"))
        codes.append(worker.wait())
    lab.open_gate()
    lab.until_final(jobs)

    assert set(codes) == {0}
    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    lab.check_effects([job for job in jobs if lab.find(job).type == "effect"])
    lab.check_fences()
    found = [lab.find(job) for job in jobs]
    assert {(job.attempt, job.crashes, job.rescues) for job in found} == {(1, 0, 0)}
    released = sum(job.fence > 1 for job in found)
    assert released, "no job outlived the grace time: this run proves nothing"
    print(f"{len(codes)} restarts, {released} jobs released")


def test_a_second_sigterm_ends_at_once_and_the_job_is_rescued(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    worker = lab.ready(level="INFO", WINDLASS_GRACE="1h")
    (job,) = lab.enqueue("gated")
    lab.until(lambda: len(lab.begins(job)) == 1, "the job began")

    worker.signal(signal.SIGTERM)
    lab.until(lambda: "stopping; 1 running jobs" in worker.output(), "the worker waits for its job")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 128 + signal.SIGTERM
    lab.open_gate()
    lab.ready()
    lab.until_final([job])
    found = lab.find(job)
    assert (found.status, found.fence, found.attempt) == (State.SUCCEEDED, 2, 1)
