"""Joins under fire: ends and waits that meet in the same moment, through several stores, and no join hangs."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from windlass.errors import TransitionRefused
from windlass.model.flow import Flow
from windlass.model.job import Policy
from windlass.model.outcome import Transition
from windlass.model.state import FINAL, State, Verb

from .flows import LIMIT, die, end, end_in_batch, family, fan_out, is_woken, waiter, waiting_for
from .rig import alone

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from uuid import UUID

    from windlass.model.job import Job
    from windlass.store.protocol import Store

    from .rig import Rig

TURNS = 25
CHILDREN = 2_000
BATCH = 50


async def at_once(turn: int, *actions: Coroutine[Any, Any, Any]) -> list[Any]:
    """All of them, the first one of the list first in every other turn."""
    order = list(enumerate(actions))
    if turn % 2:
        order.reverse()
    results = await asyncio.gather(*[action for _, action in order])
    return [result for _, result in sorted(zip([place for place, _ in order], results, strict=True))]


async def finish_in_transaction(store: Store, job: Job, verb: Verb) -> None:
    async with store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(Transition(lease=job.lease, verb=verb, followed=job.followed))
        await transaction.commit()


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.BURY, Verb.STOP])
async def test_a_child_that_ends_at_the_very_moment_of_the_wait(rig: Rig, verb: Verb) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            child, parent = await rig.running(), await rig.running()
            flow = Flow(wait=waiting_for(child.id))

            await at_once(
                turn, rig.finish(parent, Verb.WAIT, store=one, flow=flow), rig.finish(child, verb, store=other)
            )

            assert await is_woken(rig, parent.id), turn


async def test_a_child_that_ends_in_a_transaction_at_the_very_moment_of_the_wait(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            child, parent = await rig.running(), await rig.running()
            flow = Flow(wait=waiting_for(child.id))

            async def wait(parent: Job = parent, flow: Flow = flow) -> None:
                await rig.finish(parent, Verb.WAIT, store=one, flow=flow)

            await at_once(turn, wait(), finish_in_transaction(other, child, Verb.SUCCEED))

            assert await is_woken(rig, parent.id), turn


async def test_a_child_that_is_cancelled_at_the_very_moment_of_the_wait(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            child, parent = await rig.enqueue(), await rig.running()
            flow = Flow(wait=waiting_for(child))

            await at_once(turn, rig.finish(parent, Verb.WAIT, store=one, flow=flow), other.operate(Verb.CANCEL, child))

            assert await is_woken(rig, parent.id), turn


async def test_a_child_that_is_replayed_at_the_very_moment_of_the_wait(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            child = await rig.job_in(State.DEAD, queue=f"turn {turn}")
            parent = await rig.running()
            flow = Flow(wait=waiting_for(child))

            await at_once(turn, rig.finish(parent, Verb.WAIT, store=one, flow=flow), other.operate(Verb.REPLAY, child))
            if await rig.status(parent.id) is State.WAITING:
                await end(rig, child)

            assert await is_woken(rig, parent.id), turn


async def test_a_child_that_is_discarded_at_the_very_moment_of_the_wait(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            child = await rig.job_in(State.DEAD, queue=f"turn {turn}")
            parent = await rig.running()
            flow = Flow(wait=waiting_for(child))

            await at_once(turn, rig.finish(parent, Verb.WAIT, store=one, flow=flow), other.operate(Verb.DISCARD, child))

            assert await is_woken(rig, parent.id), turn


async def test_a_child_whose_worker_died_at_the_very_moment_of_the_wait(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(10):
            child = await rig.running()
            await rig.die(rig.worker)
            rig.worker = await rig.register()
            parent = await rig.running()
            flow = Flow(wait=waiting_for(child.id))

            await at_once(turn, rig.finish(parent, Verb.WAIT, store=one, flow=flow), other.sweep(max_crashes=1))
            await rig.store.sweep(max_crashes=1)  # the first one never waits: it may have passed over the child

            assert await rig.status(child.id) is State.DEAD
            assert await is_woken(rig, parent.id), turn


async def test_a_node_enqueued_at_the_very_moment_its_dependency_ends(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            dependency = await rig.running()
            node = alone(wait=waiting_for(dependency.id, policy=Policy.FAIL))

            await at_once(turn, one.enqueue([node]), rig.finish(dependency, Verb.SUCCEED, store=other))

            assert await is_woken(rig, node.id), turn


async def test_the_last_two_children_end_at_once(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            parent, children = await family(rig, 2)
            first, second = [await rig.take(child) for child in children]

            await at_once(
                turn, rig.finish(first, Verb.SUCCEED, store=one), rig.finish(second, Verb.SUCCEED, store=other)
            )

            assert await is_woken(rig, parent), turn


async def test_of_many_children_at_once_the_first_wakes(rig: Rig) -> None:
    async with rig.stores(4) as stores:
        for turn in range(TURNS):
            parent, children = await family(rig, 4, need=1)
            running = [await rig.take(child) for child in children]

            await at_once(
                turn,
                *[rig.finish(job, Verb.SUCCEED, store=store) for job, store in zip(running, stores, strict=True)],
            )

            assert await is_woken(rig, parent), turn


async def test_a_death_and_a_replay_of_two_children_at_once(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            parent, (first, second) = await family(rig, 2, need=1)
            await die(rig, first)
            dying = await rig.take(second)

            await at_once(turn, one.operate(Verb.REPLAY, first), rig.finish(dying, Verb.BURY, store=other))
            if await rig.status(parent) is State.WAITING:
                await end(rig, first)

            assert await is_woken(rig, parent), turn


async def test_two_waits_for_each_others_children_do_not_block_each_other(rig: Rig) -> None:
    async with rig.stores(4) as stores:
        for turn in range(10):
            shared = [await rig.running() for _ in range(4)]
            parents = [await rig.running() for _ in range(2)]
            ids = [job.id for job in shared]

            await at_once(
                turn,
                rig.finish(parents[0], Verb.WAIT, store=stores[0], flow=Flow(wait=waiting_for(*ids))),
                rig.finish(parents[1], Verb.WAIT, store=stores[1], flow=Flow(wait=waiting_for(*reversed(ids)))),
                end_in_batch(stores[2], shared[:2]),
                end_in_batch(stores[3], [shared[3], shared[2]]),
            )

            for parent in parents:
                assert await is_woken(rig, parent.id), turn


async def test_a_timer_and_the_last_child_at_once_wake_once(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            parent, (child,) = await family(rig, 1, delay=1.0)
            running = await rig.take(child)
            await rig.advance(2)

            woken, _ = await at_once(turn, one.wake_due(), rig.finish(running, Verb.SUCCEED, store=other))

            assert woken in (0, 1)
            assert await rig.status(parent) is State.QUEUED, turn
            again = await rig.take(parent)
            assert (await rig.store.wake_due(), await rig.find(parent)) == (0, again)


async def test_sleepers_are_woken_once_by_several_stores(rig: Rig) -> None:
    for _ in range(30):
        await rig.finish(await rig.running(), Verb.WAIT, flow=Flow(wait=waiting_for(delay=1.0)))
    await rig.advance(2)

    async with rig.stores(3) as stores:
        woken = await asyncio.gather(*[store.wake_due(page=5) for store in stores for _ in range(3)])
        woken.append(await rig.store.wake_due())

    assert sum(woken) == 30
    assert (await rig.store.counts())[State.WAITING] == 0


async def test_a_cancelled_parent_and_children_that_end_do_not_block_each_other(rig: Rig) -> None:
    async with rig.stores(3) as (one, other, third):
        for turn in range(TURNS):
            parent, children = await family(rig, 6)
            running = [await rig.take(child) for child in children[:4]]

            await at_once(
                turn,
                one.operate(Verb.CANCEL, parent),
                end_in_batch(other, running[:2]),
                end_in_batch(third, [running[3], running[2]], Verb.BURY),
            )

            assert await rig.status(parent) is State.CANCELLED, turn
            for child in children[:4]:
                assert await rig.status(child) in FINAL
            for child in children[4:]:
                assert await rig.status(child) is State.CANCELLED


async def test_a_cancel_at_the_very_moment_of_the_wait_leaves_nothing_behind(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            parent = await rig.running()
            children = [alone(parent=parent.id) for _ in range(3)]

            await at_once(
                turn,
                rig.finish(parent, Verb.WAIT, store=one, flow=fan_out(*children)),
                other.operate(Verb.CANCEL, parent.id),
            )

            assert await rig.status(parent.id) is State.CANCELLED, turn
            for child in children:
                found = await rig.store.find(child.id)
                assert found is None or found.status is State.CANCELLED, turn


async def test_many_cancels_at_once_are_one(rig: Rig) -> None:
    async with rig.stores(3) as stores:
        for _ in range(10):
            parent, children = await family(rig, 3)
            grandparent = await waiter(rig, parent)

            answers = await asyncio.gather(
                *[store.operate(Verb.CANCEL, job) for store in stores for job in (parent, *children)],
                return_exceptions=True,
            )

            assert all(each is State.CANCELLED or isinstance(each, TransitionRefused) for each in answers), answers
            assert {await rig.status(job) for job in (parent, *children)} == {State.CANCELLED}
            assert await is_woken(rig, grandparent)


async def test_two_thousand_children_through_several_stores_wake_once(rig: Rig) -> None:
    parent = await rig.running()
    children = [alone(parent=parent.id, queue="children") for _ in range(CHILDREN)]
    assert await rig.finish(parent, Verb.WAIT, flow=fan_out(*children, batch=True)) is State.WAITING
    wakes: list[Job] = []

    async def work(store: Store) -> None:
        while jobs := await rig.claim(room=BATCH, queues=("children",)):
            random.shuffle(jobs)
            await end_in_batch(store, jobs)
            wakes.extend(await rig.claim(queues=(parent.queue,)))

    async with rig.stores(4) as stores:
        await asyncio.gather(*[work(store) for store in stores])

    (woken,) = wakes
    assert (woken.id, woken.total, woken.processed, woken.failed) == (parent.id, CHILDREN, CHILDREN, 0)
    assert (await rig.store.counts())[State.SUCCEEDED] == CHILDREN


async def test_many_families_whose_children_end_in_mixed_batches(rig: Rig) -> None:
    families = 12
    parents = [await rig.running() for _ in range(families)]
    for parent in parents:
        children = [alone(parent=parent.id, queue="children") for _ in range(families)]
        assert await rig.finish(parent, Verb.WAIT, flow=fan_out(*children)) is State.WAITING
    running = await rig.claim(room=families**2, queues=("children",))
    random.shuffle(running)
    batches = [running[start : start + 12] for start in range(0, len(running), 12)]

    async with rig.stores(4) as stores:
        await asyncio.gather(*[end_in_batch(stores[place % 4], batch) for place, batch in enumerate(batches)])

    woken: list[UUID] = [parent.id for parent in parents if await is_woken(rig, parent.id)]
    assert len(woken) == families


async def test_a_sweep_that_condemns_children_beside_others_that_end(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(8):
            parent, children = await family(rig, 6, need=1)
            dying, living = children[:3], children[3:]
            for child in dying:
                await rig.take(child)
            await rig.die(rig.worker)
            rig.worker = await rig.register()
            running = [await rig.take(child) for child in living]

            await at_once(turn, one.sweep(max_crashes=1), end_in_batch(other, running, Verb.BURY))
            await rig.store.sweep(max_crashes=1)

            assert {await rig.status(child) for child in children} == {State.DEAD}
            assert await is_woken(rig, parent), turn
