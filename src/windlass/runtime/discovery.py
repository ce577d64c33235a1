"""Finds work: claims as much as there is room for, when something happened or a poll is due.

In:   a wake-up, a poll, or free room
Out:  claimed jobs in the local queue
Next: runtime/local_queue.py, where they wait for a processor

Two kinds of claim. A plain one looks above the floors and costs little; a rescan looks everywhere, finds what committed
late, and is made once per poll, or less often when it is slow: it may take a twentieth of the time at most. A worker
that finds nothing commits its idle mark, rescans once more, and only then sleeps: whoever enqueues after that sees the
mark and wakes it.
"""

from __future__ import annotations

import logging

from windlass.config import Pace
from windlass.filter import Filter, Kind, Term, Value, parse
from windlass.job import Job
from windlass.outcome import Transition
from windlass.runtime.coordinator import Coordinator
from windlass.runtime.crew import Crew
from windlass.runtime.local_queue import Refusal
from windlass.runtime.service import Service
from windlass.state import Verb
from windlass.store.protocol import Claim, Claimed, Suspects

log = logging.getLogger("windlass")

LONGEST_WAIT_IN_MEMORY = 0.1  # seconds: so much work is claimed ahead of the processors
LARGEST_CLAIM = 500
DOUBT = 30.0  # seconds after a failed claim for which it may still be committed: two statement timeouts
LONGEST_SUSPENSE = 10.0  # seconds that a suspect which must run alone waits while other jobs are claimed
RESCAN_SHARE = 20  # a rescan may take one part in so many of the time
BUSY_BEFORE_UNMARKED = 0.2  # seconds of full claims before the idle mark is taken back
DUE_SUSPECTS = "state:queued,failed crashes:>0 due:>=0s"


