"""Waits beside the plain join: batches with counters, timers, and spawns without a waiting parent."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.flow import Flow
from windlass.model.job import Wait
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb
from windlass.store.parts.statements import run

from .flows import die, end, end_in_batch, family, fan_out, is_woken, spawning, waiting_for
from .rig import alone

if TYPE_CHECKING:
    from .rig import Rig


# Batches


async def test_children_that_end_in_one_batch_wake_once(rig: Rig) -> None:
    parent, children = await family(rig, 5)
    running = [await rig.take(child) for child in children]

    await end_in_batch(rig.store, running)

    assert await is_woken(rig, parent)


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.BURY, Verb.STOP])
@pytest.mark.parametrize("first", ["parent", "child"])
async def test_a_wait_and_the_end_of_the_awaited_in_one_batch(rig: Rig, first: str, verb: Verb) -> None:
    child, parent = await rig.running(), await rig.running()
    batch = [
        Transition(lease=parent.lease, verb=Verb.WAIT, flow=Flow(wait=waiting_for(child.id))),
        Transition(lease=child.lease, verb=verb),
    ]
    if first == "child":
        batch.reverse()

    finished = await rig.store.finish(batch)

    assert finished.lost == frozenset()
    assert await is_woken(rig, parent.id)
    await rig.take(parent.id)


async def test_the_ends_of_many_families_in_one_batch(rig: Rig) -> None:
    families = [await family(rig, 3, need=need) for need in (1, 2, 3)]
    running = [[await rig.take(child) for child in children] for _, children in families]

    await rig.store.finish(
        [
            Transition(lease=job.lease, verb=Verb.BURY if place == 0 else Verb.SUCCEED, followed=job.followed)
            for jobs in running
            for place, job in enumerate(jobs)
        ]
    )

    for parent, _ in families:
        assert await is_woken(rig, parent)


async def test_an_arrival_of_an_earlier_wait_counts_for_nothing(rig: Rig) -> None:
    """The statement itself: edges of an earlier wait are deleted, and this condition stands behind that."""
    parent, _ = await family(rig, 2)
    stale = {"job": parent, "fence": (await rig.find(parent)).fence - 1, "arrived": 2, "succeeded": 2, "bad": 0}

    store: Any = rig.store
    counted = await store._run_in_transaction(lambda: run("count_arrivals", [stale]))

    assert list(counted) == []
    waits = await store.waits([parent])
    assert waits[parent].pending == 2


async def test_a_batchs_counters_follow_its_jobs(rig: Rig) -> None:
    parent, (first, second, third, fourth) = await family(rig, 4, batch=True)
    before = await rig.find(parent)
    assert (before.total, before.processed, before.failed) == (4, 0, 0)

    await end_in_batch(rig.store, [await rig.take(first), await rig.take(second)])
    half = await rig.find(parent)
    assert (half.total, half.processed, half.failed) == (4, 2, 0)
    await end(rig, third)
    await die(rig, fourth)

    whole = await rig.find(parent)
    assert (whole.total, whole.processed, whole.failed) == (4, 3, 1)
    assert await is_woken(rig, parent)


async def test_a_batchs_counters_take_back_what_came_back(rig: Rig) -> None:
    parent, (first, second) = await family(rig, 2, need=1, batch=True)
    await die(rig, first)
    counted = await rig.find(parent)
    assert (counted.processed, counted.failed) == (0, 1)

    await rig.store.operate(Verb.REPLAY, first)
    back = await rig.find(parent)
    assert (back.processed, back.failed) == (0, 0)
    await end(rig, first)

    whole = await rig.find(parent)
    assert (whole.total, whole.processed, whole.failed) == (2, 1, 0)
    assert await rig.status(second) is State.QUEUED


async def test_a_job_awaited_twice_is_one_job(rig: Rig) -> None:
    child, parent = await rig.running(), await rig.running()

    assert await rig.finish(parent, Verb.WAIT, flow=Flow(wait=waiting_for(child.id, child.id))) is State.WAITING

    await rig.finish(child, Verb.SUCCEED)
    assert await is_woken(rig, parent.id)


async def test_a_wait_that_is_no_batch_leaves_the_counters_alone(rig: Rig) -> None:
    job = await rig.running()
    child = alone(parent=job.id)
    await rig.finish(job, Verb.WAIT, flow=fan_out(child), total=9, processed=7, failed=1)

    await end(rig, child.id)

    woken = await rig.find(job.id)
    assert (woken.total, woken.processed, woken.failed) == (9, 7, 1)


# Timers


async def test_a_sleeper_is_woken_when_its_time_has_come(rig: Rig) -> None:
    job = await rig.running()
    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=Wait(delay=60.0))) is State.WAITING
    await rig.advance(59)
    assert await rig.store.wake_due() == 0
    assert await rig.status(job.id) is State.WAITING
    await rig.advance(2)

    assert await rig.store.wake_due() == 1

    assert await is_woken(rig, job.id)
    assert await rig.store.wake_due() == 0


async def test_a_timer_wakes_whatever_the_children_do(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1, delay=60.0)
    await rig.advance(61)

    assert await rig.store.wake_due() == 1

    running = await rig.take(parent)
    await end(rig, child)
    assert await rig.find(parent) == running


async def test_a_timer_is_over_with_the_wait(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1, delay=60.0)
    await end(rig, child)
    again = await rig.take(parent)
    await rig.finish(again, Verb.WAIT, flow=Flow(wait=Wait(signal="approved")))
    await rig.advance(61)

    assert await rig.store.wake_due() == 0

    assert await rig.status(parent) is State.WAITING


async def test_sleepers_are_woken_page_by_page(rig: Rig) -> None:
    for _ in range(7):
        await rig.finish(await rig.running(), Verb.WAIT, flow=Flow(wait=Wait(delay=1.0)))
    await rig.advance(2)

    woken = [await rig.store.wake_due(page=3) for _ in range(4)]

    assert sum(woken) == 7
    assert (await rig.store.counts())[State.WAITING] == 0


# Spawns without a wait


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.ADVANCE])
async def test_spawns_are_written_with_the_finish(rig: Rig, verb: Verb) -> None:
    job = await rig.running()
    children = [alone(parent=job.id), alone(parent=job.id, delay=60.0)]

    await rig.finish(job, verb, flow=Flow(spawns=spawning(*children)))

    assert [await rig.status(child.id) for child in children] == [State.QUEUED] * 2
    await end(rig, children[0].id)
    assert (await rig.find(children[1].id)).run_at == rig.clock.now() + timedelta(seconds=60)
