"""What must be true: jobs and workers as plain Python values, changed by the same verbs as a store's rows.

No SQL and no store in here. Whatever a store answers, and whatever its tables hold, is compared with this.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.errors import JobNotFound, TransitionRefused
from windlass.model.state import ARCHIVED, CLAIMABLE, ENDING_VERBS, FINAL, State, Verb, allows, target
from windlass.store.protocol import RESCUES_PER_CRASH, Claim, Suspects, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.model.job import Job, Lease, NewJob
    from windlass.model.outcome import Progress, Transition

MAX_CRASHES = 3
MAX_RESCUES = RESCUES_PER_CRASH * MAX_CRASHES
MOURNING = timedelta(minutes=1)  # for which a dead worker's row stays


@dataclass(kw_only=True)
class Life:
    """One job. Up to `failed` the names are those of `Job`, and every one of them is compared with the row."""

    id: UUID
    type: str
    queue: str
    tenant: str
    priority: int
    phase_rank: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    updated_at: datetime
    status: State = State.QUEUED
    attempt: int = 0
    crashes: int = 0
    rescues: int = 0
    fence: int = 0
    token: UUID | None = None
    worker: UUID | None = None
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested: bool = False
    reason: str | None = None
    total: int | None = None
    processed: int = 0
    failed: int = 0

    effects: int = 0  # rows that its transactions committed
    finals: int = 0  # final states the store reported since the last enqueue, replay or resume


FACTS = tuple(name for name in Life.__dataclass_fields__ if name not in ("effects", "finals"))


@dataclass(kw_only=True)
class Incarnation:
    """A worker's row."""

    alive_until: datetime
    isolates: bool  # runs suspects in processes of their own, so that they cannot kill it
    dead: bool = False


