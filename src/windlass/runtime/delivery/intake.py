"""The intake: receives deliveries, claims the jobs that they name, and acknowledges.

    receive → decode → claim these very jobs in the store, one statement per batch → local queue → acknowledge

A delivery is acknowledged as soon as its claim committed or was refused: from then on the lease carries the job. The
store is the truth. Of an envelope only the job's id is believed; type and input come from the store.

- While the store is away nothing is acknowledged: the deliveries wait here.
- Deliveries that find no room wait here, too. After `fallback` seconds they are acknowledged without a claim: by then
  the poll of any worker claims their jobs, and a broker must not wait for an acknowledgement as long as a handler runs.
- When the worker stops, what is not claimed is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

import msgspec

from windlass.errors import BrokerError, BrokerRefused, EnvelopeError, StoreError, StoreUnavailable
from windlass.model.delivery import DeliveredClaim, RefusalReason
from windlass.model.job import Job
from windlass.observe.events import DeliveriesRefused
from windlass.runtime.claims.demand import LARGEST_CLAIM, Demand
from windlass.runtime.delivery.broker_link import REFUSED_PAUSE, WATCH_EVERY, BrokerLink
from windlass.runtime.discovery import Discovery
from windlass.runtime.pool import Processor
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store.contact import jittered
from windlass.store.protocol import Claim, Suspects
from windlass.transport.envelope import Envelope, decode
from windlass.transport.protocol import LEVELS, Consumer, Delivery

log = logging.getLogger("windlass")

PREFETCH = 2  # deliveries for each processor: one that runs next while its predecessor is being claimed
LONGEST_PAUSE = 10.0  # seconds between two tries to receive
WARN_EVERY = 60.0  # seconds between two warnings about envelopes of one type that differ from the store


class Received(msgspec.Struct, frozen=True):
    """A delivery that is not acknowledged yet."""

    delivery: Delivery
    envelope: Envelope
    at: float  # on the monotonic clock

    @property
    def job(self) -> UUID:
        return self.envelope.header.job_id


class Intake(Service):
    """One round is one open consumer: it ends when the broker refuses, or when the worker stops."""

    name = "intake"

    def __init__(
        self,
        state: WorkerState,
        discovery: Discovery,
        link: BrokerLink,
        *,
        queues: tuple[str, ...] | None,
        types: tuple[str, ...],
    ) -> None:
        super().__init__(state.clock)
        self._state = state
        self._discovery = discovery
        self._link = link
        self._queues = queues
        self._types = types
        self.served = set(queues or (each.queue for each in state.registry if each.type in types))
        self._new_queues: set[str] = set()  # in which a poll found jobs, and from which nothing is received yet
        self._prefetch = min(PREFETCH * state.pools.total, LARGEST_CLAIM)
        self.waiting: list[Received] = []  # for room, the higher levels first
        self._receiving: asyncio.Task[list[Delivery]] | None = None
        self._timer_is_set = False  # that looks for deliveries which wait too long
        self._failures = 0  # of the broker, in a row
        self._store_failures = 0
        self._warned_at: dict[str, float] = {}  # by job type
        signals = state.signals
        signals.registered.subscribe(self.nudge)
        signals.slot_freed.subscribe(self.on_slot_freed)
        signals.processors_reset.subscribe(self.nudge)
        signals.store_relieved.subscribe(self.nudge)
        signals.broker_changed.subscribe(self.nudge)
        signals.queues_found.subscribe(self.on_queues_found)

    # Signals

    def on_slot_freed(self, processor: Processor) -> None:
        if self.waiting and not self._nudge.is_set():
            self._nudge.set()

    def on_queues_found(self, queues: set[str]) -> None:
        if new := queues - self.served:
            self._new_queues |= new
            self.nudge()

    def _on_timer(self) -> None:
        self._timer_is_set = False
        self.nudge()

    # One consumer

    async def round(self) -> float | None:
        if not self._link.is_up or not self._state.registered:
            return WATCH_EVERY
        try:
            async with self._link.dispatcher.consume(self.served, prefetch=self._prefetch) as consumer:
                self._link.set_consuming(True)
                self._failures = 0
                while not self._ending:
                    await self._step(consumer)
                await consumer.give_back([each.delivery for each in self.waiting])
        except BrokerRefused as error:
            self._link.refused(error)
            return REFUSED_PAUSE
        except BrokerError as error:
            self._failures += 1
            log.debug("intake: %s", error)
            return jittered(self._failures, LONGEST_PAUSE)
        finally:
            self.waiting.clear()
            await self._stop_receiving()
            self._link.set_consuming(False)
        return 0

    async def _stop_receiving(self) -> None:
        """What it had received and not returned is delivered again when the consumer closes."""
        task, self._receiving = self._receiving, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, BrokerError):
                await task

    async def _step(self, consumer: Consumer) -> None:
        """Wait for deliveries or for room, then claim what there is room for."""
        self._nudge.clear()
        if self._new_queues:
            new, self._new_queues = self._new_queues, set()
            await consumer.add(new)
            self.served |= new
        if self._has_claimable():
            pass  # there is room for deliveries that wait here
        elif received := await self._receive(consumer):
            await self._keep(consumer, received)
        if self._ending or not self._state.registered:
            return
        for demand in self._discovery.demands.in_turn():
            if batch := self._choose(demand):
                await self._claim(consumer, batch)
        await self._acknowledge_late(consumer)

    def _has_claimable(self) -> bool:
        if not self._state.registered or not self.waiting:
            return False
        return any(self._choose(demand) for demand in self._discovery.demands.in_turn())

    async def _receive(self, consumer: Consumer) -> list[Delivery]:
        """Deliveries; none when this part was nudged first. A broker that broke is waited for."""
        free = self._prefetch - len(self.waiting)
        if self._receiving is None and free > 0:
            self._receiving = asyncio.create_task(consumer.receive(free), name="windlass-receive")
        nudged = asyncio.create_task(self._nudge.wait())
        try:
            waits = {nudged} if self._receiving is None else {nudged, self._receiving}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            nudged.cancel()
        if self._receiving is None or not self._receiving.done():
            return []
        task, self._receiving = self._receiving, None
        return task.result()

    async def _keep(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        """Decode them. What is no envelope goes to the dead-letter queue as it is."""
        now = self.clock.monotonic()
        bad: list[tuple[Delivery, str]] = []
        for delivery in deliveries:
            try:
                self.waiting.append(Received(delivery, decode(delivery.payload), now))
            except EnvelopeError as error:
                bad.append((delivery, str(error)))
        if bad:
            log.warning("%d messages go to the dead-letter queue; the first: %s", len(bad), bad[0][1])
            self._state.emit(DeliveriesRefused({"undecodable": len(bad)}))
            await consumer.bury(bad)
        self.waiting.sort(key=lambda each: LEVELS.index(each.delivery.level))  # stable: inside a level as they came

    def _choose(self, demand: Demand) -> list[Received]:
        """What this demand has room for. The envelope's type is a hint here: a wrong one only misjudges the room.

        A type that no demand has is claimed at once: the store refuses it, and delivers it to a worker that knows it.
        """
        room = demand.room()
        fits = [each for each in self.waiting if each.envelope.header.type in demand.types][:room]
        strange = [each for each in self.waiting if each.envelope.header.type not in self._types]
        return fits + strange

    # Claim

    async def _claim(self, consumer: Consumer, batch: Sequence[Received]) -> None:
        """Claim the jobs of this batch by one call of the store; two deliveries of one job are one claim."""
        try:
            claimed = await self._claim_in_turn(list(dict.fromkeys(each.job for each in batch)))
        except StoreError as error:
            await self._wait_for_store(error)
            return
        self._store_failures = 0
        self._compare(batch, claimed.jobs)
        self._report(claimed)
        await self._done(consumer, batch)

    async def _claim_in_turn(self, jobs: list[UUID]) -> DeliveredClaim:
        state, lost = self._state, self._discovery.lost_answers
        async with lost.turn:
            worker, began = state.worker, self.clock.monotonic()
            claim = Claim(
                worker=worker, room=len(jobs), types=self._types, queues=self._queues, suspects=Suspects.WITHOUT
            )
            try:
                claimed = await state.store.claim_delivered(claim, jobs)
            except BaseException:
                lost.claim_failed()  # it may be committed all the same
                raise
            if worker == state.worker:  # else: leased to an incarnation that is dead; its rescue releases them
                self._discovery.take(claimed.jobs, began, self.clock.monotonic())
        return claimed

    async def _wait_for_store(self, error: StoreError) -> None:
        """The deliveries stay here, unacknowledged, until the store answers."""
        contact = self._state.contact
        self._store_failures += 1
        pause = contact.pause(self._store_failures)
        if isinstance(error, StoreUnavailable):
            contact.failed(error, self.name)
        elif self._store_failures in (1, 5) or self._store_failures % 20 == 0:
            log.warning("deliveries cannot be claimed: %s; trying again in %.1f s", error, pause)
        await contact.hold_off(pause, self._nudge)

    async def _done(self, consumer: Consumer, batch: Iterable[Received]) -> None:
        """Acknowledge. If that does not arrive, the delivery comes again, and its claim is refused."""
        done = [each.delivery for each in batch]
        tags = {id(delivery) for delivery in done}
        self.waiting = [each for each in self.waiting if id(each.delivery) not in tags]
        try:
            await consumer.acknowledge(done)
        except BrokerError as error:
            log.debug("intake: %d deliveries could not be acknowledged: %s", len(done), error)

    async def _acknowledge_late(self, consumer: Consumer) -> None:
        """Deliveries that found no room: after `fallback` seconds; at once where they keep out those that would.

        A phase that is full must not block the others: what waits for it could fill the whole prefetch.
        """
        if not self.waiting or self._store_failures:
            return
        if not self._timer_is_set:
            self._timer_is_set = True
            self._state.later(self._state.settings.fallback, self._on_timer)
        oldest = self.clock.monotonic() - self._state.settings.fallback
        late = [each for each in self.waiting if each.at <= oldest]
        is_full = len(self.waiting) >= self._prefetch and self._discovery.demands.have_room()
        # The race: the room may have come a moment ago, and be for these. Then the next step claims them.
        if not late and is_full and not self._has_claimable():
            late = self.waiting[len(self.waiting) // 2 :]
        if late:
            log.debug("%d deliveries found no room here and are left to the poll", len(late))
            await self._done(consumer, late)

    # Reports

    def _report(self, claimed: DeliveredClaim) -> None:
        if claimed.next_token is not None:
            self._state.signals.token_due_in(claimed.next_token)
        if not claimed.refused:
            return
        if RefusalReason.SUSPECT in claimed.refused.values():
            self._state.signals.suspect_delivered()
        jobs = {job: reason.value for job, reason in claimed.refused.items()}
        self._state.emit(DeliveriesRefused(Counter(jobs.values()), jobs))

    def _compare(self, batch: Sequence[Received], jobs: Sequence[Job]) -> None:
        """A message that says something else than the store is forged or stale: the store's word is used."""
        envelopes = {each.job: each.envelope for each in batch}
        for job in jobs:
            envelope = envelopes[job.id]
            if envelope.header.type != job.type:
                self._warn(job, "type")
            elif msgspec.json.decode(job.input) != envelope.body:
                self._warn(job, "body")

    def _warn(self, job: Job, what: str) -> None:
        now = self.clock.monotonic()
        if now - self._warned_at.get(job.type, -WARN_EVERY) >= WARN_EVERY:
            self._warned_at[job.type] = now
            log.warning(
                "the %s in the message of job %s (%s) differs from the store's, which is used; another program may "
                "write to the broker",
                what,
                job.id,
                job.type,
                extra={"job": job.id},
            )
