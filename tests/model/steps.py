"""What the machine's rules share: each step is done to the store and to the truth, and the answers are compared."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine

from store.rig import LEASE
from windlass import failpoints
from windlass.errors import JobNotFound, TransitionRefused
from windlass.model.job import Job, Lease, NewJob
from windlass.model.outcome import Progress, Transition
from windlass.model.state import ARCHIVED, FINAL, State, Verb
from windlass.store.protocol import Claim, Claimed, Finished, NewWorker, Store, Transaction

from .invariants import Scope, check_claim, check_untaken
from .truth import MAX_CRASHES, Truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .bench import Bench

T = TypeVar("T")

KNOWN, FOREIGN = "mail.send", "report.make"
TYPES = (KNOWN, FOREIGN)
SPENT_LEASES = 2  # of jobs without a lease: they are many and alike
LIMIT = 2_000_000.0  # seconds, and the most that PostgreSQL takes: the clock jumps by days while a transaction is open


class Steps(RuleBasedStateMachine):
    """Drives the bench's stores and the truth side by side."""

    bench: ClassVar[Bench]

    def __init__(self) -> None:
        super().__init__()
        self.bench.begin()
        self.truth = Truth()
        self.fences: dict[UUID, int] = {}
        self.made = 0
        self.jobs: list[UUID] = []
        self.claimed: list[Job] = []  # as they were; their leases may be stale by now
        self.workers: list[UUID] = []
        self.silent: set[UUID] = set()  # frozen or crashed
        self.late: Late | None = None
        for isolates in (False, True):
            self.join(isolates=isolates)

    def join(self, *, isolates: bool = False) -> UUID:
        """A new worker."""
        new = NewWorker(
            id=self.next_id(),
            name="host:1",
            lease=LEASE,
            queues=None,
            types=TYPES,
            concurrency=10,
            isolates=isolates,
        )
        self.do(self.store.register(new))
        self.truth.register(new.id, self.lease_end, isolates=isolates)
        self.workers.insert(0, new.id)
        return new.id

    def claim_as(self, claim: Claim) -> Claimed:
        claimed: Claimed = self.do(self.process_of(claim.worker).claim(claim))
        merged = self.bench.dialect == "sqlite" or claim.by_creation
        scope = Scope(complete=merged or claim.rescan, merged=merged)
        check_claim(self.truth, claim, claimed, self.now, scope=scope)
        for job in claimed.jobs:
            self.truth.claim(job, claim.worker, self.now)
        self.claimed = [*claimed.jobs, *self.claimed]
        return claimed

    def claim_and_hear_nothing(self, claim: Claim) -> None:
        """The claim committed and its answer was lost: the jobs are this worker's, and it does not know."""
        with losing("claim.committed"):
            self.do(self.process_of(claim.worker).claim(claim))
        for row in self.bench.look().jobs:
            if row.worker == claim.worker and row.token != self.truth.jobs[row.id].token:
                assert row.id in self.truth.eligible(claim, self.now), f"claim: {row.id} was not claimable"
                self.truth.claim(row, claim.worker, self.now)

    def finish_all(self, batch: list[Transition], *, lost: bool = False) -> None:
        finished: Finished | None = None
        with losing("finish.committed") if lost else nullcontext():
            finished = self.do(self.store.finish(batch))
        for transition in batch:
            state = self.truth.finish(transition, self.now)
            self.finished(transition.job, state)
            self.check_settled_by(transition.lease)
            if finished is not None:
                answer = finished.states.get(transition.job)
                assert answer == state, f"I3: {transition.verb} under {transition.lease} returned {answer}, not {state}"
                assert (transition.job in finished.lost) is (state is None), (
                    "I3: the lease was lost, and the store did not report it"
                )

    def check_settled_by(self, lease: Lease) -> None:
        answer = self.do(self.store.finished_by(lease))
        assert answer is self.truth.finished_by(lease), f"I3: settled_by() said {answer} of {lease}"

    def operate_on(self, job: UUID, verb: Verb) -> None:
        answer = answer_of(lambda: self.do(self.store.operate(verb, job)))
        expected = answer_of(lambda: self.truth.operate(verb, job, self.now))
        assert answer == expected, f"{verb}: returned {answer} instead of {expected}"
        if answer is State.CANCELLED:
            self.finished(job, answer)
        if answer is State.RUNNING:
            worker = self.truth.jobs[job].worker
            assert worker is not None
            assert job in self.do(self.process_of(worker).cancel_requests(worker)), "cancel: its worker cannot see it"

    def end_lingering(self, *, commits: bool) -> None:
        if self.late is None:
            return
        late, self.late = self.late, None
        if commits:
            self.do(late.transaction.commit())
            self.accept(late.new, late.began)
        self.do(late.block.__aexit__(None, None, None))

    def sweep(self, *, page: int) -> None:
        swept = self.do(self.store.sweep(max_crashes=MAX_CRASHES, page=page))
        ended = {life.id for life in self.truth.jobs.values() if life.status in FINAL}
        self.adopt_unknown()
        expected = self.truth.sweep(self.now, overlooks_unknown=self.bench.dialect == "postgres")
        untouched = [life for life in self.truth.jobs.values() if life.status is State.RUNNING]
        check_untaken(untouched, self.bench.look())
        assert swept == expected, f"rescue: returned {swept} instead of {expected}"
        for life in self.truth.jobs.values():
            if life.id not in ended:
                self.finished(life.id, life.status)

    def prune(self, *, history: float) -> None:
        horizon = self.now - timedelta(seconds=history)
        # PostgreSQL drops whole days.
        grace = timedelta(days=1) if self.bench.dialect == "postgres" else timedelta()
        self.do(self.store.prune(history=history, audit=history))
        left = {row.id for row in self.bench.look().history}
        for life in [each for each in self.truth.jobs.values() if each.status in ARCHIVED]:
            assert life.finished_at is not None
            if life.id in left:
                assert life.finished_at >= horizon - grace, f"retention: {life.id} is older than {history} s"
            else:
                assert life.finished_at < horizon, f"I1: {life.id} vanished before its time"
                self.truth.forget(life.id)

    def sweep_halfway(self) -> None:
        """The sweeper dies between its two steps: workers are marked, and their jobs still under current leases."""
        with losing("sweep.before_rescue"):
            self.do(self.store.sweep(max_crashes=MAX_CRASHES))
        self.adopt_unknown()
        self.truth.bury(self.now)

    def adopt_unknown(self) -> None:
        """PostgreSQL searches for holders without a row only now and then; one that it found has a dead row now."""
        for worker, dead in self.bench.look().workers.items():
            if worker not in self.truth.workers and dead and any(self.truth.held_by(worker)):
                self.truth.adopt(worker, self.now)

    def record(self, progress: Progress) -> None:
        self.do(self.store.record([progress]))
        self.truth.record(progress, self.now)

    def advance(self, seconds: float) -> None:
        self.bench.advance(seconds)
        for worker in [each for each in self.truth.workers if each not in self.silent]:
            self.beat(worker)

    def beat(self, worker: UUID) -> None:
        answer = self.do(self.bench.heartbeat.beat(worker, LEASE))
        assert answer is self.truth.beat(worker, self.lease_end), f"beat: {worker} got {answer}"

    def finished(self, job: UUID, state: State | None) -> None:
        """The store reported a final state for this job: I5 allows one per life."""
        if state in FINAL:
            self.truth.jobs[job].finals += 1

    def accept(self, new: list[NewJob], when: datetime) -> None:
        for job in new:
            self.truth.accept(job, when)
            self.jobs.insert(0, job.id)

    def new_jobs(self, options: list[dict[str, Any]]) -> list[NewJob]:
        return [
            NewJob(id=self.next_id(each["salt"]), input="{}", **{k: v for k, v in each.items() if k != "salt"})
            for each in options
        ]

    def next_id(self, salt: int = 0) -> UUID:
        """Not random, so that an example runs again as it ran; salted, so that ids and time disagree."""
        self.made += 1
        return UUID(int=salt << 96 | 0x7 << 76 | 0x2 << 62 | self.made)

    def something_held(self) -> list[Job]:
        """Leases to try, current or stale. Where no job runs, one is claimed: no step is wasted."""
        if not self.running:
            living = [worker for worker in self.workers if self.truth.alive(worker)]
            claim = Claim(worker=living[0] if living else self.join(), room=3, types=TYPES, rescan=True)
            if not self.truth.eligible(claim, self.now):
                new = [NewJob(id=self.next_id(), type=KNOWN, input="{}") for _ in range(claim.room)]
                self.do(self.store.enqueue(new))
                self.accept(new, self.now)
            self.claim_as(claim)
        return self.held

    @property
    def live(self) -> int:
        return sum(life.status not in FINAL for life in self.truth.jobs.values())

    @property
    def held(self) -> list[Job]:
        """Jobs with a lease to try, current or stale: those that run come first."""
        spent = [job for job in self.claimed if job.id not in self.running]
        return [job for job in self.claimed if job.id in self.running] + spent[:SPENT_LEASES]

    @property
    def running(self) -> set[UUID]:
        return {life.id for life in self.truth.jobs.values() if life.status is State.RUNNING} & {
            job.id for job in self.claimed
        }

    @property
    def store(self) -> Store:
        return self.bench.stores[-1]

    def process_of(self, worker: UUID) -> Store:
        return self.bench.stores[worker.int % len(self.bench.stores)]

    @property
    def now(self) -> datetime:
        return self.bench.clock.now()

    @property
    def lease_end(self) -> datetime:
        return self.now + timedelta(seconds=LEASE)

    def do(self, work: Any) -> Any:
        return self.bench.do(work)


@dataclass(kw_only=True)
class Late:
    """A transaction that lingers."""

    block: AbstractAsyncContextManager[Transaction]
    transaction: Transaction
    new: list[NewJob]
    began: datetime


class Undone(Exception):
    """Raised inside a transaction, to leave it that way."""


async def leave(transaction: Transaction, how: str) -> None:
    if how == "commit":
        await transaction.commit()
    elif how == "rollback":
        await transaction.rollback()
    elif how == "raise":
        raise Undone


def pick(choices: Sequence[T], number: int) -> T:
    return choices[number % len(choices)]


@contextmanager
def losing(failpoint: str) -> Iterator[None]:
    """What happens inside commits, and its answer never comes."""

    def lose() -> None:
        raise AnswerLost

    failpoints.arm(failpoint, lose)
    try:
        yield
    except AnswerLost:
        pass
    finally:
        failpoints.disarm()


def answer_of(ask: Any) -> Any:
    """The answer, or the kind of refusal."""
    try:
        return ask()
    except (JobNotFound, TransitionRefused) as refusal:
        return type(refusal)


class AnswerLost(Exception):
    """A failpoint fired after the commit: the write happened, and its answer was lost."""
