"""The dead-letter queue of RabbitMQ: listed without removing, and removed by id.

AMQP can only look at a message by taking it. A listing takes messages and gives them back, so that two listings at once
each see a part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity

from windlass.transport.envelope import job_of
from windlass.transport.protocol import DeadLetter
from windlass.transport.rabbitmq.link import RabbitLink
from windlass.transport.rabbitmq.publisher import QUEUE, REASON
from windlass.transport.rabbitmq.topology import Topology


class DeadLetters:
    """Reads and removes dead letters on the publisher's connection."""

    def __init__(self, link: RabbitLink, topology: Topology) -> None:
        self._link = link
        self._name = topology.dead
        self._one = asyncio.Lock()  # a second listing would see a part only

    async def list(self, most: int) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        async with self._taking() as channel:
            while len(letters) < most and (message := await self._take(channel)) is not None:
                letters.append(_letter(message))
        # What is given back may come in another order the next time.
        return sorted(letters, key=lambda letter: letter.at or datetime.max.replace(tzinfo=UTC))

    async def remove(self, ids: Collection[str]) -> int:
        wanted, removed = set(ids), 0
        async with self._taking() as channel:
            while wanted and (message := await self._take(channel)) is not None:
                if (id := _id(message)) in wanted:
                    wanted.discard(id)
                    removed += 1
                    await self._link.answer(channel.basic_ack(message.delivery_tag or 0))
        return removed

    @asynccontextmanager
    async def _taking(self) -> AsyncIterator[AbstractChannel]:
        """A channel that gives back at its end what was taken and not acknowledged, all at once: a message that went
        back earlier would be taken a second time."""
        async with self._one, self._link.channel() as channel:
            yield channel
            if not channel.is_closed:
                await self._link.answer(channel.basic_nack(0, multiple=True, requeue=True))  # 0: all of the channel

    async def _take(self, channel: AbstractChannel) -> DeliveredMessage | None:
        if channel.is_closed:
            return None
        try:
            message = await self._link.answer(channel.basic_get(self._name))
        except ChannelNotFoundEntity:  # no queue, no dead letters
            return None
        return message if message.delivery_tag else None


def _letter(message: DeliveredMessage) -> DeadLetter:
    properties = message.header.properties
    headers: dict[str, Any] = dict(properties.headers or {})
    deaths = headers.get("x-death")
    death = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    reason = headers.get(REASON)
    if reason is None and death:
        reason = f"RabbitMQ gave it up after it was delivered {death.get('count', 1)} times: {death.get('reason')}"
    at = death.get("time") or properties.timestamp
    queue = headers.get(QUEUE)
    return DeadLetter(
        id=_id(message),
        payload=message.body,
        reason=str(reason or "unknown"),
        queue=str(queue) if queue is not None else None,
        at=at.replace(tzinfo=at.tzinfo or UTC) if isinstance(at, datetime) else None,
        job=job_of(message.body),
    )


def _id(message: DeliveredMessage) -> str:
    """The id of the message. A message of a foreign program may have none: then a hash of its bytes."""
    return message.header.properties.message_id or f"hash-{blake2b(message.body, digest_size=16).hexdigest()}"
