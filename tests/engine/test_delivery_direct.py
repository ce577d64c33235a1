"""The mode `direct`: an enqueue publishes its own jobs after the commit; the fallback poll repairs what that missed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass.model.state import State
from windlass.observe.events import OutboxPublished
from with_postgres import private_directory
from with_redis import RedisServer

from .brokers import Broker, receiving
from .rig import Database, ended, working

HOUR = "1h"


async def noop(n: int = 0) -> None: ...


@pytest.mark.parametrize("awaited", [True, False])
async def test_an_enqueue_publishes_its_jobs_itself(database: Database, broker: Broker, awaited: bool) -> None:
    app = database.app(broker=broker.url, fallback=HOUR, delivery="direct")
    work = app.job(noop)

    async with receiving(app) as (_, events, claims):
        if awaited:
            jobs = [await work.aenqueue(), *await app.aenqueue_many(work.call(n) for n in range(20))]
        else:
            jobs = [
                await asyncio.to_thread(work.enqueue),
                *await asyncio.to_thread(app.enqueue_many, [work.call(n) for n in range(20)]),
            ]
        for job in jobs:
            assert (await ended(job)).status is State.SUCCEEDED
        assert claims.claimed == {job.id for job in jobs}
        assert not any(isinstance(event, OutboxPublished) for event in events.recorded)


async def test_a_job_that_is_due_later_goes_through_the_outbox(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR, delivery="direct")
    work = app.job(noop)

    async with receiving(app) as (_, events, claims):
        job = await work.options(delay="200ms").aenqueue()
        await events.until(OutboxPublished)
        await ended(job)
        assert claims.claimed == {job.id}


async def test_a_job_that_a_key_refused_is_not_published(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR, delivery="direct")
    work = app.job(noop)

    async with receiving(app) as (_, _, claims):
        first = await work.options(key="one", delay="1h").aenqueue(1)
        again = await work.options(key="one").aenqueue(1)
        other = await work.aenqueue(2)
        await ended(other)
        assert again.id == first.id
        assert [job for asked in claims.asked for job in asked] == [other.id]


async def test_an_enqueue_never_fails_because_the_broker_is_away(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Given no broker, then an enqueue succeeds, one line says so, and a worker's poll runs the jobs."""
    with private_directory(None, memory=True) as directory:
        server = RedisServer(directory)
        app = database.app(broker=server.url, fallback="200ms", delivery="direct")
        work = app.job(noop)
        async with working(app):
            jobs: list[Any] = [await work.aenqueue() for _ in range(5)]
            for job in jobs:
                assert (await ended(job)).status is State.SUCCEEDED

    assert any("is away" in record.getMessage() for record in caplog.records)
