"""Helpers for the tests of admission: rules, jobs that count against them, and what their limit counters show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.admission import Grant, LimitRow, Rule
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import LIMIT

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from uuid import UUID

    from windlass.model.job import Job
    from windlass.store.protocol import Store

    from .rig import Rig

PATIENCE = 60.0  # seconds until a story gives up; nothing here waits that long when the store is right
LOOK = 0.01  # seconds between two reads of what another connection does


BUCKET = "wikidata"

SERIES = "SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}"
SQLITE_UUID = "printf('%08x-0000-7000-8000-%012x', i, i)"


# What is declared


def limit(name: str = "domain", most: int = 1) -> Rule:
    return Rule(name=name, most=most)


def rate(name: str = BUCKET, count: int = 5, *, every: float = 1.0, burst: int = 1) -> Rule:
    return Rule(name=name, period=every / count, burst=burst)


# Given


async def full(rig: Rig, key: str = "domain:a", *, behind: int = 3, **options: Any) -> tuple[Job, list[UUID]]:
    """A key limited to one: the job that holds its slot, and the jobs that are parked on it, first come first."""
    await rig.store.declare([limit(key.partition(":")[0])])
    await rig.enqueue(limits=(key,), **options)
    (holder,) = await rig.claim()
    parked = []
    for _ in range(behind):
        await rig.advance(1)
        parked.append(await rig.enqueue(limits=(key,), **options))
    assert await rig.claim() == []
    assert [job.id for job in await rig.store.waiters(key)] == parked
    return holder, parked


async def crowd(rig: Rig, count: int, **options: Any) -> None:
    """So many jobs of one kind: one that the store writes, and copies of its row."""
    job = await rig.enqueue(**options)
    if rig.dialect == "sqlite":
        columns = [row[1] for row in await rig.run("PRAGMA table_info({}jobs)")]
        source, ident = f"WITH RECURSIVE n (i) AS ({SERIES.format(count - 1)})", SQLITE_UUID
    else:
        found = (
            "SELECT attname FROM pg_attribute WHERE attrelid = '{}jobs'::regclass AND attnum > 0 AND NOT attisdropped"
        )
        columns = [row[0] for row in await rig.run(found)]
        source, ident = f"WITH n (i) AS (SELECT generate_series(1, {count - 1}))", "gen_random_uuid()"
    others = ", ".join(name for name in columns if name != "id")
    await rig.run(
        f"INSERT INTO {{0}}jobs (id, {others}) {source} SELECT {ident}, {others} FROM {{0}}jobs, n WHERE id = '{job}'"
    )


# When


async def in_time(*actions: Awaitable[Any]) -> list[Any]:
    """All of them at once; a store that lets one hang fails the story."""
    async with asyncio.timeout(PATIENCE):
        return await asyncio.gather(*actions)


async def finish_in_transaction(store: Store, job: Job, verb: Verb = Verb.SUCCEED, **options: Any) -> None:
    async with store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(Transition(lease=job.lease, verb=verb, limited=bool(job.limits), **options))
        await transaction.commit()


async def call(rig: Rig, *, most: float = 5.0) -> Grant:
    """A handler asks for a token."""
    return await rig.store.acquire(BUCKET, most=most)


async def started(rig: Rig) -> int:
    """How many jobs a claim starts now; they end at once."""
    jobs = await rig.claim(room=50)
    await end_all(rig, jobs)
    return len(jobs)


async def end_all(rig: Rig, jobs: list[Job], *, store: Store | None = None) -> None:
    """All of them succeed, in one batch."""
    transitions = [
        Transition(lease=job.lease, verb=Verb.SUCCEED, followed=job.followed, limited=bool(job.limits)) for job in jobs
    ]
    assert (await (store or rig.store).finish(transitions)).lost == frozenset()


async def drain(rig: Rig, *, rounds: int, **options: Any) -> list[UUID]:
    """Claim and finish until nothing is left, in at most so many rounds: the jobs in the order of their claims."""
    done: list[UUID] = []
    for _ in range(rounds):
        jobs = await rig.claim(**options)
        await end_all(rig, jobs)
        done += [job.id for job in jobs]
        if not jobs and not (await rig.store.counts())[State.QUEUED]:
            break
    return done


# Then


def exact(value: float) -> object:
    """Seconds, rounded as a database with microseconds rounds them."""
    return pytest.approx(value, abs=1e-5)


async def limit_counter(rig: Rig, key: str) -> LimitRow | None:
    return next((row for row in await rig.store.limits(key.partition(":")[0]) if row.key == key), None)


async def used(rig: Rig, key: str) -> int:
    """Slots that are taken, as the limit counter has them."""
    row = await limit_counter(rig, key)
    return 0 if row is None else row.used


async def waiting(rig: Rig, key: str) -> int:
    row = await limit_counter(rig, key)
    return 0 if row is None else row.waiting


async def running(rig: Rig, key: str) -> int:
    """Jobs that hold a slot, counted from the jobs themselves."""
    return len(await rig.store.holders(key, page=10_000))


async def nothing_is_left(rig: Rig) -> None:
    """Every slot is free and no job is parked."""
    rows = [row for row in await rig.store.limits() if row.waiting or (row.most is not None and row.used)]
    assert [(row.key, row.used, row.waiting) for row in rows] == []
    assert [tuple(row) for row in await rig.run("SELECT id, parked_on FROM {}jobs WHERE parked_on IS NOT NULL")] == []
