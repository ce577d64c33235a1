"""Joins: a job that waits is woken once, when what it needs is there or cannot come any more."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass import failpoints
from windlass.model.flow import Flow
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import (
    BAD_ENDS,
    LIMIT,
    be_cancelled,
    be_discarded,
    die,
    end,
    family,
    fan_out,
    is_woken,
    one_that_ended,
    waiter,
    waiting_for,
)
from .rig import alone

if TYPE_CHECKING:
    from .rig import Rig

DAY = timedelta(days=1).total_seconds()


# Children


async def test_a_parent_waits_and_holds_nothing(rig: Rig) -> None:
    parent, children = await family(rig, 2)

    waiting = await rig.find(parent)
    assert (waiting.status, waiting.token, waiting.worker, waiting.attempt) == (State.WAITING, None, None, 0)
    for child in children:
        found = await rig.find(child)
        assert (found.status, found.parent, found.created_at) == (State.QUEUED, parent, rig.clock.now())
    assert {job.id for job in await rig.claim()} == set(children)


async def test_the_last_child_wakes_its_parent(rig: Rig) -> None:
    parent, (first, second, third) = await family(rig, 3)
    await end(rig, first)
    await end(rig, third)
    assert await rig.status(parent) is State.WAITING
    await rig.advance(20)

    await end(rig, second)

    assert await is_woken(rig, parent)
    again = await rig.take(parent)
    assert (again.attempt, again.fence) == (1, 2)


@pytest.mark.parametrize("need", [1, 2])
async def test_a_quorum_is_enough_and_later_ends_change_nothing(rig: Rig, need: int) -> None:
    parent, children = await family(rig, 4, need=need)
    for child in children[:need]:
        assert await rig.status(parent) is State.WAITING
        await end(rig, child)
    assert await is_woken(rig, parent)

    running = await rig.take(parent)
    await end(rig, children[2])
    await die(rig, children[3])

    assert await rig.find(parent) == running


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.WAIT, Verb.ADVANCE])
async def test_a_child_that_goes_on_has_not_ended(rig: Rig, verb: Verb) -> None:
    parent, (child,) = await family(rig, 1)

    await end(rig, child, verb)

    assert await rig.status(parent) is State.WAITING


async def test_a_rescued_child_has_not_ended(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    await rig.take(child)
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=3)

    assert await rig.status(parent) is State.WAITING
    rig.worker = await rig.register()
    await end(rig, child)
    assert await is_woken(rig, parent)


async def test_a_child_on_its_second_attempt_wakes_its_parent(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    await end(rig, child, Verb.FAIL, attempt=1)

    await end(rig, child)

    assert await is_woken(rig, parent)


async def test_a_parent_waits_again_for_what_is_left(rig: Rig) -> None:
    parent, (first, second, third) = await family(rig, 3, need=1)
    await end(rig, first)
    again = await rig.take(parent)

    assert await rig.finish(again, Verb.WAIT, flow=Flow(wait=waiting_for(first, second, third))) is State.WAITING

    await end(rig, second)
    assert await rig.status(parent) is State.WAITING
    await end(rig, third)
    assert await is_woken(rig, parent)
    once_more = await rig.take(parent)
    assert (once_more.attempt, once_more.fence) == (1, 3)


async def test_children_may_have_children(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    running = await rig.take(child)
    grandchild = alone(parent=child)
    assert await rig.finish(running, Verb.WAIT, flow=fan_out(grandchild)) is State.WAITING

    await end(rig, grandchild.id)

    assert await is_woken(rig, child)
    assert await rig.status(parent) is State.WAITING
    await end(rig, child)
    assert await is_woken(rig, parent)


async def test_two_jobs_wait_for_one(rig: Rig) -> None:
    child = await rig.running()
    waiters = [await waiter(rig, child.id) for _ in range(2)]

    await rig.finish(child, Verb.SUCCEED)

    for each in waiters:
        assert await is_woken(rig, each)


async def test_a_child_claimed_before_anybody_waited_for_it_wakes_the_waiter(rig: Rig) -> None:
    child = await rig.running()
    assert not child.followed
    parent = await waiter(rig, child.id)

    await rig.finish(child, Verb.SUCCEED, followed=False)

    assert await is_woken(rig, parent)


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.BURY, Verb.STOP])
async def test_a_child_finished_in_a_transaction_wakes_the_waiter_with_its_commit(rig: Rig, verb: Verb) -> None:
    child = await rig.running()
    parent = await waiter(rig, child.id)

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(Transition(lease=child.lease, verb=verb))
        assert await rig.status(parent) is State.WAITING
        await transaction.commit()

    assert await is_woken(rig, parent)


async def test_a_child_finished_in_a_transaction_that_is_rolled_back_wakes_nobody(rig: Rig) -> None:
    child = await rig.running()
    parent = await waiter(rig, child.id)
    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.finish(Transition(lease=child.lease, verb=Verb.SUCCEED))

    assert await rig.status(parent) is State.WAITING
    await rig.finish(child, Verb.SUCCEED)
    assert await is_woken(rig, parent)


# Bad ends


@pytest.mark.parametrize("name", sorted(BAD_ENDS))
async def test_a_parent_is_woken_when_its_need_cannot_be_met(rig: Rig, name: str) -> None:
    parent, (first, second) = await family(rig, 2)

    await BAD_ENDS[name](rig, first)

    assert await is_woken(rig, parent)
    running = await rig.take(parent)
    await end(rig, second)
    assert await rig.find(parent) == running


@pytest.mark.parametrize("name", sorted(BAD_ENDS))
async def test_a_bad_end_that_can_be_spared_wakes_nobody(rig: Rig, name: str) -> None:
    parent, (first, second, third) = await family(rig, 3, need=1)

    await BAD_ENDS[name](rig, first)
    assert await rig.status(parent) is State.WAITING
    await BAD_ENDS[name](rig, second)
    assert await rig.status(parent) is State.WAITING
    await end(rig, third)

    assert await is_woken(rig, parent)


async def test_when_all_end_badly_the_last_one_wakes(rig: Rig) -> None:
    parent, children = await family(rig, 3, need=1)

    for child in children:
        assert await rig.status(parent) is State.WAITING
        await die(rig, child)

    assert await is_woken(rig, parent)


async def test_a_discarded_child_is_counted_once(rig: Rig) -> None:
    parent, (first, second, third) = await family(rig, 3, need=1)

    await be_discarded(rig, first)
    await die(rig, second)

    assert await rig.status(parent) is State.WAITING
    await end(rig, third)
    assert await is_woken(rig, parent)


@pytest.mark.parametrize(
    ("bad", "back"), [(die, Verb.REPLAY), (be_cancelled, Verb.RESUME)], ids=["replayed", "resumed"]
)
async def test_a_child_that_comes_back_is_awaited_again(rig: Rig, bad: object, back: Verb) -> None:
    assert callable(bad)
    parent, (first, second) = await family(rig, 2, need=1)
    await bad(rig, first)
    await rig.store.operate(back, first)

    await bad(rig, second)
    assert await rig.status(parent) is State.WAITING
    await end(rig, first)

    assert await is_woken(rig, parent)


async def test_a_child_that_comes_back_and_dies_again_is_counted_once(rig: Rig) -> None:
    parent, (first, second, third) = await family(rig, 3, need=1)
    for _ in range(3):
        await die(rig, first)
        await rig.store.operate(Verb.REPLAY, first)
    await die(rig, first)
    await die(rig, second)

    assert await rig.status(parent) is State.WAITING
    await die(rig, third)
    assert await is_woken(rig, parent)


async def test_a_child_that_comes_back_after_the_wake_is_nobodys_business(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    await die(rig, child)
    running = await rig.take(parent)

    await rig.store.operate(Verb.REPLAY, child)
    await end(rig, child)

    assert await rig.find(parent) == running


async def test_a_sweep_that_stopped_half_way_is_finished_by_the_next(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    await rig.take(child)
    await rig.die(rig.worker)

    def stop() -> None:
        raise KeyError("stopped half way")

    failpoints.arm("sweep.before_rescue", stop)
    try:
        with pytest.raises(KeyError):
            await rig.store.sweep(max_crashes=1)
    finally:
        failpoints.disarm()
    assert await rig.status(parent) is State.WAITING

    await rig.store.sweep(max_crashes=1)

    assert await is_woken(rig, parent)


# What had ended before


async def test_a_wait_that_is_met_already_is_over_at_once(rig: Rig) -> None:
    done = await rig.job_in(State.SUCCEEDED, priority=0)
    job = await rig.running()

    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=waiting_for(done))) is State.QUEUED

    assert await is_woken(rig, job.id)
    again = await rig.take(job.id)
    assert (again.attempt, again.fence) == (1, 2)


@pytest.mark.parametrize("kind", ["dead", "cancelled", "discarded", "unknown"])
async def test_a_wait_that_cannot_be_met_is_over_at_once(rig: Rig, kind: str) -> None:
    pending = await rig.enqueue()
    gone = await one_that_ended(rig, kind)
    job = await rig.running()

    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=waiting_for(pending, gone))) is State.QUEUED

    assert await is_woken(rig, job.id)


@pytest.mark.parametrize("kind", ["dead", "cancelled", "discarded", "unknown"])
async def test_what_ended_badly_before_counts_no_success(rig: Rig, kind: str) -> None:
    pending, gone = alone(), await one_that_ended(rig, kind)
    await rig.store.enqueue([pending])
    job = await waiter(rig, gone, pending.id, need=1)

    await end(rig, pending.id)

    assert await is_woken(rig, job)


async def test_what_succeeded_before_counts(rig: Rig) -> None:
    done, pending = await rig.job_in(State.SUCCEEDED, priority=0), alone()
    await rig.store.enqueue([pending])
    job = await waiter(rig, done, pending.id)

    await end(rig, pending.id)

    assert await is_woken(rig, job)


async def test_a_child_that_was_dead_before_the_wait_can_come_back(rig: Rig) -> None:
    dead, pending = await rig.job_in(State.DEAD, queue="of the dead"), alone()
    await rig.store.enqueue([pending])
    job = await waiter(rig, dead, pending.id, need=1)
    await rig.store.operate(Verb.REPLAY, dead)

    await die(rig, pending.id)
    assert await rig.status(job) is State.WAITING
    await end(rig, dead)

    assert await is_woken(rig, job)


async def test_a_success_counts_although_its_history_has_passed(rig: Rig) -> None:
    parent, (first, second) = await family(rig, 2)
    await end(rig, first)
    await rig.advance(30 * DAY)

    await rig.store.prune(history=7 * DAY, audit=90 * DAY)

    assert await rig.status(parent) is State.WAITING
    await end(rig, second)
    assert await is_woken(rig, parent)
