"""Direct delivery: an enqueue publishes its own jobs after their commit (setting `delivery = "direct"`).

It saves the row in the outbox and the relay. What it may lose is time: a process that dies between the commit and the
publish, or a broker that is away, leaves the jobs to the fallback poll. So nothing here is ever raised, and an enqueue
waits for the broker for a second at most.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

import msgspec

from windlass.clock import Clock
from windlass.config import Settings
from windlass.errors import BrokerError, BrokerUnavailable, EnvelopeError
from windlass.model.delivery import PUBLISHED_BY_ENQUEUE, DeliveryMode, OutboxRow
from windlass.model.job import NewJob
from windlass.store.contact import Outage
from windlass.transport import make_dispatcher
from windlass.transport.protocol import JobDispatcher, Message
from windlass.transport.relay import message_of

log = logging.getLogger("windlass")

LONGEST_WAIT = 1.0  # seconds that an enqueue waits for the confirms
OPEN_EVERY = 5.0  # seconds between two tries to open a broker that is away: enqueues between them do not wait
MOST_PENDING = 8  # publishes under way that no enqueue waits for any more; beyond them jobs are left to the poll


def make_direct(settings: Settings, clock: Clock) -> DirectPublisher | None:
    """The publisher of this process; None where a relay publishes, or where there is no broker."""
    if settings.broker is None or settings.delivery != DeliveryMode.DIRECT:
        return None
    return DirectPublisher(make_dispatcher(settings.broker), clock)


class DirectPublisher:
    """Publishes on the event loop on which it was made."""

    def __init__(self, dispatcher: JobDispatcher, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._outage = Outage(f"the broker {dispatcher.shown}")
        self._opening: asyncio.Task[None] | None = None
        self._open_at = -math.inf  # the earliest time of the next try, on the monotonic clock
        self._pending: set[asyncio.Task[None]] = set()
        self.unpublished = 0  # jobs that are left to the fallback poll

    def mark(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Before they are written: those that are due at once need no row in the outbox."""
        return [msgspec.structs.replace(job, delay=PUBLISHED_BY_ENQUEUE) if job.is_due_at_once else job for job in jobs]

    async def publish(self, jobs: Sequence[NewJob]) -> None:
        """Publish those that are marked, pipelined; returns when they are confirmed, or after a second."""
        due = [job for job in jobs if job.delay == PUBLISHED_BY_ENQUEUE]
        if not due:
            return
        if len(self._pending) >= MOST_PENDING:
            self._missed(BrokerUnavailable("it does not confirm what was published before"), len(due))
            return
        # A task, and not this call: cut off in the middle, a pipelined publish would leave its channel in a bad state.
        task = asyncio.create_task(self._publish(due), name="windlass-publish")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        await asyncio.wait({task}, timeout=LONGEST_WAIT)

    async def close(self) -> None:
        tasks = [*self._pending, *([] if self._opening is None else [self._opening])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._dispatcher.close()

    async def _publish(self, jobs: Sequence[NewJob]) -> None:
        try:
            await self._open()
            messages = self._messages(jobs)
            confirmed = len(await self._dispatcher.dispatch(messages)) if messages else 0
        except BrokerError as error:
            self._missed(error, len(jobs))
            return
        self._outage.end(self._clock.monotonic())
        if confirmed < len(messages):
            self._missed(BrokerUnavailable("it did not confirm every message"), len(messages) - confirmed)

    async def _open(self) -> None:
        """Open once; every enqueue waits for the same try."""
        if self._opening is None or (self._opening.done() and _failed(self._opening)):
            if self._clock.monotonic() < self._open_at:
                raise BrokerUnavailable("it did not answer a moment ago")
            self._open_at = self._clock.monotonic() + OPEN_EVERY
            self._opening = asyncio.create_task(self._dispatcher.open(), name="windlass-open-broker")
        await asyncio.shield(self._opening)

    def _messages(self, jobs: Sequence[NewJob]) -> list[Message]:
        messages: list[Message] = []
        now = self._clock.now()
        for job in jobs:
            try:
                messages.append(message_of(OutboxRow.delivery_of(job, created_at=now, attempt=1)))
            except EnvelopeError as error:
                self.unpublished += 1
                log.error("job %s cannot be put into an envelope: %s; a worker's poll claims it", job.id, error)
        return messages

    def _missed(self, error: BrokerError, jobs: int) -> None:
        self.unpublished += jobs
        self._outage.record(error, self._clock.monotonic())


def _failed(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None
