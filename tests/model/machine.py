"""The machine: every verb of a store, in any order, on two processes and a clock that jumps."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from store.rig import LEASE
from windlass import failpoints
from windlass.errors import JobNotFound, TransitionRefused
from windlass.job import Job, Lease, NewJob
from windlass.outcome import Progress, Transition
from windlass.state import ARCHIVED, FINAL, State, Verb
from windlass.store.protocol import Claim, Claimed, NewWorker, Settled, Store, Suspects

from .endings import ENDINGS, ending
from .invariants import Scope, check_claim, check_tables, check_untaken
from .truth import MAX_CRASHES, Truth

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from windlass.store.protocol import Transaction

    from .bench import Bench

KNOWN, FOREIGN = "mail.send", "report.make"
TYPES = (KNOWN, FOREIGN)
QUEUES = ("mail", "pages")
MOST_JOBS = 16
MOST_WORKERS = 6
LIMIT = 1_000_000.0  # seconds: the clock jumps by days while a transaction is open
DAY = timedelta(days=1).total_seconds()

NEW_JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from([KNOWN, KNOWN, FOREIGN]),
            "queue": st.sampled_from(QUEUES),
            "tenant": st.sampled_from(["acme", "else"]),
            "priority": st.sampled_from([0, 0, 5, -1]),
            "phase_rank": st.sampled_from([0, 0, 1]),
            "max_attempts": st.sampled_from([4, 1, 2]),
            "delay": st.sampled_from([None, None, 0.5, 20.0, 100.0]),
            "salt": st.integers(0, 3),
        }
    ),
    min_size=1,
    max_size=3,
)
RARELY = st.sampled_from([False] * 7 + [True])
STEPS = st.sampled_from([0.5, 5.0, LEASE - 1, LEASE + 1, 95.0, DAY, 9 * DAY])
UNDOINGS = ["leave", "rollback", "raise"]


class AnswerLost(Exception):
    """A failpoint fired after the commit: it happened, and nobody was told."""


class StoreMachine(RuleBasedStateMachine):
    """Drives the bench's stores and the truth side by side."""

    bench: ClassVar[Bench]

    jobs: Bundle[UUID] = Bundle("jobs")
    workers: Bundle[UUID] = Bundle("workers")
    held: Bundle[Job] = Bundle("held")  # as they were claimed; their leases may be stale by now

    def __init__(self) -> None:
        super().__init__()
        self.truth = Truth()
        self.fences: dict[UUID, int] = {}
        self.frozen: set[UUID] = set()
        self.made = 0
        self.late: tuple[AbstractAsyncContextManager[Transaction], Transaction, list[NewJob], datetime] | None = None
        self.bench.begin()

    @initialize(target=workers)
    def two_workers(self) -> Any:
        return multiple(self.register(), self.register())

    # The way in

    @precondition(lambda self: len(self.truth.jobs) < MOST_JOBS)
    @rule(target=jobs, wishes=NEW_JOBS)
    def enqueue(self, wishes: list[dict[str, Any]]) -> Any:
        new = self.new_jobs(wishes)
        self.do(self.store.enqueue(new))
        return self.accept(new, self.now)

    @rule(wishes=NEW_JOBS, how=st.sampled_from(UNDOINGS))
    def enqueue_and_undo(self, wishes: list[dict[str, Any]], how: str) -> None:
        new = self.new_jobs(wishes)

        async def enqueue() -> None:
            async with self.store.transaction(limit=LIMIT) as transaction:
                await transaction.enqueue(new)
                await undo(transaction, how)

        with ignoring(Undone):
            self.do(enqueue())

    # A transaction that stays open while others go on: on a file it would keep every writer out.

    @precondition(lambda self: self.late is None and self.bench.dialect == "postgres")
    @precondition(lambda self: len(self.truth.jobs) < MOST_JOBS)
    @rule(wishes=NEW_JOBS)
    def enqueue_and_linger(self, wishes: list[dict[str, Any]]) -> None:
        new = self.new_jobs(wishes)
        block = self.store.transaction(limit=LIMIT)
        transaction = self.do(block.__aenter__())
        self.late = block, transaction, new, self.now
        self.do(transaction.enqueue(new))

    @precondition(lambda self: self.late is not None)
    @rule(target=jobs, commits=st.sampled_from([True, True, False]))
    def end_lingering(self, commits: bool) -> Any:
        assert self.late is not None
        block, transaction, new, began = self.late
        self.late = None
        if commits:
            self.do(transaction.commit())
        self.do(block.__aexit__(None, None, None))
        return self.accept(new, began) if commits else multiple()

    # Workers

    @precondition(lambda self: len(self.truth.workers) < MOST_WORKERS)
    @rule(target=workers)
    def register(self) -> UUID:
        worker = self.next_id()
        new = NewWorker(id=worker, name="host:1", lease=LEASE, queues=None, types=TYPES, concurrency=10)
        self.do(self.store.register(new))
        self.truth.register(worker, self.lease_end)
        return worker

    @rule(worker=workers)
    def beat(self, worker: UUID) -> None:
        self.frozen.discard(worker)
        self.beat_once(worker)

    @rule(worker=workers)
    def freeze(self, worker: UUID) -> None:
        """It beats no more, and does not know that it sleeps: it may still claim and finish."""
        self.frozen.add(worker)

    @rule(worker=consumes(workers))
    def crash(self, worker: UUID) -> None:
        """It never beats or claims again; what it sent before may still arrive."""
        self.frozen.add(worker)

    @rule(worker=consumes(workers))
    def deregister(self, worker: UUID) -> None:
        self.do(self.store.deregister(worker))
        self.truth.deregister(worker)
        self.frozen.add(worker)

    @rule(seconds=STEPS)
    def time_passes(self, seconds: float) -> None:
        self.bench.advance(seconds)
        for worker in [each for each in self.truth.workers if each not in self.frozen]:
            self.beat_once(worker)

    # A job's life

    @rule(
        target=held,
        worker=workers,
        room=st.integers(1, 5),
        types=st.sampled_from([TYPES, (KNOWN,)]),
        queues=st.sampled_from([None, None, QUEUES, QUEUES[:1]]),
        rescan=st.booleans(),
        aged=st.sampled_from([0, 0, 1, 2]),
        suspects=st.sampled_from([Suspects.WITH, *Suspects]),
        steady=RARELY,
        lost=RARELY,
    )
    def claim(self, worker: UUID, steady: bool, lost: bool, aged: int, **wish: Any) -> Any:
        pace = {"by_creation": True, "rest": LEASE} if steady else {"aged": aged}
        claim = Claim(worker=worker, **wish, **pace)
        return multiple() if lost else multiple(*self.claim_as(claim).jobs) if not lost else None

    @precondition(lambda self: any(life.status is State.QUEUED for life in self.truth.jobs.values()))
    @rule(worker=workers)
    def claim_and_hear_nothing(self, worker: UUID) -> None:
        """The claim committed and its answer was lost: the jobs are this worker's, and it does not know."""
        before = {life.id for life in self.truth.held_by(worker)}
        claim = Claim(worker=worker, room=2, types=TYPES, rescan=True)
        with losing("claim.committed"):
            self.do(self.process_of(worker).claim(claim))
        rows = [row for row in self.bench.look().jobs if row.worker == worker and row.id not in before]
        for row in rows:
            assert row.id in self.truth.eligible(claim, self.now), f"claim: {row.id} was not claimable"
            self.truth.claim(row, worker, self.now)

    @rule(target=held, worker=workers)
    def look_everywhere(self, worker: UUID) -> Any:
        """I4: a quiet sweep, then a rescan with room enough, and nothing that is due is left."""
        self.do_sweep(page=500)
        claimed = self.claim_as(Claim(worker=worker, room=2 * MOST_JOBS, types=TYPES, rescan=True))
        return multiple(*claimed.jobs)

    @rule(job=held, others=st.lists(held, max_size=2), how=ENDINGS, delay=st.sampled_from([0.0, 0.5, 40.0]), lost=RARELY)
    def settle(self, job: Job, others: list[Job], how: str, delay: float, lost: bool) -> None:
        """Under whatever leases there are, current or stale; one lease per job, as a completer has them."""
        batch = {each.id: ending(each, how, delay) for each in [*others, job]}
        settled: Settled | None = None
        if lost:
            with losing("finish.committed"):
                self.do(self.store.settle(list(batch.values())))
        else:
            settled = self.do(self.store.settle(list(batch.values())))
        for transition in batch.values():
            state = self.truth.settle(transition, self.now)
            self.finished(transition.job, state)
            if settled is not None:
                told = settled.states.get(transition.job)
                assert told == state, f"I3: {how} under {transition.lease} told {told} instead of {state}"
                assert (transition.job in settled.lost) is (state is None), "I3: lost, and nobody was told"
            archived = state is not None and state in ARCHIVED
            assert self.do(self.store.settled_by(transition.lease)) is archived or state is None

    @rule(
        target=jobs,
        job=held,
        how=st.sampled_from(["commit", "commit", "commit", *UNDOINGS]),
        children=st.one_of(st.just([]), NEW_JOBS),
    )
    def finish_in_a_transaction(self, job: Job, how: str, children: list[dict[str, Any]]) -> Any:
        """Effect, children and finish, committed together; with a stale lease, or undone, none of them."""
        transition, new = ending(job, "succeed", 0.0), self.new_jobs(children)

        async def finish() -> bool:
            async with self.store.transaction(limit=LIMIT) as transaction:
                await transaction.execute("INSERT INTO effects VALUES ($1, $2)", str(job.id), job.fence)
                await transaction.enqueue(new)
                finished = await transaction.finish(transition)
                if finished and how == "commit":
                    await transaction.commit()
                else:
                    await undo(transaction, how)
                return finished

        current = self.truth.current(job.lease)
        with ignoring(Undone):
            finished = self.do(finish())
            assert finished is (current is not None), f"I3: finish() under {job.lease} said {finished}"
        if current is None or how != "commit":
            return multiple()
        self.finished(job.id, self.truth.settle(transition, self.now))
        current.effects += 1
        assert self.do(self.store.settled_by(job.lease)), "I2: the lease finished the job, and the store denies it"
        return self.accept(new, self.now)

    @rule(job=held, processed=st.integers(0, 9))
    def record(self, job: Job, processed: int) -> None:
        progress = Progress(lease=job.lease, total=10, processed=processed, failed=1)
        self.do(self.store.record([progress]))
        self.truth.record(progress, self.now)

    # Operators

    @rule(job=jobs, verb=st.sampled_from([Verb.CANCEL, Verb.CANCEL, Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.DISCARD]))
    def operate(self, job: UUID, verb: Verb) -> None:
        expected = answer_of(lambda: self.truth.operate(verb, job, self.now))
        told = answer_of(lambda: self.do(self.store.operate(verb, job)))
        assert told == expected, f"{verb}: told {told} instead of {expected}"
        if verb is Verb.CANCEL and told is State.CANCELLED:
            self.finished(job, State.CANCELLED)
        if told is State.RUNNING:
            worker = self.truth.jobs[job].worker
            assert worker is not None
            assert job in self.do(self.process_of(worker).cancel_requests(worker)), "cancel: its worker cannot see it"

    # Sweeping and housekeeping

    @rule(page=st.sampled_from([1, 2, 500]))
    def sweep(self, page: int) -> None:
        self.do_sweep(page=page)

    @rule()
    def sweep_halfway(self) -> None:
        """The sweeper dies between its two steps: workers are marked, and their jobs still under current leases."""
        with losing("sweep.before_rescue"):
            self.do(self.store.sweep(max_crashes=MAX_CRASHES))
        self.truth.bury(self.now)

    @rule(history=st.sampled_from([60.0, DAY, 7 * DAY]))
    def keep_house(self, history: float) -> None:
        horizon = self.now - timedelta(seconds=history)
        # PostgreSQL drops whole days.
        grace = timedelta(days=1) if self.bench.dialect == "postgres" else timedelta()
        self.do(self.store.keep_house(history=history))
        left = {row.id for row in self.bench.look().history}
        for life in [each for each in self.truth.jobs.values() if each.status in ARCHIVED]:
            assert life.finished_at is not None
            if life.id in left:
                assert life.finished_at >= horizon - grace, f"retention: {life.id} is older than {history} s"
            else:
                assert life.finished_at < horizon, f"I1: {life.id} vanished before its time"
                self.truth.forget(life.id)

    # What must be true

    @invariant()
    def tables_agree(self) -> None:
        check_tables(self.truth, self.bench.look(), self.fences)
        counts = self.do(self.store.counts())
        assert counts == self.truth.counts(), f"I8: counted {counts} instead of {self.truth.counts()}"

    def teardown(self) -> None:
        """I1 and I4 at the end of every example: the dust settles, and every job can come to its end."""
        try:
            if sys.exc_info()[0] is None and self.truth.workers:
                self.finish_everything()
        finally:
            failpoints.disarm()
            if self.late is not None:
                self.do(self.late[0].__aexit__(None, None, None))
            self.bench.end()

    def finish_everything(self) -> None:
        self.bench.advance(LEASE + 9 * DAY)
        self.do_sweep(page=500)
        worker = self.register()
        while (claimed := self.claim_as(Claim(worker=worker, room=5, types=TYPES, rescan=True))).jobs:
            for job in claimed.jobs:
                transition = ending(job, "succeed", 0.0)
                settled = self.do(self.store.settle([transition]))
                assert settled.states == {job.id: self.truth.settle(transition, self.now)}
                self.finished(job.id, State.SUCCEEDED)
        self.tables_agree()
        stuck = [life for life in self.truth.jobs.values() if life.status not in {*FINAL, State.WAITING}]
        assert not stuck, f"I4: stuck: {stuck}"

    # Steps that several rules share

    def claim_as(self, claim: Claim) -> Claimed:
        claimed = self.do(self.process_of(claim.worker).claim(claim))
        merged = self.bench.dialect == "sqlite" or claim.by_creation
        scope = Scope(complete=merged or claim.rescan, merged=merged)
        check_claim(self.truth, claim, claimed, self.now, scope=scope)
        for job in claimed.jobs:
            self.truth.claim(job, claim.worker, self.now)
        return claimed

    def do_sweep(self, *, page: int) -> None:
        swept = self.do(self.store.sweep(max_crashes=MAX_CRASHES, page=page))
        ended = {life.id for life in self.truth.jobs.values() if life.status in FINAL}
        expected = self.truth.sweep(self.now)
        untouched = [life for life in self.truth.jobs.values() if life.status is State.RUNNING]
        check_untaken(untouched, self.bench.look())
        assert swept == expected, f"rescue: told {swept} instead of {expected}"
        for life in self.truth.jobs.values():
            if life.id not in ended:
                self.finished(life.id, life.status)

    def beat_once(self, worker: UUID) -> None:
        told = self.do(self.bench.heart.beat(worker, LEASE))
        assert told is self.truth.beat(worker, self.lease_end), f"beat: {worker} was told {told}"

    def finished(self, job: UUID, state: State | None) -> None:
        """A final state was told for this job: I5 allows one per life."""
        if state in FINAL:
            self.truth.jobs[job].finals += 1

    def accept(self, new: list[NewJob], when: datetime) -> Any:
        for job in new:
            self.truth.accept(job, when)
        return multiple(*[job.id for job in new])

    def new_jobs(self, wishes: list[dict[str, Any]]) -> list[NewJob]:
        return [
            NewJob(id=self.next_id(wish["salt"]), input="{}", **{k: v for k, v in wish.items() if k != "salt"})
            for wish in wishes
        ]

    def next_id(self, salt: int = 0) -> UUID:
        """Not random, so that an example runs again as it ran; salted, so that ids and time disagree."""
        self.made += 1
        return UUID(int=salt << 96 | 0x7 << 76 | 0x2 << 62 | self.made)

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


class Undone(Exception):
    """Raised inside a transaction, to leave it that way."""


async def undo(transaction: Transaction, how: str) -> None:
    if how == "rollback":
        await transaction.rollback()
    elif how == "raise":
        raise Undone


@contextmanager
def ignoring(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        pass


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
