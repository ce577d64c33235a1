"""A limit counter counts the running jobs, also while it is made, declared anew, or releases slots."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from windlass.model.outcome import Transition
from windlass.model.state import State, Verb
from windlass.store.postgres.connections.pool import SETTINGS
from windlass.store.sql import query

from .admissions import drain, end_all, finish_in_transaction, full, in_time, limit, rate, running, used, waiting
from .rig import new_job
from .test_contract_limit_races import only_on_postgres, until_waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windlass.model.job import Job

    from .rig import Rig

KEYS = 60


@asynccontextmanager
async def beside(rig: Rig) -> AsyncIterator[Any]:
    """A connection of an engine's, beside the store."""
    connection = await asyncpg.connect(rig.store.url, server_settings=SETTINGS)  # type: ignore[attr-defined]
    try:
        yield connection
    finally:
        await connection.close()


def success(job: Job) -> Transition:
    return Transition(lease=job.lease, verb=Verb.SUCCEED, limited=bool(job.limits))


async def in_use(rig: Rig, key: str) -> tuple[int, int]:
    """What the limit counter has, and what is true."""
    return await used(rig, key), await running(rig, key)


# A key that is met while jobs of it run, claimed before the limit was declared


async def test_jobs_that_end_while_their_key_is_met_leave_no_slot_behind(rig: Rig) -> None:
    await rig.store.enqueue([new_job(limits=(f"k:{n}",)) for n in range(KEYS)])
    before = await rig.claim(room=KEYS)
    await rig.store.enqueue([new_job(limits=(f"k:{n}",)) for n in range(KEYS)])
    await rig.store.declare([limit("k")])

    async with rig.stores(1) as (other,):

        async def end() -> None:
            for start in range(0, KEYS, 3):
                await rig.store.finish([success(job) for job in before[start : start + 3]])

        _, claimed = await in_time(end(), rig.claim(room=KEYS, store=other))
    claimed += await rig.claim(room=KEYS)
    claimed += await rig.claim(room=KEYS)

    assert len(before) == len(claimed) == KEYS
    assert [await in_use(rig, f"k:{n}") for n in range(KEYS)] == [(1, 1)] * KEYS


async def test_a_job_that_ends_before_the_row_is_there_does_not_count(rig: Rig) -> None:
    only_on_postgres(rig)
    await rig.enqueue(limits=("k:a",))
    (old,) = await rig.claim()
    await rig.store.declare([limit("k")])

    async with beside(rig) as connection, connection.transaction():
        await connection.execute(query("postgres", "make_limit_counters"), '["k:a"]')
        await rig.finish(old, Verb.SUCCEED)

    new = await rig.enqueue(limits=("k:a",))
    assert [job.id for job in await rig.claim()] == [new]
    assert await in_use(rig, "k:a") == (1, 1)


async def test_a_job_whose_end_is_under_way_is_waited_for_and_does_not_count(rig: Rig) -> None:
    """A handler's transaction has ended its job and not committed: its row is older than the limit counter."""
    only_on_postgres(rig)
    await rig.enqueue(limits=("k:a",))
    (old,) = await rig.claim()
    new = await rig.enqueue(limits=("k:a",))

    async with rig.store.transaction(limit=30) as transaction:
        assert await transaction.finish(success(old))
        await rig.store.declare([limit("k")])
        claiming = asyncio.create_task(rig.claim())
        await until_waiting(rig, 1, claiming)
        await transaction.commit()
    (claimed,) = await in_time(claiming)

    assert [job.id for job in claimed + await rig.claim()] == [new]
    assert await in_use(rig, "k:a") == (1, 1)


async def test_a_rate_that_becomes_a_limit_counts_what_a_claim_takes_meanwhile(rig: Rig) -> None:
    only_on_postgres(rig)
    await rig.store.declare([rate("k", 1000, burst=10)])
    await rig.enqueue(limits=("k:a",))
    await end_all(rig, await rig.claim())
    await rig.advance(10)
    await rig.enqueue_many(2, limits=("k:a",))

    async with beside(rig) as connection:
        async with connection.transaction():  # a claim that has the row and is not done
            await connection.execute("SELECT FROM windlass.limit_counters WHERE key = 'k:a' FOR UPDATE")
            declaring = asyncio.create_task(rig.store.declare([limit("k")]))
            await until_waiting(rig, 1, declaring)
            await connection.execute(
                "UPDATE windlass.jobs SET status = 'running', token = gen_random_uuid(), worker = $1, attempt = 1,"
                " claimed_at = windlass.now() WHERE id = (SELECT id FROM windlass.jobs LIMIT 1)",
                rig.worker,
            )
        await in_time(declaring)

    assert await rig.claim() == []
    assert await in_use(rig, "k:a") == (1, 1)