class Truth:
    """Everything that was accepted, and what has become of it."""

    def __init__(self) -> None:
        self.jobs: dict[UUID, Life] = {}
        self.workers: dict[UUID, Incarnation] = {}
        self.accepted = 0
        self.discarded = 0
        self.pruned = 0

    def accept(self, job: NewJob, now: datetime) -> None:
        self.accepted += 1
        self.jobs[job.id] = Life(
            id=job.id,
            type=job.type,
            queue=job.queue,
            tenant=job.tenant,
            priority=job.priority,
            phase_rank=job.phase_rank,
            max_attempts=job.max_attempts,
            created_at=now,
            updated_at=now,
            run_at=now + timedelta(seconds=job.delay or 0),
        )

    def counts(self) -> dict[State, int]:
        lives = self.jobs.values()
        return {state: sum(life.status is state for life in lives) for state in State}

    # Claims

    def wanted(self, claim: Claim, now: datetime) -> list[Life]:
        """What this claim could have, had it room and time enough: due or not."""
        rested = now - timedelta(seconds=claim.untouched)
        return [
            life
            for life in self.jobs.values()
            if life.status in CLAIMABLE
            and not life.cancel_requested
            and life.type in claim.types
            and (claim.queues is None or life.queue in claim.queues)
            and _suits(life, claim.suspects)
            and life.updated_at <= rested
        ]

    def eligible(self, claim: Claim, now: datetime) -> dict[UUID, Life]:
        """What the claim may take: nothing, for a worker that was declared dead or has no row."""
        if not self.alive(claim.worker):
            return {}
        return {life.id: life for life in self.wanted(claim, now) if life.run_at <= now}

    def claim(self, job: Job, worker: UUID, now: datetime) -> None:
        life = self.jobs[job.id]
        life.status, life.token, life.worker = State.RUNNING, job.token, worker
        life.attempt += 1
        life.fence += 1
        life.claimed_at = life.updated_at = now

    # Under a lease

    def current(self, lease: Lease) -> Life | None:
        """The job that this lease may change; None when the lease is stale."""
        life = self.jobs.get(lease.job)
        if life is None or life.status is not State.RUNNING or life.token != lease.token:
            return None
        return life

    def finish(self, transition: Transition, now: datetime) -> State | None:
        """The state the job is in afterwards, None when the lease is stale and nothing changed."""
        life = self.current(transition.lease)
        if life is None:
            return None
        state = target(transition.verb)
        assert state is not None
        cancelled = life.cancel_requested and transition.verb not in ENDING_VERBS and state is not State.DEAD
        life.attempt, life.updated_at = transition.attempt, now
        life.total, life.processed, life.failed = transition.total, transition.processed, transition.failed
        if transition.verb not in ENDING_VERBS:
            life.crashes = transition.crashes
        if cancelled:
            state = State.CANCELLED
        else:
            life.reason = transition.reason
        if state not in ARCHIVED:
            self._let_go(life)
            if transition.delay is not None:
                life.run_at = now + timedelta(seconds=transition.delay)
        life.status = state
        life.finished_at = now if state in FINAL else None
        return state

    def finished_by(self, lease: Lease) -> bool:
        life = self.jobs.get(lease.job)
        return life is not None and life.status in ARCHIVED and life.token == lease.token

    def record(self, progress: Progress, now: datetime) -> None:
        life = self.current(progress.lease)
        if life is not None:
            life.total, life.processed, life.failed = progress.total, progress.processed, progress.failed
            life.updated_at = now

    # Operators

    def operate(self, verb: Verb, job: UUID, now: datetime) -> State | None:
        life = self.jobs.get(job)
        if life is None:
            raise JobNotFound(str(job))
        if verb is Verb.CANCEL and life.status is State.RUNNING:
            life.cancel_requested, life.updated_at = True, now
            return State.RUNNING
        if not allows(verb, life.status):
            raise TransitionRefused(str(job))
        if verb is Verb.CANCEL:
            self._cancel(life, now)
            return State.CANCELLED
        if verb is Verb.DISCARD:
            self.discarded += 1
            del self.jobs[job]
            return None
        self._requeue(life, verb, now)
        return State.QUEUED

    def _requeue(self, life: Life, verb: Verb, now: datetime) -> None:
        life.status, life.run_at, life.updated_at = State.QUEUED, now, now
        if verb is Verb.REPLAY:
            life.attempt = life.crashes = life.rescues = 0
        if verb is not Verb.RETRY:
            self._let_go(life)
            life.reason = life.finished_at = None
            life.cancel_requested = False
            life.finals = 0

    # Workers

    def register(self, worker: UUID, until: datetime, *, isolates: bool) -> None:
        self.workers[worker] = Incarnation(alive_until=until, isolates=isolates)

    def adopt(self, worker: UUID, now: datetime) -> None:
        """A sweep inserted a dead row for a worker that had none."""
        self.workers[worker] = Incarnation(alive_until=now, isolates=False, dead=True)

    def beat(self, worker: UUID, until: datetime) -> bool:
        row = self.workers.get(worker)
        if row is None or row.dead:
            return False
        row.alive_until = until
        return True

    def deregister(self, worker: UUID) -> None:
        if not any(self.held_by(worker)):
            self.workers.pop(worker, None)

    def held_by(self, worker: UUID) -> Iterator[Life]:
        return (life for life in self.jobs.values() if life.worker == worker and life.status is State.RUNNING)

    def alive(self, worker: UUID | None) -> bool:
        """Its row is there and not marked: until a sweep marks it, even a silent worker is alive."""
        return worker in self.workers and not self.workers[worker].dead

    # Sweeping

    def bury(self, now: datetime) -> int:
        silent = [row for row in self.workers.values() if not row.dead and row.alive_until < now]
        for row in silent:
            row.dead = True
        return len(silent)

    def sweep(self, now: datetime, *, overlooks_unknown: bool) -> Swept:
        """`overlooks_unknown`: jobs of a worker that has no row wait until a sweep inserts one."""
        deaths = self.bury(now)
        orphans = [
            life
            for life in self.jobs.values()
            if life.status is State.RUNNING
            and not self.alive(life.worker)
            and not (overlooks_unknown and life.worker not in self.workers)
        ]
        for life in orphans:
            self._rescue(life, now)
        dead_by_crashes = sum(life.status is State.DEAD for life in orphans)
        for life in self.jobs.values():
            if life.status in CLAIMABLE and life.cancel_requested:
                self._cancel(life, now)
        for worker, row in [*self.workers.items()]:
            if row.dead and row.alive_until < now - MOURNING and not any(self.held_by(worker)):
                del self.workers[worker]
        return Swept(deaths=deaths, rescued=len(orphans) - dead_by_crashes, dead_after_crashes=dead_by_crashes)

    def _rescue(self, life: Life, now: datetime) -> None:
        isolated = life.worker in self.workers and self.workers[life.worker].isolates
        self._let_go(life)
        life.attempt -= 1
        life.rescues += 1
        if life.crashes == 0 or not isolated:
            life.crashes += 1
        dead_by_crashes = life.crashes >= MAX_CRASHES or life.rescues >= MAX_RESCUES
        life.status = State.DEAD if dead_by_crashes else State.QUEUED
        life.reason = "crashed" if dead_by_crashes else None
        life.finished_at = now if dead_by_crashes else None
        life.updated_at = now

    def _cancel(self, life: Life, now: datetime) -> None:
        life.status, life.cancel_requested = State.CANCELLED, True
        life.updated_at = life.finished_at = now

    def _let_go(self, life: Life) -> None:
        life.token = life.worker = None

    def forget(self, job: UUID) -> None:
        """Retention took it from the history."""
        self.pruned += 1
        del self.jobs[job]


def _suits(life: Life, suspects: Suspects) -> bool:
    if suspects is Suspects.WITH:
        return True
    return (life.crashes > 0) is (suspects is Suspects.ONLY)
