"""The relay: publishes the rows of the outbox, and deletes those that the broker confirmed.

    lease rows (a short transaction) → envelopes → publish, pipelined (no transaction is open) → settle (another one)

Any number of relays may run: a row that one of them has leased is not leased by another. A relay that dies between the
publish and the settle leaves its rows leased. When the lease ends they are published again, and the claim refuses the
second delivery. So the order of commits does not matter, and no row is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from windlass import failpoints
from windlass.clock import Clock, wait
from windlass.config import Settings
from windlass.errors import BrokerError, EnvelopeError, StoreError, StoreUnavailable
from windlass.model.delivery import DeliveryMode, OutboxKind, OutboxRow
from windlass.store import make_store
from windlass.store.contact import Outage, jittered
from windlass.store.protocol import Store
from windlass.transport import make_dispatcher
from windlass.transport.envelope import encode
from windlass.transport.protocol import JobDispatcher, Level, Message

log = logging.getLogger("windlass")

PAGE = 1_000  # rows of one round: one statement, one pipelined publish
LEASE = 30.0  # seconds: far longer than a publish takes, and about as long as a dead relay may delay its rows
UNCONFIRMED_DELAY = 5.0  # seconds until a row that the broker did not confirm is tried again
LONGEST_PAUSE = 10.0  # seconds between two tries while the broker is away
POLL = 0.1  # seconds between two rounds of a relay in its own process: an enqueue wakes workers, and it is none


class RelayRound(msgspec.Struct, frozen=True, kw_only=True):
    """What one round did."""

    published: int = 0
    buried: int = 0  # copies of dead jobs for the broker's dead-letter queue
    unconfirmed: int = 0
    dropped: int = 0  # rows that no envelope can be made of
    leased: int = 0
    next_due: float | None = None  # seconds until the next row is due; None: there is none, or rows are due now

    @property
    def is_full(self) -> bool:
        return self.leased >= PAGE


class Relay:
    """One round at a time."""

    def __init__(self, store: Store, dispatcher: JobDispatcher) -> None:
        self._store = store
        self._dispatcher = dispatcher

    async def round(self) -> RelayRound:
        """Publish what is due. Raises BrokerError when nothing was confirmed; its rows are given back."""
        leased = await self._store.lease_outbox(PAGE, LEASE)
        if not leased.rows:
            return RelayRound(next_due=leased.next_due)
        outgoing, bad = _envelopes(leased.rows)
        try:
            sent, buried = await self._publish(outgoing)
        except BrokerError:
            # Not at once: another relay would lease them at once, and meet the same broker.
            await self._store.settle_outbox(bad, [row.id for row, _ in outgoing], delay=UNCONFIRMED_DELAY)
            raise
        if failpoints.armed:
            failpoints.hit("relay.published")
        done = sent | buried
        unsent = [row.id for row, _ in outgoing if row.id not in done]
        await self._store.settle_outbox([*done, *bad], unsent, delay=UNCONFIRMED_DELAY)
        return RelayRound(
            published=len(sent),
            buried=len(buried),
            unconfirmed=len(unsent),
            dropped=len(bad),
            leased=len(leased.rows),
            next_due=leased.next_due,
        )

    async def _publish(self, outgoing: Sequence[tuple[OutboxRow, Message]]) -> tuple[set[int], set[int]]:
        """The ids of the rows that were confirmed: deliveries, and copies of dead jobs."""
        to_deliver = [each for each in outgoing if each[0].kind is OutboxKind.DELIVER]
        to_bury = [each for each in outgoing if each[0].kind is OutboxKind.DEAD]
        sent: set[int] = set()
        buried: set[int] = set()
        if to_deliver:
            confirmed = await self._dispatcher.dispatch([message for _, message in to_deliver])
            sent = {to_deliver[index][0].id for index in confirmed}
        if to_bury:
            letters = [(message, row.reason or "dead") for row, message in to_bury]
            try:
                confirmed = await self._dispatcher.bury(letters)
            except BrokerError:
                if not sent:
                    raise
                confirmed = frozenset()  # the deliveries are confirmed all the same
            buried = {to_bury[index][0].id for index in confirmed}
        return sent, buried


def _envelopes(rows: Sequence[OutboxRow]) -> tuple[list[tuple[OutboxRow, Message]], list[int]]:
    """The messages, and the ids of rows that no envelope can be made of: the fallback poll claims such a job."""
    outgoing: list[tuple[OutboxRow, Message]] = []
    bad: list[int] = []
    for row in rows:
        try:
            outgoing.append((row, message_of(row)))
        except EnvelopeError as error:
            bad.append(row.id)
            log.error("job %s cannot be put into an envelope: %s; a worker's poll claims it", row.job, error)
    return outgoing, bad


def message_of(row: OutboxRow) -> Message:
    """The row as a message; raises EnvelopeError."""
    return Message(job=row.job, queue=row.queue, level=Level.of(row.priority), payload=encode(row))


# A relay in a process of its own


async def run_relay(
    settings: Settings, clock: Clock, stop: asyncio.Event, on_round: Callable[[RelayRound], None] = lambda did: None
) -> None:
    """Relay until `stop` is set. Raises only what no waiting can mend, such as a missing schema."""
    assert settings.broker is not None, "the command checks it"
    store, dispatcher = make_store(settings, clock), make_dispatcher(settings.broker)
    try:
        await _until_open(store, clock, stop)
        if not stop.is_set():
            await _relay_on(Relay(store, dispatcher), store, dispatcher, settings, clock, stop, on_round)
    finally:
        await dispatcher.close()
        await store.close()


async def _until_open(store: Store, clock: Clock, stop: asyncio.Event) -> None:
    failures = 0
    while not stop.is_set():
        try:
            await store.open()
            return
        except StoreUnavailable as error:
            store.contact.failed(error, "the relay's start")
            failures += 1
            await wait(clock, stop, store.contact.pause(failures))


async def _relay_on(
    relay: Relay,
    store: Store,
    dispatcher: JobDispatcher,
    settings: Settings,
    clock: Clock,
    stop: asyncio.Event,
    on_round: Callable[[RelayRound], None],
) -> None:
    outage, failures, is_open, mode_is_set = Outage(f"the broker {dispatcher.shown}"), 0, False, False
    while not stop.is_set():
        try:
            if not mode_is_set:
                await set_delivery(store, settings)
                mode_is_set = True
            if not is_open:
                await dispatcher.open()
                is_open = True
            did = await relay.round()
        except BrokerError as error:
            failures += 1
            outage.record(error, clock.monotonic())
            await wait(clock, stop, jittered(failures, LONGEST_PAUSE))
            continue
        except StoreError as error:
            failures += 1
            store.contact.failed(error, "relay")
            await wait(clock, stop, store.contact.pause(failures))
            continue
        failures = 0
        if dispatcher.is_up:  # a round without rows asks nothing of the broker
            outage.end(clock.monotonic())
        on_round(did)
        if not did.leased:
            await wait(clock, stop, POLL if did.next_due is None else min(POLL, did.next_due))


async def set_delivery(store: Store, settings: Settings) -> bool:
    """Let the database write an outbox, as the settings say; returns whether that changed."""
    mode = DeliveryMode(settings.delivery)
    changed = await store.set_delivery(mode)
    if changed:
        log.info("jobs of this database are delivered through a broker from now on (delivery=%s)", mode)
    return changed
