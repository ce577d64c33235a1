"""Every edge of the state table, provoked on both stores; and every pair of a verb and a state that is no edge.

The pairs come from `state.TRANSITIONS` itself: an edge that is added there is walked here, or its verb has no way yet
and a test fails with its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.errors import TransitionRefused
from windlass.model.delivery import UndeliveredAction
from windlass.model.flow import Advance, Flow
from windlass.model.job import Edge, Job, Lease, Policy, Wait, new_id
from windlass.model.state import ENDING_VERBS, FINAL, STAYING_VERBS, TRANSITIONS, State, Verb, allows, target

from .rig import alone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from .rig import Rig

    Provoke = Callable[[Rig, "Pair"], Awaitable[None]]

LATE = 5.0  # seconds until the timer of a wait
HOUR = 3_600.0  # seconds
GO = "go"  # a signal


class Pair:
    """The job under test, and another one for which it waits or waited."""

    def __init__(self, job: UUID, awaited: UUID) -> None:
        self.job = job
        self.awaited = awaited


# Given


async def in_state(rig: Rig, state: State, *, policy: Policy = Policy.COUNT) -> Pair:
    """A job in `state` that has waited for another, which has not ended: whatever was noted for that wait is stale.

    A graph's node takes the way over `wait=` of its enqueue, since only there an edge may be fatal.
    """
    other = alone()
    await rig.store.enqueue([other])
    awaited = other.id
    wait = Wait(edges=(Edge(awaited, policy),), need=1, signal=GO, delay=LATE)
    if policy is Policy.COUNT:
        job = await rig.running()
        assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=wait)) is State.WAITING
        pair = Pair(job.id, awaited)
    else:
        node = alone(wait=wait)
        await rig.store.enqueue([node])
        pair = Pair(node.id, awaited)
    assert await rig.status(pair.job) is State.WAITING
    if state is not State.WAITING:
        await leave_wait(rig, pair.job, state)
    assert await rig.status(pair.job) is state
    return pair


async def leave_wait(rig: Rig, job: UUID, state: State) -> None:
    if state is State.CANCELLED:
        await rig.store.operate(Verb.CANCEL, job)
        return
    await rig.advance(LATE)
    assert await rig.store.wake_due() > 0
    if state is State.QUEUED:
        return
    running = await rig.take(job)
    ways = {State.SUCCEEDED: Verb.SUCCEED, State.FAILED: Verb.FAIL, State.DEAD: Verb.BURY}
    if state is not State.RUNNING:
        await rig.finish(running, ways[state], delay=HOUR / 2, attempt=1)


# When: each verb by each way in which it can come


async def claim(rig: Rig, pair: Pair) -> None:
    job = await rig.find(pair.job)
    await rig.advance(HOUR)
    rig.worker = await rig.register()
    claimed = await rig.claim(queues=(job.queue,), types=(job.type,))
    assert [each.id for each in claimed] == ([job.id] if allows(Verb.CLAIM, job.status) else [])


def write(verb: Verb) -> Provoke:
    flows = {
        Verb.WAIT: Flow(wait=Wait(signal="another")),
        Verb.ADVANCE: Flow(advance=Advance(type="ask", phase="ask", phase_rank=1, queue="ask", max_attempts=4)),
    }

    async def provoke(rig: Rig, pair: Pair) -> None:
        job = await rig.find(pair.job)
        lease = Lease(job.id, job.token or new_id(), job.fence)  # a finished job's token is refused like a made-up one
        finished = await rig.write(lease, verb, attempt=1, flow=flows.get(verb), followed=job.followed)
        if allows(verb, job.status):
            assert finished.states == {job.id: target(verb)}
        else:
            assert finished.lost == {job.id}

    return provoke


def operate(verb: Verb) -> Provoke:
    async def provoke(rig: Rig, pair: Pair) -> None:
        state = await rig.status(pair.job)
        if allows(verb, state):
            assert await rig.store.operate(verb, pair.job, actor="ann") is target(verb)
        elif (verb, state) == (Verb.CANCEL, State.RUNNING):
            assert await rig.store.operate(verb, pair.job, actor="ann") is State.RUNNING  # asked, and no more
        else:
            with pytest.raises(TransitionRefused, match=f"is {state.value}"):
                await rig.store.operate(verb, pair.job, actor="ann")

    return provoke


def sweep(max_crashes: int) -> Provoke:
    async def provoke(rig: Rig, pair: Pair) -> None:
        await rig.die(rig.worker)
        await rig.store.sweep(max_crashes=max_crashes)

    return provoke


async def no_delivery_comes(rig: Rig, pair: Pair) -> None:
    await rig.take(pair.awaited)  # else that one is dead, too, which is another story
    await rig.advance(2 * HOUR)  # the worker's lease is over, but no sweep has marked it dead: it counts as alive
    await rig.store.undelivered(older=HOUR, action=UndeliveredAction.FAIL)


async def last_child_succeeds(rig: Rig, pair: Pair) -> None:
    await rig.finish(await rig.take(pair.awaited), Verb.SUCCEED)


async def last_child_dies(rig: Rig, pair: Pair) -> None:
    await rig.finish(await rig.take(pair.awaited), Verb.BURY)


async def last_child_is_stopped(rig: Rig, pair: Pair) -> None:
    await rig.finish(await rig.take(pair.awaited), Verb.STOP)


async def signal_comes(rig: Rig, pair: Pair) -> None:
    if (await rig.status(pair.job)) in (State.SUCCEEDED, State.DEAD, State.CANCELLED):
        with pytest.raises(TransitionRefused):
            await rig.store.signal(pair.job, GO, "1")
    else:
        assert await rig.store.signal(pair.job, GO, "1")


async def time_passes(rig: Rig, pair: Pair) -> None:
    await rig.advance(LATE)
    await rig.store.wake_due()


WAYS: list[tuple[Verb, Policy, Provoke]] = [
    (Verb.CLAIM, Policy.COUNT, claim),
    *((verb, Policy.COUNT, write(verb)) for verb in sorted(ENDING_VERBS | STAYING_VERBS)),
    *(
        (verb, Policy.COUNT, operate(verb))
        for verb in (Verb.CANCEL, Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.DISCARD)
    ),
    (Verb.RESCUE, Policy.COUNT, sweep(3)),
    (Verb.BURY_CRASHED, Policy.COUNT, sweep(1)),
    (Verb.BURY_UNDELIVERED, Policy.COUNT, no_delivery_comes),
    (Verb.WAKE, Policy.COUNT, last_child_succeeds),
    (Verb.WAKE, Policy.COUNT, last_child_dies),  # the need cannot be met any more: the wait raises in its handler
    (Verb.WAKE, Policy.FAIL, last_child_succeeds),
    (Verb.WAKE, Policy.CONTINUE, last_child_dies),
    (Verb.WAKE, Policy.COUNT, signal_comes),
    (Verb.WAKE, Policy.COUNT, time_passes),
    (Verb.ABANDON, Policy.FAIL, last_child_dies),
    (Verb.ABANDON, Policy.FAIL, last_child_is_stopped),
    (Verb.CANCEL, Policy.SKIP, last_child_dies),
]


def name(way: tuple[Verb, Policy, Provoke]) -> str:
    verb, policy, provoke = way
    how = provoke.__name__
    return verb.value if how in ("provoke", "claim") else f"{verb.value} as {how}, {policy.value}"


# Then


@pytest.mark.parametrize("way", WAYS, ids=name)
async def test_a_verb_leads_to_its_target_or_nowhere(rig: Rig, way: tuple[Verb, Policy, Provoke]) -> None:
    verb, policy, provoke = way
    for state in State:
        rig.worker = await rig.register()
        pair = await in_state(rig, state, policy=policy)
        before = await rig.find(pair.job)

        await provoke(rig, pair)

        walks = allows(verb, state) and (policy is not Policy.SKIP or state is State.WAITING)
        check(f"{verb.value} of a {state.value} job", before, await rig.store.find(pair.job), verb if walks else None)


def check(what: str, before: Job, after: Job | None, verb: Verb | None) -> None:
    """Where the verb leads; without one, nothing may have changed."""
    if verb is None:
        assert after is not None, what
        assert untouched(after) == untouched(before), what
    elif target(verb) is None:
        assert after is None, what
    else:
        assert after is not None, what
        assert after.status is target(verb), what
        if after.status not in FINAL:  # an ended one keeps the token that ended it
            assert (after.token is not None) is (after.status is State.RUNNING), what


def untouched(job: Job) -> tuple[object, ...]:
    """Everything that a refused verb must leave alone; a request to cancel a running job is no transition."""
    return (job.status, job.token, job.fence, job.attempt, job.run_at, job.worker, job.output, job.reason, job.phase)


def test_every_verb_of_the_table_has_a_way_here() -> None:
    assert {verb for verb, _, _ in WAYS} == set(TRANSITIONS)


def test_the_table_knows_every_verb_and_every_state() -> None:
    assert set(TRANSITIONS) == set(Verb)
    reached = {target(verb) for verb in Verb} | {State.QUEUED}  # an enqueue begins there
    assert reached - {None} == set(State)
    assert {state for state in State if not any(allows(verb, state) for verb in Verb)} == {State.SUCCEEDED}
