"""A consumer of RabbitMQ: a subscription for each queue and level on one connection, drained by level."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from windlass.errors import BrokerError, BrokerUnavailable
from windlass.transport.protocol import LEVELS, Consumer, Delivery, Level
from windlass.transport.rabbitmq import queues as broker_queues
from windlass.transport.rabbitmq.link import RabbitLink
from windlass.transport.rabbitmq.problems import describe
from windlass.transport.rabbitmq.publisher import Parcel, Publisher
from windlass.transport.rabbitmq.subscription import Subscription, Tag
from windlass.transport.rabbitmq.topology import Topology

logger = logging.getLogger(__name__)


class RabbitConsumer(Consumer):
    """One connection for all queues and levels.

    RabbitMQ limits what is unacknowledged for each queue by itself. So `prefetch` is shared out among the Windlass
    queues that the consumer begins with, and each level of a queue may hold that share.
    """

    def __init__(
        self, link: RabbitLink, topology: Topology, publisher: Publisher, queues: Collection[str], prefetch: int
    ) -> None:
        self._link = link
        self._topology = topology
        self._publisher = publisher
        self._first = list(dict.fromkeys(queues))
        self._share = max(1, prefetch // max(1, len(self._first)))
        self._subscriptions: dict[Level, list[Subscription]] = {level: [] for level in LEVELS}
        self._queues: set[str] = set()
        self._news = asyncio.Event()  # deliveries, or a problem
        self._problem: BrokerError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        try:
            await self._link.open()
            await self.add(self._first)
        except BaseException:
            await self.close()
            raise
        self._tasks.append(asyncio.create_task(self._watch(), name="windlass-rabbitmq-watch"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        try:
            await self._return_unseen()
        finally:
            await self._link.close()

    async def _return_unseen(self) -> None:
        """Give back what was never handed out. Left to RabbitMQ it would count as delivered, and three restarts of
        workers would bury it."""
        if not self._link.is_up:
            return
        stopping = [each.stop() for level in LEVELS for each in self._subscriptions[level]]
        unseen = [delivery for deliveries in await asyncio.gather(*stopping) for delivery in deliveries]
        try:
            await self.give_back(unseen)
        except BrokerError as problem:
            logger.warning("RabbitMQ delivers %d messages again that were not handed out: %s", len(unseen), problem)

    async def receive(self, most: int) -> list[Delivery]:
        while True:
            if taken := self._take(most):
                return taken
            if self._problem is not None:
                problem, self._problem = self._problem, None
                raise problem
            self._news.clear()
            await self._news.wait()

    def _take(self, most: int) -> list[Delivery]:
        """From the higher levels first; inside a level from each queue in turn."""
        taken: list[Delivery] = []
        for level in LEVELS:
            while len(taken) < most:
                filled = [each.buffer for each in self._subscriptions[level] if each.buffer]
                if not filled:
                    break
                taken += [buffer.popleft() for buffer in filled[: most - len(taken)]]
            if len(self._subscriptions[level]) > 1:  # the next call begins with another queue
                self._subscriptions[level].append(self._subscriptions[level].pop(0))
        return taken

    async def add(self, queues: Collection[str]) -> None:
        """A queue that RabbitMQ refuses raises; one that does not answer is consumed as soon as it does."""
        new = [
            Subscription(self._link, self._topology, queue, level, self._share)
            for queue in dict.fromkeys(queues)
            if queue not in self._queues
            for level in LEVELS
        ]
        outcomes = await asyncio.gather(*(each.set_up(self._news.set) for each in new), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, BrokerUnavailable):
                raise outcome
        self._queues.update(queues)
        for each in new:
            self._subscriptions[each.level].append(each)
            self._tasks.append(asyncio.create_task(each.run(self._news.set, self._tell)))

    # Ends of deliveries

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        tags: dict[Subscription, list[Tag]] = {}
        for delivery in deliveries:
            if isinstance(delivery.tag, Tag):
                tags.setdefault(delivery.tag.subscription, []).append(delivery.tag)
        for subscription, own in tags.items():
            await subscription.acknowledge(own)

    async def bury(self, deliveries: Sequence[tuple[Delivery, str]]) -> None:
        await self._publish_and_acknowledge(
            [(each, Parcel(each.payload, each.queue, each.level, reason)) for each, reason in deliveries]
        )

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Published again and not rejected: a rejection counts as a delivery, and the third buries the message."""
        await self._publish_and_acknowledge(
            [(each, Parcel(each.payload, each.queue, each.level)) for each in deliveries]
        )

    async def _publish_and_acknowledge(self, pairs: Sequence[tuple[Delivery, Parcel]]) -> None:
        """The copy is confirmed before the original goes: a crash between them leaves two."""
        current = [
            (delivery, parcel)
            for delivery, parcel in pairs
            if isinstance(delivery.tag, Tag) and delivery.tag.subscription.holds(delivery.tag)
        ]
        if not current:
            return
        outcomes = await self._publisher.publish([parcel for _, parcel in current])
        sent = [delivery for (delivery, _), outcome in zip(current, outcomes, strict=True) if outcome is None]
        await self.acknowledge(sent)
        if len(sent) < len(current):
            raise self._publisher.error(outcomes)

    # Breaks

    async def _watch(self) -> None:
        """Tell the caller of `receive` once about each connection that broke; the subscriptions mend themselves.

        The queue of dead letters is declared here, beside them: while it gives no answer, they receive all the same.
        """
        while True:
            connection = await self._link.wait()
            try:
                await broker_queues.declare(self._link, self._topology, [])
            except BrokerError as problem:
                logger.warning("dead letters have no queue yet: %s", problem)
            ends = connection.closing
            await asyncio.wait([ends])
            reason = None if ends.cancelled() else ends.exception()
            self._tell(BrokerUnavailable(f"the connection to {self._link.address.shown} broke: {describe(reason)}"))
            await asyncio.sleep(0)  # the link notices the same end in this turn of the loop

    def _tell(self, problem: BrokerError) -> None:
        self._problem = problem
        self._news.set()
