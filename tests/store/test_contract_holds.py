"""Holding back: a `Retry-After` on one worker, and no worker gets a token for so long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.admission import Closure
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .admissions import (
    BUCKET,
    call,
    drain,
    exact,
    finish_in_transaction,
    limit,
    limit_counter,
    nothing_is_left,
    rate,
    started,
)
from .flows import LIMIT

if TYPE_CHECKING:
    from .rig import Rig

STEP = 0.05  # seconds: four to a token where there are five a second
HELD = Closure(kind="bucket", name=BUCKET, state="held")


@pytest.mark.parametrize("burst", [1, 4])
async def test_for_two_minutes_nobody_gets_a_token_and_then_no_burst(rig: Rig, burst: int) -> None:
    await rig.store.declare([rate(BUCKET, 5, burst=burst)])
    await rig.enqueue_many(30, limits=(BUCKET,))
    await started(rig)
    await rig.advance(60)

    await rig.store.hold_back(BUCKET, 120)

    assert await rig.store.held_for(BUCKET) == exact(120)
    for _ in range(12):
        assert await started(rig) == 0
        grant = await call(rig)
        assert (grant.granted, grant.wait) == (False, exact(await rig.store.held_for(BUCKET)))
        await rig.advance(9.9)
    await rig.advance(1.2)
    starts = []
    for _ in range(20):
        starts.append(await started(rig))
        await rig.advance(STEP)
    assert starts == [1, 0, 0, 0] * 5
    assert await rig.store.held_for(BUCKET) == 0


async def test_a_longer_hold_stays(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])

    for seconds, expected in [(10, 10), (120, 120), (30, 120)]:
        await rig.store.hold_back(BUCKET, seconds)
        assert await rig.store.held_for(BUCKET) == exact(expected)


@pytest.mark.parametrize("burst", [1, 4])
async def test_a_hold_can_be_ended_and_the_rate_is_not_exceeded(rig: Rig, burst: int) -> None:
    await rig.store.declare([rate(BUCKET, 5, burst=burst)])
    await rig.enqueue_many(30, limits=(BUCKET,))
    assert await started(rig) == burst
    await rig.store.hold_back(BUCKET, 120)
    assert await started(rig) == 0

    assert await rig.store.end_hold(BUCKET)

    assert await rig.store.held_for(BUCKET) == 0
    assert await rig.store.closures() == []
    starts = []
    for _ in range(8):
        starts.append(await started(rig))
        await rig.advance(STEP)
    assert starts == [0, 0, 0, 0, 1, 0, 0, 0]
    assert not await rig.store.end_hold(BUCKET)
    assert not await rig.store.end_hold("nobody")


async def test_tokens_for_the_time_after_a_hold_stay_taken_when_it_is_ended(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1)])
    await rig.store.hold_back(BUCKET, 3)
    assert (await call(rig)).wait == exact(3)

    assert await rig.store.end_hold(BUCKET)

    assert (await call(rig)).wait == exact(4)


async def test_a_job_parked_at_a_limit_is_unparked_when_a_hold_ends(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    await rig.enqueue_many(4, limits=("domain:a",))
    await rig.store.hold_back("domain:a", 3600)
    assert await rig.claim() == []

    assert await rig.store.end_hold("domain:a")

    assert len(await rig.claim()) == 2
    assert await rig.claim() == []


async def test_what_an_operator_holds_back_and_lets_go_is_in_the_audit(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])

    await rig.store.hold_back(BUCKET, 5)  # a handler
    await rig.store.hold_back(BUCKET, 90, actor="ann")
    await rig.store.hold_back(BUCKET, 60, actor="ann")  # the longer one stays
    await rig.store.end_hold(BUCKET, actor="bob")
    await rig.store.end_hold(BUCKET, actor="bob")

    assert [(row.action, row.actor, row.subject, row.reason) for row in await rig.store.audit()] == [
        ("LIMIT_RELEASED", "bob", f"limit:{BUCKET}", None),
        ("LIMIT_HELD", "ann", f"limit:{BUCKET}", "for 1m30s"),
    ]


async def test_a_hold_is_a_closure_and_its_end_is_told(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])
    await rig.enqueue_many(2, limits=(BUCKET,))
    await rig.store.hold_back(BUCKET, 120)

    assert await rig.store.closures() == [HELD]
    assert (await rig.ask()).jobs == []
    assert (await rig.ask()).next_due == exact(120)
    row = await limit_counter(rig, BUCKET)
    assert row is not None
    assert row.held == exact(120)

    await rig.advance(120)
    assert await rig.store.closures() == []
    assert await started(rig) == 1


async def test_a_call_may_wait_for_the_end_of_a_short_hold(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1)])
    await rig.store.hold_back(BUCKET, 3)

    grants = [await call(rig) for _ in range(4)]

    assert [grant.granted for grant in grants] == [True, True, True, False]
    assert [grant.wait for grant in grants] == [exact(3), exact(4), exact(5), exact(6)]


async def test_a_hold_of_one_key_is_not_one_of_others(rig: Rig) -> None:
    await rig.store.declare([rate("host", 1)])
    await rig.enqueue(limits=("host:a",))
    other = await rig.enqueue(limits=("host:b",))
    await rig.store.hold_back("host:a", 120)

    assert [job.id for job in await rig.claim()] == [other]


async def test_nobody_gets_a_slot_of_a_limit_that_is_held_back(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    await rig.enqueue_many(4, limits=("domain:a",))
    (one,) = await rig.claim(room=1)
    await rig.store.hold_back("domain:a", 60)

    assert await rig.claim() == []
    await rig.finish(one, Verb.SUCCEED)
    assert await rig.claim() == []
    await rig.advance(60)

    assert len(await rig.claim()) == 2


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE])
async def test_an_attempt_that_ends_can_hold_everybody_back(rig: Rig, verb: Verb) -> None:
    await rig.store.declare([rate(BUCKET, 5)])
    await rig.enqueue_many(3, limits=(BUCKET,))
    (job,) = await rig.claim()

    await rig.finish(job, verb, delay=120.0, attempt=1, hold=(BUCKET, 120.0))

    assert await rig.store.held_for(BUCKET) == exact(120)
    await rig.advance(119)
    assert await rig.claim() == []
    await rig.advance(1)
    assert len(await rig.claim()) == 1


async def test_a_job_without_limits_can_hold_a_bucket_back(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])
    job = await rig.held()

    await rig.finish(job, Verb.FAIL, delay=120.0, attempt=1, hold=(BUCKET, 120.0))

    assert await rig.store.closures() == [HELD]


async def test_a_hold_belongs_to_the_transaction_and_to_the_lease(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])
    job = await rig.held()
    hold = Transition(lease=job.lease, verb=Verb.FAIL, attempt=1, hold=(BUCKET, 120.0))

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(hold)
    assert await rig.store.held_for(BUCKET) == 0

    await finish_in_transaction(rig.store, job, Verb.FAIL, attempt=1, hold=(BUCKET, 30.0))
    assert await rig.store.held_for(BUCKET) == exact(30)

    await rig.store.finish([hold])
    assert await rig.store.held_for(BUCKET) == exact(30)


async def test_a_hold_between_a_claim_and_its_start(rig: Rig) -> None:
    """The claim took a token in time, the worker sees the hold before it starts: the job goes back, and waits."""
    await rig.store.declare([rate(BUCKET, 5, burst=4)])
    await rig.enqueue_many(4, limits=(BUCKET,))
    claimed = await rig.claim()
    await rig.store.hold_back(BUCKET, 120)
    assert await rig.store.closures() == [HELD]

    for job in claimed:
        assert await rig.finish(job, Verb.RELEASE, delay=None) is State.QUEUED

    assert await rig.claim() == []
    assert (await rig.ask()).next_due == exact(120)
    await rig.advance(120)
    assert [len(await rig.claim()), len(await rig.claim())] == [1, 0]
    await rig.advance(3600)
    await drain(rig, rounds=3)
    await nothing_is_left(rig)
