"""Races at a limit: claims, ends, rescues and operators that meet at one counter, and never a job above the limit."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from windlass.errors import TransitionRefused
from windlass.model.admission import Grant
from windlass.model.outcome import Transition
from windlass.model.state import FINAL, State, Verb

from .admissions import (
    LOOK,
    PATIENCE,
    drain,
    end_all,
    finish_in_transaction,
    full,
    in_time,
    limit,
    nothing_is_left,
    rate,
    running,
    used,
)
from .rig import new_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from windlass.model.job import Job
    from windlass.store.protocol import Store

    from .rig import Rig

TURNS = 15
LOCK = 4711  # an advisory lock: a statement that fires the trigger waits until the test releases it

STOP = """
CREATE FUNCTION stop_here() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({lock});
    RETURN NEW;
END $$
"""
PARKS = "jobs", "OLD.parked_on IS NULL AND NEW.parked_on IS NOT NULL"
TAKES = "limit_counters", "NEW.used > OLD.used"
GIVES = "limit_counters", "NEW.next_at > OLD.next_at"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@asynccontextmanager
async def standing(rig: Rig, where: tuple[str, str]) -> AsyncIterator[None]:
    """PostgreSQL only: a transaction that writes such a row stops, with all its locks, until the block ends."""
    table, when = where
    await rig.run(STOP.replace("{lock}", str(LOCK)).replace("{", "{{").replace("}", "}}"))
    await rig.run(
        f"CREATE TRIGGER stop_here BEFORE UPDATE ON {{}}{table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION stop_here()"
    )
    await rig.run(f"SELECT pg_advisory_lock({LOCK})")
    try:
        yield
    finally:
        await rig.run(f"SELECT pg_advisory_unlock({LOCK})")


async def until_waiting(rig: Rig, count: int, *tasks: asyncio.Task[Any]) -> None:
    """Until so many connections wait for a lock, or the task that was to wait there has ended."""
    async with asyncio.timeout(PATIENCE):
        while (await rig.run(WAITING))[0][0] < count and not any(task.done() for task in tasks):  # noqa: ASYNC110
            await asyncio.sleep(LOOK)


def only_on_postgres(rig: Rig) -> None:
    if rig.dialect == "sqlite":
        pytest.skip("a file has one writer: these two cannot meet")


# Step by step


async def test_a_slot_is_returned_while_a_claim_parks(rig: Rig) -> None:
    """The finish waits for the counter; the jobs that it unparks must be read after that, and not before."""
    only_on_postgres(rig)
    holder, _ = await full(rig, behind=0)
    late = await rig.enqueue(limits=("domain:a",))

    async with rig.stores(2) as (one, other):
        async with standing(rig, PARKS):
            claiming = asyncio.create_task(rig.claim(store=one))
            await until_waiting(rig, 1, claiming)
            ending = asyncio.create_task(rig.finish(holder, Verb.SUCCEED, store=other))
            await until_waiting(rig, 2, ending)
            assert not claiming.done()
        claimed, _ = await in_time(claiming, ending)

    found = await rig.find(late)
    assert [job.id for job in claimed] == [late] or found.parked_on is None
    assert [job.id for job in claimed + await rig.claim()] == [late]
    assert await used(rig, "domain:a") == 1


async def test_two_claims_of_the_last_slot(rig: Rig) -> None:
    """The second finds the counter locked: it does not wait, and takes nothing."""
    only_on_postgres(rig)
    await rig.store.declare([limit("domain")])
    await rig.enqueue(limits=("domain:a",))
    await drain(rig, rounds=2)  # the key is known
    await rig.enqueue_many(4, limits=("domain:a",), queue="limited")
    free = await rig.enqueue()

    async with rig.stores(2) as (one, other):
        async with standing(rig, TAKES):
            first = asyncio.create_task(rig.claim(store=one, room=1, queues=("limited",)))
            await until_waiting(rig, 1, first)
            (second,) = await in_time(rig.claim(store=other))
            assert not first.done()
        (got,) = await in_time(first)

    assert [job.id for job in second] == [free]
    assert len(got) == 1
    assert (await used(rig, "domain:a"), await running(rig, "domain:a")) == (1, 1)


async def test_a_claim_of_other_keys_does_not_wait_for_a_limit_counter(rig: Rig) -> None:
    """A handler's transaction has finished its job and not committed yet: it holds one key, and keeps no other."""
    only_on_postgres(rig)
    holder, parked = await full(rig)
    await rig.enqueue_many(2, limits=("domain:b",))
    late = await rig.enqueue(limits=("domain:a",))

    async with rig.store.transaction(limit=30) as transaction:
        assert await transaction.finish(Transition(lease=holder.lease, verb=Verb.SUCCEED, limited=True))
        (claimed,) = await in_time(rig.claim())
        await transaction.commit()

    assert [job.limits for job in claimed] == [["domain:b"]]
    await end_all(rig, claimed)
    done = await drain(rig, rounds=10)
    assert set(done) >= {*parked, late}
    await nothing_is_left(rig)


