"""Keys under fire: many producers, transactions that are rolled back, and replays, all at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.errors import TransitionRefused
from windlass.model.state import State, Verb

from .flows import LIMIT, holder, idempotency, unique
from .rig import alone

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.model.job import NewJob
    from windlass.store.protocol import Store

    from .rig import Rig

DAY = timedelta(days=1).total_seconds()
PRODUCERS = 64


async def test_a_key_of_a_rolled_back_enqueue_is_free(rig: Rig) -> None:
    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.enqueue([alone(unique=unique())]) == {}
        assert len(await transaction.enqueue([alone(unique=unique())])) == 1

    assert await holder(rig, unique=unique()) is None


async def test_a_takeover_that_is_rolled_back_leaves_the_key_where_it_was(rig: Rig) -> None:
    dead = await rig.job_in(State.DEAD, unique=unique())
    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.enqueue([alone(unique=unique())]) == {}

    assert await rig.store.operate(Verb.REPLAY, dead) is State.QUEUED
    assert await holder(rig, unique=unique()) == dead


@pytest.mark.parametrize("name", ["unique", "idempotency"])
@pytest.mark.parametrize("before", [None, "free"])
async def test_many_producers_at_once_make_one_job(rig: Rig, name: str, before: str | None) -> None:
    key = unique() if name == "unique" else idempotency()
    if before == "free":
        await rig.job_in(State.DEAD, **{name: key})
        await rig.advance(DAY + 1)  # an idempotency key is free by its time only
    jobs = [alone(**{name: key}) for _ in range(PRODUCERS)]

    async with rig.stores(4) as stores:
        answers = await asyncio.gather(*[stores[n % 4].enqueue([job]) for n, job in enumerate(jobs)])

    (winner,) = [job for job, answer in zip(jobs, answers, strict=True) if not answer]
    assert (await rig.store.counts())[State.QUEUED] == 1
    assert await rig.status(winner.id) is State.QUEUED
    for job, answer in zip(jobs, answers, strict=True):
        assert job is winner or answer == {job.id: winner.id}


async def test_many_producers_at_once_half_of_them_rolled_back_make_one_job(rig: Rig) -> None:
    committed: dict[UUID, UUID] = {}

    async def produce(store: Store, job: NewJob, commit: bool) -> None:
        async with store.transaction(limit=60) as transaction:
            answer = await transaction.enqueue([job])
            if commit:
                await transaction.commit()
                committed[job.id] = answer.get(job.id, job.id)

    async with rig.stores(4) as stores:
        jobs = [alone(unique=unique()) for _ in range(PRODUCERS)]
        await asyncio.gather(*[produce(stores[n % 4], job, n % 8 >= 4) for n, job in enumerate(jobs)])

    counts = await rig.store.counts()
    assert (counts[State.QUEUED], sum(counts.values())) == (1, 1)
    (winner,) = set(committed.values())
    assert committed[winner] == winner
    assert await rig.status(winner) is State.QUEUED


async def test_batches_that_name_the_keys_in_any_order_do_not_block_each_other(rig: Rig) -> None:
    names = [f"key {number}" for number in range(20)]

    async with rig.stores(4) as stores:
        for turn in range(5):
            batches = [[alone(unique=unique(f"{turn} {name}")) for name in names] for _ in stores]
            batches[1].reverse()
            batches[3].reverse()
            answers = await asyncio.gather(
                *[store.enqueue(batch) for store, batch in zip(stores, batches, strict=True)]
            )

            written = sum(len(batch) - len(answer) for batch, answer in zip(batches, answers, strict=True))
            assert written == len(names)
    assert (await rig.store.counts())[State.QUEUED] == 5 * len(names)


async def test_a_key_let_go_at_the_very_moment_is_held_or_free_and_nothing_else(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(15):
            key = unique(f"turn {turn}")
            job = await rig.running(unique=key)
            new = alone(unique=key)

            _, answer = await asyncio.gather(rig.finish(job, Verb.BURY, store=one), other.enqueue([new]))

            assert await rig.status(job.id) is State.DEAD
            assert answer == ({new.id: job.id} if await rig.store.find(new.id) is None else {})
            assert await holder(rig, unique=key) == (None if answer else new.id)


async def test_of_a_replay_and_an_enqueue_at_once_one_wins(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(15):
            key = unique(f"turn {turn}")
            dead = await rig.job_in(State.DEAD, unique=key)
            new = alone(unique=key)

            replayed, answer = await asyncio.gather(
                one.operate(Verb.REPLAY, dead), other.enqueue([new]), return_exceptions=True
            )

            assert not isinstance(answer, BaseException), answer
            if answer:
                assert (replayed, answer) == (State.QUEUED, {new.id: dead})
            else:
                assert isinstance(replayed, TransitionRefused), replayed
                assert await rig.status(dead) is State.DEAD
                assert await rig.status(new.id) is State.QUEUED


async def test_of_two_replays_at_once_one_wins(rig: Rig) -> None:
    async with rig.stores(2) as stores:
        for turn in range(10):
            key = unique(f"turn {turn}")
            dead = [await rig.job_in(State.DEAD, unique=key) for _ in stores]

            replayed = await asyncio.gather(
                *[store.operate(Verb.REPLAY, job) for store, job in zip(stores, dead, strict=True)],
                return_exceptions=True,
            )

            assert sorted(type(each).__name__ for each in replayed) == ["State", "TransitionRefused"], replayed
