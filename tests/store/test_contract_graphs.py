"""Graphs: nodes that are declared ahead, wait for what they depend on, and run or end as their edges require."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.job import Edge, Policy, Wait
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import BAD_ENDS, LIMIT, die, end, is_woken, node, one_that_ended, waiter, waiting_for
from .rig import alone

if TYPE_CHECKING:
    from .rig import Rig

AFTER_A_BAD_END = {
    Policy.FAIL: State.DEAD,
    Policy.SKIP: State.CANCELLED,
    Policy.CONTINUE: State.QUEUED,
    Policy.COUNT: State.QUEUED,
}


@pytest.mark.parametrize("policy", sorted(Policy))
async def test_a_node_waits_for_its_dependencies(rig: Rig, policy: Policy) -> None:
    first, second = alone(), alone()
    after = alone(wait=waiting_for(first, second, policy=policy))
    assert await rig.store.enqueue([first, second, after]) == {}

    assert {job.id for job in await rig.claim(types=(after.type,), queues=(after.queue,))} == set()
    await end(rig, first.id)
    assert await rig.status(after.id) is State.WAITING
    await rig.advance(7)
    await end(rig, second.id)

    assert await is_woken(rig, after.id)
    running = await rig.take(after.id)
    assert (running.attempt, running.fence) == (1, 1)


async def test_nodes_may_come_in_any_order(rig: Rig) -> None:
    first = alone()
    second = alone(wait=waiting_for(first))
    third = alone(wait=waiting_for(second))

    await rig.store.enqueue([third, second, first])

    assert [await rig.status(job.id) for job in (first, second, third)] == [
        State.QUEUED,
        State.WAITING,
        State.WAITING,
    ]
    for job in (first, second, third):
        await end(rig, job.id)
    assert await rig.status(third.id) is State.SUCCEEDED


async def test_a_node_beside_hundreds_of_plain_jobs(rig: Rig) -> None:
    first = alone()
    after = alone(wait=waiting_for(first))

    await rig.store.enqueue([*[alone(queue="plain") for _ in range(700)], after, first])

    await end(rig, first.id)
    assert await is_woken(rig, after.id)


@pytest.mark.parametrize("name", sorted(BAD_ENDS))
async def test_a_bad_end_does_what_the_edge_says(rig: Rig, name: str) -> None:
    for policy in sorted(Policy):
        rig.worker = await rig.register()  # some of these ends are a worker's
        dependency = alone()
        await rig.store.enqueue([dependency])
        after = await node(rig, dependency.id, policy=policy)

        await BAD_ENDS[name](rig, dependency.id)

        found = await rig.find(after)
        assert found.status is AFTER_A_BAD_END[policy], policy
        if found.status is State.QUEUED:
            assert await is_woken(rig, after), policy
        else:
            assert (found.finished_at, found.token) == (rig.clock.now(), None), policy
            assert found.reason, policy


async def test_a_skipped_node_says_so(rig: Rig) -> None:
    dependency = await rig.running()
    after = await node(rig, dependency.id, policy=Policy.SKIP)

    await rig.finish(dependency, Verb.BURY)

    assert "skip" in ((await rig.find(after)).reason or "")


@pytest.mark.parametrize(("policy", "state"), [(Policy.FAIL, State.DEAD), (Policy.SKIP, State.CANCELLED)])
async def test_a_node_goes_at_once_whatever_else_it_waits_for(rig: Rig, policy: Policy, state: State) -> None:
    first, second = await rig.running(), await rig.running()
    after = await node(rig, first.id, second.id, policy=policy)

    await rig.finish(first, Verb.BURY)
    gone = await rig.find(after)
    await rig.finish(second, Verb.SUCCEED)

    assert gone.status is state
    assert await rig.find(after) == gone


async def test_each_edge_has_a_policy_of_its_own(rig: Rig) -> None:
    careless, strict = await rig.running(), await rig.running()
    edges = (Edge(careless.id, Policy.CONTINUE), Edge(strict.id, Policy.FAIL))
    after = alone(wait=Wait(edges=edges, need=2))
    await rig.store.enqueue([after])

    await rig.finish(careless, Verb.BURY)
    assert await rig.status(after.id) is State.WAITING
    await rig.finish(strict, Verb.BURY)

    assert await rig.status(after.id) is State.DEAD


async def test_a_bad_end_that_counts_like_a_success_completes_a_node(rig: Rig) -> None:
    bad, good = await rig.running(), await rig.running()
    after = await node(rig, bad.id, good.id, policy=Policy.CONTINUE)

    await rig.finish(bad, Verb.BURY)
    assert await rig.status(after) is State.WAITING
    await rig.finish(good, Verb.SUCCEED)

    assert await is_woken(rig, after)


async def test_a_replay_takes_back_what_counted_like_a_success(rig: Rig) -> None:
    bad, good = await rig.running(), await rig.running()
    after = await node(rig, bad.id, good.id, policy=Policy.CONTINUE)
    await rig.finish(bad, Verb.BURY)

    await rig.store.operate(Verb.REPLAY, bad.id)
    await rig.finish(good, Verb.SUCCEED)

    assert await rig.status(after) is State.WAITING
    await end(rig, bad.id)
    assert await is_woken(rig, after)


async def test_a_cascade_goes_down_several_levels(rig: Rig) -> None:
    first = await rig.running()
    second = await node(rig, first.id, policy=Policy.FAIL)
    third = await node(rig, second, policy=Policy.SKIP)
    fourth = await node(rig, third, policy=Policy.FAIL)
    fifth = await node(rig, fourth, policy=Policy.CONTINUE)
    watcher = await waiter(rig, first.id, second, third, fourth, need=1)

    await rig.finish(first, Verb.BURY)

    assert [await rig.status(job) for job in (second, third, fourth)] == [State.DEAD, State.CANCELLED, State.DEAD]
    assert await is_woken(rig, fifth)
    assert await is_woken(rig, watcher)


async def test_a_long_chain_falls_as_a_whole(rig: Rig) -> None:
    first = alone()
    chain = [first]
    for _ in range(300):
        chain.append(alone(queue="chain", wait=waiting_for(chain[-1], policy=Policy.FAIL)))
    await rig.store.enqueue(chain)

    await end(rig, first.id, Verb.BURY)

    counts = await rig.store.counts()
    assert (counts[State.DEAD], counts[State.WAITING]) == (301, 0)


async def test_a_diamond_runs_its_last_node_once(rig: Rig) -> None:
    top = await rig.running()
    left, right = await node(rig, top.id), await node(rig, top.id)
    bottom = await node(rig, left, right)

    await rig.finish(top, Verb.SUCCEED)
    running = [await rig.take(left), await rig.take(right)]
    await rig.store.finish([Transition(lease=job.lease, verb=Verb.SUCCEED, followed=job.followed) for job in running])

    assert await is_woken(rig, bottom)
    assert await end(rig, bottom) is State.SUCCEEDED


async def test_a_diamond_falls_once(rig: Rig) -> None:
    top = await rig.running()
    left, right = await node(rig, top.id, policy=Policy.FAIL), await node(rig, top.id, policy=Policy.SKIP)
    bottom = await node(rig, left, right, policy=Policy.FAIL)

    await rig.finish(top, Verb.BURY, action="JOB_DEAD")

    assert [await rig.status(job) for job in (left, right, bottom)] == [State.DEAD, State.CANCELLED, State.DEAD]
    assert len(await rig.store.audit(job=bottom)) == 1


async def test_a_diamond_whose_last_node_shrugs_runs_it(rig: Rig) -> None:
    top = await rig.running()
    left, right = await node(rig, top.id), await node(rig, top.id)
    bottom = await node(rig, left, right, policy=Policy.CONTINUE)

    await rig.finish(top, Verb.BURY)

    assert [await rig.status(left), await rig.status(right)] == [State.DEAD, State.DEAD]
    assert await is_woken(rig, bottom)


@pytest.mark.parametrize("kind", ["succeeded", "dead", "cancelled", "discarded", "unknown"])
async def test_a_dependency_that_had_ended_before_the_enqueue(rig: Rig, kind: str) -> None:
    for policy in sorted(Policy):
        dependency = await one_that_ended(rig, kind)
        after = alone(wait=waiting_for(dependency, policy=policy))
        last = alone(wait=waiting_for(after, policy=Policy.CONTINUE))

        assert await rig.store.enqueue([last, after]) == {}

        expected = State.QUEUED if kind == "succeeded" else AFTER_A_BAD_END[policy]
        assert await rig.status(after.id) is expected, policy
        assert await rig.status(last.id) is (State.WAITING if expected is State.QUEUED else State.QUEUED), policy


async def test_a_node_in_a_transaction_comes_with_its_commit(rig: Rig) -> None:
    dependency = await rig.running()
    kept, undone = alone(wait=waiting_for(dependency.id)), alone(wait=waiting_for(dependency.id))
    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.enqueue([undone])
    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.enqueue([kept])
        await transaction.commit()

    await rig.finish(dependency, Verb.SUCCEED)

    assert await is_woken(rig, kept.id)
    assert await rig.store.find(undone.id) is None


async def test_a_cancelled_node_is_a_bad_end_for_the_next(rig: Rig) -> None:
    dependency = await rig.running()
    middle = await node(rig, dependency.id)
    last = await node(rig, middle, policy=Policy.SKIP)

    await rig.store.operate(Verb.CANCEL, middle)
    await rig.finish(dependency, Verb.SUCCEED)

    assert [await rig.status(middle), await rig.status(last)] == [State.CANCELLED, State.CANCELLED]


async def test_a_node_that_died_with_its_dependency_can_be_replayed(rig: Rig) -> None:
    dependency = alone()
    await rig.store.enqueue([dependency])
    after = await node(rig, dependency.id)
    await die(rig, dependency.id)

    assert await rig.store.operate(Verb.REPLAY, after) is State.QUEUED

    running = await rig.take(after)
    await rig.store.operate(Verb.REPLAY, dependency.id)
    await end(rig, dependency.id)
    assert await rig.find(after) == running


async def test_a_callback_of_a_batch_counts_from_the_start(rig: Rig) -> None:
    jobs = [alone() for _ in range(3)]
    callback = alone(wait=waiting_for(*jobs, policy=Policy.CONTINUE, batch=True))
    await rig.store.enqueue([*jobs, callback])
    fresh = await rig.find(callback.id)
    assert (fresh.total, fresh.processed, fresh.failed) == (3, 0, 0)

    await end(rig, jobs[0].id)
    await die(rig, jobs[1].id)
    await end(rig, jobs[2].id)

    counted = await rig.find(callback.id)
    assert (counted.total, counted.processed, counted.failed) == (3, 2, 1)
    assert await is_woken(rig, callback.id)


async def test_a_batch_without_jobs_runs_its_callback_at_once(rig: Rig) -> None:
    callback = alone(wait=Wait(batch=True))

    await rig.store.enqueue([callback])

    assert await is_woken(rig, callback.id)


async def test_a_node_with_a_timer_is_woken_by_it(rig: Rig) -> None:
    dependency = await rig.enqueue()
    after = alone(wait=waiting_for(dependency, delay=60.0))
    await rig.store.enqueue([after])
    await rig.advance(61)

    assert await rig.store.wake_due() == 1

    assert await is_woken(rig, after.id)
