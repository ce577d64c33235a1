"""Redis Streams, where it differs from other transports: FLUSHALL, kill -9, a failover, consumers that died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from private_server import free_port, private_directory
from windlass.broker_address import read_broker_address
from windlass.errors import BrokerRefused, BrokerUnavailable
from windlass.transport.protocol import LEVELS, Consumer, Delivery, Finding, Level, Message
from windlass.transport.redis_consumer import DEAD, GROUP, RedisConsumer, stream_of
from windlass.transport.redis_streams import RedisStreams
from with_redis import RedisSentinel, RedisServer

LIMIT = 60.0  # seconds for what takes a moment


def message(payload: bytes, level: Level = Level.NORMAL, queue: str = "mail") -> Message:
    return Message(job=uuid4(), queue=queue, level=level, payload=payload)


def is_up(streams: RedisStreams) -> bool:
    """As a call: a type checker takes a property that was False for False ever after."""
    return streams.is_up


def payloads(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.payload for delivery in deliveries]


@pytest.fixture
def directory() -> Iterator[Path]:
    with private_directory(None, memory=True) as path:
        yield path


@pytest.fixture
def server(directory: Path) -> Iterator[RedisServer]:
    """A server of this story alone, because it is killed, frozen and flushed."""
    with RedisServer(directory) as server:
        yield server


@asynccontextmanager
async def opened(url: str, *, reclaim_after: float = 60.0) -> AsyncIterator[RedisStreams]:
    streams = RedisStreams(read_broker_address(url), reclaim_after=reclaim_after)
    await streams.open()
    try:
        yield streams
    finally:
        await streams.close()


@asynccontextmanager
async def raw(server: RedisServer) -> AsyncIterator[Redis]:
    client = Redis.from_url(server.url)
    try:
        yield client
    finally:
        await client.aclose()


async def received(consumer: Consumer, most: int = 10) -> list[bytes]:
    """What arrives next, acknowledged."""
    async with asyncio.timeout(LIMIT):
        deliveries = await consumer.receive(most)
        await consumer.acknowledge(deliveries)
        return payloads(deliveries)


async def received_after_a_break(consumer: Consumer) -> list[bytes]:
    """As above; each call before the connection is there again may say that it broke."""
    while True:
        try:
            return await received(consumer)
        except BrokerUnavailable:
            continue


async def is_waiting(client: Redis) -> None:
    """Until a consumer's read waits in the server."""
    async with asyncio.timeout(LIMIT):
        while not int((await client.info("clients"))["blocked_clients"]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# What the server forgets


async def test_flushall_under_a_waiting_consumer(server: RedisServer) -> None:
    async with opened(server.url) as streams, streams.consume(["mail"], prefetch=10) as consumer, raw(server) as client:
        waiting = asyncio.create_task(received(consumer))
        await is_waiting(client)
        await client.flushall()
        await streams.dispatch([message(b"after")])

        assert await waiting == [b"after"]


async def test_groups_that_were_destroyed_are_made_again(server: RedisServer) -> None:
    async with opened(server.url) as streams, streams.consume(["mail"], prefetch=10) as consumer, raw(server) as client:
        await streams.dispatch([message(b"first")])
        assert await received(consumer) == [b"first"]
        await client.xgroup_destroy(stream_of("mail", Level.LOW), GROUP)
        await streams.dispatch([message(b"low", Level.LOW)])

        assert await received(consumer) == [b"low"]


async def test_kill_9_without_a_file_and_a_new_start(server: RedisServer) -> None:
    async with opened(server.url) as streams, streams.consume(["mail"], prefetch=10) as consumer, raw(server) as client:
        await streams.dispatch([message(b"held")])
        async with asyncio.timeout(LIMIT):
            held = await consumer.receive(10)
        waiting = asyncio.create_task(received_after_a_break(consumer))
        await is_waiting(client)
        server.kill()
        with pytest.raises(BrokerUnavailable):
            await streams.dispatch([message(b"while it is away")])
        assert not is_up(streams)

        server.start()
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    assert await streams.dispatch([message(b"after")]) == {0}
                    break
                except BrokerUnavailable:
                    continue
        assert await waiting == [b"after"]
        assert is_up(streams)
        await consumer.acknowledge(held)  # the server has forgotten it


async def test_a_frozen_server_is_noticed(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.transport.redis_link.ANSWER_LIMIT", 3.0)
    async with opened(server.url) as streams, streams.consume(["mail"], prefetch=10) as consumer, raw(server) as client:
        waiting = asyncio.create_task(consumer.receive(10))
        await is_waiting(client)
        server.freeze()
        async with asyncio.timeout(LIMIT):
            with pytest.raises(BrokerUnavailable):
                await waiting
        assert not is_up(streams)
        waiting_again = asyncio.create_task(received_after_a_break(consumer))
        server.thaw()
        async with asyncio.timeout(LIMIT):
            while not is_up(streams):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await streams.dispatch([message(b"thawed")])
        assert await waiting_again == [b"thawed"]


# Consumers


async def test_what_a_dead_consumer_held_is_delivered_again_and_counted(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.transport.redis_consumer.BLOCK", 0.1)
    async with opened(server.url, reclaim_after=0.2) as streams:
        await streams.dispatch([message(b"poison")])
        counts = []
        for _ in range(3):
            await streams.declare(["mail"])
            dead = RedisConsumer(streams._link, streams.declare, ["mail"], prefetch=10, reclaim_after=0.2)
            async with asyncio.timeout(LIMIT):
                counts += [delivery.count for delivery in await dead.receive(10)]
            # It is never closed: its process died.

        async with streams.consume(["mail"], prefetch=10) as consumer:
            waiting = asyncio.create_task(consumer.receive(10))
            async with asyncio.timeout(LIMIT):
                while not (letters := await streams.dead_letters(10)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            waiting.cancel()
        assert counts == [1, 2, 3]
        assert [letter.payload for letter in letters] == [b"poison"]
        assert "more than 3 times" in letters[0].reason
        assert [(depth.ready, depth.unacknowledged) for depth in await streams.depths(["mail"])] == [(0, 0)]


async def test_a_delivery_that_is_held_here_is_not_taken_over_here(server: RedisServer) -> None:
    async with (
        opened(server.url, reclaim_after=0.05) as streams,
        streams.consume(["mail"], prefetch=10) as consumer,
        asyncio.timeout(LIMIT),
    ):
        await streams.dispatch([message(b"slow")])
        held = await consumer.receive(10)
        await asyncio.sleep(0.2)  # longer than reclaim_after
        await streams.dispatch([message(b"next")])
        assert payloads(await consumer.receive(10)) == [b"next"]
        await consumer.acknowledge(held)


async def test_a_sign_of_life_changes_no_entry(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a worker that holds a delivery for long, as while its store is away, then it counts as delivered once."""
    monkeypatch.setattr("windlass.transport.redis_consumer.BLOCK", 0.01)
    key = stream_of("mail", Level.NORMAL)
    async with (
        opened(server.url, reclaim_after=0.01) as streams,
        streams.consume(["mail"], prefetch=10) as consumer,
        raw(server) as client,
        asyncio.timeout(LIMIT),
    ):
        await streams.dispatch([message(b"held")])
        held = await consumer.receive(10)
        waiting = asyncio.create_task(consumer.receive(10))
        looks = 0
        really = consumer._take_over

        async def counted(*given: Any) -> list[Delivery]:
            nonlocal looks
            looks += 1
            found: list[Delivery] = await really(*given)
            return found

        monkeypatch.setattr(consumer, "_take_over", counted)
        while looks < 4 * len(LEVELS):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (entry,) = await client.xpending_range(key, GROUP, min="-", max="+", count=10)
        waiting.cancel()

        assert entry["times_delivered"] == 1
        await consumer.acknowledge(held)


async def test_a_consumer_leaves_nothing_behind(server: RedisServer) -> None:
    async with opened(server.url) as streams, raw(server) as client:
        async with streams.consume(["mail"], prefetch=10) as consumer:
            await streams.dispatch([message(b"1"), message(b"2", Level.HIGH)])
            async with asyncio.timeout(LIMIT):
                await consumer.receive(10)
        assert await client.xinfo_consumers(stream_of("mail", Level.NORMAL), GROUP) == []
        async with streams.consume(["mail"], prefetch=10) as consumer:
            assert await received(consumer) == [b"2", b"1"]
        assert await client.xlen(stream_of("mail", Level.NORMAL)) == 0


async def test_acknowledgements_do_not_wait_behind_a_read(server: RedisServer) -> None:
    async with opened(server.url) as streams, streams.consume(["mail"], prefetch=10) as consumer, raw(server) as client:
        await streams.dispatch([message(b"1")])
        async with asyncio.timeout(LIMIT):
            held = await consumer.receive(10)
        waiting = asyncio.create_task(consumer.receive(10))
        await is_waiting(client)
        await consumer.acknowledge(held)
        assert not waiting.done()
        assert int((await client.info("clients"))["blocked_clients"]) == 1
        waiting.cancel()


# Addresses


async def test_a_wrong_password_is_refused_without_showing_it(directory: Path) -> None:
    with RedisServer(directory, password="s3cret") as server:
        for url in (server.url.replace("s3cret", "wrong"), server.url.replace(":s3cret@", "")):
            with pytest.raises(BrokerRefused, match="user and password") as refused:
                async with opened(url):
                    pass
            assert "wrong" not in str(refused.value)
            assert "s3cret" not in str(refused.value)
        async with opened(server.url) as streams:
            assert is_up(streams)


async def test_hosts_of_one_url_are_tried_in_turn(directory: Path, server: RedisServer) -> None:
    with RedisServer(directory, replica_of=server) as replica:
        url = f"redis://127.0.0.1:{free_port()},127.0.0.1:{replica.port},127.0.0.1:{server.port}/0"
        async with opened(url) as streams:
            assert await streams.dispatch([message(b"1")]) == {0}
            server.kill()
            with pytest.raises(BrokerUnavailable, match="cannot be used now"):
                await streams.dispatch([message(b"2")])


async def test_a_sentinel_leads_to_the_new_primary(directory: Path, server: RedisServer) -> None:
    with RedisServer(directory, replica_of=server) as replica, RedisSentinel(directory, server) as sentinel:
        async with opened(sentinel.url) as streams, streams.consume(["mail"], prefetch=10) as consumer:
            await streams.dispatch([message(b"before")])
            assert await received(consumer) == [b"before"]
            async with Redis(port=sentinel.port) as asked, asyncio.timeout(LIMIT):
                while not await asked.sentinel_slaves("windlass"):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            waiting = asyncio.create_task(received_after_a_break(consumer))
            server.kill()
            async with asyncio.timeout(LIMIT):
                while True:
                    try:
                        await streams.dispatch([message(b"after")])
                        break
                    except BrokerUnavailable:
                        await asyncio.sleep(0.1)
            assert await waiting == [b"after"]
            async with raw(replica) as client:
                assert (await client.info("replication"))["role"] == "master"


# What an operator reads


async def findings(streams: RedisStreams, *queues: str) -> dict[str, Finding]:
    return {finding.subject: finding for finding in await streams.check(queues)}


async def test_the_check_says_what_can_be_lost_and_what_to_do(server: RedisServer) -> None:
    async with opened(server.url) as streams, raw(server) as client:
        await streams.declare(["mail"])
        await client.config_set("maxmemory", "100mb")
        await client.config_set("maxmemory-policy", "allkeys-lru")
        await client.xgroup_create(stream_of("other", Level.HIGH), "another", mkstream=True)

        found = await findings(streams, "mail", "other", "missing")

        assert found["connection"].ok
        assert found["version"].ok
        assert found["queue mail"].ok
        assert not found["queue other"].ok
        assert found["queue missing"].advice == "windlass broker setup"
        assert str(found["append-only file"].advice).startswith("redis-cli CONFIG SET appendonly yes")
        assert "never a job" in found["append-only file"].text
        assert not found["memory"].ok

        await client.config_set("appendonly", "yes")
        await client.config_set("maxmemory-policy", "noeviction")
        found = await findings(streams, "mail")
        assert all(finding.ok for finding in found.values())
        async with asyncio.timeout(LIMIT):
            # A server does not end meanwhile.
            while (await client.info("persistence"))["aof_rewrite_in_progress"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_trim_takes_old_entries_and_no_young_ones(server: RedisServer) -> None:
    async with opened(server.url) as streams, raw(server) as client:
        key = stream_of("mail", Level.NORMAL)
        for number in range(300):
            await client.xadd(key, {"payload": b"old"}, id=f"{1000 + number}-0")
        await streams.dispatch([message(b"young") for _ in range(50)])

        assert await streams.trim(["mail"], 3600) >= 200
        assert await streams.trim(["mail"], 3600) == 0

        entries: Any = await client.xrange(key)
        left = [fields[b"payload"] for _, fields in entries]
        assert left.count(b"young") == 50


async def test_entries_that_another_program_wrote_are_shown(server: RedisServer) -> None:
    async with opened(server.url) as streams, raw(server) as client:
        await client.xadd(DEAD, {"anything": b"\xff"})
        await client.xadd(stream_of("mail", Level.HIGH), {"anything": b"\xff"})

        letters = await streams.dead_letters(10)
        assert [(letter.payload, letter.job) for letter in letters] == [(rb'{"anything": "\\xff"}', None)]
        assert await streams.remove_dead_letters([letters[0].id, "not-an-id", "1-1"]) == 1
        async with streams.consume(["mail"], prefetch=10) as consumer:
            assert await received(consumer) == [rb'{"anything": "\\xff"}']


async def test_a_full_server_confirms_nothing_and_says_so(server: RedisServer) -> None:
    async with opened(server.url) as streams, raw(server) as client:
        await streams.declare(["mail"])
        await client.config_set("maxmemory", "1")
        with pytest.raises(BrokerUnavailable, match="takes no writes"):
            await streams.dispatch([message(b"1"), message(b"2")])
        await client.config_set("maxmemory", "0")
        assert await streams.dispatch([message(b"1"), message(b"2")]) == {0, 1}


async def test_a_key_of_another_kind_is_refused(server: RedisServer) -> None:
    async with opened(server.url) as streams, raw(server) as client:
        await client.set(stream_of("mail", Level.HIGH), "a text")
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await streams.declare(["mail"])
