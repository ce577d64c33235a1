"""Jobs of a dead worker are suspects: a few at a time run in processes of their own, and they leave room for others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from windlass import State

from .rig import Yard

QUICK = 20  # jobs that nothing speaks against


def orphans(yard: Yard, type: str, count: int, **input: Any) -> list[UUID]:
    """Jobs whose worker was killed while they ran."""
    jobs = yard.enqueue(type, count, **input)
    victim = yard.ready("--concurrency", str(count))
    yard.until(lambda: all(yard.begins(job) for job in jobs), "all jobs run")
    victim.kill()
    return jobs


def held(yard: Yard) -> int:
    """How many suspects workers hold."""
    return int(yard.sql("select count(*) from {}jobs where status = 'running' and crashes > 0")[0][0])


@pytest.mark.parametrize(("processors", "share"), [(12, 4), (2, 1)])
def test_suspects_leave_room_for_everybody_else(yard: Yard, processors: int, share: int) -> None:
    suspects = orphans(yard, "gated", 12)
    yard.ready("--concurrency", str(processors))
    yard.until(lambda: held(yard) == share, "suspects run, as many as may")

    quick = yard.enqueue("plain", QUICK)
    yard.until(lambda: all(yard.find(job).status is State.SUCCEEDED for job in quick), "the others go on", within=30)

    assert held(yard) == share
    yard.open_gate()
    yard.until_final([*suspects, *quick])
    assert yard.counts() == {State.SUCCEEDED: len(suspects) + QUICK}
    yard.check_fences()


@pytest.mark.parametrize("then", ["raise", "snooze"])
def test_a_suspect_that_ran_without_harm_is_one_no_longer(yard: Yard, then: str) -> None:
    (job,) = orphans(yard, "survivor", 1, then=then)
    worker = yard.ready()

    yard.until_final([job], within=30)

    _, second, third = yard.begins(job)
    assert second.pid != worker.pid  # in a process of its own
    assert third.pid == worker.pid  # as any other
    assert (yard.find(job).status, yard.find(job).crashes) == (State.SUCCEEDED, 0)


def test_where_crashes_count_a_job_that_kills_its_process_dies_of_its_attempts(yard: Yard) -> None:
    (job,) = yard.enqueue("leave", max_attempts=2)
    yard.start("--processes", "2", WINDLASS_CRASH_COUNTS="on")

    yard.until_final([job])

    found = yard.find(job)
    assert (found.status, found.reason, found.attempt, found.crashes) == (State.DEAD, "exhausted", 2, 2)
    assert len(yard.begins(job)) == 2