# At once, turn by turn


async def test_claims_at_once_of_a_key_that_nobody_met_before(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    async with rig.stores(4) as stores:
        for turn in range(TURNS):
            key = f"domain:{turn}"
            await rig.enqueue_many(6, limits=(key,))

            batches = await in_time(*[rig.claim(store=store, room=2) for store in stores])

            claimed = [job for batch in batches for job in batch]
            assert len(claimed) <= 2
            claimed += await rig.claim()
            assert len(claimed) == 2, turn
            assert (await used(rig, key), await running(rig, key)) == (2, 2)


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_an_end_and_a_claim_at_once(rig: Rig, in_transaction: bool) -> None:
    await rig.store.declare([limit("domain")])
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            await rig.enqueue(limits=("domain:a",))
            (holder,) = await rig.claim()
            await rig.enqueue_many(2, limits=("domain:a",))
            end = finish_in_transaction(other, holder) if in_transaction else end_all(rig, [holder], store=other)

            claimed, _ = await in_time(rig.claim(store=one), end)

            assert len(claimed) <= 1
            claimed += await rig.claim()
            assert len(claimed) == 1, turn  # no job is forgotten
            assert await used(rig, "domain:a") == 1
            await end_all(rig, claimed)
            assert len(await drain(rig, rounds=3)) == 1


async def test_a_cancel_of_a_job_that_is_unparked_at_that_moment(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            holder, (first, second) = await full(rig, f"domain:{turn}", behind=2)

            await in_time(end_all(rig, [holder], store=one), other.operate(Verb.CANCEL, first))

            assert await rig.status(first) is State.CANCELLED
            claimed = [job.id for _ in range(2) for job in await rig.claim()]
            assert claimed == [second], turn


async def test_a_late_end_and_a_rescue_at_once_give_back_once(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    async with rig.stores(2) as (one, other):
        for turn in range(TURNS):
            key = f"domain:{turn}"
            await rig.enqueue_many(4, limits=(key,), queue=key)
            held = await rig.claim(queues=(key,))
            await rig.die(rig.worker)

            await in_time(
                one.sweep(max_crashes=1_000),
                *[rig.finish(job, Verb.SUCCEED, store=other) for job in held],
            )
            await rig.store.sweep(max_crashes=1_000)  # the first one may have passed over a locked row

            assert await used(rig, key) == 0
            rig.worker = await rig.register()
            assert len(await rig.claim(queues=(key,))) == 2, turn
            assert await used(rig, key) == 2


async def test_ends_of_many_keys_in_mixed_batches_do_not_block_each_other(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 50), limit("tenant", 50), limit("agent", 200)])
    keys = [("tenant:x", "agent", "domain:a"), ("domain:b", "tenant:x"), ("agent", "domain:a"), ("domain:b", "agent")]
    async with rig.stores(4) as stores:
        for _ in range(5):
            await rig.store.enqueue([new_job(limits=keys[n % 4]) for n in range(80)])
            jobs = await rig.claim(room=80)
            assert len(jobs) == 80
            random.shuffle(jobs)

            await in_time(
                *[end_all(rig, jobs[start : start + 10], store=stores[start // 10 % 4]) for start in range(0, 80, 10)]
            )

            await nothing_is_left(rig)


async def test_never_above_the_limit_with_many_workers_at_once(rig: Rig) -> None:
    """Claims, ends of every kind and deaths through several stores, checked by what each holds and by a watcher."""
    limits = {"domain:a": 2, "domain:b": 2, "agent": 3}
    await rig.store.declare([limit("domain", 2), limit("agent", 3)])
    jobs = [new_job(limits=("agent", f"domain:{'ab'[n % 2]}")) for n in range(60)]
    jobs += [new_job(limits=(f"domain:{'ab'[n % 2]}",), priority=n % 3) for n in range(60)]
    await rig.store.enqueue(jobs)
    state = WorkerState(rig, limits)

    async with rig.stores(4) as stores:
        workers = [await rig.register() for _ in stores]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*[state.work(store, worker) for store, worker in zip(stores, workers, strict=True)])

    assert state.most == limits  # it was full at times, and never fuller
    assert {await rig.status(job.id) for job in jobs} <= FINAL
    await nothing_is_left(rig)


class WorkerState:
    """Workers of one story, and what they hold together."""

    def __init__(self, rig: Rig, limits: dict[str, int]) -> None:
        self._rig = rig
        self._limits = limits
        self._random = random.Random(5)
        self.held: Counter[str] = Counter()
        self.most = dict.fromkeys(limits, 0)

    async def work(self, store: Store, worker: UUID) -> None:
        while await self._left():
            jobs = await self._rig.claim(store=store, worker=worker, room=self._random.randint(1, 4))
            self.held.update(key for job in jobs for key in job.limits or ())
            for key, most in self._limits.items():
                assert self.held[key] <= most, key
                assert await used(self._rig, key) <= most, key
                seen = await running(self._rig, key)
                assert seen <= most, key
                self.most[key] = max(self.most[key], self.held[key], seen)
            for job in jobs:
                await self._end(store, job)

    async def _end(self, store: Store, job: Job) -> None:
        self.held.subtract(job.limits or ())
        way = self._random.randrange(5)
        if way == 0:
            await finish_in_transaction(store, job)
        elif way == 1:
            await self._rig.finish(job, Verb.RELEASE, store=store, delay=None)
        elif way == 2:
            await self._rig.finish(job, Verb.FAIL, store=store, delay=0.0, attempt=1)
        elif way == 3:
            await _cancelled(store, job.id)
            await self._rig.finish(job, Verb.STOP, store=store)
        else:
            await self._rig.finish(job, Verb.SUCCEED, store=store)

    async def _left(self) -> int:
        counts = await self._rig.store.counts()
        return sum(count for state, count in counts.items() if state not in FINAL)


async def _cancelled(store: Store, job: UUID) -> None:
    try:
        await store.operate(Verb.CANCEL, job)
    except TransitionRefused:
        pass


async def test_the_time_that_an_answer_took_is_part_of_the_wait_for_its_token(rig: Rig) -> None:
    """A handler that began to wait when the answer came would call late, and beside the next one."""
    only_on_postgres(rig)
    await rig.store.declare([rate("wikidata", 1)])
    await rig.store.acquire("wikidata", most=5)

    async with standing(rig, GIVES):
        asking = asyncio.create_task(rig.store.acquire("wikidata", most=5))
        await until_waiting(rig, 1, asking)
        await rig.advance(0.4)
    (grant,) = await in_time(asking)

    assert grant == Grant(granted=True, wait=1.0, age=0.4)
