"""Discovery beneath a broker: a poll for what no delivery brought.

While deliveries arrive, a poll every `fallback` seconds claims only jobs that were due for longer than that. So it does
not compete with the deliveries that are on their way, and finds what a broker lost. While none arrive, this is the
discovery of a worker without a broker. Three things make it claim whatever is due, until it finds nothing: its start, a
broker that went away or came back, and a delivery of a suspect, which only a claim with isolation may take.
"""

from __future__ import annotations

from windlass.model.job import Job
from windlass.runtime.completer import Completer
from windlass.runtime.coordinator import Coordinator
from windlass.runtime.delivery.broker_link import BrokerLink
from windlass.runtime.discovery import AFTER_DUE, Discovery
from windlass.runtime.pool import Processor
from windlass.runtime.signals import WorkerSignals
from windlass.runtime.state import WorkerState


class BrokerDiscovery(Discovery):
    """Decides how long a job must have been due before a poll claims it."""

    def __init__(
        self,
        state: WorkerState,
        completer: Completer,
        coordinator: Coordinator,
        *,
        queues: tuple[str, ...] | None,
        types: tuple[str, ...],
        link: BrokerLink,
    ) -> None:
        self._link = link
        self._fallback_at = 0.0  # on the monotonic clock
        self._claims_all = True  # the next poll takes every due job
        self._unserved: set[str | None] = set()  # phases that had no room in such a poll: it is owed to them
        self._follows_tokens = False  # jobs wait for tokens of a bucket: the next poll comes with the next token
        self._may_be_more = False  # the last poll found jobs, or had no room to look for them
        super().__init__(state, completer, coordinator, queues=queues, types=types)

    def _subscribe(self, signals: WorkerSignals) -> None:
        super()._subscribe(signals)
        signals.broker_changed.subscribe(self.claim_all_due)
        signals.suspect_delivered.subscribe(self.claim_all_due)
        signals.token_due_in.subscribe(self.claim_with_token)

    def claim_all_due(self) -> None:
        """Poll now, and until every due job is claimed."""
        self._claims_all = True
        self.nudge()

    def claim_with_token(self, seconds: float) -> None:
        """Jobs were parked on an empty bucket, and only a poll unparks them: one comes with the next token."""
        self._follows_tokens = True
        self._state.later(seconds + AFTER_DUE, self.claim_all_due)

    def on_slot_freed(self, processor: Processor) -> None:
        if self.suspects.may_add(self.demands.of(processor.phase)):
            self._claims_all = True
        super().on_slot_freed(processor)

    @property
    def relies_on_deliveries(self) -> bool:
        """Whether deliveries arrive, and a poll has claimed what was due before they did."""
        return self._link.is_ready and not self._claims_all and not self._unserved and self.is_waiting

    async def claim_all(self) -> float:
        if not self._link.carries:
            self._overdue = 0.0
            return await super().claim_all()
        now, fallback = self.clock.monotonic(), self._state.settings.fallback
        if not (self._claims_all or self._may_be_more or now >= self._fallback_at):
            return self._fallback_at - now  # nudged: deliveries bring what may be due
        claims_all, self._claims_all = self._claims_all, False
        found, had_room, next_due = await self._poll(claims_all)
        # A backlog of which this worker had no room for all: polls go on, batch by batch, until one finds nothing.
        self._claims_all = self._claims_all or (claims_all and found)
        # Until a poll finds nothing: a broker that lost everything must not cost a batch per `fallback`.
        self._may_be_more = found or not had_room
        self._fallback_at = self.clock.monotonic() + fallback
        if self._follows_tokens:
            self._follows_tokens = next_due is not None
            if next_due is not None:
                self.claim_with_token(next_due)
        return 0 if found and self.demands.have_room() else fallback

    async def _poll(self, claims_all: bool) -> tuple[bool, bool, float | None]:
        """Claim for every demand with room: what is overdue, or whatever is due.

        A phase full of long jobs must not make the polls of others compete with their deliveries. So each phase that
        had no room for whatever is due is remembered by itself.

        Returns whether jobs were found, whether each demand had room, and when the next job or token is due.
        """
        found, had_room, waits = False, True, list[float]()
        for demand in self.demands.in_turn():
            room = demand.room()
            if room == 0:
                if claims_all and demand.types:
                    self._unserved.add(demand.phase)
                had_room = had_room and not demand.types
                continue
            takes_all = claims_all or demand.phase in self._unserved
            self._overdue = 0.0 if takes_all else self._state.settings.fallback
            began = self.clock.monotonic()
            claimed = await self.suspects.claim(room, demand.types, demand.processors, rescan=True)
            demand.record_claim(self.clock.monotonic() - began)
            found = found or bool(claimed.jobs)
            if takes_all and not claimed.jobs:
                self._unserved.discard(demand.phase)
            waits += [] if claimed.next_due is None else [claimed.next_due]
        return found, had_room, min(waits, default=None)

    def take(self, jobs: list[Job], sent: float, answered: float) -> None:
        """As `Discovery.take`; a worker also receives deliveries from each queue in which it found a job."""
        if jobs:
            self._state.signals.queues_found({job.queue for job in jobs})
        super().take(jobs, sent, answered)
