"""Cancel goes down: to the jobs that a cancelled one created, and to no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.flow import Advance, Flow
from windlass.model.state import State, Verb

from .flows import die, end, family, fan_out, is_woken, spawning, unique, waiter, waiting_for
from .rig import alone

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.model.job import Job

    from .rig import Rig


async def test_the_children_of_a_cancelled_parent_are_cancelled(rig: Rig) -> None:
    parent, (queued, failed, running, done, dead, waiting) = await family(rig, 6, need=1)
    await end(rig, failed, Verb.FAIL, delay=60.0, attempt=1)
    await die(rig, dead)
    await end(rig, waiting, Verb.WAIT)
    await rig.take(running)
    del done  # it ends after the parent was woken, see below

    assert await rig.store.operate(Verb.CANCEL, parent) is State.CANCELLED

    for child in (queued, failed, waiting):
        cancelled = await rig.find(child)
        assert (cancelled.status, cancelled.finished_at) == (State.CANCELLED, rig.clock.now())
    asked = await rig.find(running)
    assert (asked.status, asked.cancel_requested) == (State.RUNNING, True)
    assert await rig.store.cancel_requests(rig.worker) == [running]
    assert await rig.status(dead) is State.DEAD
    assert await rig.claim() == []


async def test_children_of_another_tenant_go_on(rig: Rig) -> None:
    """A cancel by an operator of one tenant changes no job of another, whether the parent waits or runs."""
    for waits in (True, False):
        parent = await rig.running(tenant="acme")
        own, foreign, held = (alone(parent=parent.id, tenant=name) for name in ("acme", "bolt", "bolt"))
        for child in (own, foreign, held):
            await rig.store.enqueue([child])
        await rig.take(held.id)
        if waits:
            assert await rig.finish(parent, Verb.WAIT, flow=fan_out(alone(tenant="acme"))) is State.WAITING

        await rig.store.operate(Verb.CANCEL, parent.id)
        if not waits:
            await rig.write(parent.lease, Verb.STOP)

        assert await rig.status(parent.id) is State.CANCELLED
        assert (await rig.status(own.id), await rig.status(foreign.id)) == (State.CANCELLED, State.QUEUED)
        assert not (await rig.find(held.id)).cancel_requested


async def test_a_child_that_succeeded_stays_so(rig: Rig) -> None:
    parent, (done, queued) = await family(rig, 2)
    await end(rig, done)

    await rig.store.operate(Verb.CANCEL, parent)

    assert (await rig.status(done), await rig.status(queued)) == (State.SUCCEEDED, State.CANCELLED)


async def test_grandchildren_are_cancelled_too(rig: Rig) -> None:
    parent, line = await rig.running(), []
    top, current = parent.id, parent
    for _ in range(5):
        child = alone(parent=current.id)
        line.append(child.id)
        assert await rig.finish(current, Verb.WAIT, flow=fan_out(child)) is State.WAITING
        current = await rig.take(child.id)
    last = [alone(parent=current.id), alone(parent=current.id)]
    await rig.finish(current, Verb.WAIT, flow=fan_out(*last))
    running = await rig.take(last[0].id)

    await rig.store.operate(Verb.CANCEL, top)

    assert {await rig.status(job) for job in (top, *line, last[1].id)} == {State.CANCELLED}
    assert (await rig.find(running.id)).cancel_requested


async def test_below_a_running_child_the_cancel_waits_for_its_end(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    running = await rig.take(child)
    grandchild = alone(parent=child)
    await rig.store.operate(Verb.CANCEL, parent)

    assert await rig.finish(running, Verb.WAIT, flow=fan_out(grandchild)) is State.CANCELLED

    await never_starts(rig, grandchild.id)


async def test_jobs_that_it_joined_but_did_not_create_live_on(rig: Rig) -> None:
    joined = await rig.enqueue()
    parent = await rig.running()
    own = alone(parent=parent.id)
    flow = Flow(spawns=spawning(own), wait=waiting_for(own, joined))
    await rig.finish(parent, Verb.WAIT, flow=flow)

    await rig.store.operate(Verb.CANCEL, parent.id)

    assert (await rig.status(own.id), await rig.status(joined)) == (State.CANCELLED, State.QUEUED)


async def test_a_spawn_that_was_another_job_already_lives_on(rig: Rig) -> None:
    holder = await rig.enqueue(unique=unique())
    parent = await rig.running()
    assert await rig.finish(parent, Verb.WAIT, flow=fan_out(alone(parent=parent.id, unique=unique()))) is State.WAITING

    await rig.store.operate(Verb.CANCEL, parent.id)

    assert await rig.status(holder) is State.QUEUED


async def test_a_cancelled_parent_is_not_woken_by_its_children(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1, delay=60.0)
    running = await rig.take(child)
    await rig.store.operate(Verb.CANCEL, parent)
    cancelled = await rig.find(parent)

    await rig.finish(running, Verb.STOP)
    await rig.advance(61)

    assert await rig.store.wake_due() == 0
    assert await rig.find(parent) == cancelled


async def test_waits_for_a_cancelled_parent_and_for_its_child_end(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    beside, above = await waiter(rig, child), await waiter(rig, parent)

    await rig.store.operate(Verb.CANCEL, parent)

    assert await is_woken(rig, beside)
    assert await is_woken(rig, above)


async def test_a_parent_that_was_woken_and_not_claimed_yet_takes_its_children_along(rig: Rig) -> None:
    parent, (first, second) = await family(rig, 2, need=1)
    await end(rig, first)
    assert await is_woken(rig, parent)

    await rig.store.operate(Verb.CANCEL, parent)

    assert (await rig.status(parent), await rig.status(second)) == (State.CANCELLED, State.CANCELLED)


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.ADVANCE, Verb.WAIT])
async def test_a_running_parent_that_was_asked_takes_its_children_along(rig: Rig, verb: Verb) -> None:
    parent, child = await a_running_parent(rig)
    assert await rig.store.operate(Verb.CANCEL, parent.id) is State.RUNNING

    assert await rig.finish(parent, verb) is State.CANCELLED

    assert await rig.status(child) is State.CANCELLED


async def test_a_parent_that_was_asked_and_whose_worker_died_takes_its_children_along(rig: Rig) -> None:
    parent, child = await a_running_parent(rig)
    await rig.store.operate(Verb.CANCEL, parent.id)
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=3)

    assert (await rig.status(parent.id), await rig.status(child)) == (State.CANCELLED, State.CANCELLED)


async def test_children_of_an_earlier_phase_go_with_their_parent(rig: Rig) -> None:
    parent = await rig.running()
    child = alone(parent=parent.id)
    further = Advance(type="site.form", phase="form", phase_rank=1, queue="forms", max_attempts=4)
    await rig.finish(parent, Verb.ADVANCE, flow=Flow(spawns=spawning(child), advance=further))

    await rig.store.operate(Verb.CANCEL, parent.id)

    assert (await rig.status(parent.id), await rig.status(child.id)) == (State.CANCELLED, State.CANCELLED)


async def test_jobs_that_it_created_without_a_name_go_with_their_parent(rig: Rig) -> None:
    parent = await rig.running()
    child = alone(parent=parent.id)
    await rig.store.enqueue([child])
    await rig.store.operate(Verb.CANCEL, parent.id)

    await rig.finish(parent, Verb.STOP)

    assert await rig.status(child.id) is State.CANCELLED


async def test_what_an_asked_parent_spawns_never_starts(rig: Rig) -> None:
    parent = await rig.running()
    await rig.store.operate(Verb.CANCEL, parent.id)
    children = [alone(parent=parent.id), alone(parent=parent.id, unique=unique())]

    assert await rig.finish(parent, Verb.WAIT, flow=fan_out(*children)) is State.CANCELLED

    for child in children:
        await never_starts(rig, child.id)
    assert await rig.store.enqueue([alone(unique=unique())]) == {}


@pytest.mark.parametrize("verb", [Verb.BURY, Verb.FAIL, Verb.SUCCEED])
async def test_any_other_end_leaves_the_children_alone(rig: Rig, verb: Verb) -> None:
    parent, child = await a_running_parent(rig)

    await rig.finish(parent, verb, attempt=1)

    assert await rig.status(child) is State.QUEUED
    assert not (await rig.find(child)).cancel_requested


async def test_a_resumed_parent_runs_again_without_waiting(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1, delay=60.0)
    await rig.store.operate(Verb.CANCEL, parent)

    await rig.store.operate(Verb.RESUME, parent)

    assert await is_woken(rig, parent)
    assert await rig.status(child) is State.CANCELLED
    running = await rig.take(parent)
    await rig.store.operate(Verb.RESUME, child)
    await end(rig, child)
    assert await rig.find(parent) == running


async def test_a_thousand_children_are_cancelled(rig: Rig) -> None:
    parent = await rig.running()
    children = [alone(parent=parent.id, queue="children") for _ in range(1_500)]
    await rig.finish(parent, Verb.WAIT, flow=fan_out(*children))
    running = await rig.claim(room=100, queues=("children",))

    await rig.store.operate(Verb.CANCEL, parent.id)

    counts = await rig.store.counts()
    assert (counts[State.CANCELLED], counts[State.RUNNING], counts[State.QUEUED]) == (1_401, 100, 0)
    assert sorted(await rig.store.cancel_requests(rig.worker)) == sorted(job.id for job in running)


async def a_running_parent(rig: Rig) -> tuple[Job, UUID]:
    """It was woken by one of its children and runs again; the other child is still queued."""
    parent, (first, second) = await family(rig, 2, need=1)
    await end(rig, first)
    return await rig.take(parent), second


async def never_starts(rig: Rig, job: UUID) -> None:
    found = await rig.store.find(job)
    assert found is None or found.status is State.CANCELLED
