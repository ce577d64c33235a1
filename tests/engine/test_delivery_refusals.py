"""Deliveries that lead to no claim: each is acknowledged with its reason, and what may run later comes again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest

from windlass import Context, JobHandle
from windlass.clock import SystemClock
from windlass.model.delivery import OutboxKind, OutboxRow
from windlass.model.job import new_id
from windlass.model.state import State
from windlass.observe.events import DeliveriesRefused
from windlass.store.protocol import Claim, NewWorker
from windlass.transport.protocol import Level, Message
from windlass.transport.relay import message_of, run_relay

from .brokers import Broker, dispatcher_of, receiving
from .rig import PATIENCE, Database, ended, eventually, in_state, opened, working

HOUR = "1h"
INSERT = "INSERT INTO effects (n) VALUES ($1)"


async def noop() -> None: ...


async def message_for(handle: JobHandle[Any], **changes: Any) -> Message:
    """The message that a relay would make for a job, whatever its state."""
    record = await handle.arecord()
    row = OutboxRow(
        id=0,
        kind=OutboxKind.DELIVER,
        job=record.id,
        queue=record.queue,
        priority=record.priority,
        type=record.type,
        input=record.input,
        trace=None,
        created_at=record.created_at,
        attempt=1,
        max_attempts=record.max_attempts,
    )
    return message_of(msgspec.structs.replace(row, **changes))


async def send(broker: Broker, *messages: Message) -> None:
    async with broker.opened() as dispatcher:
        assert len(await dispatcher.dispatch(messages)) == len(messages)


@pytest.mark.parametrize("reason", ["gone", "finished", "cancelled", "owned", "not due"])
async def test_a_job_that_cannot_be_claimed_is_acknowledged_with_the_reason(
    database: Database, broker: Broker, reason: str
) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    release = asyncio.Event()

    @app.job
    async def work() -> None:
        await asyncio.wait_for(release.wait(), PATIENCE)

    async with receiving(app) as (_, events, claims):
        job = await work.options(delay="1h").aenqueue() if reason in ("not due", "cancelled") else await work.aenqueue()
        message = await message_for(job)
        if reason == "gone":
            message = await message_for(job, job=new_id())
        elif reason == "cancelled":
            await job.acancel()
        elif reason == "finished":
            release.set()
            await ended(job)
        elif reason == "owned":
            await in_state(job, State.RUNNING)

        await send(broker, message)

        told = {message.job: reason}
        await events.until(DeliveriesRefused, lambda event: (event.reasons, event.jobs) == ({reason: 1}, told))
        assert claims.refused(message.job) == [reason]
        await eventually(broker.is_drained, bool)
        release.set()


async def test_a_type_that_this_worker_does_not_know_is_left_for_one_that_does(
    database: Database, broker: Broker
) -> None:
    """Given a message for a type that no worker here knows, when a worker with that type starts, then it runs."""
    app = database.app(broker=broker.url, fallback=HOUR)
    app.job(type="other")(noop)
    knows = database.app(broker=broker.url, fallback=HOUR)
    unknown = knows.job(type="unknown")(noop)

    async with receiving(app) as (_, events, claims):
        job = await unknown.aenqueue()
        await send(broker, await message_for(job))
        await events.until(DeliveriesRefused, lambda event: "unknown type" in event.reasons)
        await eventually(broker.is_drained, bool)
        assert (await job.arecord()).attempt == 0

        async with working(knows):
            assert (await ended(job)).status is State.SUCCEEDED
        assert claims.claimed == set()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff\x00 not JSON", "not UTF-8"),
        (b'{"header": {}, "body": {}, "tracing": {}}', "no envelope"),
        (b'{"header": {"version": "9.0"}}', "version '9.0'"),
        (b'{"header": {}, "header": {}}', "twice"),
    ],
)
async def test_a_message_that_is_no_envelope_goes_to_the_dead_letters_untouched(
    database: Database, broker: Broker, payload: bytes, reason: str
) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)
    work = app.job(noop)

    async with receiving(app) as (_, events, _), broker.opened() as dispatcher:
        await send(broker, Message(job=new_id(), queue="default", level=Level.NORMAL, payload=payload))
        await events.until(DeliveriesRefused, lambda event: event.reasons == {"undecodable": 1})
        (letter,) = await eventually(lambda: dispatcher.dead_letters(10), bool)

        assert (letter.payload, reason in letter.reason) == (payload, True)
        await ended(await work.aenqueue())  # the worker goes on


async def test_what_a_forged_message_says_is_reported_and_not_believed(
    database: Database, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Given messages with another type and another body, then the store's are used, and one warning names the type."""
    app = database.app(broker=broker.url, fallback=HOUR, relay=False)

    @app.job
    async def double(n: int) -> int:
        return 2 * n

    @app.job
    async def erase(n: int) -> int:
        raise AssertionError("no message may choose the handler")

    async with receiving(app):
        jobs = [await double.aenqueue(n) for n in (1, 2, 3)]
        await send(
            broker,
            await message_for(jobs[0], input='{"n": 1000}'),
            await message_for(jobs[1], type="erase"),
            await message_for(jobs[2]),
        )
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == [2, 4, 6]

    warnings = [record.getMessage() for record in caplog.records if "differs from the store's" in record.getMessage()]
    assert len(warnings) == 1  # once a minute for each type
    assert "(double)" in warnings[0]


