"""The queues in RabbitMQ: declare them, count what they hold, and check that they are as Windlass declares them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity, ChannelPreconditionFailed, PublishError

from windlass.errors import BrokerError, BrokerRefused, BrokerUnavailable
from windlass.transport.protocol import LEVELS, Finding, Level, QueueDepth
from windlass.transport.rabbitmq.link import RabbitLink
from windlass.transport.rabbitmq.management import read_unacknowledged
from windlass.transport.rabbitmq.problems import FAILURES, describe, is_cancelled, translate
from windlass.transport.rabbitmq.topology import Topology, differing, silent

SETUP = "windlass broker setup"
ANSWER_LIMIT = 5.0  # seconds for an answer about one queue: while one is waited for, others wait
Call = Callable[[AbstractChannel], Awaitable[Any]]

logger = logging.getLogger(__name__)


async def declare(
    link: RabbitLink,
    topology: Topology,
    queues: Collection[str],
    levels: Collection[Level] = LEVELS,
    *,
    dead: bool = True,
) -> None:
    """Make what is missing. What is there with other arguments stays, and raises BrokerRefused.

    Without `dead` the queue of dead letters is left out: while it does not answer, the others would wait behind it.

    A queue that does not answer does not end the connection: a quorum queue that was made just before a kill may have
    no leader afterwards, and the other queues go on.
    """
    async with link.channel() as channel:
        for name, call in _declarations(topology, queues, levels):
            if name == topology.dead and not dead:
                continue
            try:
                async with asyncio.timeout(ANSWER_LIMIT):
                    await link.answer(call(channel), gives_up=False)
            except TimeoutError:
                raise silent(name, link.address.path) from None
            except ChannelPreconditionFailed as problem:
                raise differing(name, link.address.path, describe(problem)) from None
            except (ChannelLockedResource, ChannelNotFoundEntity) as problem:
                # A queue that is being deleted in this moment answers so.
                raise BrokerUnavailable(f"{name} cannot be declared now: {describe(problem)}") from None


async def replace(link: RabbitLink, topology: Topology, queue: str, level: Level) -> None:
    """Delete a queue that gives no answer, and make it again. Its deliveries are lost: the poll finds their jobs."""
    name = topology.name(queue, level)
    async with link.channel() as channel:
        try:
            await link.answer(channel.queue_delete(name))
        except (ChannelLockedResource, ChannelNotFoundEntity, ChannelPreconditionFailed) as problem:
            raise BrokerUnavailable(f"{name} cannot be deleted now: {describe(problem)}") from None
    await declare(link, topology, [queue], [level], dead=False)


def _declarations(
    topology: Topology, queues: Collection[str], levels: Collection[Level] = LEVELS
) -> list[tuple[str, Call]]:
    dead = topology.dead

    def queue(name: str, arguments: dict[str, Any]) -> tuple[str, Call]:
        return name, lambda channel: channel.queue_declare(name, durable=True, arguments=arguments)

    return [
        (dead, lambda channel: channel.exchange_declare(exchange=dead, exchange_type="fanout", durable=True)),
        queue(dead, topology.dead_arguments),
        (dead, lambda channel: channel.queue_bind(queue=dead, exchange=dead)),
        *(queue(name, topology.arguments) for _, level, name in topology.names(queues) if level in levels),
    ]


async def count(link: RabbitLink, name: str) -> tuple[int, int] | None:
    """How many messages are ready, and how many consumers there are; None where there is no such queue."""
    async with link.channel() as channel:
        try:
            answer = await link.answer(channel.queue_declare(name, passive=True))
        except ChannelNotFoundEntity:
            return None
        except (ChannelLockedResource, ChannelPreconditionFailed) as problem:
            raise BrokerUnavailable(f"{name} does not answer: {describe(problem)}") from None
    return answer.message_count or 0, answer.consumer_count or 0


async def depths(link: RabbitLink, topology: Topology, queues: Collection[str]) -> list[QueueDepth]:
    """What is unacknowledged comes from the management plugin, where the URL names its port."""
    try:
        held = await read_unacknowledged(link.address)
    except BrokerUnavailable as problem:  # `check` reports it
        logger.debug("%s", problem)
        held = None
    found: list[QueueDepth] = []
    for queue in queues:
        names = [name for _, _, name in topology.names([queue])]
        counts = [await count(link, name) for name in names]
        there = [each for each in counts if each is not None]
        if there:
            ready = sum(messages for messages, _ in there)
            consumers = max(consumers for _, consumers in there)
            unacknowledged = None if held is None else sum(held.get(name, 0) for name in names)
            found.append(QueueDepth(queue=queue, ready=ready, unacknowledged=unacknowledged, consumers=consumers))
    return found


async def check(link: RabbitLink, topology: Topology, queues: Collection[str]) -> list[Finding]:
    """Whether everything is there and as it should be. Nothing is made."""
    shown = link.address.shown
    try:
        version = link.connection.server_properties.get("version", "unknown")
    except BrokerError as problem:
        return [Finding(False, shown, str(problem), None)]
    text = version.decode(errors="replace") if isinstance(version, bytes) else str(version)
    findings = [Finding(True, shown, f"RabbitMQ {text} answers"), await _check_publishing(link, topology)]
    try:
        await read_unacknowledged(link.address)
    except BrokerUnavailable as problem:
        difference, _, advice = str(problem).rpartition("; ")
        findings.append(Finding(False, "management", difference, advice))
    for name, call in _declarations(topology, queues):
        try:
            findings.append(await _check_one(link, name, call))
        except BrokerRefused as problem:
            difference, _, advice = str(problem).partition("; ")
            findings.append(Finding(False, name, difference, advice))
        except BrokerError as problem:
            findings.append(Finding(False, name, str(problem)))
    return _distinct(findings)


async def _check_publishing(link: RabbitLink, topology: Topology) -> Finding:
    """Whether a message is answered. It names a queue that is not there, and so comes back.

    On a connection of its own: one that an alarm blocks answers nothing more.
    """
    own = RabbitLink(link.address, "check", ANSWER_LIMIT)
    try:
        await own.open()
        async with own.channel(confirms=True) as channel, asyncio.timeout(ANSWER_LIMIT):
            for _ in range(2):  # in an alarm the first one is still answered, and blocks its connection
                with suppress(PublishError):
                    await channel.basic_publish(b"", routing_key=f"{topology.dead}.none", mandatory=True)
    except BrokerError as problem:
        return Finding(False, "publishing", str(problem))
    except FAILURES as problem:
        if is_cancelled(problem):
            raise
        difference, _, advice = str(translate(problem, link.address)).partition("; ")
        return Finding(False, "publishing", difference, advice)
    finally:
        await own.close()
    return Finding(True, "publishing", "messages are confirmed")


async def _check_one(link: RabbitLink, name: str, call: Call) -> Finding:
    counts = await count(link, name)
    if counts is None:
        return Finding(False, name, "is missing", SETUP)
    # Declaring what is there compares its arguments and changes nothing.
    async with link.channel() as channel:
        try:
            await link.answer(call(channel))
        except ChannelPreconditionFailed as problem:
            raise differing(name, link.address.path, describe(problem)) from None
        except ChannelNotFoundEntity:
            return Finding(False, name, "is missing", SETUP)
    ready, consumers = counts
    if ready and not consumers and not name.endswith(".dead"):
        return Finding(False, name, f"holds {ready:,} messages and has no consumer", "windlass worker app.py")
    return Finding(True, name, f"{ready:,} messages, {consumers} consumers")


def _distinct(findings: list[Finding]) -> list[Finding]:
    """One finding per subject, a bad one before a good one: an exchange and its queue have the same name."""
    chosen: dict[str, Finding] = {}
    for finding in findings:
        if finding.subject not in chosen or not finding.ok:
            chosen[finding.subject] = finding
    return list(chosen.values())
