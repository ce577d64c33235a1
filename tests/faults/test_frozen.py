"""Workers that stand still: frozen beyond their lease and thawed, paused while they sweep, held by a handler."""

from __future__ import annotations

import pytest

from windlass import State

from .process import Process
from .rig import LEASE, FaultLab

PLACES = [("finish.before", False), ("transaction.before_commit", True)]


@pytest.mark.parametrize(("point", "transaction"), PLACES, ids=["finish", "transaction"])
def test_a_thawed_worker_changes_nothing_and_goes_on(lab: FaultLab, point: str, transaction: bool) -> None:
    if transaction and lab.url.startswith("sqlite"):
        pytest.skip("a process that is frozen inside a SQLite transaction holds the file, for as long as it is frozen")
    (job,) = lab.enqueue("freeze", point=point, transaction=transaction)
    zombie = lab.ready()
    lab.until_frozen(zombie)  # on the way to its finish
    incarnation = lab.row(zombie)
    successor = lab.ready()
    lab.until_final([job])
    before = row(lab, job)
    assert lab.find(job).fence == 2

    lab.open_gate()
    zombie.thaw()
    lab.until(lambda: is_new(lab, zombie, incarnation), "the thawed worker registered anew")
    successor.kill()
    (other,) = lab.enqueue("plain")
    lab.until_final(2)

    assert row(lab, job) == before
    assert [entry.pid for entry in lab.begins(other)] == [zombie.pid]
    assert lab.effects()[job] == (1 if transaction else 0)


def test_a_frozen_worker_loses_its_jobs_even_while_it_beats_again(lab: FaultLab) -> None:
    (job,) = lab.enqueue("gated")
    zombie = lab.ready()
    lab.until(lambda: len(lab.begins(job)) == 1, "the job began")
    lab.freeze(zombie)
    successor = lab.ready()
    lab.until(lambda: len(lab.begins(job)) == 2, "the successor began it")

    zombie.thaw()
    successor.end()  # with the child that runs the suspect
    lab.until(lambda: len(lab.begins(job)) == 3, "the zombie, under a new lease, began it")
    lab.open_gate()
    lab.until_final([job])

    found = lab.find(job)
    assert (found.status, found.fence, found.output) == (State.SUCCEEDED, 3, "3")
    lab.check_fences()


def test_a_finish_while_the_sweeper_pauses_stays(postgres_lab: FaultLab) -> None:
    lab = postgres_lab  # on SQLite a sweeper that stands still may hold the file
    owner = lab.ready(WINDLASS_SWEEP="1h")  # its own sweeper would not pause
    lab.until(lambda: is_idle(lab, owner), "the owner's first sweep is over")
    (job,) = lab.enqueue("freeze", point="finish.before", transaction=False)
    lab.until_frozen(owner)  # on the way to its finish
    sweeper = lab.start("--type", "plain", WINDLASS_FAILPOINTS="sweep.buried=stop")

    def owner_is_buried() -> bool:
        if not sweeper.frozen:
            return False
        buried = any(worker.dead for worker in lab.workers())
        if not buried:
            sweeper.thaw()
        return buried

    lab.until(owner_is_buried, "the sweeper buried the owner, and stands still before it takes its jobs")
    lab.open_gate()
    owner.thaw()
    lab.until_final([job])
    before = row(lab, job)
    sweeper.thaw()
    lab.until(lambda: sweeper.frozen, "the sweeper took what it could, and stands in its next sweep")

    assert row(lab, job) == before
    found = lab.find(job)
    assert (found.status, found.fence, found.rescues) == (State.SUCCEEDED, 1, 0), lab.report()


def test_a_handler_that_blocks_the_event_loop_is_not_run_twice(lab: FaultLab) -> None:
    blocked = lab.ready()
    lab.ready("--type", "plain")  # a sweeper that would take the job's worker for dead
    (job,) = lab.enqueue("block", seconds=3 * LEASE)

    lab.until_final([job])

    found = lab.find(job)
    assert (found.status, found.fence, found.rescues) == (State.SUCCEEDED, 1, 0)
    assert [entry.pid for entry in lab.begins(job)] == [blocked.pid]


def is_new(lab: FaultLab, process: Process, before: object) -> bool:
    return (now := lab.row(process)) is not None and now != before and not now.dead


def is_idle(lab: FaultLab, process: Process) -> bool:
    return (now := lab.row(process)) is not None and now.idle


def row(lab: FaultLab, job: object) -> object:
    """The whole record as the database has it."""
    (found,) = lab.sql(f"select * from {{}}history where id = '{job}'")
    return found
