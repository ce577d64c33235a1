"""Jobs of a dead worker are suspects: a few at a time run in processes of their own, and they leave room for others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from windlass import State

from .rig import FaultLab

QUICK = 20  # jobs that nothing speaks against


def orphans(lab: FaultLab, type: str, count: int, **input: Any) -> list[UUID]:
    """Jobs of a worker that was killed while they ran."""
    jobs = lab.enqueue(type, count, **input)
    victim = lab.ready("--concurrency", str(count))
    lab.until(lambda: all(lab.begins(job) for job in jobs), "all jobs run")
    victim.kill()
    return jobs


def held(lab: FaultLab) -> int:
    """How many suspects workers hold."""
    return int(lab.sql("select count(*) from {}jobs where status = 'running' and crashes > 0")[0][0])


@pytest.mark.parametrize(("processors", "share"), [(12, 4), (2, 1)])
def test_suspects_leave_room_for_everybody_else(lab: FaultLab, processors: int, share: int) -> None:
    suspects = orphans(lab, "gated", 12)
    lab.ready("--concurrency", str(processors))
    lab.until(lambda: held(lab) == share, "suspects run, as many as may")

    quick = lab.enqueue("plain", QUICK)
    lab.until(lambda: all(lab.find(job).status is State.SUCCEEDED for job in quick), "the others go on", within=30)

    assert held(lab) == share
    lab.open_gate()
    lab.until_final([*suspects, *quick])
    assert lab.counts() == {State.SUCCEEDED: len(suspects) + QUICK}
    lab.check_fences()


@pytest.mark.parametrize("then", ["raise", "snooze"])
def test_a_suspect_that_ran_without_harm_is_one_no_longer(lab: FaultLab, then: str) -> None:
    (job,) = orphans(lab, "survivor", 1, then=then)
    worker = lab.ready()

    lab.until_final([job], within=30)

    _, second, third = lab.begins(job)
    assert second.pid != worker.pid  # in a process of its own
    assert third.pid == worker.pid  # as any other
    assert (lab.find(job).status, lab.find(job).crashes) == (State.SUCCEEDED, 0)


def test_where_crashes_count_a_job_that_kills_its_process_dies_of_its_attempts(lab: FaultLab) -> None:
    (job,) = lab.enqueue("leave", max_attempts=2)
    lab.start("--processes", "2", WINDLASS_CRASH_COUNTS="on")

    lab.until_final([job])

    found = lab.find(job)
    assert (found.status, found.reason, found.attempt, found.crashes) == (State.DEAD, "exhausted", 2, 2)
    assert len(lab.begins(job)) == 2
