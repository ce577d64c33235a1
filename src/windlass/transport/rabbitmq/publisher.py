"""Publishes to RabbitMQ, pipelined: a message counts as sent when RabbitMQ confirmed it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity, PublishError
from pamqp.commands import Basic

from windlass.errors import BrokerError
from windlass.transport.protocol import Level
from windlass.transport.rabbitmq import queues
from windlass.transport.rabbitmq.link import RabbitLink
from windlass.transport.rabbitmq.problems import translate
from windlass.transport.rabbitmq.topology import SilentQueue, Topology

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
    """One channel with confirms. Queues that are new to it are declared first, once per connection."""

    def __init__(self, link: RabbitLink, topology: Topology, limit: float) -> None:
        self._link = link
        self._topology = topology
        self._limit = limit
        self._channel: AbstractChannel | None = None
        self._declared: set[str] = set()
        self._silent: dict[str, tuple[float, BrokerError]] = {}  # queues without an answer: until when, and why
        self._opening = asyncio.Lock()

    async def publish(self, parcels: Sequence[Parcel]) -> list[Outcome]:
        """What became of each. One that reached no queue is published once more, after the queues were declared."""
        channel, refused = await self._prepare({parcel.queue for parcel in parcels if parcel.reason is None})
        outcomes: list[Outcome] = [refused.get(parcel.queue) if parcel.reason is None else None for parcel in parcels]
        chosen = [at for at, outcome in enumerate(outcomes) if outcome is None]
        outcomes = _merge(outcomes, chosen, await self._confirms(channel, [parcels[at] for at in chosen]))
        # Unroutable: a queue was deleted. Not found: the dead-letter exchange was, which closed the channel.
        lost = [at for at in chosen if isinstance(outcomes[at], PublishError | ChannelNotFoundEntity)]
        if lost:
            self._declared.clear()
            channel, _ = await self._prepare({parcels[at].queue for at in lost if parcels[at].reason is None})
            outcomes = _merge(outcomes, lost, await self._confirms(channel, [parcels[at] for at in lost]))
        return outcomes

    async def declare(self, names: Collection[str]) -> None:
        await queues.declare(self._link, self._topology, names)
        self._declared |= {"", *names}

    def error(self, outcomes: Sequence[Outcome]) -> BrokerError:
        """Why nothing was confirmed."""
        problem = next((each for each in outcomes if each is not None), TimeoutError())
        return problem if isinstance(problem, BrokerError) else translate(problem, self._link.address)

    async def _prepare(self, names: set[str]) -> tuple[AbstractChannel, dict[str, BrokerError]]:
        """The open channel, with these queues declared; and the queues that RabbitMQ refused, each with its error.

        Each queue is declared by itself: one with other arguments must not stop the others.
        """
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                self._declared.clear()
                self._silent.clear()  # another connection may lead to another server
                self._channel = await self._link.open_channel(confirms=True)
            refused: dict[str, BrokerError] = {}
            for name in ({"", *names}) - self._declared:  # "" stands for the dead letters
                until, known = self._silent.get(name, (0.0, None))
                if known is not None and _now() < until:
                    refused[name] = known
                    continue
                try:
                    await queues.declare(self._link, self._topology, [name] if name else [], dead=not name)
                    self._declared.add(name)
                    self._silent.pop(name, None)
                except BrokerError as problem:
                    if not self._link.is_up:
                        raise
                    refused[name] = problem
                    if isinstance(problem, SilentQueue):
                        self._silent[name] = (_now() + SILENT_FOR, problem)
            return self._channel, refused

    async def _confirms(self, channel: AbstractChannel, parcels: Sequence[Parcel]) -> list[Outcome]:
        """Send all of them, then wait for all answers: one wait per message would cost a round trip each."""
        if not parcels:
            return []
        connection = self._link.connection
        tasks = [asyncio.create_task(self._send(channel, parcel)) for parcel in parcels]
        try:
            _, late = await asyncio.wait(tasks, timeout=self._limit)
        finally:
            for task in tasks:
                task.cancel()
        if late:
            await asyncio.wait(late)
            self._link.drop(connection, translate(TimeoutError(), self._link.address))
        return [TimeoutError() if task.cancelled() else task.exception() for task in tasks]

    def _send(self, channel: AbstractChannel, parcel: Parcel) -> Coroutine[Any, Any, Any]:
        to_dead = parcel.reason is not None
        headers: dict[str, Any] = {QUEUE: parcel.queue}
        if parcel.reason is not None:
            headers[REASON] = parcel.reason[:LONGEST_REASON]
        # The types of the library leave out `wait`. With it, each message would wait until it left the socket's buffer.
        return channel.basic_publish(  # type: ignore[call-arg]
            parcel.payload,
            exchange=self._topology.dead if to_dead else "",
            routing_key="" if to_dead else self._topology.name(parcel.queue, parcel.level),
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


def _merge(outcomes: list[Outcome], places: list[int], found: list[Outcome]) -> list[Outcome]:
    merged = list(outcomes)
    for place, outcome in zip(places, found, strict=True):
        merged[place] = outcome
    return merged
