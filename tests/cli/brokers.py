"""A part of a broker that no other story uses, and what a story puts there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID, uuid4

import with_redis
from servers import url_of
from windlass.methods.broker import open_broker
from windlass.model.delivery import OutboxKind, OutboxRow
from windlass.transport.protocol import JobDispatcher, Level, Message
from windlass.transport.relay import message_of

T = TypeVar("T")


class CliBroker:
    """Each call opens its own connection, as a command does."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, question: Callable[[JobDispatcher], Awaitable[T]]) -> T:
        async def open_and_ask() -> T:
            async with open_broker(self.url) as dispatcher:
                return await question(dispatcher)

        return asyncio.run(open_and_ask())

    def bury(self, job: UUID | None = None, *, reason: str = "it killed three workers", payload: bytes = b"") -> None:
        """A letter with an envelope of this job, or with a payload that is none."""
        if job is not None:
            message = envelope_of(job)
        else:
            message = Message(
                job=uuid4(), queue="mail", level=Level.NORMAL, payload=payload or b"\xff\x1b[31m nonsense"
            )
        self.call(lambda dispatcher: dispatcher.bury([(message, reason)]))

    def letters(self) -> list[UUID | None]:
        return [letter.job for letter in self.call(lambda dispatcher: dispatcher.dead_letters(100))]

    def ready(self, queue: str) -> int:
        depths = self.call(lambda dispatcher: dispatcher.depths([queue]))
        return sum(depth.ready for depth in depths)


def envelope_of(job: UUID) -> Message:
    row = OutboxRow(
        id=0,
        kind=OutboxKind.DELIVER,
        job=job,
        queue="mail",
        priority=0,
        type="send",
        input="{}",
        trace=None,
        created_at=datetime.now(UTC),
        attempt=1,
        max_attempts=4,
    )
    return message_of(row)


@contextmanager
def private_broker(name: str) -> Iterator[CliBroker]:
    """Of RabbitMQ: names with a prefix of their own. Of Redis: an empty database."""
    if name == "rabbitmq":
        yield CliBroker(f"{url_of('amqp').rstrip('/')}/?prefix=t{uuid4().hex[:12]}")
        return
    from redis import Redis

    url = f"{url_of('redis').removesuffix('/0')}/{uuid4().int % (with_redis.DATABASES - 1) + 1}"
    with Redis.from_url(url) as client:
        client.flushdb()
        yield CliBroker(url)
        client.flushdb()
