"""Publishes to RabbitMQ, pipelined: a message counts as sent when RabbitMQ confirmed it.

Each queue has a channel of its own, with confirms. A quorum queue without a leader takes a message and never confirms
it, and its channel answers nothing more: messages of other queues would wait behind it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelNotFoundEntity, PublishError
from pamqp.commands import Basic

from windlass.errors import BrokerError, BrokerUnavailable
from windlass.transport.protocol import Level
from windlass.transport.rabbitmq import queues
from windlass.transport.rabbitmq.link import RabbitLink
from windlass.transport.rabbitmq.problems import translate
from windlass.transport.rabbitmq.topology import SilentQueue, Topology, silent

SILENT_FOR = 60.0  # seconds for which a queue without an answer is not asked again: each try delays all others
PERSISTENT = 2  # AMQP's delivery mode
QUEUE, REASON = "x-windlass-queue", "x-windlass-reason"  # headers
LONGEST_REASON = 1_000  # characters

Outcome = BaseException | None
"""None: confirmed."""


class Parcel(NamedTuple):
    """A payload, and where it goes: to the queue of a level, or with a reason to the dead letters."""

    payload: bytes
    queue: str
    level: Level
    reason: str | None = None


class Publisher:
    """Channels by the name of their queue. A queue is declared once per connection, before its channel is opened."""

    def __init__(self, link: RabbitLink, topology: Topology) -> None:
        self._link = link
        self._topology = topology
        self._connection: AbstractConnection | None = None  # of the channels
        self._channels: dict[str, AbstractChannel] = {}
        self._silent: dict[str, tuple[float, BrokerError]] = {}  # queues without an answer: until when, and why
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def publish(self, parcels: Sequence[Parcel]) -> list[Outcome]:
        """What became of each."""
        if self._connection is not self._link.connection:  # another connection may lead to another server
            self._connection = self._link.connection
            self._channels.clear()
            self._silent.clear()
            with suppress(BrokerError):  # of dead letters: while their queue gives no answer, the others go on
                await queues.declare(self._link, self._topology, [])
        places: dict[str, list[int]] = {}
        for at, parcel in enumerate(parcels):
            places.setdefault(self._name(parcel), []).append(at)
        outcomes: list[Outcome] = [None] * len(parcels)

        async def publish(name: str, own: list[int]) -> None:
            for at, outcome in zip(own, await self._publish_to(name, [parcels[at] for at in own]), strict=True):
                outcomes[at] = outcome

        await asyncio.gather(*(publish(name, own) for name, own in places.items()))
        return outcomes

    def error(self, outcomes: Sequence[Outcome]) -> BrokerError:
        """Why nothing was confirmed."""
        problem = next((each for each in outcomes if each is not None), TimeoutError())
        return problem if isinstance(problem, BrokerError) else translate(problem, self._link.address)

    def _name(self, parcel: Parcel) -> str:
        """Of the queue in RabbitMQ; dead letters go through an exchange of the same name."""
        return self._topology.dead if parcel.reason is not None else self._topology.name(parcel.queue, parcel.level)

    async def _publish_to(self, name: str, parcels: Sequence[Parcel]) -> list[Outcome]:
        """Publish to one queue. A message that reached none is published once more, after the queue was declared."""
        try:
            outcomes = await self._confirms(name, parcels)
            # Unroutable: the queue was deleted. Not found: the dead-letter exchange was, which closed the channel.
            lost = [at for at, each in enumerate(outcomes) if isinstance(each, PublishError | ChannelNotFoundEntity)]
            if lost:
                self._forget(name)
                again = await self._confirms(name, [parcels[at] for at in lost])
                for at, outcome in zip(lost, again, strict=True):
                    outcomes[at] = outcome
            return outcomes
        except BrokerError as problem:
            if isinstance(problem, SilentQueue) and name not in self._silent:
                self._silent[name] = (_now() + SILENT_FOR, problem)
            return [problem] * len(parcels)

    async def _confirms(self, name: str, parcels: Sequence[Parcel]) -> list[Outcome]:
        """Send all of them, then wait for all answers: one wait per message would cost a round trip each."""
        channel = await self._channel(name, parcels[0])
        problem: BrokerError = BrokerUnavailable(f"the connection to {self._link.address.shown} broke")
        tasks = [asyncio.create_task(self._send(channel, parcel)) for parcel in parcels]
        late, before = set(tasks), len(tasks) + 1
        try:
            while late and len(late) < before:  # as long as some of them are confirmed, the others may be
                before = len(late)
                _, late = await asyncio.wait(late, timeout=queues.ANSWER_LIMIT)
        finally:
            for task in tasks:
                task.cancel()
        if late:
            await asyncio.wait(late)
            self._forget(name)
            # A connection that a memory alarm blocks answers nothing at all. It is given up here, and this raises.
            async with self._link.channel():
                pass
            problem = silent(name, self._link.address.path)
            self._silent[name] = (_now() + SILENT_FOR, problem)
        return [problem if task.cancelled() else task.exception() for task in tasks]

    async def _channel(self, name: str, parcel: Parcel) -> AbstractChannel:
        """The open channel of a queue that is declared."""
        async with self._opening[name]:
            channel = self._channels.get(name)
            if channel is None or channel.is_closed:
                until, known = self._silent.get(name, (0.0, None))
                if known is not None and _now() < until:
                    raise known
                self._silent.pop(name, None)
                is_dead = parcel.reason is not None
                names, levels = ([], []) if is_dead else ([parcel.queue], [parcel.level])
                await queues.declare(self._link, self._topology, names, levels, dead=is_dead)
                channel = self._channels[name] = await self._link.open_channel(confirms=True)
            return channel

    def _forget(self, name: str) -> None:
        if channel := self._channels.pop(name, None):
            self._link.close_later(channel)

    def _send(self, channel: AbstractChannel, parcel: Parcel) -> Coroutine[Any, Any, Any]:
        to_dead = parcel.reason is not None
        headers: dict[str, Any] = {QUEUE: parcel.queue}
        if parcel.reason is not None:
            headers[REASON] = parcel.reason[:LONGEST_REASON]
        # The types of the library leave out `wait`. With it, each message would wait until it left the socket's buffer.
        return channel.basic_publish(  # type: ignore[call-arg]
            parcel.payload,
            exchange=self._topology.dead if to_dead else "",
            routing_key="" if to_dead else self._name(parcel),
            properties=Basic.Properties(
                content_type="application/json",
                delivery_mode=PERSISTENT,
                message_id=uuid4().hex,  # by which a dead letter is found again
                timestamp=datetime.now(UTC),
                headers=headers,
            ),
            mandatory=True,
            wait=False,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
