"""What a transport does: it carries deliveries. Three implementations, the database, RabbitMQ and Redis Streams, pass
one suite.

Rules that every implementation keeps:

- The store is the truth. A delivery names a job; a worker claims that job in the store before it believes anything.
- A delivery may be lost, repeated or late. That costs time, never a job and never a second effect.
- A message counts as sent when the broker confirmed it, and not before.
- A connection that breaks is made again by the transport itself. Meanwhile its calls raise `BrokerUnavailable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec


class Level(StrEnum):
    """The three classes of priority that a broker keeps apart; inside one, deliveries come in order of publishing."""

    HIGH = "high"  # priority above 0
    NORMAL = "normal"  # priority 0
    LOW = "low"  # priority below 0

    @classmethod
    def of(cls, priority: int) -> Level:
        return cls.HIGH if priority > 0 else cls.LOW if priority < 0 else cls.NORMAL


LEVELS = (Level.HIGH, Level.NORMAL, Level.LOW)
"""In the order in which a worker drains them."""


class Message(msgspec.Struct, frozen=True):
    """One envelope on its way to the broker."""

    job: UUID
    queue: str
    level: Level
    payload: bytes  # an encoded envelope


class Delivery(msgspec.Struct, frozen=True):
    """One envelope as a worker received it."""

    payload: bytes
    queue: str
    level: Level
    tag: object  # what the transport needs to acknowledge it
    count: int = 1  # the deliveries of this message so far, where the broker counts them


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One message in the broker's dead-letter queue."""

    id: str  # by which it is removed; stable between two listings
    payload: bytes
    reason: str
    queue: str | None = None
    at: datetime | None = None
    job: UUID | None = None  # None: the payload names no job that can be read


class Finding(msgspec.Struct, frozen=True):
    """What a check of the broker found, and what to do about it."""

    ok: bool
    subject: str
    text: str
    advice: str | None = None  # the next command


class QueueDepth(msgspec.Struct, frozen=True):
    """What a broker holds for one Windlass queue, over all levels."""

    queue: str
    ready: int
    unacknowledged: int | None  # None: the broker does not tell
    consumers: int


class JobDispatcher(ABC):
    """Carries jobs to workers. Independent of the technology behind it."""

    shown: str  # the address as it may be printed, without a password

    @abstractmethod
    async def open(self) -> None:
        """Connect once; raises BrokerUnavailable. Later breaks are mended by the transport itself."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections: `await dispatcher.close()`. Deliveries not acknowledged are delivered again."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether the broker answered last: while it is False, workers poll the store at their normal pace."""

    @abstractmethod
    async def declare(self, queues: Collection[str]) -> None:
        """Make what these queues need, where it is missing. Existing queues stay as they are."""

    @abstractmethod
    async def dispatch(self, messages: Sequence[Message]) -> frozenset[int]:
        """Publish all of them, pipelined; returns the indexes of those that the broker confirmed.

        Queues that are missing are made. Raises BrokerUnavailable when none could be confirmed because the broker is
        away; some of them may have arrived all the same.
        """

    @abstractmethod
    def consume(self, queues: Collection[str], *, prefetch: int) -> AbstractAsyncContextManager[Consumer]:
        """Receive deliveries of these queues, `prefetch` at most that are not acknowledged."""

    @abstractmethod
    async def bury(self, letters: Sequence[tuple[Message, str]]) -> frozenset[int]:
        """Publish messages to the dead-letter queue, each with its reason; returns the indexes confirmed."""

    @abstractmethod
    async def dead_letters(self, most: int) -> list[DeadLetter]:
        """The oldest dead letters. None of them is removed."""

    @abstractmethod
    async def remove_dead_letters(self, ids: Collection[str]) -> int:
        """Remove these; returns how many were there."""

    @abstractmethod
    async def count_dead_letters(self) -> int:
        """How many dead letters there are; none of them is taken."""

    @abstractmethod
    async def depths(self, queues: Collection[str]) -> list[QueueDepth]:
        """What the broker holds for these queues; a queue that it does not have is left out."""

    @abstractmethod
    async def check(self, queues: Collection[str]) -> list[Finding]:
        """Whether the broker is reachable and each queue is declared as `declare` would declare it."""

    @abstractmethod
    async def trim(self, queues: Collection[str], older: float) -> int:
        """Drop deliveries older than so many seconds that no consumer can need; returns how many."""


class Consumer(ABC):
    """An open consumer. Deliveries that are not acknowledged when it closes, or dies, are delivered again."""

    @abstractmethod
    async def receive(self, most: int) -> list[Delivery]:
        """Wait for at least one delivery; return up to `most` that are there, the higher levels first.

        Raises BrokerUnavailable when the connection broke; the next call goes on as soon as it is made again.
        """

    @abstractmethod
    async def add(self, queues: Collection[str]) -> None:
        """Receive from these queues as well."""

    @abstractmethod
    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """These are done: the broker forgets them. A delivery of a connection that broke is ignored."""

    @abstractmethod
    async def bury(self, deliveries: Sequence[tuple[Delivery, str]]) -> None:
        """Move these to the dead-letter queue untouched, each with its reason."""

    @abstractmethod
    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Deliver these again, to any consumer."""
