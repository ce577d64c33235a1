"""Finds work: claims as many jobs as there is room for, after a wake-up or when a poll is due.

In:   a wake-up, a poll, or a free processor
Out:  a Claim: for how many jobs there is room, and which types and queues are served here
Next: store/postgres/claim.py and store/sqlite/claim.py, which lease due jobs to this worker

There are two kinds of claim. A plain one reads above the floors and costs little. A rescan reads everything, finds what
committed late, and is made once per poll, or less often when it is slow (`claims/rescans.py`).

A worker that finds nothing commits its idle mark, rescans once more, and only then sleeps: an enqueue after that sees
the mark and wakes the worker.
"""

from __future__ import annotations

from windlass.config import Order
from windlass.model.job import Job
from windlass.observe.events import JobQueued, JobRefused, JobsClaimed, JobsReleased, ReleaseReason
from windlass.runtime.claims.ageing import AgeingShare
from windlass.runtime.claims.demand import Demand, Demands
from windlass.runtime.claims.idle_mark import IdleMark
from windlass.runtime.claims.lost_answers import LostAnswers
from windlass.runtime.claims.rescans import RescanPacing
from windlass.runtime.claims.suspects import SuspectClaims
from windlass.runtime.completer import Completer
from windlass.runtime.coordinator import Coordinator
from windlass.runtime.leases import release_unstarted
from windlass.runtime.local_queue import QueueRefusal
from windlass.runtime.pool import Processor
from windlass.runtime.service import Service
from windlass.runtime.signals import WorkerSignals
from windlass.runtime.state import WorkerState
from windlass.store.protocol import Claim, Claimed, Suspects

AFTER_DUE = 0.001  # seconds after a job is due that a claim for it is made


