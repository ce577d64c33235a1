"""The machine: every verb of a store, in any order, on two processes and a clock that jumps."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from store.rig import LEASE
from windlass import failpoints
from windlass.model.outcome import Progress
from windlass.model.state import FINAL, State, Verb, allows
from windlass.store.protocol import Claim, Suspects

from .endings import DELAYS, ENDINGS, ending
from .invariants import check_tables
from .steps import FOREIGN, KNOWN, LIMIT, TYPES, Late, Steps, Undone, leave, pick

QUEUES = ("mail", "pages")
MOST_JOBS = 16
MOST_WORKERS = 6
DAY = timedelta(days=1).total_seconds()
PATIENCE = 13  # sweeps in which even the jobs of a worker without a row come back
PAGES = st.sampled_from([1, 2, 500])
HISTORIES = (60.0, DAY, 7 * DAY)  # seconds

NEW_JOB = st.fixed_dictionaries(
    {
        "type": st.sampled_from([KNOWN, KNOWN, FOREIGN]),
        "queue": st.sampled_from(QUEUES),
        "tenant": st.sampled_from(["acme", "else"]),
        "priority": st.sampled_from([0, 0, 5, -1]),
        "phase_rank": st.sampled_from([0, 0, 1]),
        "max_attempts": st.sampled_from([4, 1, 2]),
        "delay": st.sampled_from([None, None, None, 0.5, 20.0, 100.0]),
        "salt": st.integers(0, 3),
    }
)
NEW_JOBS = st.lists(NEW_JOB, min_size=1, max_size=3)
RARELY = st.sampled_from([False] * 7 + [True])
PICK = st.integers(0, 11)  # the newest first, so that examples shrink towards what just happened
STEPS = st.sampled_from([0.5, 0.5, 5.0, LEASE - 1, LEASE + 1, LEASE + 1, 95.0, DAY, 9 * DAY])
UNDOINGS = ["leave", "rollback", "raise"]
OPERATIONS = (Verb.CANCEL, Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.DISCARD)


class StoreMachine(Steps):
    """The rules. What several of them share is in `Steps`."""

    # The way in

    @precondition(lambda self: self.live < MOST_JOBS)
    @rule(options=NEW_JOBS, how=st.sampled_from(["plain"] * 4 + ["commit", *UNDOINGS]))
    def enqueue(self, options: list[dict[str, Any]], how: str) -> None:
        new = self.new_jobs(options)

        async def enqueue() -> None:
            async with self.store.transaction(limit=LIMIT) as transaction:
                await transaction.enqueue(new)
                await leave(transaction, how)

        with suppress(Undone):
            self.do(self.store.enqueue(new) if how == "plain" else enqueue())
        if how not in UNDOINGS:
            self.accept(new, self.now)

    @precondition(lambda self: self.bench.dialect == "postgres" and self.live < MOST_JOBS)
    @rule(options=NEW_JOBS, commits=st.sampled_from([True, True, False]))
    def linger(self, options: list[dict[str, Any]], commits: bool) -> None:
        """An enqueue in a transaction that stays open while other steps run. On a file it would block every writer."""
        if self.late is not None:
            self.end_lingering(commits=commits)
            return
        block, new = self.store.transaction(limit=LIMIT), self.new_jobs(options)
        self.late = Late(block=block, transaction=self.do(block.__aenter__()), new=new, began=self.now)
        self.do(self.late.transaction.enqueue(new))

    # Workers

    @rule(worker=PICK, what=st.sampled_from(["register", "beat", "beat", "freeze", "freeze", "crash", "deregister"]))
    def change(self, worker: int, what: str) -> None:
        """A frozen worker may wake, claim and finish; of one that crashed only late packets arrive."""
        chosen = pick(self.workers, worker)
        if what == "beat":
            self.silent.discard(chosen)
            self.beat(chosen)
            return
        if what == "register":
            if len(self.truth.workers) < MOST_WORKERS:
                self.join(isolates=worker % 2 == 0)
            return
        self.silent.add(chosen)
        if what == "deregister":
            self.do(self.store.deregister(chosen))
            self.truth.deregister(chosen)
        if what != "freeze" and len(self.workers) > 2:
            self.workers.remove(chosen)

    @rule(seconds=STEPS, then=st.sampled_from(["nothing", "sweep", "sweep", "sweep halfway", "keep house"]), page=PAGES)
    def time_passes(self, seconds: float, then: str, page: int) -> None:
        """The clock jumps and the living beat; then perhaps a duty falls due."""
        if self.late is not None and (self.now - self.late.began).total_seconds() + seconds > LIMIT:
            self.end_lingering(commits=True)  # open for weeks: longer than it may be
        self.advance(seconds)
        if then == "sweep":
            self.sweep(page=page)
        elif then == "sweep halfway":
            self.sweep_halfway()
        elif then == "keep house":
            self.prune(history=pick(HISTORIES, page))

    # A job's life

    @rule(
        worker=PICK,
        room=st.integers(1, 5),
        types=st.sampled_from([TYPES, (KNOWN,)]),
        queues=st.sampled_from([None, None, QUEUES, QUEUES[:1]]),
        rescan=st.booleans(),
        aged=st.sampled_from([0, 0, 1, 2]),
        suspects=st.sampled_from([Suspects.WITH, *Suspects]),
        steady=RARELY,
        lost=RARELY,
    )
    def claim(self, worker: int, steady: bool, lost: bool, aged: int, **more: Any) -> None:
        pace: dict[str, Any] = {"by_creation": True, "untouched": LEASE} if steady else {"aged": aged}
        claim = Claim(worker=pick(self.workers, worker), **more, **pace)
        if lost:
            self.claim_and_hear_nothing(claim)
        else:
            self.claim_as(claim)

    @rule(job=PICK, successor=PICK)
    def overtake(self, job: int, successor: int) -> None:
        """A holder sleeps beyond its lease and another worker takes over: from here on the first is a zombie."""
        holder, heir = pick(self.something_held(), job).worker, pick(self.workers, successor)
        if holder is not None and holder != heir:
            self.silent.add(holder)
        self.advance(LEASE + 1)
        self.sweep(page=500)
        if not self.truth.alive(heir):
            heir = self.join()
        self.claim_as(Claim(worker=heir, room=2 * MOST_JOBS, types=TYPES, rescan=True))

    @rule(job=PICK, how=ENDINGS, delay=DELAYS, processed=st.one_of(st.none(), st.integers(0, 9)))
    def finish(self, job: int, how: str, delay: float, processed: int | None) -> None:
        """Under any lease, current or stale; sometimes progress is recorded before."""
        claimed = pick(self.something_held(), job)
        if processed is not None:
            self.record(Progress(lease=claimed.lease, total=10, processed=processed, failed=1))
        self.finish_all([ending(claimed, how, delay)])

    @rule(batch=st.lists(st.tuples(PICK, ENDINGS, DELAYS), min_size=2, max_size=4), lost=RARELY)
    def finish_batch(self, batch: list[tuple[int, str, float]], lost: bool) -> None:
        """One lease per job, as a completer has them; the answer may get lost after the commit."""
        held = self.something_held()
        transitions = [ending(pick(held, job), how, delay) for job, how, delay in batch]
        self.finish_all(list({each.job: each for each in transitions}.values()), lost=lost)

    @rule(
        job=PICK,
        how=st.sampled_from(["commit", "commit", "commit", *UNDOINGS]),
        children=st.one_of(st.just([]), NEW_JOBS),
    )
    def finish_in_a_transaction(self, job: int, how: str, children: list[dict[str, Any]]) -> None:
        """Effect, children and finish, committed together; with a stale lease, or undone, none of them."""
        claimed, new = pick(self.something_held(), job), self.new_jobs(children)
        transition = ending(claimed, "succeed", 0.0)

        async def finish() -> None:
            async with self.store.transaction(limit=LIMIT) as transaction:
                await transaction.execute("INSERT INTO effects VALUES ($1, $2)", str(claimed.id), claimed.fence)
                await transaction.enqueue(new)
                answer = await transaction.finish(transition)
                assert answer is (current is not None), f"I3: finish() said {answer} under {transition.lease}"
                await leave(transaction, how if answer else "leave")

        current = self.truth.current(claimed.lease)
        with suppress(Undone):
            self.do(finish())
        if current is not None and how == "commit":
            self.finished(claimed.id, self.truth.finish(transition, self.now))
            current.effects += 1
            self.accept(new, self.now)
        self.check_settled_by(claimed.lease)

    # Operators

    @precondition(lambda self: self.jobs)
    @rule(job=PICK, verb=st.integers(0, 9), fitting=st.sampled_from([True, True, True, False]))
    def operate(self, job: int, verb: int, fitting: bool) -> None:
        chosen = pick(self.jobs, job)
        life = self.truth.jobs.get(chosen)
        verbs = [each for each in OPERATIONS if life is not None and fitting and allows(each, life.status)]
        if life is not None and life.status is State.RUNNING:
            verbs = [Verb.CANCEL]
        self.operate_on(chosen, pick(verbs or OPERATIONS, verb))

    # What must be true

    @invariant()
    def tables_agree(self) -> None:
        check_tables(self.truth, self.bench.look(), self.fences)
        counts = self.do(self.store.counts())
        assert counts == self.truth.counts(), f"I8: counted {counts} instead of {self.truth.counts()}"

    def teardown(self) -> None:
        """I1 and I4 at the end of every example: after the last step every job can be brought to its end."""
        try:
            if sys.exc_info()[0] is None:
                self.finish_everything()
        finally:
            failpoints.disarm()
            self.end_lingering(commits=False)
            self.bench.end()

    def finish_everything(self) -> None:
        self.bench.advance(LEASE + 9 * DAY)
        for _ in range(PATIENCE):
            self.sweep(page=500)
        worker = self.join(isolates=True)
        while (claimed := self.claim_as(Claim(worker=worker, room=5, types=TYPES, rescan=True))).jobs:
            for job in claimed.jobs:
                transition = ending(job, "succeed", 0.0)
                finished = self.do(self.store.finish([transition]))
                assert finished.states == {job.id: self.truth.finish(transition, self.now)}
                self.finished(job.id, State.SUCCEEDED)
        self.tables_agree()
        stuck = [life for life in self.truth.jobs.values() if life.status not in {*FINAL, State.WAITING}]
        assert not stuck, f"I4: stuck: {stuck}"
