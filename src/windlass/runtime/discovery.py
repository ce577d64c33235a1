"""Finds work: claims as much as there is room for, when something happened or a poll is due.

In:   a wake-up, a poll, or free room
Out:  a Claim: for how many jobs there is room, and which types and queues are served here
Next: store/postgres/claim.py and store/sqlite/claim.py, which lease due jobs to this worker

Two kinds of claim. A plain one looks above the floors and costs little; a rescan looks everywhere, finds what committed
late, and is made once per poll, or less often when it is slow: it may take a twentieth of the time at most. A worker
that finds nothing commits its idle mark, rescans once more, and only then sleeps: whoever enqueues after that sees the
mark and wakes it.

Suspects (jobs that a dead worker held) run in child processes, a few at a time. Plain claims leave them out. A rescan,
and a claim after one of them ended, first asks for as many jobs as suspects may be added, and takes what is due first:
a suspect keeps its place, and no more are held than can run.
"""

from __future__ import annotations

import logging

from windlass.config import Pace
from windlass.declare.pipeline import phases
from windlass.model.filter import Filter, Kind, Term, Value, parse
from windlass.model.job import Job
from windlass.runtime.coordinator import Coordinator
from windlass.runtime.demand import LARGEST_CLAIM, Demand, Demands
from windlass.runtime.leases import give_back
from windlass.runtime.local_queue import Refusal
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store.protocol import Claim, Claimed, Suspects

log = logging.getLogger("windlass")

DOUBT = 30.0  # seconds after a failed claim for which it may well be committed late: two statement timeouts
LOOK_EVERY = 60.0  # seconds between two looks for what is held unknowingly, where no claim failed: a server may freeze
SUSPECTS_AT_ONCE = 4  # in children of one worker, and half of the processors at most: the others belong to the innocent
LONGEST_SUSPENSE = 10.0  # seconds that a suspect which must run alone waits while other jobs are claimed
RESCAN_SHARE = 20  # a rescan may take one part in so many of the time
BUSY_BEFORE_UNMARKED = 0.2  # seconds of full claims before the idle mark is taken back
UNREADABLE = "claimed, could not be read"
DUE_SUSPECTS = "state:queued,failed crashes:>0 due:>=0s"