class Discovery(Service):
    """Decides when to claim and for how many jobs.

    `claims/steady_discovery.py` is the same by the clock, `delivery/broker_discovery.py` the same beneath a broker.
    """

    name = "discovery"

    def __init__(
        self,
        state: WorkerState,
        completer: Completer,
        coordinator: Coordinator,
        *,
        queues: tuple[str, ...] | None,
        types: tuple[str, ...],
    ) -> None:
        super().__init__(state.clock)
        self._state = state
        self._completer = completer
        self._coordinator = coordinator
        self._queues = queues
        self._types = types
        self.demands = Demands(state, completer, types)
        self._rescans = RescanPacing(state.clock, poll=state.settings.poll)
        self.suspects = SuspectClaims(state, types, send=self._send)
        self.lost_answers = LostAnswers(state)
        self._overdue = 0.0  # seconds for which a job must have been due; more than 0 beneath a broker
        self._by_creation = state.settings.order is Order.CREATED_AT
        self._ageing = AgeingShare(state.settings.ageing)
        self.idle_mark = IdleMark(state)
        self.isolates = self.suspects.isolates
        self.last_success: float | None = None  # when a claim last worked: readiness
        self._subscribe(state.signals)

    def _subscribe(self, signals: WorkerSignals) -> None:
        signals.registered.subscribe(self.on_registered)
        signals.slot_freed.subscribe(self.on_slot_freed)
        signals.processors_reset.subscribe(self.nudge)
        signals.jobs_may_be_due.subscribe(self.nudge)
        signals.jobs_due_in.subscribe(self.poll_in)
        signals.jobs_unparked.subscribe(self.on_unparked)
        signals.store_relieved.subscribe(self.resume)

    # Signals

    def on_slot_freed(self, processor: Processor) -> None:
        """Claim when the jobs in memory run low, and not for every processor that is free again."""
        demand = self.demands.of(processor.phase)
        demand.count_ended()
        if not self._nudge.is_set() and (demand.is_low() or self.suspects.may_add(demand)):
            self._nudge.set()

    def poll_in(self, seconds: float) -> None:
        """A job that ended here may be claimed again after `seconds`: claim then, and not at the next poll."""
        if seconds < self._state.settings.poll:
            self._state.later(seconds + AFTER_DUE, self.nudge)

    def on_unparked(self, queues: set[str]) -> None:
        """Slots that were released here let in jobs of these queues: claim them here, or wake other workers."""
        serves = self._queues is None or queues.issubset(self._queues)
        if serves and self.demands.have_room():
            self.nudge()
        else:
            self._state.store.wake_later(queues)

    def on_registered(self) -> None:
        """A new incarnation is registered, and may claim."""
        self.idle_mark.forget()
        self.resume()

    def resume(self) -> None:
        """Claims were impossible until now: make one at once, at any pace."""
        super().nudge()

    # One round

    async def round(self) -> float | None:
        if not self._state.registered:
            return None  # until the worker is registered (again)
        await self._recover_lost_answers()
        return await self.claim_all()

    async def _recover_lost_answers(self) -> None:
        asked_at = self.clock.monotonic()
        held = await self.lost_answers.ask()
        if held is not None:
            self.take(held.jobs, asked_at, self.clock.monotonic())
            await self.lost_answers.bury(held.unreadable)

    async def claim_all(self) -> float:
        """Claim for every demand that has room; returns the seconds until the next round."""
        rescan = self._rescans.is_due()
        pause, found_none, filled = self._state.settings.poll, False, False
        for demand in self.demands.in_turn():
            room = demand.room()
            if room == 0:
                continue
            began = self.clock.monotonic()
            claimed = await self._claim_for(demand, room, rescan=rescan)
            demand.record_claim(self.clock.monotonic() - began)
            if not claimed.jobs:
                found_none = True
                pause = pause if claimed.next_due is None else min(pause, claimed.next_due + AFTER_DUE)
            elif len(claimed.jobs) >= room or claimed.filled:
                filled = True
                pause = 0 if demand.is_low() else pause
            else:
                pause = 0  # some, not all: claim once more before this worker is idle
        if filled and not found_none:
            await self.idle_mark.clear()
        elif found_none and pause > 0 and not self.idle_mark.is_set:
            await self.idle_mark.set()
            self._rescans.make_due()
            return 0  # claims once more, now that enqueuers can see the mark
        return pause

    async def _claim_for(self, demand: Demand, room: int, *, rescan: bool) -> Claimed:
        """Claim for one demand. Nothing is due only when a rescan found nothing either."""
        claimed = await self.suspects.claim(room, demand.types, demand.processors, rescan=rescan)
        if claimed.jobs or rescan or not self._rescans.may_come_early():
            return claimed
        return await self.suspects.claim(room, demand.types, demand.processors, rescan=True)

    async def _send(
        self,
        room: int,
        types: tuple[str, ...],
        *,
        rescan: bool,
        suspects: Suspects,
        queues: tuple[str, ...] | None = None,
        paces: bool = True,
    ) -> Claimed:
        state = self._state
        began = self.clock.monotonic()
        worker = state.worker
        claim = Claim(
            worker=worker,
            room=room,
            types=types,
            queues=queues or self._queues,
            rescan=rescan,
            aged=self._ageing.places(room),
            suspects=suspects,
            untouched=state.settings.untouched,
            by_creation=self._by_creation,
            overdue=self._overdue,
        )
        try:
            claimed = await state.store.claim(claim)
        except BaseException:
            self.lost_answers.claim_failed()
            raise
        self.last_success = self.clock.monotonic()
        if state.subscribers.wants(JobsClaimed):
            self._emit_claimed(claim, claimed, self.last_success - began)
        if paces:  # else: a claim for a few suspects, after which a whole rescan comes as soon as it would have
            self._rescans.record(self.last_success - began, rescan=rescan)
        if worker == state.worker:  # else: claimed by an incarnation that is dead; its rescue releases them
            self.take(claimed.jobs, began, self.last_success)
        return claimed

    def take(self, jobs: list[Job], sent: float, answered: float) -> None:
        """Put jobs whose claim was sent and answered at these times of the monotonic clock into the local queue."""
        state = self._state
        state.leases.take(jobs, sent, answered)
        if self._ending:  # the worker stops: what this claim brought starts elsewhere
            for job in jobs:
                self._completer.submit(release_unstarted(job))
            if jobs:
                state.emit(JobsReleased(state.worker, len(jobs), ReleaseReason.STOPPING))
            return
        reports = state.subscribers.wants(JobQueued)
        for job in jobs:
            refusal = state.local_queue.enqueue(job, sent)
            if refusal is QueueRefusal.FULL and self._coordinator.assigns_at_once:
                self._coordinator.on_jobs_queued()  # what waits may start now, and make room
                refusal = state.local_queue.enqueue(job, sent)
            if refusal is not None:
                state.emit(JobRefused(job, refusal.value))
                # Not at once: whatever refused it is still there, and this would be a loop at the database's speed.
                self._completer.submit(release_unstarted(job, delay=state.settings.poll))
            elif reports:
                state.emit(JobQueued(job))
        if jobs:
            self._coordinator.on_jobs_queued()

    def _emit_claimed(self, claim: Claim, claimed: Claimed, took: float) -> None:
        state = self._state
        state.emit(
            JobsClaimed(
                worker=state.worker,
                types=claim.types,
                asked=claim.room,
                got=len(claimed.jobs),
                seconds=took,
                rescan=claim.rescan,
                in_memory=state.local_queue.sizes(),
            )
        )