async def test_two_deliveries_of_one_job_are_one_claim(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR, relay=False)
    work = app.job(noop)

    async with receiving(app) as (_, _, claims):
        job = await work.aenqueue()
        message = await message_for(job)
        await send(broker, *[message] * 10)
        await ended(job)
        await eventually(broker.is_drained, bool)

    assert [job.id for answer in claims.answers for job in answer.jobs] == [job.id]
    assert all(len(set(asked)) == len(asked) for asked in claims.asked)


async def test_when_every_message_comes_twice_every_effect_happens_once(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)

    @app.job
    async def write(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, n)

    async with receiving(app) as (worker, _, _):
        dispatcher = dispatcher_of(worker)
        really = dispatcher.dispatch

        async def twice(messages: Sequence[Message]) -> Collection[int]:
            await really(list(reversed(messages)))
            return await really(messages)  # type: ignore[no-any-return]

        dispatcher.dispatch = twice
        jobs = await app.aenqueue_many(write.call(n) for n in range(200))
        for job in jobs:
            assert (await ended(job)).attempt == 1
        await eventually(broker.is_drained, bool)

    assert await database.effects() == list(range(200))


async def test_a_job_that_becomes_dead_has_a_copy_among_the_dead_letters(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR)

    @app.job(max_attempts=1)
    async def fails() -> None:
        raise ValueError("no such order")

    async with receiving(app), broker.opened() as dispatcher:
        job = await fails.aenqueue()
        assert (await ended(job)).status is State.DEAD
        (letter,) = await eventually(lambda: dispatcher.dead_letters(10), bool)
        assert letter.job == job.id


async def test_a_suspect_that_is_delivered_is_claimed_by_a_poll_that_isolates_it(
    database: Database, broker: Broker
) -> None:
    """Given a job of a worker that died, when it is delivered again, then no claim by name takes it, but a poll."""
    app = database.app(broker=broker.url, fallback=HOUR, sweep="100ms", relay=False)
    work = app.job(noop)
    store, stop, dead = await opened(app), asyncio.Event(), UUID(int=1)

    async with receiving(app) as (_, events, claims):
        job = await work.aenqueue()
        await store.register(
            NewWorker(id=dead, name="dead", lease=0.2, queues=None, types=("noop",), concurrency=1, isolates=True)
        )
        (held,) = (await store.claim(Claim(worker=dead, room=1, types=("noop",)))).jobs
        assert held.id == job.id
        relay = asyncio.create_task(run_relay(app.settings, SystemClock(), stop))

        record = await ended(job)
        assert (record.status, record.rescues) == (State.SUCCEEDED, 1)
        await events.until(DeliveriesRefused, lambda event: "suspect" in event.reasons)
        assert claims.claimed == set()
        stop.set()
        await relay
    await store.close()


async def test_fifty_processors_end_clean_when_their_project_is_deleted(
    database: Database, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Given fifty jobs of a project that run and fifty that were delivered, when its jobs are cancelled,
    then all of them end as cancelled, no message and no dead letter is left, and the log has no error."""
    app = database.app(broker=broker.url, fallback=HOUR)
    running = asyncio.Semaphore(0)

    @app.job
    async def match(project: int, task: int) -> None:
        running.release()
        await asyncio.sleep(PATIENCE)

    async with (
        receiving(app, concurrency=25) as (_, _, first),
        receiving(app, concurrency=25) as (_, _, second),
        broker.opened() as dispatcher,
    ):
        jobs = await app.aenqueue_many(match.call(7, task) for task in range(100))
        async with asyncio.timeout(PATIENCE):
            for _ in range(50):
                await running.acquire()
            async for _ in app.abulk("cancel", "type:match input.project:7"):
                pass

        assert {(await ended(job)).status for job in jobs} == {State.CANCELLED}
        await eventually(broker.is_drained, bool)
        assert await dispatcher.dead_letters(1) == []
        assert len(first.claimed | second.claimed) >= 50  # a processor that is free again may claim one meanwhile
    assert [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR] == []


@pytest.fixture(autouse=True)
def _all_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="windlass")
