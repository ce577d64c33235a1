"""What the suite of transports needs: an open transport by name, and a way to put jobs on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import aiormq
import pytest

import with_redis
from servers import url_of
from windlass.broker_address import read_broker_address
from windlass.clock import SystemClock
from windlass.model.delivery import OutboxKind, OutboxRow
from windlass.model.job import NewJob, new_id
from windlass.store.protocol import Claim, NewWorker
from windlass.store.sqlite.store import SqliteStore
from windlass.testing.databases import write_migrated_file
from windlass.transport.database import DatabaseDispatcher
from windlass.transport.envelope import decode, encode
from windlass.transport.protocol import Consumer, Delivery, JobDispatcher, Level, Message
from windlass.transport.rabbitmq.dispatcher import RabbitDispatcher
from windlass.transport.redis_streams import RedisStreams

PRIORITY = {Level.HIGH: 5, Level.NORMAL: 0, Level.LOW: -5}
LIMIT = 60.0  # seconds that a story waits at most


@dataclass(kw_only=True)
class Bench:
    """A transport under test, and what stands around it."""

    name: str
    transport: JobDispatcher
    store: SqliteStore | None = None  # of the database

    @property
    def is_database(self) -> bool:
        return self.store is not None

    def message(self, queue: str = "mail", level: Level = Level.NORMAL, payload: bytes | None = None) -> Message:
        job = new_id()
        carried = body(job, queue, level) if payload is None else payload
        return Message(job=job, queue=queue, level=level, payload=carried)

    async def send(self, count: int = 1, *, queue: str = "mail", level: Level = Level.NORMAL) -> list[UUID]:
        """Put jobs where the transport finds them, and dispatch them."""
        messages = [self.message(queue, level) for _ in range(count)]
        if self.store is not None:
            await self.store.enqueue(
                [
                    NewJob(id=each.job, type="mail.send", input="{}", queue=queue, priority=PRIORITY[level])
                    for each in messages
                ]
            )
        assert await self.transport.dispatch(messages) == frozenset(range(count))
        return [each.job for each in messages]

    async def receive(self, consumer: Consumer, count: int, most: int | None = None) -> list[Delivery]:
        """Exactly so many deliveries, without an acknowledgement."""
        received: list[Delivery] = []
        async with asyncio.timeout(LIMIT):
            while len(received) < count:
                received += await consumer.receive(min(most or count, count - len(received)))
        return received

    async def settle(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        """Claim where the claim takes the job out of the queue, then acknowledge."""
        if self.store is not None:
            worker = uuid4()
            await self.store.register(
                NewWorker(id=worker, name="w", queues=None, types=("mail.send",), lease=60.0, concurrency=1)
            )
            await self.store.claim_delivered(
                Claim(worker=worker, room=1000, types=("mail.send",)), [job_of(each) for each in deliveries]
            )
        await consumer.acknowledge(deliveries)

    async def is_empty(self, consumer: Consumer, queue: str = "mail") -> bool:
        """Whether nothing but a job sent now comes: it would come last."""
        (marker,) = await self.send(queue=queue)
        (delivery,) = await self.receive(consumer, 1)
        await self.settle(consumer, [delivery])
        return job_of(delivery) == marker


def job_of(delivery: Delivery) -> UUID:
    return decode(delivery.payload).header.job_id


def body(job: UUID, queue: str = "mail", level: Level = Level.NORMAL) -> bytes:
    return encode(
        OutboxRow(
            id=1,
            kind=OutboxKind.DELIVER,
            job=job,
            queue=queue,
            priority=PRIORITY[level],
            type="mail.send",
            input='{"to": "ann"}',
            trace=None,
            created_at=datetime.now(UTC),
            attempt=1,
            max_attempts=3,
        )
    )


async def eventually(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat until it is true: for what a server tells with a delay of its own."""
    async with asyncio.timeout(LIMIT):
        while not await call():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def rabbit(url: str, *, prefix: str | None = None, limit: float = 15.0) -> RabbitDispatcher:
    option = f"/?prefix={prefix}" if prefix else ""
    return RabbitDispatcher(read_broker_address(url + option), answer_limit=limit)


@asynccontextmanager
async def rabbit_bench(url: str) -> AsyncIterator[Bench]:
    """Queues below a prefix of their own, deleted at the end."""
    prefix = f"t{uuid4().hex[:12]}"
    transport = rabbit(url, prefix=prefix)
    declared: set[str] = set()
    topology_name = transport.topology.name

    def name(queue: str, level: Level) -> str:
        declared.add(named := topology_name(queue, level))
        return named

    transport.topology.name = name  # type: ignore[method-assign]
    await transport.open()
    try:
        yield Bench(name="rabbitmq", transport=transport)
    finally:
        await transport.close()
        async with aiormq.connect(url) as connection:
            channel = await connection.channel()
            for each in (*declared, transport.topology.dead):
                await channel.queue_delete(each)
            await channel.exchange_delete(exchange=transport.topology.dead)


@asynccontextmanager
async def redis_bench(url: str) -> AsyncIterator[Bench]:
    """A database of its own, emptied at both ends."""
    number = uuid4().int % (with_redis.DATABASES - 1) + 1
    transport = RedisStreams(read_broker_address(f"{url.rstrip('/').removesuffix('/0')}/{number}"))
    from redis.asyncio import Redis

    client = Redis.from_url(f"{url.rstrip('/').removesuffix('/0')}/{number}")
    await client.flushdb()
    await transport.open()
    try:
        yield Bench(name="redis", transport=transport)
    finally:
        await transport.close()
        await client.flushdb()
        await client.aclose()


@asynccontextmanager
async def database_bench(path: Path) -> AsyncIterator[Bench]:
    write_migrated_file(path)
    clock = SystemClock()
    store = SqliteStore(f"sqlite:///{path}", clock=clock)
    await store.open()
    try:
        yield Bench(name="database", transport=DatabaseDispatcher(store, clock=clock, poll=0.05), store=store)
    finally:
        await store.close()


@pytest.fixture(params=["database", "rabbitmq", "redis"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    making = (
        database_bench(tmp_path / "jobs.db")
        if request.param == "database"
        else rabbit_bench(url_of("amqp"))
        if request.param == "rabbitmq"
        else redis_bench(url_of("redis"))
    )
    async with making as made:
        yield made


@pytest.fixture(params=["rabbitmq", "redis"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """For what only a broker does: it carries bytes."""
    async with rabbit_bench(url_of("amqp")) if request.param == "rabbitmq" else redis_bench(url_of("redis")) as made:
        yield made
