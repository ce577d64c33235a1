"""Rates whose buckets are in Redis: the promises of the store's own rates, kept by scripts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from windlass import Context, Retry, State, Windlass, limit, rate
from windlass.broker_address import read_broker_address
from windlass.errors import ConfigError, UnknownLimit
from windlass.model.admission import Rule
from windlass.transport.redis_rates import RedisRates
from with_redis import RedisServer, private_redis

from .rig import PATIENCE, Database, attempts, eventually, in_state, working

LATE = 0.02  # seconds between a clock of this process and the server's, and of rounding


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of this story alone, because it is killed, frozen and flushed."""
    with private_redis() as server:
        yield server


@pytest.fixture
def rated(database: Database, server: RedisServer) -> Windlass:
    return database.app(rates=server.url)


# Jobs


async def test_jobs_of_two_workers_start_at_one_rate_and_delay_no_others(rated: Windlass) -> None:
    started: list[float] = []
    done: list[str] = []

    @rated.job(limits=[rate("wiki", 20, every="1s", burst=1)])
    async def look_up() -> None:
        started.append(time.monotonic())
        done.append("rated")

    @rated.job
    async def other() -> None:
        done.append("other")

    began = time.monotonic()
    jobs = await rated.aenqueue_many(look_up.call() for _ in range(40))
    others = await rated.aenqueue_many(other.call() for _ in range(40))
    async with working(rated, concurrency=5), working(rated, concurrency=5):
        for job in [*jobs, *others]:
            await job.aresult(timeout=PATIENCE)
        rows = [await in_state(job, State.SUCCEEDED) for job in jobs]

    # A start may come late after its token, never before it: the nth start comes after n − 1 periods.
    assert all(at - began >= nth * 0.05 - LATE for nth, at in enumerate(sorted(started)))
    assert done.index("other") < 20  # jobs without a rate do not wait behind those with one
    assert [row.attempt for row in rows] == [1] * 40  # a job that waits for its turn burns no attempt


async def test_a_key_has_a_bucket_of_its_own(rated: Windlass) -> None:
    started: list[tuple[str, float]] = []

    @rated.job(limits=[rate("site", 10, every="1s", key="host", burst=1), limit("all", 5)])
    async def fetch(host: str) -> None:
        started.append((host, time.monotonic()))

    began = time.monotonic()
    jobs = await rated.aenqueue_many(fetch.call(host) for host in ("a.org", "b.org") for _ in range(6))
    async with working(rated, concurrency=5):
        for job in jobs:
            await job.aresult(timeout=PATIENCE)
        shown = {row.key: row for row in await rated.alimits()}

    for host in ("a.org", "b.org"):
        times = sorted(at for of, at in started if of == host)
        assert all(at - began >= nth * 0.1 - LATE for nth, at in enumerate(times))
    assert shown["site:a.org"].period == pytest.approx(0.1)
    assert shown["all"].most == 5


async def test_a_rate_that_was_in_the_store_moves_to_redis(database: Database, server: RedisServer) -> None:
    async def run_two(app: Windlass) -> None:
        @app.job(type="slow", limits=[rate("slow", 1, every=period)])
        async def slow() -> None: ...

        async with working(app):
            for job in [await slow.aenqueue() for _ in range(2)]:
                await job.aresult(timeout=PATIENCE)

    period = "1s"
    await run_two(database.app())
    period = "10ms"  # a bucket in the store would still have a second to wait
    began = time.monotonic()
    moved = database.app(rates=server.url)
    await run_two(moved)

    assert [row.period for row in await moved.alimits()] == pytest.approx([0.01])
    assert time.monotonic() - began < PATIENCE


# Handlers


async def test_handlers_take_tokens_and_a_far_one_is_a_snooze(rated: Windlass) -> None:
    rated.rate("wiki", 20, every="1s", burst=1)
    rated.rate("letters", 1, every="1h")
    calls: list[float] = []

    @rated.job
    async def call(ctx: Context) -> None:
        await ctx.acquire("wiki")
        calls.append(time.monotonic())

    @rated.job
    async def post(ctx: Context) -> None:
        await ctx.acquire("letters")

    @rated.job
    async def unknown(ctx: Context) -> str:
        try:
            await ctx.acquire("parcels")
        except UnknownLimit as error:
            return str(error)
        return "a token"

    began = time.monotonic()
    jobs = [await call.aenqueue() for _ in range(20)]
    letters = [await post.aenqueue() for _ in range(2)]
    async with working(rated, concurrency=25):
        for job in jobs:
            await job.aresult(timeout=PATIENCE)
        assert "parcels" in await (await unknown.aenqueue()).aresult(timeout=PATIENCE)

        async def states() -> list[str]:
            return sorted([(await letter.arecord()).status for letter in letters])

        await eventually(states, lambda found: found == ["queued", "succeeded"])
    assert all(at - began >= nth * 0.05 - LATE for nth, at in enumerate(sorted(calls)))


