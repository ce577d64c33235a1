"""Delivery through a broker, when something is away: the broker, the store, the relay, room in the worker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from private_server import private_directory
from windlass import failpoints
from windlass.errors import StoreUnavailable
from windlass.model.state import State
from windlass.observe.events import BrokerBack, BrokerLost, OutboxPublished, UndeliveredFound
from windlass.runtime.claims.demand import Demand, Demands
from windlass.runtime.delivery.intake import Intake
from windlass.runtime.worker import Worker
from windlass.transport import relay
from windlass.transport.protocol import Message
from with_redis import RedisServer

from .brokers import Broker, dispatcher_of, receiving, record_claims, until_it_receives
from .rig import PATIENCE, Database, ended, eventually, in_state, stores_of, working

HOUR = "1h"


async def noop() -> None: ...


def intake_of(worker: Worker) -> Intake:
    intake = worker.parts.services["intake"]
    assert isinstance(intake, Intake)
    return intake


@pytest.fixture
def directory() -> Iterator[Path]:
    with private_directory(None, memory=True) as path:
        yield path


async def test_a_broker_that_is_down_at_the_start_delays_nothing(database: Database, directory: Path) -> None:
    """Given no broker, then a worker polls; when the broker comes later, then jobs are delivered."""
    server = RedisServer(directory)
    app = database.app(broker=server.url, fallback=HOUR)
    work = app.job(noop)

    async with working(app) as (worker, _):
        claims = record_claims(worker)
        assert (await ended(await work.aenqueue())).status is State.SUCCEEDED
        assert claims.asked == []

        with server:
            await until_it_receives(worker)
            delivered = await work.aenqueue()
            await ended(delivered)
            assert claims.claimed == {delivered.id}


async def test_work_goes_on_while_a_killed_broker_is_away(database: Database, directory: Path) -> None:
    with RedisServer(directory) as server:
        app = database.app(broker=server.url, fallback=HOUR)
        work = app.job(noop)

        async with receiving(app) as (worker, events, claims):
            server.kill()
            polled = await work.aenqueue()
            await events.until(BrokerLost)
            assert (await ended(polled)).status is State.SUCCEEDED

            server.start()

            await events.until(BrokerBack)
            await until_it_receives(worker)
            delivered = await work.aenqueue()
            await ended(delivered)
            assert delivered.id in claims.claimed


async def test_wrong_credentials_are_an_error_in_the_log_and_the_poll_carries_on(
    database: Database, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer(directory, password="right") as server:
        app = database.app(broker=server.url.replace("right", "wrong"), fallback=HOUR)
        work = app.job(noop)

        async with working(app):
            assert (await ended(await work.aenqueue())).status is State.SUCCEEDED

            async def refusals() -> list[str]:
                return [each.getMessage() for each in caplog.records if "the broker refuses" in each.getMessage()]

            (line,) = await eventually(refusals, bool)
            assert "wrong" not in line.replace("wrong password", "").replace("wrong credentials", "")


async def test_while_the_store_is_away_nothing_is_acknowledged(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback="200ms")
    work = app.job(noop)

    async with receiving(app) as (worker, _, _):
        store: Any = worker.state.store
        really, tries = store.claim_delivered, asyncio.Semaphore(0)

        async def away(claim: Any, jobs: Any) -> Any:
            tries.release()
            raise StoreUnavailable("away")

        async def no_claim(claim: Any) -> Any:
            raise StoreUnavailable("away")

        polls, store.claim = store.claim, no_claim
        store.claim_delivered = away
        job = await work.aenqueue()
        for _ in range(4):
            async with asyncio.timeout(PATIENCE):
                await tries.acquire()
        assert len(intake_of(worker).waiting) == 1  # not acknowledged: these are what it holds

        store.claim, store.claim_delivered = polls, really

        record = await ended(job)
        assert (record.status, record.attempt) == (State.SUCCEEDED, 1)
        await eventually(broker.is_drained, bool)


def lose_messages(worker: Worker, *, times: int = 1) -> None:
    """The broker confirms the next publishes and forgets them."""
    dispatcher = dispatcher_of(worker)
    really, left = dispatcher.dispatch, times

    async def dispatch(messages: Sequence[Message]) -> Collection[int]:
        nonlocal left
        left -= 1
        if left < 0:
            return await really(messages)  # type: ignore[no-any-return]
        return frozenset(range(len(messages)))

    dispatcher.dispatch = dispatch


async def test_a_claim_with_a_late_answer_is_not_taken_in_twice(database: Database, broker: Broker) -> None:
    """Given a claim that is committed and not answered, when the worker asks what it holds, then the job runs once.

    Without turns, the store's answer has the job, and comes when the job has run and is forgotten here.
    """
    app = database.app(broker=broker.url, fallback=HOUR)
    runs: list[int] = []

    @app.job
    async def work(number: int) -> None:
        runs.append(number)

    async with receiving(app) as (worker, _, _):
        store, lost = stores_of(worker), worker.parts.discovery.lost_answers
        claim, hold = store.claim_delivered, store.held
        committed, seen, ran = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def claim_delivered(*given: Any) -> Any:
            answer = await claim(*given)
            committed.set()
            with suppress(TimeoutError):  # with turns it is not asked before this claim's answer
                await asyncio.wait_for(seen.wait(), 0.3)
            return answer

        async def held(*given: Any) -> Any:
            answer = await hold(*given)
            seen.set()
            await ran.wait()
            return answer

        store.claim_delivered, store.held = claim_delivered, held
        job = await work.aenqueue(1)
        await committed.wait()
        lost._asked_at = -math.inf
        asking = asyncio.create_task(worker.parts.discovery._recover_lost_answers())
        await ended(job)
        ran.set()
        await asking
        await ended(await work.aenqueue(2))

    assert runs == [1, 2]


async def test_what_a_broker_lost_is_found_by_the_fallback_poll(database: Database, broker: Broker) -> None:
    """Given a hundred lost deliveries and four processors, then one fallback poll after the other takes them all."""
    app = database.app(broker=broker.url, fallback="300ms")
    work = app.job(noop)

    async with receiving(app, concurrency=4) as (worker, _, claims):
        lose_messages(worker)
        jobs = await app.aenqueue_many(work.call() for _ in range(100))
        for job in jobs:
            assert (await ended(job)).status is State.SUCCEEDED
        assert claims.claimed == set()


async def test_the_sweep_publishes_again_what_was_not_delivered(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR, undelivered="100ms", undelivered_every="200ms")
    work = app.job(noop)

    async with receiving(app) as (worker, events, claims):
        lose_messages(worker)
        job = await work.aenqueue()
        found = await events.until(UndeliveredFound)
        assert (found.jobs, found.action) == (1, "publish")
        await ended(job)
        assert claims.claimed == {job.id}


async def test_the_sweep_fails_what_was_not_delivered_where_that_is_set(database: Database, broker: Broker) -> None:
    settings: dict[str, Any] = {"undelivered": "100ms", "undelivered_every": "200ms", "undelivered_action": "fail"}
    app = database.app(broker=broker.url, fallback=HOUR, **settings)
    work = app.job(noop)

    async with receiving(app) as (worker, events, _):
        lose_messages(worker)
        job = await work.aenqueue()
        assert (await events.until(UndeliveredFound)).action == "fail"
        assert (await job.arecord()).status is State.DEAD


async def test_a_relay_that_dies_after_its_publish_makes_a_duplicate_that_is_refused(
    database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LEASE", 0.3)
    app = database.app(broker=broker.url, fallback=HOUR)
    work = app.job(noop)
    release = asyncio.Event()

    @app.job
    async def waits() -> None:
        await asyncio.wait_for(release.wait(), PATIENCE)

    def die() -> None:
        failpoints.disarm()
        raise RuntimeError("killed")

    async with receiving(app) as (_, _, claims):
        failpoints.arm("relay.published", die)
        job = await waits.aenqueue()  # it runs while its row is published again
        await in_state(job, State.RUNNING)
        await eventually(lambda: rows(database), lambda count: count == 0)
        release.set()
        assert (await ended(job)).attempt == 1
        await ended(await work.aenqueue())
        assert [each.id for answer in claims.answers for each in answer.jobs].count(job.id) == 1


async def rows(database: Database) -> int:
    return len(await database.run("SELECT id FROM {}outbox"))


async def test_deliveries_that_find_no_room_are_left_to_the_poll(database: Database, broker: Broker) -> None:
    """Given a worker that is busy for longer than `fallback`, then it holds no delivery back, and loses none."""
    app = database.app(broker=broker.url, fallback="300ms")
    release = asyncio.Event()

    @app.job
    async def busy(n: int) -> int:
        if n == 0:
            await asyncio.wait_for(release.wait(), PATIENCE)
        return n

    async with receiving(app, concurrency=1) as (_, events, _):
        first = await busy.aenqueue(0)
        await in_state(first, State.RUNNING)
        second = await busy.aenqueue(1)
        await events.until(OutboxPublished, lambda event: event is not events.recorded[0])
        await eventually(broker.is_drained, bool)
        assert (await second.arecord()).status is State.QUEUED

        release.set()

        assert await second.aresult(timeout=PATIENCE) == 1


async def test_room_that_comes_a_moment_later_is_for_the_deliveries_that_wait(
    database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given all the deliveries that a worker may hold, and no room when it chose, when it looks whether they keep out
    those of another phase, and there is room, then it claims them, and leaves none to the poll."""
    app, comes = database.app(broker=broker.url, fallback=HOUR), asyncio.Event()
    room, have_room = Demand.room, Demands.have_room
    work = app.job(noop)

    def have_room_at_last(demands: Demands) -> bool:
        comes.set()
        return have_room(demands)

    async with receiving(app, concurrency=1):
        monkeypatch.setattr(Demand, "room", lambda demand: room(demand) if comes.is_set() else 0)
        monkeypatch.setattr(Demands, "have_room", have_room_at_last)
        jobs = await app.aenqueue_many(work.call() for _ in range(4))
        for job in jobs:
            await ended(job)


async def test_a_worker_that_stops_gives_its_deliveries_back(database: Database, broker: Broker) -> None:
    app = database.app(broker=broker.url, fallback=HOUR, grace="0s")

    @app.job
    async def busy(n: int) -> int:
        await asyncio.sleep(PATIENCE)
        return n

    async with receiving(app, concurrency=1) as (worker, _, _):
        first = await busy.aenqueue(0)
        await in_state(first, State.RUNNING)
        second = await busy.aenqueue(1)

        async def received() -> bool:
            return bool(intake_of(worker).waiting)

        await eventually(received, bool)

    async with broker.opened() as dispatcher:
        (depth,) = await eventually(
            lambda: dispatcher.depths(["default"]), lambda found: bool(found) and not found[0].unacknowledged
        )
        assert depth.ready >= 1
    assert (await second.arecord()).status is State.QUEUED