class Discovery(Service):
    """The worker's appetite."""

    name = "discovery"

    def __init__(
        self, state: WorkerState, coordinator: Coordinator, *, queues: tuple[str, ...] | None, types: tuple[str, ...]
    ) -> None:
        super().__init__(state.clock)
        self._state = state
        self._coordinator = coordinator
        self._queues = queues
        self._types = types
        self.isolates = all(state.children.importable(definition) for definition in state.registry)
        self._demands = Demands(state, types)
        self._by_creation = state.settings.pace is Pace.STEADY
        self._resting = False  # the idle mark stands
        self._rested_at = 0.0
        self._failed_at: float | None = None  # when a claim failed whose commit is still in doubt
        self._looked_at = state.clock.monotonic()
        self._next_rescan = 0.0
        known = tuple(Value(type, quoted=True) for type in types)
        self._due_suspects = Filter(DUE_SUSPECTS, (*parse(DUE_SUSPECTS).terms, Term(Kind.NAME, "type", known)))
        self._suspects_since: float | None = None  # due, and this program cannot be imported in a child
        self._alone_since: float | None = None  # such a suspect has this worker for itself
        self._others_until = 0.0  # and after it the others
        self._cleared: set[str] = set()  # types of which no such suspect could be claimed
        self._suspected: set[tuple[str, ...]] = set()  # types of which the last look found suspects: there may be more
        self._plain_took = 0.0  # seconds of a claim without a rescan, lately
        self._aged = 0.0  # places owed to the oldest jobs
        self.last_success: float | None = None  # when a claim last worked: readiness

    def room_again(self, phase: str) -> None:
        """A processor of the phase is free. Claim when its jobs in memory run low, not for every single one."""
        demand = self._demands.of(phase)
        demand.ended()
        if (
            not self._nudge.is_set()
            and self._coordinator.at_once
            and (demand.is_low() or self._may_add_suspects(demand))
        ):
            self._nudge.set()

    def due_again(self, delay: float) -> None:
        """A job that ended here may be claimed again after `delay`: look then, and not at the next poll."""
        if self._coordinator.at_once and delay < self._state.settings.poll:
            self._state.later(delay + 0.001, self.nudge)

    def let_in(self, queues: set[str]) -> None:
        """Slots that came back from here let in jobs of these queues: take them here, or tell the others."""
        serves = self._queues is None or queues.issubset(self._queues)
        if self._coordinator.at_once and serves and self._demands.have_room():
            self.nudge()
        else:
            self._state.store.wake_later(queues)

    def restart(self) -> None:
        """After a new registration: the mark went with the old row."""
        self._resting = False
        self.nudge()

    async def round(self) -> float | None:
        settings = self._state.settings
        if not self._state.registered:
            return None  # until the worker is registered (again)
        await self._adopt()
        if not self._coordinator.at_once:
            await self._scan_phases()
            return settings.poll
        rescan = self.clock.monotonic() >= self._next_rescan
        pause, hungry, filled = settings.poll, False, False
        for demand in self._demands.in_turn():
            room = demand.room()
            if room == 0:
                continue
            began = self.clock.monotonic()
            claimed = await self._look(demand, room, rescan=rescan)
            demand.claimed(self.clock.monotonic() - began)
            if not claimed.jobs:
                hungry = True
                pause = pause if claimed.next_due is None else min(pause, claimed.next_due + 0.001)
            elif len(claimed.jobs) >= room or claimed.filled:
                filled = True
                pause = 0 if demand.is_low() else pause
            else:
                pause = 0  # some, not all: look once more before resting
        if filled and not hungry:
            await self._leave_rest()
        elif hungry and pause > 0 and not self._resting:
            await self._enter_rest()
            return 0  # claims once more, now that enqueuers can see the mark
        return pause

    async def _look(self, demand: Demand, room: int, *, rescan: bool) -> Claimed:
        """Claim for one share. What is below the floors counts too, before there is said to be nothing."""
        claimed = await self._claim(room, demand.types, demand.processors, rescan=rescan)
        if claimed.jobs or rescan or not self._may_rescan():
            return claimed
        return await self._claim(room, demand.types, demand.processors, rescan=True)

    # The steady pace

    async def _scan_phases(self) -> None:
        """A scan per period and phase, a few jobs each, whatever happens in between: pipelines, the earlier phase
        first, then the queues of all other types."""
        in_phases: set[str] = set()
        for phase, known in phases(self._state.registry).items():
            types = tuple(type for type in known if type in self._types)
            in_phases.update(types)
            if types:
                await self._scan(phase, types)
        others = tuple(type for type in self._types if type not in in_phases)
        if others:
            for queue in self._queues or await self._known_queues(others):
                await self._scan(queue, others, queues=(queue,))

    async def _scan(self, phase: str, types: tuple[str, ...], *, queues: tuple[str, ...] | None = None) -> None:
        state, settings = self._state, self._state.settings
        left = (settings.local_queue or LARGEST_CLAIM) - state.local_queue.waiting(phase)
        most = state.completer.room
        room = min(left, settings.discovery_batch or left, left if most is None else most)
        if room > 0:
            await self._claim(room, types, state.pools.size(phase), rescan=True, queues=queues)

    async def _known_queues(self, types: tuple[str, ...]) -> list[str]:
        """The queues that job types name, and those that only an enqueue named."""
        stored = {row.queue for row in await self._state.store.queues()}
        return sorted(stored | {each.queue for each in self._state.registry if each.type in types})

    # Claims

    async def _claim(
        self,
        room: int,
        types: tuple[str, ...],
        processors: int,
        *,
        rescan: bool,
        queues: tuple[str, ...] | None = None,
    ) -> Claimed:
        if self.isolates:
            return await self._claim_beside_suspects(room, types, processors, rescan=rescan, queues=queues)
        return await self._claim_or_isolate(room, types, rescan=rescan, queues=queues)

    async def _claim_beside_suspects(
        self, room: int, types: tuple[str, ...], processors: int, *, rescan: bool, queues: tuple[str, ...] | None
    ) -> Claimed:
        """First as many jobs of any kind as suspects may be added, where there may be some; then the innocent."""
        few = min(room, self._room_for_suspects(types, processors))
        first = Claimed(jobs=[])
        if few > 0 and (rescan or types in self._suspected):
            first = await self._ask(few, types, rescan=True, suspects=Suspects.WITH, queues=queues, paces=rescan)
            if any(job.suspect for job in first.jobs):
                self._suspected.add(types)
            else:
                self._suspected.discard(types)
            if rescan and len(first.jobs) < few and not first.filled:
                return first  # of any kind, nothing else is due
        if room == len(first.jobs):
            return first
        rest = await self._ask(room - len(first.jobs), types, rescan=rescan, suspects=Suspects.WITHOUT, queues=queues)
        waits = [each.next_due for each in (first, rest) if each.next_due is not None]
        return Claimed(
            jobs=first.jobs + rest.jobs, next_due=min(waits, default=None), filled=first.filled or rest.filled
        )

    def _may_add_suspects(self, demand: Demand) -> bool:
        return demand.types in self._suspected and self._room_for_suspects(demand.types, demand.processors) > 0

    def _room_for_suspects(self, types: tuple[str, ...], processors: int) -> int:
        queue, half = self._state.local_queue, max(1, self._state.pools.total // 2)
        left = min(SUSPECTS_AT_ONCE, half) - queue.suspects()
        return min(left, max(1, processors // 2) - queue.suspects(types))

    async def _claim_or_isolate(
        self, room: int, types: tuple[str, ...], *, rescan: bool, queues: tuple[str, ...] | None
    ) -> Claimed:
        """A suspect that no child can run is run here, alone: nothing else may die with it.

        For as long as it had the worker for itself the others have it, if there are any, and then the next one may.
        """
        state, now = self._state, self.clock.monotonic()
        if state.local_queue.suspects():
            return Claimed(jobs=[])
        if self._alone_since is not None:
            self._others_until, self._alone_since = 2 * now - self._alone_since, None
        if rescan:
            await self._look_for_suspects()
        their_turn = now >= self._others_until
        if self._suspects_since is not None and their_turn:
            alone = await self._claim_alone(types, queues)
            if alone.jobs:
                return alone
        if self._suspects_since is not None and now - max(self._suspects_since, self._others_until) > LONGEST_SUSPENSE:
            return Claimed(jobs=[])  # until this worker is empty, or the innocent would keep it waiting for ever
        others = await self._ask(room, types, rescan=rescan, suspects=Suspects.WITHOUT, queues=queues)
        if others.jobs or self._suspects_since is None or their_turn:
            return others
        alone = await self._claim_alone(types, queues)
        return alone if alone.jobs else others

    async def _claim_alone(self, types: tuple[str, ...], queues: tuple[str, ...] | None) -> Claimed:
        """One suspect, when this worker holds nothing."""
        if len(self._state.leases):
            return Claimed(jobs=[])
        alone = await self._ask(1, types, rescan=True, suspects=Suspects.ONLY, queues=queues)
        if alone.jobs:
            self._alone_since = self.clock.monotonic()
            return alone
        self._cleared.update(types)
        if self._cleared.issuperset(self._types):
            self._suspects_since = None  # due all the same, but in a queue that others serve
        return alone

    async def _look_for_suspects(self) -> None:
        found = await self._state.store.search(self._due_suspects, page=1)
        if not found:
            self._suspects_since = None
        elif self._suspects_since is None:
            self._suspects_since = self.clock.monotonic()
            self._cleared.clear()

    async def _ask(
        self,
        room: int,
        types: tuple[str, ...],
        *,
        rescan: bool,
        suspects: Suspects,
        queues: tuple[str, ...] | None = None,
        paces: bool = True,
    ) -> Claimed:
        state, settings = self._state, self._state.settings
        began = self.clock.monotonic()
        worker = state.worker
        wish = Claim(
            worker=worker,
            room=room,
            types=types,
            queues=queues or self._queues,
            rescan=rescan,
            aged=self._places_for_the_oldest(room),
            suspects=suspects,
            rest=settings.rest,
            by_creation=self._by_creation,
        )
        try:
            claimed = await state.store.claim(wish)
        except BaseException:
            self._failed_at = self.clock.monotonic()
            raise
        self.last_success = self.clock.monotonic()
        if paces:  # else: a look for a few suspects, after which a whole rescan comes as soon as it would have
            self._pace_rescans(self.last_success - began, rescan=rescan)
        if worker == state.worker:  # else: claimed by an incarnation that is dead; its rescue gives them back
            self._take(claimed.jobs, began)
        return claimed

    async def _adopt(self) -> None:
        """A claim failed, and its commit may have happened all the same: take in what this worker holds unknowingly.

        What was known before the question is left out: it may be settled while the store answers, and would run again.
        A server that lost its client may still commit for as long as a statement may take, so that the question is
        repeated until an answer was asked for later than that. A server that froze may commit even later: so now and
        then the question is asked without a reason.
        """
        state, at = self._state, self.clock.monotonic()
        if at - self._looked_at < (LOOK_EVERY if self._failed_at is None else state.settings.poll):
            return
        known, worker = state.leases.known(), state.worker
        held = await state.store.held(worker, known)
        self._looked_at = at
        if self._failed_at is not None and at - self._failed_at >= DOUBT:
            self._failed_at = None
        if worker != state.worker:
            return
        if held.jobs:
            log.warning("%d jobs were claimed without an answer, and are taken in", len(held.jobs))
        self._take(held.jobs, at)
        for lease in held.unreadable:
            log.error("job %s was claimed and cannot be read; it is buried", lease.job)
            await state.store.put_aside(lease, UNREADABLE)

    def _pace_rescans(self, took: float, *, rescan: bool) -> None:
        """What a rescan takes beyond a plain claim may be a twentieth of the time: a slow one is made less often."""
        if not rescan:
            self._plain_took = 0.8 * self._plain_took + 0.2 * took
            return
        extra = max(0.0, took - self._plain_took)
        self._next_rescan = self.clock.monotonic() + max(self._state.settings.poll, RESCAN_SHARE * extra)

    def _places_for_the_oldest(self, room: int) -> int:
        """One place in ten, carried over: a claim for one job owes a tenth of a place."""
        if not self._state.settings.ageing:
            return 0
        self._aged = min(self._aged + room / self._state.settings.ageing, room)
        places = int(self._aged)
        self._aged -= places
        return places

    def _take(self, jobs: list[Job], at: float) -> None:
        state = self._state
        state.leases.take(jobs, at)
        if self._ending:  # the worker stops: what this claim brought starts elsewhere
            for job in jobs:
                state.completer.submit(give_back(job))
            return
        for job in jobs:
            refusal = state.local_queue.enqueue(job, at)
            if refusal is Refusal.FULL and self._coordinator.at_once:
                self._coordinator.assign()  # what waits may start now, and make room
                refusal = state.local_queue.enqueue(job, at)
            if refusal is not None:
                log.debug("job %s goes back: %s", job.id, refusal.value)
                # Not at once: whatever refused it is still there, and this would be a loop at the database's speed.
                state.completer.submit(give_back(job, delay=state.settings.poll))
        if jobs:
            self._coordinator.arrived()

    def _may_rescan(self) -> bool:
        """A woken worker that found nothing above its floors looks below them, within the share of time."""
        return self.clock.monotonic() >= self._next_rescan - self._state.settings.poll

    # The idle mark

    async def _enter_rest(self) -> None:
        await self._state.store.set_idle(self._state.worker, idle=True)
        self._resting = True
        self._rested_at = self.clock.monotonic()
        self._next_rescan = 0.0

    async def _leave_rest(self) -> None:
        if self._resting and self.clock.monotonic() - self._rested_at > BUSY_BEFORE_UNMARKED:
            await self._state.store.set_idle(self._state.worker, idle=False)
            self._resting = False
