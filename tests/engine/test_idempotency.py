"""A producer that repeats its request makes one job, for a day; the same key for something else is an error."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import asyncpg
import pytest

from windlass import Dead, State, Windlass
from windlass.declare.jobtype import ConfiguredJob
from windlass.errors import IdempotencyConflict
from windlass.testing.clock import ManualClock

from .rig import ON_POSTGRES, ON_SQLITE, PATIENCE, Database, in_state, opened, working

DAY = 86_400


def declare(app: Windlass) -> tuple[ConfiguredJob[..., int], ConfiguredJob[..., int]]:
    @app.job
    async def charge(card: str, cents: int) -> int:
        if cents < 0:
            raise Dead("a refund is another job")
        return cents

    @app.job
    async def refund(card: str) -> int:
        return 0

    return charge, refund


async def test_a_repeated_request_is_answered_with_its_job_whatever_became_of_that(app: Windlass) -> None:
    charge, _ = declare(app)
    paid, refused, stopped = (charge.options(idempotency_key=f"order-{n}") for n in (7, 8, 9))
    jobs = [await paid.aenqueue("visa", 100), await refused.aenqueue("visa", -1)]
    async with working(app):
        assert await jobs[0].aresult(timeout=PATIENCE) == 100
        await in_state(jobs[1], State.DEAD)
    jobs.append(await stopped.aenqueue("visa", 5))
    await jobs[2].acancel()

    again = [
        await paid.aenqueue(cents=100, card="visa"),
        await refused.aenqueue("visa", -1),
        await stopped.aenqueue("visa", 5),
    ]

    assert again == jobs
    assert all(job.existing for job in again)
    assert await again[0].aresult(timeout=PATIENCE) == 100
    assert sum((await app.acounts()).values()) == 3


async def test_the_same_key_for_something_else_is_refused_and_names_the_job(app: Windlass) -> None:
    charge, refund = declare(app)
    first = await charge.options(idempotency_key="order-7").aenqueue("visa", 100)

    for other in (
        charge.options(idempotency_key="order-7").aenqueue("visa", 101),
        refund.options(idempotency_key="order-7").aenqueue("visa"),
    ):
        with pytest.raises(IdempotencyConflict, match=rf"'order-7'.*{first.id}.*use a new key for a new request"):
            await other

    elsewhere = await charge.options(idempotency_key="order-7", tenant="acme").aenqueue("visa", 101)
    assert not elsewhere.existing
    assert sum((await app.acounts()).values()) == 2


async def test_after_its_window_the_key_may_be_used_for_anything(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock)
    charge, refund = declare(app)
    first = await charge.options(idempotency_key="k").aenqueue("visa", 100)

    clock.advance("23h59m")
    await still_database.move(clock)
    assert (await charge.options(idempotency_key="k").aenqueue("visa", 100)).id == first.id
    clock.advance("61s")
    await still_database.move(clock)

    second = await refund.options(idempotency_key="k").aenqueue("visa")
    assert not second.existing
    assert (await refund.options(idempotency_key="k").aenqueue("visa")).id == second.id


async def test_it_still_answers_when_the_history_of_its_job_was_dropped(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock, idempotency_window="30d")
    charge, _ = declare(app)
    job = await charge.options(idempotency_key="k").aenqueue("visa", 100)
    async with working(app):
        await job.aresult(timeout=PATIENCE)

    clock.advance(20 * DAY)
    await still_database.move(clock)
    store = await opened(app)
    try:
        await store.prune(history=7.0 * DAY, audit=90.0 * DAY)
        assert await store.find(job.id) is None
    finally:
        await store.close()

    again = await charge.options(idempotency_key="k").aenqueue("visa", 100)
    assert (again.existing, again.id) == (True, job.id)
    with pytest.raises(IdempotencyConflict):
        await charge.options(idempotency_key="k").aenqueue("visa", 1)


async def test_in_one_batch_a_repetition_is_one_job_and_two_inputs_are_none(app: Windlass) -> None:
    charge, refund = declare(app)
    keyed = charge.options(idempotency_key="k")

    with pytest.raises(IdempotencyConflict, match="two of these calls have the idempotency key 'k'"):
        await app.aenqueue_many([keyed.call("visa", 1), charge.call("visa", 3), keyed.call("visa", 2)])
    assert sum((await app.acounts()).values()) == 0

    jobs = await app.aenqueue_many([keyed.call("visa", 1), charge.call("visa", 3), keyed.call("visa", 1)])
    assert [job.existing for job in jobs] == [False, False, True]
    assert jobs[0] == jobs[2]

    with pytest.raises(IdempotencyConflict, match=str(jobs[0].id)):
        await app.aenqueue_many([refund.call("amex"), keyed.call("visa", 2), refund.options(key="r").call("visa")])
    assert sum((await app.acounts()).values()) == 2
    assert not (await refund.options(key="r").aenqueue("visa")).existing


async def test_a_request_that_a_unique_key_refuses_leads_to_the_job_that_is_there(app: Windlass) -> None:
    charge, _ = declare(app)
    first = await charge.options(key="visa").aenqueue("visa", 100)

    refused = await charge.options(key="visa", idempotency_key="k").aenqueue("visa", 5)
    await first.acancel()  # its unique key is free now; the producer's is not
    again = await charge.options(key="visa", idempotency_key="k").aenqueue("visa", 5)

    assert (refused.existing, refused.id) == (True, first.id)
    assert (again.existing, again.id) == (True, first.id)


@ON_POSTGRES
async def test_a_conflict_on_the_callers_connection_leaves_its_transaction_usable(database: Database) -> None:
    charge, _ = declare(database.app())
    await charge.options(idempotency_key="k").aenqueue("visa", 1)
    connection = await asyncpg.connect(database.url)
    try:
        async with connection.transaction():
            with pytest.raises(IdempotencyConflict):
                await charge.options(idempotency_key="k", conn=connection).aenqueue("visa", 2)
            await connection.execute("INSERT INTO effects VALUES (1)")
    finally:
        await connection.close()
    assert await database.effects() == [1]
    assert await database.jobs() == 1


@ON_SQLITE
async def test_a_conflict_on_the_callers_file_leaves_its_transaction_usable(database: Database) -> None:
    charge, _ = declare(database.app())
    await charge.options(idempotency_key="k").aenqueue("visa", 1)

    def produce() -> None:
        with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"), timeout=PATIENCE)) as conn, conn:
            with pytest.raises(IdempotencyConflict):
                charge.options(idempotency_key="k", conn=conn).enqueue("visa", 2)
            conn.execute("INSERT INTO effects VALUES (1)")

    await asyncio.to_thread(produce)
    assert await database.effects() == [1]
    assert await database.jobs() == 1