async def test_a_retry_with_a_bucket_holds_back_every_job(rated: Windlass) -> None:
    started: list[int] = []

    @rated.job(limits=[rate("wiki", 1000, every="1s")])
    async def look_up(number: int) -> None:
        started.append(number)
        if number == 0:
            raise Retry(after="1h", bucket="wiki")

    async with working(rated):
        first = await look_up.aenqueue(0)
        await in_state(first, State.FAILED)
        assert 3500 < (await rated.alimits("wiki"))[0].held <= 3600
        second = await look_up.aenqueue(1)

        async def delayed() -> bool:
            row = await second.arecord()
            return (row.run_at - row.created_at).total_seconds() > 5

        await eventually(delayed, bool)
        assert started == [0]
        assert await rated.arelease("wiki")
        assert not await rated.arelease("wiki")
        assert await rated.ahold_back("wiki", "1m") == pytest.approx(60, abs=5)
        assert len(await rated.aaudit(action="LIMIT_RELEASED")) == 1
        assert len(await rated.aaudit(action="LIMIT_HELD")) == 1


# Redis away


async def test_without_redis_jobs_with_rates_wait_and_others_run(
    rated: Windlass, server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("windlass.transport.rated_store.AWAY", 0.2)
    rated.rate("calls", 100, every="1s")
    started: list[str] = []

    @rated.job(limits=[rate("wiki", 100, every="1s")])
    async def look_up() -> None:
        started.append("rated")

    @rated.job
    async def call(ctx: Context) -> None:
        await ctx.acquire("calls")
        started.append("called")

    @rated.job
    async def other() -> None:
        started.append("other")

    server.kill()
    caplog.set_level(logging.INFO, "windlass")
    async with working(rated):
        waiting = [await look_up.aenqueue(), await call.aenqueue()]
        for _ in range(3):
            await (await other.aenqueue()).aresult(timeout=PATIENCE)
        await eventually(lambda: asyncio.sleep(0, caplog.text), lambda text: "jobs with rates wait" in text)
        assert set(started) == {"other"}
        server.start()
        for job in waiting:
            await job.aresult(timeout=PATIENCE)
        rows = [await in_state(job, State.SUCCEEDED) for job in waiting]
    assert [row.attempt for row in rows] == [1, 1]
    assert not any(entry.error for row in rows for entry in attempts(row))


async def test_flushall_forgets_the_buckets_and_not_the_rates(rated: Windlass, server: RedisServer) -> None:
    @rated.job(limits=[rate("wiki", 1, every="1h")])
    async def look_up() -> None: ...

    async with working(rated), Redis.from_url(server.url) as client:
        await (await look_up.aenqueue()).aresult(timeout=PATIENCE)
        await client.flushall()
        await (await look_up.aenqueue()).aresult(timeout=PATIENCE)
        assert await client.hget("windlass:rates", "wiki") is not None


# The script


@asynccontextmanager
async def buckets(server: RedisServer, **rules: Rule) -> AsyncIterator[RedisRates]:
    rates = RedisRates(read_broker_address(server.url))
    await rates.declare(list(rules.values()))
    try:
        yield rates
    finally:
        await rates.close()


async def test_a_job_that_was_refused_has_a_turn_that_later_jobs_cannot_take(server: RedisServer) -> None:
    async with buckets(server, slow=Rule(name="slow", period=0.5)) as rates:
        first, refused = uuid4(), uuid4()
        waits = await rates.take({first: ["slow"], refused: ["slow"]})
        assert waits[first] == 0
        later = await rates.take({uuid4(): ["slow"] for _ in range(50)})
        assert min(later.values()) > waits[refused]
        again = (await rates.take({refused: ["slow"]}))[refused]
        assert again <= waits[refused]  # asking again loses nothing

        await asyncio.sleep(waits[refused])
        assert (await rates.take({uuid4(): ["slow"]})).popitem()[1] > 0
        assert (await rates.take({refused: ["slow"]}))[refused] == 0


async def test_jobs_that_come_late_for_their_turns_do_not_start_together(server: RedisServer) -> None:
    async with buckets(server, quick=Rule(name="quick", period=0.05)) as rates:
        jobs = {uuid4(): ["quick"] for _ in range(10)}
        await rates.take(jobs)
        await asyncio.sleep(0.6)  # every turn has passed

        waits = sorted((await rates.take(jobs)).values())
        assert waits[0] == 0
        assert waits[1:] == pytest.approx([0.05 * n for n in range(1, 10)], abs=LATE)


async def test_a_job_of_two_rates_takes_both_tokens_or_none(server: RedisServer) -> None:
    async with buckets(server, a=Rule(name="a", period=3600), b=Rule(name="b", period=0.001, burst=100)) as rates:
        assert (await rates.take({uuid4(): ["a", "b"]})).popitem()[1] == 0
        assert (await rates.take({uuid4(): ["a", "b"]})).popitem()[1] > 3500
        used = {row.key: row for row in await rates.rows([])}
        assert used["b"].free_in < 3600


async def test_a_turn_in_more_than_a_day_is_not_promised(server: RedisServer) -> None:
    async with buckets(server, rare=Rule(name="rare", period=50_000)) as rates:
        waits = [(await rates.take({uuid4(): ["rare"]})).popitem()[1] for _ in range(4)]
        assert waits[0] == 0
        assert waits[1] == pytest.approx(50_000, rel=0.01)
        assert waits[2] == waits[3] == 43_200  # asks again after half a day


async def test_only_redis_keeps_rates(database: Database) -> None:
    with pytest.raises(ConfigError, match="rates are kept in the store, or in Redis"):
        Windlass(database.url, rates="amqp://localhost")
