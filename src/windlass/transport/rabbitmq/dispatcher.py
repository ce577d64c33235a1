"""RabbitMQ as a JobDispatcher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from windlass.broker_address import BrokerAddress
from windlass.transport.protocol import Consumer, DeadLetter, Finding, JobDispatcher, Message, QueueDepth
from windlass.transport.rabbitmq import queues as broker_queues
from windlass.transport.rabbitmq.consumer import RabbitConsumer
from windlass.transport.rabbitmq.dead_letters import DeadLetters
from windlass.transport.rabbitmq.link import RabbitLink
from windlass.transport.rabbitmq.publisher import Parcel, Publisher
from windlass.transport.rabbitmq.topology import PREFIX, Topology

ANSWER_LIMIT = 15.0  # seconds for an answer: a server in a memory alarm gives none


class RabbitDispatcher(JobDispatcher):
    """Publishes and administers on one connection; each consumer has its own.

    A memory alarm blocks the connections that publish: consumers still acknowledge on theirs.
    """

    def __init__(self, address: BrokerAddress, *, answer_limit: float = ANSWER_LIMIT) -> None:
        size = address.options.get("group_size")
        self.shown = address.shown
        self.topology = Topology(address.options.get("prefix", PREFIX), None if size is None else int(size))
        self._address = address
        self._answer_limit = answer_limit
        self._link = RabbitLink(address, "publisher", answer_limit)
        self._publisher = Publisher(self._link, self.topology)
        self._dead = DeadLetters(self._link, self.topology)

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    async def declare(self, queues: Collection[str]) -> None:
        await broker_queues.declare(self._link, self.topology, queues)

    async def dispatch(self, messages: Sequence[Message]) -> frozenset[int]:
        return await self._publish([Parcel(each.payload, each.queue, each.level) for each in messages])

    async def bury(self, letters: Sequence[tuple[Message, str]]) -> frozenset[int]:
        return await self._publish([Parcel(each.payload, each.queue, each.level, reason) for each, reason in letters])

    async def _publish(self, parcels: Sequence[Parcel]) -> frozenset[int]:
        if not parcels:
            return frozenset()
        outcomes = await self._publisher.publish(parcels)
        confirmed = frozenset(at for at, outcome in enumerate(outcomes) if outcome is None)
        if not confirmed:
            raise self._publisher.error(outcomes)
        return confirmed

    @asynccontextmanager
    async def consume(self, queues: Collection[str], *, prefetch: int) -> AsyncIterator[Consumer]:
        consumer = RabbitConsumer(
            RabbitLink(self._address, "consumer", self._answer_limit), self.topology, self._publisher, queues, prefetch
        )
        await consumer.open()
        try:
            yield consumer
        finally:
            await consumer.close()

    async def dead_letters(self, most: int) -> list[DeadLetter]:
        return await self._dead.list(most)

    async def remove_dead_letters(self, ids: Collection[str]) -> int:
        return await self._dead.remove(ids)

    async def count_dead_letters(self) -> int:
        counts = await broker_queues.count(self._link, self.topology.dead)
        return 0 if counts is None else counts[0]

    async def depths(self, queues: Collection[str]) -> list[QueueDepth]:
        return await broker_queues.depths(self._link, self.topology, queues)

    async def check(self, queues: Collection[str]) -> list[Finding]:
        return await broker_queues.check(self._link, self.topology, queues)

    async def trim(self, queues: Collection[str], older: float) -> int:
        return 0  # an acknowledged message is gone
