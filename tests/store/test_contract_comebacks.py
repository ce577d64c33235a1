"""What happens to the flow around a job that comes back, stays away, or is in the middle of another transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from windlass.model.flow import Advance, Flow, Memory
from windlass.model.job import Edge, Policy, Wait
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import end, unique, waiter, waiting_for
from .rig import alone, new_job

if TYPE_CHECKING:
    from .rig import Rig

DAY = 86_400.0


async def test_a_job_that_ended_before_anybody_waited_for_it_and_is_resumed_counts(rig: Rig) -> None:
    gone, other = alone(), alone()
    await rig.store.enqueue([gone, other])
    await rig.store.operate(Verb.CANCEL, gone.id)
    waiting = await waiter(rig, gone.id, other.id, need=1)
    await rig.store.operate(Verb.RESUME, gone.id)

    await end(rig, gone.id)

    assert await rig.status(waiting) is State.QUEUED


async def test_a_job_that_was_stopped_keeps_what_its_last_phase_left(rig: Rig) -> None:
    job = await rig.running(pipeline="site", phase="analyse")
    further = Advance(type=job.type, phase="form", phase_rank=1, queue=job.queue, max_attempts=3)
    await rig.finish(job, Verb.ADVANCE, output='{"pages": 3}', flow=Flow(advance=further))
    second = await rig.take(job.id)
    await rig.store.operate(Verb.CANCEL, job.id)
    await rig.finish(second, Verb.STOP)

    await rig.store.operate(Verb.RESUME, job.id)

    assert (await rig.take(job.id)).output == '{"pages": 3}'


async def test_a_success_whose_history_has_passed_is_told_by_its_key_for_ever(rig: Rig) -> None:
    key = unique(forever=True)
    first = alone(unique=key)
    await rig.store.enqueue([first])
    await end(rig, first.id)
    await rig.advance(100 * DAY)
    await rig.store.prune(history=DAY, audit=DAY)
    assert await rig.store.find(first.id) is None

    again = alone(unique=key)
    node = alone(wait=Wait(edges=(Edge(again.id, Policy.FAIL),), need=1))

    assert await rig.store.enqueue([again, node]) == {again.id: first.id}
    assert await rig.status(node.id) is State.QUEUED


async def test_four_that_close_a_round_two_at_a_time_do_not_hang(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for _ in range(5):
            a, b, c, d = [await rig.running() for _ in range(4)]
            await rig.finish(b, Verb.WAIT, flow=Flow(wait=waiting_for(c.id)))
            await rig.finish(d, Verb.WAIT, flow=Flow(wait=waiting_for(a.id)))

            await asyncio.gather(
                rig.finish(a, Verb.WAIT, flow=Flow(wait=waiting_for(b.id)), store=one),
                rig.finish(c, Verb.WAIT, flow=Flow(wait=waiting_for(d.id)), store=other),
            )

            assert State.DEAD in {await rig.status(job.id) for job in (a, c)}


async def test_a_refused_producer_with_an_open_transaction_keeps_nobody_from_finishing(rig: Rig) -> None:
    if rig.dialect == "sqlite":
        pytest.skip("a SQLite file has one writer: an open transaction blocks every other one, refused or not")
    holder = await rig.running(unique=unique())
    async with rig.stores(1) as (producer,), producer.transaction(limit=60.0) as transaction:
        refused = alone(unique=unique())
        assert await transaction.enqueue([refused]) == {refused.id: holder.id}

        assert await rig.finish(holder, Verb.SUCCEED) is State.SUCCEEDED

        await transaction.rollback()


async def test_a_batch_is_cancelled_while_its_members_end(rig: Rig) -> None:
    callback = alone()
    members = [new_job(parent=callback.id, queue="members") for _ in range(60)]
    edges = tuple(Edge(member.id, Policy.CONTINUE) for member in members)
    callback = msgspec.structs.replace(callback, wait=Wait(edges=edges, need=len(edges), batch=True))
    await rig.store.enqueue([*members, callback])
    running = await rig.claim(room=len(members), queues=("members",))

    async with rig.stores(3) as stores:
        ends = [rig.finish(job, Verb.SUCCEED, store=stores[place % 3]) for place, job in enumerate(running)]
        half = len(ends) // 2
        await asyncio.gather(*ends[:half], rig.store.operate(Verb.CANCEL, callback.id), *ends[half:])

    assert await rig.status(callback.id) is State.CANCELLED
    assert {await rig.status(member.id) for member in members} == {State.SUCCEEDED}


async def test_a_replay_forgets_that_a_wait_was_over_and_nothing_else(rig: Rig) -> None:
    job = await rig.running()
    for name in ("paid", "approved", "approved ", " wait 1f", " wait 1f "):
        await rig.store.remember(job.lease, Memory(name, "1"))
    await rig.finish(job, Verb.BURY)

    await rig.store.operate(Verb.REPLAY, job.id)

    assert set((await rig.store.recall(job.id)).steps) == {"paid"}


async def test_an_advance_wakes_the_queue_of_the_next_phase(rig: Rig) -> None:
    job = await rig.running()
    further = Advance(type=job.type, phase="form", phase_rank=1, queue="forms", max_attempts=3)
    worker = await rig.register()
    await rig.store.set_idle(worker, idle=True)

    async with rig.store.wakeups() as heard:
        await rig.store.finish([Transition(lease=job.lease, verb=Verb.ADVANCE, flow=Flow(advance=further))])
        async with asyncio.timeout(10):
            async for message in heard:
                if message in ("forms", "*"):
                    break
