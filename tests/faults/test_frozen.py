"""Workers that stand still: frozen beyond their lease and thawed, paused while they sweep, held by a handler."""

from __future__ import annotations

import pytest

from windlass import State

from .process import Process
from .rig import LEASE, Yard

PLACES = [("finish.before", False), ("transaction.before_commit", True)]


@pytest.mark.parametrize(("point", "transaction"), PLACES, ids=["finish", "transaction"])
def test_a_thawed_worker_changes_nothing_and_goes_on(yard: Yard, point: str, transaction: bool) -> None:
    if transaction and yard.url.startswith("sqlite"):
        pytest.skip("a process that is frozen inside a SQLite transaction holds the file, for as long as it is frozen")
    (job,) = yard.enqueue("freeze", point=point, transaction=transaction)
    zombie = yard.ready()
    yard.until_frozen(zombie)  # on the way to its finish
    incarnation = yard.row(zombie)
    successor = yard.ready()
    yard.until_final([job])
    before = row(yard, job)
    assert yard.find(job).fence == 2

    yard.open_gate()
    zombie.thaw()
    yard.until(lambda: is_new(yard, zombie, incarnation), "the thawed worker registered anew")
    successor.kill()
    (other,) = yard.enqueue("plain")
    yard.until_final(2)

    assert row(yard, job) == before
    assert [entry.pid for entry in yard.begins(other)] == [zombie.pid]
    assert yard.effects()[job] == (1 if transaction else 0)


def test_a_frozen_worker_loses_its_jobs_even_while_it_beats_again(yard: Yard) -> None:
    (job,) = yard.enqueue("gated")
    zombie = yard.ready()
    yard.until(lambda: len(yard.begins(job)) == 1, "the job began")
    yard.freeze(zombie)
    successor = yard.ready()
    yard.until(lambda: len(yard.begins(job)) == 2, "the successor began it")

    zombie.thaw()
    successor.end()  # with the child that runs the suspect
    yard.until(lambda: len(yard.begins(job)) == 3, "the zombie, under a new lease, began it")
    yard.open_gate()
    yard.until_final([job])

    found = yard.find(job)
    assert (found.status, found.fence, found.output) == (State.SUCCEEDED, 3, "3")
    yard.check_fences()


def test_a_finish_while_the_sweeper_pauses_stays(postgres_yard: Yard) -> None:
    yard = postgres_yard  # on SQLite a sweeper that stands still may hold the file
    owner = yard.ready(WINDLASS_SWEEP="1h")  # its own sweeper would not pause
    yard.until(lambda: is_idle(yard, owner), "the owner's first sweep is over")
    (job,) = yard.enqueue("freeze", point="finish.before", transaction=False)
    yard.until_frozen(owner)  # on the way to its finish
    sweeper = yard.start("--type", "plain", WINDLASS_FAILPOINTS="sweep.buried=stop")

    def owner_is_buried() -> bool:
        if not sweeper.frozen:
            return False
        buried = any(worker.dead for worker in yard.workers())
        if not buried:
            sweeper.thaw()
        return buried

    yard.until(owner_is_buried, "the sweeper buried the owner, and stands still before it takes its jobs")
    yard.open_gate()
    owner.thaw()
    yard.until_final([job])
    before = row(yard, job)
    sweeper.thaw()
    yard.until(lambda: sweeper.frozen, "the sweeper took what it could, and stands in its next sweep")

    assert row(yard, job) == before
    found = yard.find(job)
    assert (found.status, found.fence, found.rescues) == (State.SUCCEEDED, 1, 0), yard.told()


def test_a_handler_that_blocks_the_event_loop_is_not_run_twice(yard: Yard) -> None:
    blocked = yard.ready()
    yard.ready("--type", "plain")  # somebody who would take the job's worker for dead
    (job,) = yard.enqueue("block", seconds=3 * LEASE)

    yard.until_final([job])

    found = yard.find(job)
    assert (found.status, found.fence, found.rescues) == (State.SUCCEEDED, 1, 0)
    assert [entry.pid for entry in yard.begins(job)] == [blocked.pid]


def is_new(yard: Yard, process: Process, before: object) -> bool:
    return (now := yard.row(process)) is not None and now != before and not now.dead


def is_idle(yard: Yard, process: Process) -> bool:
    return (now := yard.row(process)) is not None and now.idle


def row(yard: Yard, job: object) -> object:
    """The whole record as the database has it."""
    (found,) = yard.sql(f"select * from {{}}history where id = '{job}'")
    return found
