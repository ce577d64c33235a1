"""The database as a JobDispatcher: the jobs are in the store already, so a delivery is a look at what is due there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from windlass.clock import Clock, SystemClock
from windlass.model.delivery import OutboxRow
from windlass.model.filter import parse
from windlass.model.job import Job
from windlass.store.protocol import Store
from windlass.transport.envelope import encode
from windlass.transport.protocol import (
    LEVELS,
    Consumer,
    DeadLetter,
    Delivery,
    Finding,
    JobDispatcher,
    Level,
    Message,
    QueueDepth,
)

PAGE = 1_000  # jobs of one look
POLL = 1.0  # seconds between two looks


class DatabaseDispatcher(JobDispatcher):
    """Carries nothing: it wakes workers. The caller opens and closes the store."""

    def __init__(self, store: Store, *, clock: Clock | None = None, poll: float = POLL) -> None:
        self.shown = "the store"
        self._store = store
        self._clock = clock or SystemClock()
        self._poll = poll

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def is_up(self) -> bool:
        return True

    async def declare(self, queues: Collection[str]) -> None: ...

    async def dispatch(self, messages: Sequence[Message]) -> frozenset[int]:
        self._store.wake_later({message.queue for message in messages})
        return frozenset(range(len(messages)))

    @asynccontextmanager
    async def consume(self, queues: Collection[str], *, prefetch: int) -> AsyncIterator[Consumer]:
        yield DatabaseConsumer(self, queues, prefetch)

    async def due(self, queue: str) -> list[Job]:
        """Jobs of a queue that a worker may claim now, the oldest first."""
        found = await self._store.search(
            parse(f"status:queued queue:{json.dumps(queue, ensure_ascii=False)}"), page=PAGE
        )
        now = self._clock.now()
        return [job for job in reversed(found) if job.run_at <= now and job.parked_on is None]

    async def wait(self) -> None:
        await asyncio.sleep(self._poll)

    async def bury(self, letters: Sequence[tuple[Message, str]]) -> frozenset[int]:
        return frozenset(range(len(letters)))  # the dead job's own row is its dead letter

    async def dead_letters(self, most: int) -> list[DeadLetter]:
        return []

    async def remove_dead_letters(self, ids: Collection[str]) -> int:
        return 0

    async def count_dead_letters(self) -> int:
        return 0

    async def depths(self, queues: Collection[str]) -> list[QueueDepth]:
        return [QueueDepth(queue, len(await self.due(queue)), 0, 0) for queue in queues]

    async def check(self, queues: Collection[str]) -> list[Finding]:
        return [Finding(True, self.shown, "no broker is needed")]

    async def trim(self, queues: Collection[str], older: float) -> int:
        return 0


class DatabaseConsumer(Consumer):
    """Hands out what is due. It remembers what it handed out: only the claim takes a job out of the queue."""

    def __init__(self, dispatcher: DatabaseDispatcher, queues: Collection[str], prefetch: int) -> None:
        self._dispatcher = dispatcher
        self._queues = dict.fromkeys(queues)
        self._prefetch = prefetch
        self._out: set[UUID] = set()

    async def receive(self, most: int) -> list[Delivery]:
        while True:
            due = [job for queue in self._queues for job in await self._dispatcher.due(queue)]
            self._out &= {job.id for job in due}  # the others were claimed
            new = sorted((job for job in due if job.id not in self._out), key=lambda job: LEVELS.index(_level(job)))
            if taken := new[: min(most, self._prefetch - len(self._out))]:
                self._out |= {job.id for job in taken}
                return [Delivery(_payload(job), job.queue, _level(job), job.id) for job in taken]
            await self._dispatcher.wait()

    async def add(self, queues: Collection[str]) -> None:
        self._queues.update(dict.fromkeys(queues))

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None: ...

    async def bury(self, deliveries: Sequence[tuple[Delivery, str]]) -> None: ...

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        self._out -= {each.tag for each in deliveries if isinstance(each.tag, UUID)}


def _level(job: Job) -> Level:
    return Level.of(job.priority)


def _payload(job: Job) -> bytes:
    return encode(OutboxRow.delivery_of(job, created_at=job.created_at, attempt=job.attempt + 1))