class Discovery(Service):
    """The worker's appetite."""

    name = "discovery"

    def __init__(
        self, crew: Crew, coordinator: Coordinator, *, queues: tuple[str, ...] | None, types: tuple[str, ...]
    ) -> None:
        super().__init__(crew.clock)
        self._crew = crew
        self._coordinator = coordinator
        self._queues = queues
        self._types = types
        self.isolates = all(crew.children.importable(definition) for definition in crew.registry)
        self._by_creation = crew.settings.pace is Pace.STEADY
        self._resting = False  # the idle mark stands
        self._rested_at = 0.0
        self._unsure_until = 0.0  # a claim failed: until then it may be committed, late
        self._asked_at = 0.0
        self._next_rescan = 0.0
        known = tuple(Value(type, quoted=True) for type in types)
        self._due_suspects = Filter(DUE_SUSPECTS, (*parse(DUE_SUSPECTS).terms, Term(Kind.NAME, "type", known)))
        self._suspects_since: float | None = None  # due, and this program cannot be imported in a child
        self._plain_took = 0.0  # seconds of a claim without a rescan, lately
        self._aged = 0.0  # places owed to the oldest jobs
        self._ended = 0  # attempts since the rate was last taken
        self._rate_at = crew.clock.monotonic()
        self._rate = 0.0  # attempts per second, lately
        self.last_success: float | None = None  # when a claim last worked: readiness

    def room_again(self) -> None:
        """A processor is free. Claim when the local queue runs low, not for every single one."""
        self._ended += 1
        if not self._nudge.is_set() and self._coordinator.at_once and self._queue_is_low():
            self._nudge.set()

    def due_again(self, delay: float) -> None:
        """A job that ended here may be claimed again after `delay`: look then, and not at the next poll."""
        if self._coordinator.at_once and delay < self._crew.settings.poll:
            self._crew.later(delay + 0.001, self.nudge)

    def restart(self) -> None:
        """After a new registration: the mark went with the old row."""
        self._resting = False
        self.nudge()

    async def round(self) -> float | None:
        settings = self._crew.settings
        if not self._crew.registered:
            return None  # until the worker is registered (again)
        if self.clock.monotonic() < self._unsure_until:
            await self._adopt()
        if not self._coordinator.at_once:
            await self._scan_phases()
            return settings.poll
        room = self._room()
        if room == 0:
            return settings.poll
        rescan = self.clock.monotonic() >= self._next_rescan
        claimed = await self._claim(room, rescan=rescan)
        if len(claimed.jobs) >= room:
            await self._leave_rest()
            return 0 if self._queue_is_low() else settings.poll
        if claimed.jobs:
            return 0  # some, not all: look once more before resting
        if not rescan and self._may_rescan():
            claimed = await self._claim(room, rescan=True)
            if claimed.jobs:
                return 0
        if not self._resting:
            await self._enter_rest()
            return 0  # claims once more, now that enqueuers can see the mark
        return min(settings.poll, claimed.next_due + 0.001) if claimed.next_due is not None else settings.poll

    async def _scan_phases(self) -> None:
        """The steady pace: a scan per period and phase, a few jobs each, whatever happens in between."""
        crew, settings = self._crew, self._crew.settings
        for phase in self._queues or await self._phases():
            left = (settings.local_queue or LARGEST_CLAIM) - crew.local_queue.waiting(phase)
            room = min(left, settings.discovery_batch or left)
            if room > 0:
                await self._claim(room, rescan=True, queues=(phase,))

    async def _phases(self) -> list[str]:
        """The queues that job types name, and those that only an enqueue named."""
        stored = {row.queue for row in await self._crew.store.queues()}
        return sorted(stored | {definition.queue for definition in self._crew.registry})

    # Room

    def _room(self) -> int:
        """How many jobs to ask for: free processors, and what they will eat in a tenth of a second."""
        crew, settings = self._crew, self._crew.settings
        if crew.completer.backlog > 2 * LARGEST_CLAIM:
            return 0  # the database cannot keep up with what is finished
        free = crew.pools.free - len(crew.local_queue)
        ahead = min(self._appetite(), settings.local_queue or LARGEST_CLAIM)
        room = min(max(free, 0) + ahead - max(-free, 0), LARGEST_CLAIM)
        return max(0, min(room, settings.discovery_batch or room))

    def _queue_is_low(self) -> bool:
        queued = len(self._crew.local_queue)
        return queued == 0 or (queued < self._rate * LONGEST_WAIT_IN_MEMORY / 2)

    def _appetite(self) -> int:
        """Jobs the processors will take within LONGEST_WAIT_IN_MEMORY, from how many they ended lately."""
        now = self.clock.monotonic()
        passed = now - self._rate_at
        if passed >= 0.02:
            self._rate = 0.5 * self._rate + 0.5 * self._ended / passed
            self._rate_at, self._ended = now, 0
        return int(self._rate * LONGEST_WAIT_IN_MEMORY)

    # Claims

    async def _claim(self, room: int, *, rescan: bool, queues: tuple[str, ...] | None = None) -> Claimed:
        if self.isolates:
            return await self._ask(room, rescan=rescan, suspects=Suspects.WITH, queues=queues)
        # A suspect that no child can run is run here, alone: nothing else may die with it.
        if any(attempt.job.suspect for attempt in self._crew.leases.attempts.values()):
            return Claimed(jobs=[])
        if rescan:
            await self._look_for_suspects()
        if self._suspects_since is not None and not len(self._crew.leases):
            alone = await self._ask(1, rescan=True, suspects=Suspects.ONLY, queues=queues)
            if alone.jobs:
                return alone
            self._suspects_since = None
        if self._suspects_since is not None and self.clock.monotonic() - self._suspects_since > LONGEST_SUSPENSE:
            return Claimed(jobs=[])  # until this worker is empty, or the innocent would keep it waiting for ever
        return await self._ask(room, rescan=rescan, suspects=Suspects.WITHOUT, queues=queues)

    async def _look_for_suspects(self) -> None:
        found = await self._crew.store.search(self._due_suspects, page=1)
        if not found:
            self._suspects_since = None
        elif self._suspects_since is None:
            self._suspects_since = self.clock.monotonic()

    async def _ask(
        self, room: int, *, rescan: bool, suspects: Suspects, queues: tuple[str, ...] | None = None
    ) -> Claimed:
        crew, settings = self._crew, self._crew.settings
        began = self.clock.monotonic()
        worker = crew.worker
        wish = Claim(
            worker=worker,
            room=room,
            types=self._types,
            queues=queues or self._queues,
            rescan=rescan,
            aged=self._places_for_the_oldest(room),
            suspects=suspects,
            rest=settings.rest,
            by_creation=self._by_creation,
        )
        try:
            claimed = await crew.store.claim(wish)
        except BaseException:
            self._unsure_until = self.clock.monotonic() + DOUBT
            raise
        self.last_success = self.clock.monotonic()
        self._pace_rescans(self.last_success - began, rescan=rescan)
        if worker == crew.worker:  # else: claimed by an incarnation that is dead; its rescue gives them back
            self._take(claimed.jobs, began)
        return claimed

    async def _adopt(self) -> None:
        """A claim failed, and its commit may have happened all the same: take in what this worker holds unknowingly.

        What was known before the question is left out: it may be settled while the store answers, and would run again.
        A server that lost its client may still commit for as long as a statement may take, so the question is repeated.
        """
        crew = self._crew
        known, worker, at = crew.leases.known(), crew.worker, self.clock.monotonic()
        if at - self._asked_at < crew.settings.poll:
            return
        self._asked_at = at
        held = await crew.store.held(worker)
        if worker == crew.worker:
            self._take([job for job in held if job.id not in known], at)

    def _pace_rescans(self, took: float, *, rescan: bool) -> None:
        """What a rescan takes beyond a plain claim may be a twentieth of the time: a slow one is made less often."""
        if not rescan:
            self._plain_took = 0.8 * self._plain_took + 0.2 * took
            return
        extra = max(0.0, took - self._plain_took)
        self._next_rescan = self.clock.monotonic() + max(self._crew.settings.poll, RESCAN_SHARE * extra)

    def _places_for_the_oldest(self, room: int) -> int:
        """One place in ten, carried over: a claim for one job owes a tenth of a place."""
        if not self._crew.settings.ageing:
            return 0
        self._aged = min(self._aged + room / self._crew.settings.ageing, room)
        places = int(self._aged)
        self._aged -= places
        return places

    def _take(self, jobs: list[Job], at: float) -> None:
        crew = self._crew
        crew.leases.take(jobs, at)
        if self._ending:  # the worker stops: what this claim brought starts elsewhere
            for job in jobs:
                crew.completer.submit(give_back(job))
            return
        for job in jobs:
            refusal = crew.local_queue.enqueue(job, at)
            if refusal is Refusal.FULL and self._coordinator.at_once:
                self._coordinator.assign()  # what waits may start now, and make room
                refusal = crew.local_queue.enqueue(job, at)
            if refusal is not None:
                log.debug("job %s goes back: %s", job.id, refusal.value)
                # Not at once: whatever refused it is still there, and this would be a loop at the database's speed.
                crew.completer.submit(give_back(job, delay=crew.settings.poll))
        if jobs:
            self._coordinator.arrived()

    def _may_rescan(self) -> bool:
        """A woken worker that found nothing above its floors looks below them, within the share of time."""
        return self.clock.monotonic() >= self._next_rescan - self._crew.settings.poll

    # The idle mark

    async def _enter_rest(self) -> None:
        await self._crew.store.rest(self._crew.worker, idle=True)
        self._resting = True
        self._rested_at = self.clock.monotonic()
        self._next_rescan = 0.0

    async def _leave_rest(self) -> None:
        if self._resting and self.clock.monotonic() - self._rested_at > BUSY_BEFORE_UNMARKED:
            await self._crew.store.rest(self._crew.worker, idle=False)
            self._resting = False


def give_back(job: Job, *, delay: float | None = None) -> Transition:
    """Release a job that was never started: it keeps its place, and no attempt is burned."""
    return Transition(
        lease=job.lease,
        verb=Verb.RELEASE,
        delay=delay,
        attempt=job.attempt - 1,
        crashes=job.crashes,
        total=job.total,
        processed=job.processed,
        failed=job.failed,
        cost_cents=job.cost_cents,
    )
