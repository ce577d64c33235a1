"""Delivery through a broker, when all is well: outbox, relay, intake.

`fallback` is an hour in these stories: the poll beneath the broker brings nothing, so what runs was delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from windlass import Context, fixed, limit, phase, rate
from windlass.clock import SystemClock
from windlass.model.state import State
from windlass.observe.events import DeliveriesRefused, OutboxPublished
from windlass.runtime.worker import Worker
from windlass.store.protocol import Claim, Claimed
from windlass.transport.protocol import Message
from windlass.transport.relay import run_relay

from .brokers import Broker, Claims, dispatcher_of, receiving
from .rig import PATIENCE, Database, ended, eventually, in_state, stores_of, working

HOUR = "1h"


async def noop() -> None: ...


async def test_a_job_of_a_process_that_knows_no_broker_is_delivered_run_and_acknowledged(
    database: Database, broker: Broker
) -> None:
    """Given a worker with a broker, when a process without one enqueues, then the job arrives by a delivery."""
    app, elsewhere = database.app(broker=broker.url, fallback=HOUR), database.app()
    app.job(noop)
    enqueued = elsewhere.job(noop)

    async with receiving(app) as (_, _, claims):
        job = await enqueued.aenqueue()
        assert (await ended(job)).status is State.SUCCEEDED
        assert claims.claimed == {job.id}
        await eventually(broker.is_drained, bool)
        await eventually(lambda: outbox(database), lambda rows: rows == 0)


async def test_a_thousand_jobs_are_one_publish(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    job = app.job(noop)

    async with receiving(app, concurrency=50) as (_, events, claims):
        jobs = await app.aenqueue_many(job.call() for _ in range(1000))
        await events.until(OutboxPublished, lambda event: event.published == 1000)
        for each in jobs:
            await each.aresult(timeout=PATIENCE)
        assert claims.claimed == {each.id for each in jobs}
        await eventually(broker.is_drained, bool)


async def test_a_retry_is_delivered_when_it_is_due(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)

    @app.job(max_attempts=2, retry=fixed("300ms"))
    async def fails_once(ctx: Context) -> int:
        if ctx.job.attempt == 1:
            raise ValueError("not yet")
        return ctx.job.attempt

    async with receiving(app) as (_, _, claims):
        job = await fails_once.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == 2
        assert [job.id for answer in claims.answers for job in answer.jobs] == [job.id, job.id]


async def test_a_job_with_a_delay_is_delivered_when_it_is_due(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    job = app.job(noop)

    async with receiving(app) as (_, _, claims):
        later = await job.options(delay="300ms").aenqueue()
        await ended(later)
        assert claims.claimed == {later.id}


async def test_the_phases_of_a_pipeline_are_delivered_one_after_the_other(database: Database, broker: Broker) -> None:
    """Given a phase with one processor that is busy, when another phase has a delivery, then that one runs."""
    app = database.app(broker=broker.url, fallback=HOUR)
    opened = asyncio.Event()

    @app.job(queue="slow")
    async def crawl() -> None:
        await asyncio.wait_for(opened.wait(), PATIENCE)

    parse = app.job(type="parse", queue="slow")(noop)
    line = app.pipeline("line", phase(crawl, processors=1), phase(parse, processors=1))
    quick = app.job(type="quick", queue="quick")(noop)

    async with receiving(app, concurrency=4) as (_, _, claims):
        blocked = [await line.aenqueue() for _ in range(12)]  # more than the prefetch
        await eventually(lambda: some_claimed(claims), bool)
        beside = await quick.aenqueue()
        await ended(beside)
        assert beside.id in claims.claimed
        opened.set()
        for each in blocked[:1]:
            assert (await ended(each)).status is State.SUCCEEDED


async def some_claimed(claims: Claims) -> bool:
    return bool(claims.claimed)


async def test_priorities_choose_the_level(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    job = app.job(noop)

    async with receiving(app) as (worker, _, _):
        sent = record_messages(worker)
        calls = [job.options(priority=priority).call() for priority in (-3, 0, 7)]
        jobs = await app.aenqueue_many(calls)
        for each in jobs:
            await ended(each)

    levels = {message.job: str(message.level) for message in sent}
    assert [levels[each.id] for each in jobs] == ["low", "normal", "high"]


def record_messages(worker: Worker) -> list[Message]:
    sent: list[Message] = []
    dispatcher = dispatcher_of(worker)
    really = dispatcher.dispatch

    async def dispatch(messages: Sequence[Message]) -> Collection[int]:
        sent.extend(messages)
        return await really(messages)  # type: ignore[no-any-return]

    dispatcher.dispatch = dispatch
    return sent


async def test_a_gate_that_opens_lets_the_relay_deliver(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    job = app.job(noop)

    async with receiving(app) as (_, _, claims):
        await app.apause(queue="default")
        waits = await job.aenqueue()
        await eventually(lambda: outbox(database, waiting=True), lambda rows: rows == 1)
        assert claims.asked == []

        await app.aresume(queue="default")

        await ended(waits)
        assert claims.claimed == {waits.id}


async def test_a_gate_that_closes_behind_a_delivery_refuses_it_until_it_opens(
    database: Database, broker: Broker
) -> None:
    """Given a published message, when the gate closes before its claim, then it is acknowledged, and comes again."""
    app = database.app(broker=broker.url, fallback=HOUR)
    job = app.job(noop)

    async with receiving(app) as (worker, events, claims):
        before_first_claim(worker, lambda: app.apause(queue="default"))
        closed = await job.aenqueue()
        await events.until(DeliveriesRefused, lambda event: event.reasons == {"closed": 1})
        await eventually(broker.is_drained, bool)

        await app.aresume(queue="default")

        await ended(closed)
        assert closed.id in claims.claimed


def before_first_claim(worker: Worker, action: Any) -> None:
    store: Any = worker.state.store
    really = store.claim_delivered

    async def claim_delivered(claim: Any, jobs: Any) -> Any:
        store.claim_delivered = really
        await action()
        return await really(claim, jobs)

    store.claim_delivered = claim_delivered


async def test_a_slot_that_is_released_lets_the_relay_deliver_the_next_job(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    release = asyncio.Event()

    @app.job(limits=[limit("export", 1)])
    async def export(n: int) -> int:
        if n == 0:
            await asyncio.wait_for(release.wait(), PATIENCE)
        return n

    async with receiving(app) as (_, events, claims):
        first = await export.aenqueue(0)
        await in_state(first, State.RUNNING)
        second = await export.aenqueue(1)
        await events.until(DeliveriesRefused, lambda event: event.reasons == {"limited": 1})

        release.set()

        assert await second.aresult(timeout=PATIENCE) == 1
        assert claims.claimed == {first.id, second.id}
        assert claims.refused(second.id) == ["limited"]


async def test_jobs_of_a_rate_go_on_with_its_tokens(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)

    @app.job(limits=[rate("api", 10, every="1s", burst=1)])
    async def ask(n: int) -> int:
        return n

    async with receiving(app):
        jobs = [await ask.aenqueue(n) for n in range(5)]
        assert [await each.aresult(timeout=PATIENCE) for each in jobs] == [0, 1, 2, 3, 4]


async def test_children_and_follow_ups_are_delivered(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)

    @app.job
    async def child(n: int) -> int:
        return n * n

    @app.job
    async def parent(ctx: Context) -> int:
        return sum(await ctx.wait(ctx.spawn_many("child", [child.call(n) for n in range(3)])))

    async with receiving(app):
        job = await parent.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == 5


async def test_a_queue_in_which_a_poll_found_a_job_is_received_from(database: Database, broker: Broker) -> None:
    """Given a job in a queue that no type names, when the first poll has found it, then later ones are delivered."""
    app = database.app(broker=broker.url, fallback=HOUR)
    job = app.job(noop)
    early = await job.options(queue="odd").aenqueue()

    async with receiving(app) as (worker, _, claims):
        await ended(early)
        assert claims.claimed == set()
        await eventually(lambda: served(worker), lambda queues: "odd" in queues)

        late = await job.options(queue="odd").aenqueue()

        await ended(late)
        assert claims.claimed == {late.id}


async def served(worker: Worker) -> set[str]:
    return set(worker.parts.services["intake"].served)  # type: ignore[attr-defined]


async def test_several_relays_publish_each_row_once(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    job = app.job(noop)

    async with receiving(app) as (_, first, _), receiving(app) as (_, second, _):
        jobs = [await job.aenqueue() for _ in range(50)]
        for each in jobs:
            await ended(each)

    published = [
        event.published for each in (first, second) for event in each.recorded if isinstance(event, OutboxPublished)
    ]
    assert sum(published) == 50


async def test_a_relay_of_its_own_publishes_for_workers_that_do_not(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR, relay=False)
    job = app.job(noop)
    stop = asyncio.Event()

    async with receiving(app) as (_, events, claims):
        relay = asyncio.create_task(run_relay(app.settings, SystemClock(), stop))
        jobs = [await job.aenqueue() for _ in range(5)]
        for each in jobs:
            await ended(each)
        assert claims.claimed == {each.id for each in jobs}
        stop.set()
        await relay
        assert not any(isinstance(event, OutboxPublished) for event in events.recorded)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_worker_without_a_broker_works_beside(database: Database, broker: Broker) -> None:
    """Given one worker that receives and one that polls, then both run jobs, and each job runs once."""
    app, plain = database.app(broker=broker.url, fallback=HOUR), database.app()
    job = app.job(noop)
    plain.job(noop)

    async with receiving(app), working(plain):
        jobs = await app.aenqueue_many(job.call() for _ in range(100))
        assert {(await ended(each)).attempt for each in jobs} == {1}


async def outbox(database: Database, *, waiting: bool = False) -> int:
    rows = await database.run("SELECT waits_for FROM {}outbox")
    return sum(row[0] is not None for row in rows) if waiting else len(rows)


async def test_a_full_phase_lets_no_poll_of_another_compete_with_deliveries(database: Database, broker: Broker) -> None:
    """Given a phase whose only processor is busy, when what is due was claimed, then later polls take overdue jobs."""
    app, free, overdue = database.app(broker=broker.url, fallback=HOUR), asyncio.Event(), list[float]()

    @app.job
    async def crawl() -> None:
        await free.wait()

    @app.job
    async def parse() -> None: ...

    line = app.pipeline("line", phase(crawl, processors=1), phase(parse, processors=1))
    async with receiving(app, concurrency=4) as (worker, _, _):
        busy = await line.aenqueue()
        await in_state(busy, State.RUNNING)
        store, discovery = stores_of(worker), worker.parts.discovery
        really = store.claim

        async def claim(asked: Claim) -> Claimed:
            if parse._definition.type in asked.types:
                overdue.append(asked.overdue)
            answer: Claimed = await really(asked)
            return answer

        async def polls() -> int:
            discovery.nudge()
            return len(overdue)

        store.claim = claim
        discovery.claim_all_due()  # type: ignore[attr-defined]
        await eventually(polls, lambda count: count >= 3)
        free.set()
        await ended(busy)

        assert overdue[0] == 0.0
        assert all(seconds > 0 for seconds in overdue[1:])
