"""The mode `direct`: an enqueue publishes its own jobs after the commit; the fallback poll repairs what that missed."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any
from uuid import UUID

import psycopg
import pytest

from private_server import private_directory
from windlass import Context, JobHandle
from windlass.model.delivery import PUBLISHED_BY_ENQUEUE
from windlass.model.job import NewJob, new_id
from windlass.model.state import State
from windlass.observe.events import OutboxPublished
from with_redis import RedisServer

from .brokers import Broker, receiving
from .rig import PATIENCE, Database, ended, eventually, working

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


async def test_jobs_that_no_enqueue_publishes_go_through_the_outbox(database: Database, broker: Broker) -> None:
    """Given a job with a child, a job of its transaction and a follow-up, and a re-run and a tick, then none waits for
    the fallback poll."""
    app = database.app(broker=broker.url, fallback=HOUR, delivery="direct")
    work = app.job(noop)

    @app.job
    async def tell() -> None: ...

    @app.job(on_succeeded="tell", max_attempts=1)
    async def parent(ctx: Context) -> str:
        await ctx.wait([ctx.spawn("child", work.call(1))])
        async with ctx.transaction():
            return str((await work.aenqueue(2)).id)

    app.schedule("rarely", work.call(3), every="1h")

    async with receiving(app) as (_, _, claims):
        first = await parent.aenqueue()
        inner = await first.aresult(timeout=PATIENCE)
        again = await first.arerun()
        await again.aresult(timeout=PATIENCE)
        fired = await (await app.afind_schedule("rarely")).afire()
        await ended(fired)
        told = await eventually(lambda: app.ajobs("type:tell state:succeeded"), lambda found: len(found) == 2)

        assert {first.id, UUID(inner), again.id, fired.id, *(job.id for job in told)} <= claims.claimed
        assert len(claims.claimed) == 9  # both children, and the second one of the transaction


async def test_jobs_on_the_callers_connection_go_through_the_outbox(database: Database, broker: Broker) -> None:
    """Given a caller whose process may end with its commit, then a relay publishes, and no job waits for the poll."""
    app = database.app(broker=broker.url, fallback=HOUR, delivery="direct")
    work = app.job(noop)

    def enqueue() -> JobHandle[None]:
        with closing(connect(database)) as conn, conn:
            return work.options(conn=conn).enqueue(1)

    async with receiving(app) as (_, _, claims):
        job = await asyncio.to_thread(enqueue)
        await ended(job)
        assert claims.claimed == {job.id}


def connect(database: Database) -> Any:
    if database.dialect == "sqlite":
        return sqlite3.connect(database.url.removeprefix("sqlite:///"), timeout=PATIENCE)
    return psycopg.connect(database.url)


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


async def test_a_process_that_dies_between_its_commit_and_its_publish_costs_time_and_no_job(
    database: Database, broker: Broker
) -> None:
    app = database.app(broker=broker.url, fallback="200ms", delivery="direct")
    app.job(noop)

    async with receiving(app) as (_, _, claims):
        job = NewJob(id=new_id(), type="noop", input="{}", delay=PUBLISHED_BY_ENQUEUE)
        await app._client.aask(lambda store: store.enqueue([job]))
        await ended(await app.afind(job.id))
        assert job.id not in claims.claimed
