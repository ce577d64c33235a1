"""Slots come back: by every way out of running, once, with the transaction that ends the attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.flow import Advance, Flow
from windlass.model.outcome import Transition
from windlass.model.state import FINAL, State, Verb

from .admissions import (
    drain,
    end_all,
    finish_in_transaction,
    full,
    in_time,
    limit,
    limit_counter,
    nothing_is_left,
    running,
    used,
)
from .flows import LIMIT, waiting_for
from .rig import LEASE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from windlass.model.job import Job

    from .rig import Rig

    Way = Callable[[Rig, Job], Awaitable[None]]

LATER = 10_000.0  # seconds: no job becomes due again during a test


# The ways out


def ending(verb: Verb) -> Way:
    async def end(rig: Rig, job: Job) -> None:
        assert await rig.finish(job, verb, delay=LATER, attempt=1) is not None

    return end


async def waits(rig: Rig, job: Job) -> None:
    wait = waiting_for(await rig.enqueue(delay=LATER))
    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=wait)) is State.WAITING


async def advances(rig: Rig, job: Job) -> None:
    step = Advance(type="site.form", phase="form", phase_rank=1, queue="forms", max_attempts=4)
    assert await rig.finish(job, Verb.ADVANCE, flow=Flow(advance=step)) is State.QUEUED


async def fails_after_a_cancel(rig: Rig, job: Job) -> None:
    await rig.store.operate(Verb.CANCEL, job.id)
    assert await rig.finish(job, Verb.FAIL, attempt=1) is State.CANCELLED


async def dies_by_crashes(rig: Rig, job: Job) -> None:
    del job  # named for the reader: it is the one that its worker held
    await rig.die(rig.worker)
    assert (await rig.store.sweep(max_crashes=1)).dead_after_crashes == 1
    rig.worker = await rig.register()


async def is_rescued_after_a_cancel(rig: Rig, job: Job) -> None:
    await rig.store.operate(Verb.CANCEL, job.id)
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    assert await rig.status(job.id) is State.CANCELLED
    rig.worker = await rig.register()


async def ends_in_a_transaction(rig: Rig, job: Job) -> None:
    await finish_in_transaction(rig.store, job)


async def fails_in_a_transaction(rig: Rig, job: Job) -> None:
    await finish_in_transaction(rig.store, job, Verb.FAIL, delay=LATER, attempt=1)


WAYS: dict[str, Way] = {
    "succeeds": ending(Verb.SUCCEED),
    "fails": ending(Verb.FAIL),
    "dies": ending(Verb.BURY),
    "snoozes": ending(Verb.SNOOZE),
    "is stopped": ending(Verb.STOP),
    "waits": waits,
    "advances": advances,
    "fails after a cancel": fails_after_a_cancel,
    "is condemned": dies_by_crashes,
    "is rescued after a cancel": is_rescued_after_a_cancel,
    "ends in a transaction": ends_in_a_transaction,
    "fails in a transaction": fails_in_a_transaction,
}


@pytest.mark.parametrize("way", WAYS)
async def test_the_slot_is_back_and_the_next_one_has_it(rig: Rig, way: str) -> None:
    holder, (first, *_) = await full(rig)

    await WAYS[way](rig, holder)

    assert await used(rig, "domain:a") == 0
    assert [job.id for job in await rig.claim()] == [first]
    assert (await used(rig, "domain:a"), await running(rig, "domain:a")) == (1, 1)
    assert await rig.claim() == []


@pytest.mark.parametrize("way", WAYS)
async def test_all_slots_of_a_job_are_back(rig: Rig, way: str) -> None:
    await rig.store.declare([limit("agent"), limit("domain"), limit("tenant", 2)])
    await rig.enqueue(limits=("agent", "domain:a", "tenant:x"))
    (job,) = await rig.claim()

    await WAYS[way](rig, job)

    await nothing_is_left(rig)


async def test_a_released_job_gives_its_slot_back_and_keeps_its_place(rig: Rig) -> None:
    holder, _ = await full(rig)

    await rig.finish(holder, Verb.RELEASE, delay=None)

    assert await used(rig, "domain:a") == 0
    assert [job.id for job in await rig.claim()] == [holder.id]
    assert await used(rig, "domain:a") == 1


async def test_a_rescued_job_gives_its_slot_back_and_keeps_its_place(rig: Rig) -> None:
    holder, _ = await full(rig)
    await rig.die(rig.worker)

    assert (await rig.store.sweep(max_crashes=3)).rescued == 1

    assert await used(rig, "domain:a") == 0
    rig.worker = await rig.register()
    assert [job.id for job in await rig.claim()] == [holder.id]


async def test_no_limit_keeps_a_rescue(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 5)])
    await rig.enqueue_many(8, limits=("domain:a",))
    orphans = await rig.claim()
    await rig.store.declare([limit("domain", 1)])
    await rig.die(rig.worker)

    swept = await rig.store.sweep(max_crashes=3, page=2)

    assert (swept.rescued, await used(rig, "domain:a")) == (5, 0)
    assert {await rig.status(job.id) for job in orphans} == {State.QUEUED}
    rig.worker = await rig.register()
    assert len(await drain(rig, rounds=20)) == 8


async def test_the_jobs_of_a_worker_nobody_knows_give_their_slots_back(rig: Rig) -> None:
    await full(rig)
    await rig.run(f"DELETE FROM {{}}workers WHERE id = '{rig.worker}'")

    assert (await rig.store.sweep(max_crashes=3)).rescued == 1

    assert await used(rig, "domain:a") == 0


# Once


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.FAIL, Verb.RELEASE])
async def test_a_lost_lease_releases_no_slot(rig: Rig, verb: Verb) -> None:
    holder, _ = await full(rig)
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    assert len(await rig.claim()) == 1

    assert await rig.finish(holder, verb, attempt=1) is None

    assert await used(rig, "domain:a") == 1
    assert await rig.claim() == []


async def test_a_finish_told_twice_gives_back_once(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    await rig.enqueue_many(4, limits=("domain:a",))
    one, _ = await rig.claim()

    for _ in range(3):
        await rig.finish(one, Verb.SUCCEED)

    assert await used(rig, "domain:a") == 1
    assert len(await rig.claim()) == 1


async def test_of_a_batch_those_that_hold_their_lease_give_back(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 4), limit("agent", 9)])
    await rig.enqueue_many(4, limits=("agent", "domain:a"))
    await rig.enqueue_many(4, limits=("agent", "domain:b"))
    jobs = await rig.claim()
    lost = {jobs[0].id, jobs[5].id}
    for job in (jobs[0], jobs[5]):
        await rig.finish(job, Verb.SNOOZE, delay=LATER)

    finished = await rig.store.finish(
        [
            Transition(lease=job.lease, verb=verb, limited=True, delay=LATER, attempt=1)
            for job, verb in zip(jobs, [Verb.SUCCEED, Verb.FAIL] * 4, strict=True)
        ]
    )

    assert finished.lost == lost
    await nothing_is_left(rig)


async def test_plain_and_limited_jobs_end_in_one_batch(rig: Rig) -> None:
    holder, (first, *_) = await full(rig)
    await rig.enqueue_many(3)
    plain = await rig.claim()

    await end_all(rig, [holder, *plain])

    assert {await rig.status(job.id) for job in (holder, *plain)} == {State.SUCCEEDED}
    assert [job.id for job in await rig.claim()] == [first]


# With the transaction


async def test_what_is_rolled_back_gives_nothing_back(rig: Rig) -> None:
    holder, _ = await full(rig)

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(Transition(lease=holder.lease, verb=Verb.SUCCEED, limited=True))

    assert await rig.status(holder.id) is State.RUNNING
    assert await used(rig, "domain:a") == 1
    assert await rig.claim() == []
    await end_all(rig, [holder])
    assert len(await drain(rig, rounds=4)) == 3


async def test_a_slot_is_back_with_the_commit_and_not_before(rig: Rig) -> None:
    if rig.dialect == "sqlite":
        pytest.skip("a file has one writer: no claim is made while a transaction is open")
    holder, (first, *_) = await full(rig)

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(Transition(lease=holder.lease, verb=Verb.SUCCEED, limited=True))
        (while_open,) = await in_time(rig.claim())
        await transaction.commit()

    assert while_open == []
    assert [job.id for job in await rig.claim()] == [first]


async def test_a_transaction_without_the_lease_gives_nothing_back(rig: Rig) -> None:
    holder, _ = await full(rig)
    await rig.finish(holder, Verb.RELEASE, delay=None)
    assert len(await rig.claim()) == 1

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert not await transaction.finish(Transition(lease=holder.lease, verb=Verb.SUCCEED, limited=True))
        await transaction.commit()

    assert await used(rig, "domain:a") == 1


# Which workers are woken


async def test_an_idle_worker_is_woken_when_a_job_is_unparked(rig: Rig) -> None:
    """By the store, or by the worker that released the slot: the finish reports the job, and it may claim it itself."""
    holder, _ = await full(rig, queue="mail")
    await rig.store.set_idle(rig.worker, idle=True)

    async with rig.store.wakeups() as messages:

        async def first_word() -> str:
            async for message in messages:
                if message in ("mail", "*"):
                    return message
            return ""

        async def finish() -> None:
            finished = await rig.store.finish([Transition(lease=holder.lease, verb=Verb.SUCCEED, limited=True)])
            rig.store.wake_later(set(finished.unparked_queues))

        word, _ = await in_time(first_word(), finish())

    assert word in ("mail", "*")


async def test_slots_survive_a_long_life_of_many_ends(rig: Rig) -> None:
    """Every way out again and again on two keys: the count stays what the running jobs are."""
    await rig.store.declare([limit("domain", 2), limit("agent", 3)])
    verbs = [Verb.SUCCEED, Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.BURY, Verb.STOP]
    await rig.enqueue_many(60, limits=("agent", "domain:a"))

    for turn in range(200):
        for place, job in enumerate(await rig.claim(room=3)):
            await rig.finish(job, verbs[(turn + place) % len(verbs)], delay=1.0, attempt=1)
        held = await rig.claim(room=1)
        assert await used(rig, "domain:a") == await used(rig, "agent") == len(held)
        if turn % 10 == 0:
            await rig.advance(LEASE + 1)
            await rig.store.sweep(max_crashes=1_000)
            rig.worker = await rig.register()
        else:
            await end_all(rig, held)
        if await ended(rig) == 60:
            break

    assert await ended(rig) == 60
    await nothing_is_left(rig)


async def ended(rig: Rig) -> int:
    return sum(count for state, count in (await rig.store.counts()).items() if state in FINAL)


# Reading limits


async def test_the_keys_in_use_are_shown_with_their_parked_jobs(rig: Rig) -> None:
    await full(rig, "domain:a", behind=2)
    await rig.store.declare([limit("tenant", 7)])
    await rig.enqueue(limits=("tenant:x",))
    await rig.claim()

    rows = await rig.store.limits()

    assert [(row.key, row.name, row.most, row.used, row.waiting) for row in rows] == [
        ("domain:a", "domain", 1, 1, 2),
        ("tenant:x", "tenant", 7, 1, 0),
    ]
    assert [row.key for row in await rig.store.limits("tenant")] == ["tenant:x"]
    assert await rig.store.limits("nobody") == []
    row = await limit_counter(rig, "domain:a")
    assert row is not None
    assert (row.period, row.free_in, row.held) == (None, 0, 0)


async def test_holders_and_waiters_are_told_in_order_and_in_pages(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 3)])
    jobs = []
    for _ in range(6):
        jobs.append(await rig.enqueue(limits=("domain:a",)))
        await rig.claim()
        await rig.advance(1)

    assert [job.id for job in await rig.store.holders("domain:a")] == jobs[:3]
    assert [job.id for job in await rig.store.waiters("domain:a")] == jobs[3:]
    assert [job.id for job in await rig.store.holders("domain:a", page=2)] == jobs[:2]
    assert [job.id for job in await rig.store.waiters("domain:a", page=1)] == jobs[3:4]
    assert await rig.store.holders("domain:b") == await rig.store.waiters("domain:b") == []
