"""One queue of RabbitMQ, consumed on a channel of its own, and set up again after a break.

Each has its own channel, so that a queue that is deleted, refused or stuck disturbs no other one: after a crash a
quorum queue can be without a leader, and RabbitMQ then answers nothing on the channel that asked for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity, ChannelPreconditionFailed

from windlass.errors import BrokerError, BrokerRefused
from windlass.transport.protocol import Delivery, Level
from windlass.transport.rabbitmq import queues
from windlass.transport.rabbitmq.link import PAUSES, RabbitLink
from windlass.transport.rabbitmq.problems import FAILURES, is_cancelled, translate
from windlass.transport.rabbitmq.topology import SilentQueue, Topology, silent

REPLACED_AFTER = 20.0  # seconds without an answer after which a queue is deleted and made again: it has no leader
RENEWAL = 30.0  # seconds without a delivery after which a consumer registers again

logger = logging.getLogger(__name__)


class Tag(NamedTuple):
    """Which delivery of which channel: the number of an old channel means another message on the new one."""

    subscription: Subscription
    channel: AbstractChannel
    number: int


class Subscription:
    """The deliveries of one queue and level: those in `buffer` were not handed out yet."""

    def __init__(self, link: RabbitLink, topology: Topology, queue: str, level: Level, prefetch: int) -> None:
        self._link = link
        self._topology = topology
        self._queue = queue
        self._prefetch = prefetch
        self._name = topology.name(queue, level)
        self._channel: AbstractChannel | None = None
        self._tag: str | None = None  # of the consumer, in RabbitMQ's words
        self._unacknowledged: dict[int, None] = {}  # numbers of the channel, ascending
        self._broken = asyncio.Event()  # the channel, or its consumer
        self._received = 0
        self.level = level
        self.buffer: deque[Delivery] = deque()

    async def run(self, arrived: Callable[[], None], refused: Callable[[BrokerRefused], None]) -> None:
        """Set up after each break, for ever."""
        pause, silent_since, told = PAUSES[0], math.inf, ""
        while True:
            await self._wait_for_break()
            self._forget()
            await self._link.wait()
            now = asyncio.get_running_loop().time()
            try:
                if now - silent_since >= REPLACED_AFTER:
                    silent_since = math.inf
                    logger.warning("%s gave no answer for %g s; it is made again", self._name, REPLACED_AFTER)
                    await queues.replace(self._link, self._topology, self._queue, self.level)
                await self.set_up(arrived)
                pause, silent_since, told = PAUSES[0], math.inf, ""
            except BrokerError as problem:
                if str(problem) != told:
                    told = str(problem)
                    logger.warning("%s is not consumed: %s", self._name, problem)
                if isinstance(problem, BrokerRefused):
                    refused(problem)
                if isinstance(problem, SilentQueue):
                    silent_since = min(silent_since, now)
                self._broken.set()
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, PAUSES[1])

    async def _wait_for_break(self) -> None:
        """Also returns after a while in which nothing was delivered and nothing is held.

        RabbitMQ 3 does not always tell a consumer that its queue was deleted and made again, and the consumer would
        wait at the old one for ever.
        """
        received = -1
        while received != self._received or self._unacknowledged:
            received = self._received
            try:
                async with asyncio.timeout(RENEWAL):
                    await self._broken.wait()
                return
            except TimeoutError:
                continue

    async def set_up(self, arrived: Callable[[], None]) -> None:
        """Declare the queue and consume it. What fails leaves the subscription broken, for `run` to mend."""
        self._broken.set()
        await queues.declare(self._link, self._topology, [self._queue], levels=[self.level], dead=False)
        channel = await self._link.open_channel()
        self._channel = channel
        self._broken.clear()
        channel.closing.add_done_callback(lambda _: self._on_end(channel))
        # RabbitMQ cancels a consumer whose queue was deleted.
        channel.on_consumer_cancel_callbacks.add(lambda _: self._on_end(channel))
        try:
            async with asyncio.timeout(queues.ANSWER_LIMIT):
                await self._link.answer(channel.basic_qos(prefetch_count=self._prefetch), gives_up=False)
                answer = await self._link.answer(
                    channel.basic_consume(self._name, lambda message: self._receive(channel, message, arrived)),
                    gives_up=False,
                )
        except TimeoutError:
            raise silent(self._name, self._link.address.path) from None
        except (ChannelLockedResource, ChannelNotFoundEntity, ChannelPreconditionFailed) as problem:
            raise translate(problem, self._link.address) from None  # deleted since it was declared
        self._tag = answer.consumer_tag

    async def _receive(self, channel: AbstractChannel, message: DeliveredMessage, arrived: Callable[[], None]) -> None:
        if channel is not self._channel:
            return
        number = message.delivery_tag or 0
        earlier = (message.header.properties.headers or {}).get("x-delivery-count", 0)
        count = earlier + 1 if isinstance(earlier, int) else 1
        self._unacknowledged[number] = None
        self._received += 1
        self.buffer.append(Delivery(message.body, self._queue, self.level, Tag(self, channel, number), count))
        arrived()

    def holds(self, tag: Tag) -> bool:
        """Whether this delivery can still be acknowledged."""
        return tag.channel is self._channel and not tag.channel.is_closed and tag.number in self._unacknowledged

    async def acknowledge(self, tags: Sequence[Tag]) -> None:
        """One frame for all numbers up to the first that is not done, and one for each of the others."""
        done = {tag.number for tag in tags if self.holds(tag)}
        if not done or self._channel is None:
            return
        first = 0
        for number in self._unacknowledged:
            if number not in done:
                break
            first = number
        for number in done:
            del self._unacknowledged[number]
        try:
            if first:
                await self._channel.basic_ack(first, multiple=True, wait=False)
            for number in sorted(number for number in done if number > first):
                await self._channel.basic_ack(number, wait=False)
        except FAILURES as problem:
            if is_cancelled(problem):
                raise
            # The channel broke: its deliveries come again, and the claim refuses those jobs.

    async def stop(self) -> list[Delivery]:
        """Receive no more; returns the deliveries that were never handed out."""
        channel, tag = self._channel, self._tag
        if channel is None or channel.is_closed or tag is None:
            return []
        try:
            await self._link.answer(channel.basic_cancel(tag), gives_up=False)
        except BrokerError:
            return []
        unseen = list(self.buffer)
        self.buffer.clear()
        return unseen

    def _on_end(self, channel: AbstractChannel) -> None:
        if channel is self._channel:
            self._broken.set()

    def _forget(self) -> None:
        """Deliveries of the old channel come again: those in the buffer would come twice."""
        channel, self._channel, self._tag = self._channel, None, None
        self.buffer.clear()
        self._unacknowledged.clear()
        if channel is not None and not channel.is_closed:
            self._link.close_later(channel)