# Locks and marks


async def test_a_handlers_transaction_locks_keys_in_the_order_of_all_others(rig: Rig) -> None:
    """Rows that lie in another order than their keys, and a planner that may read the table as it lies."""
    only_on_postgres(rig)
    await rig.store.declare([limit("k", 5)])
    await rig.enqueue(limits=("k:z", "k:m", "k:a"))
    (one,) = await rig.claim()
    await rig.enqueue(limits=("k:z", "k:a"))
    (two,) = await rig.claim()
    for key in ("k:m", "k:a"):  # written again, behind the others
        await rig.enqueue(limits=(key,))
        await end_all(rig, await rig.claim())

    async with beside(rig) as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM windlass.limit_counters WHERE key = 'k:m' FOR UPDATE")
            first = asyncio.create_task(finish_in_transaction(rig.store, one))
            await until_waiting(rig, 1, first)
            second = asyncio.create_task(rig.store.finish([success(two)]))
            await until_waiting(rig, 2, second)
        await in_time(first, second)

    assert [await used(rig, key) for key in ("k:a", "k:m", "k:z")] == [0, 0, 0]
    assert await rig.status(one.id) is await rig.status(two.id) is State.SUCCEEDED


async def test_a_job_that_is_parked_while_others_are_unparked_is_not_forgotten(rig: Rig) -> None:
    """The statement that lets in is old: since it began a claim has parked three, and a finish let in one of them."""
    only_on_postgres(rig)
    holder, _ = await full(rig, behind=0)
    await rig.store.declare([limit("domain", 2)])
    await rig.run("UPDATE {}limit_counters SET has_parked = true")
    aside = await rig.enqueue(type="nobody", limits=("x:1",))
    await rig.run(f"UPDATE {{}}jobs SET parked_on = 'x:1' WHERE id = '{aside}'")
    slow = query("postgres", "unpark").replace("AS keys (key)", "AS keys (key), pg_advisory_xact_lock_shared(7)")

    async with beside(rig) as lock, beside(rig) as old:
        await lock.execute("SELECT pg_advisory_lock(7)")
        letting_in = asyncio.create_task(old.fetch(slow, '["domain:a"]'))
        await until_waiting(rig, 1, letting_in)
        jobs = await rig.enqueue_many(4, limits=("domain:a",))
        claimed = await rig.claim()
        await rig.finish(holder, Verb.SUCCEED)
        await lock.execute("SELECT pg_advisory_unlock(7)")
        await in_time(letting_in)

    assert await waiting(rig, "domain:a") == 2
    await end_all(rig, claimed)
    done = [job.id for job in claimed] + await drain(rig, rounds=3, rescan=False)
    assert sorted(done) == sorted(jobs)


async def test_a_mark_that_is_missing_is_made_good_by_the_next_rescan(rig: Rig) -> None:
    only_on_postgres(rig)
    holder, parked = await full(rig, behind=5)
    await rig.run("UPDATE {}limit_counters SET has_parked = false")
    await rig.finish(holder, Verb.SUCCEED)

    (first,) = await rig.claim()
    await end_all(rig, [first])

    assert [first.id, *await drain(rig, rounds=6, rescan=False)] == parked


# A batch of which a part is written


async def test_what_is_written_is_told_when_the_rest_of_its_batch_has_to_wait(rig: Rig) -> None:
    only_on_postgres(rig)
    await rig.store.declare([limit("domain")])
    await rig.enqueue(limits=("domain:a",))
    await rig.enqueue(limits=("domain:b",))
    ends, fails = await rig.claim()
    batch = [success(ends), Transition(lease=fails.lease, verb=Verb.FAIL, delay=1.0, limited=True)]

    async with beside(rig) as connection, connection.transaction():
        await connection.execute("SELECT FROM windlass.limit_counters WHERE key = 'domain:b' FOR UPDATE")
        finished = await rig.store.finish(batch)

    assert finished.states == {ends.id: State.SUCCEEDED}
    assert (finished.lost, finished.left) == (frozenset(), frozenset({fails.id}))
    assert (await rig.store.finish(batch[1:])).states == {fails.id: State.FAILED}


# Tokens


@pytest.mark.parametrize("rescan", [True, False])
async def test_a_claim_says_when_the_bucket_has_its_next_token(rig: Rig, rescan: bool) -> None:
    await rig.store.declare([rate("r", 5)])
    await rig.enqueue_many(4, limits=("r",))
    assert len(await rig.claim()) == 1

    await rig.advance(0.2)
    answer = await rig.ask(rescan=rescan)

    assert len(answer.jobs) == 1
    assert answer.next_due == pytest.approx(0.2, abs=0.001)
