"""Jobs that wait for other jobs: an edge per awaited job, and one row per waiter that counts the arrivals.

An arrival is the end of an awaited job. These are generators of statements (see `statements.py`).

The race that all of this has to survive: a job ends while another begins to wait for it. The waiter marks the awaited
row `followed` under that row's lock. If the finish comes first, it has moved the row to the history; the waiter reads
the history in a second statement, which has a snapshot of its own, and sees the job ended. If the finish comes second,
it finds the mark, searches for edges, and sees this one. Arrivals are counted on one row per waiter: the lock of that
row decides which arrival is the last.

Order of locks: jobs, edges, waits. Only an arrival goes back to a job's row, the waiter's, and it does not wait for
that lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from windlass.model.job import ABANDONED, Edge, Policy, Wait
from windlass.model.state import FINAL, State
from windlass.policy.fingerprint import fingerprint
from windlass.store.parts.statements import Statements, run, uuid_of


class BegunWaits(NamedTuple):
    """What was decided while the waits began: jobs that were woken at once, and jobs that ended."""

    woken: frozenset[UUID]
    ended: list[UUID]


def begin_waits(waits: Mapping[UUID, Wait], *, fence: int, new: frozenset[UUID]) -> Statements[BegunWaits]:
    """Write the waits of jobs that are in the state `waiting`; a job that needs nothing more is woken at once.

    The fence distinguishes one wait of a job from its next wait: edges of an earlier one are ignored. `new` names the
    awaited jobs that this transaction wrote itself: no other transaction can have changed them.
    """
    states = yield from _states_of({edge.awaited for wait in waits.values() for edge in wait.edges}, new)
    in_cycles = yield from _in_cycles(waits, states)
    edges: list[dict[str, object]] = []
    counts: dict[UUID, Arrivals] = {}
    decided = Decisions()
    for job, wait in waits.items():
        count = counts[job] = Arrivals()
        for edge in wait.edges:
            state = states[edge.awaited]
            count.add(edge.policy, done=state in ENDED, ok=state is State.SUCCEEDED, awaited=edge.awaited)
            edges.append(_edge_row(job, fence, edge, state))
        if job in in_cycles:
            decided.bury.append({"id": job, "reason": "it waits for a job that waits for it"})
        elif wait.edges or (wait.signal is None and wait.delay is None):
            decided.decide(job, count, need=wait.need, pending=count.pending, succeeded=count.succeeded)
    if edges:
        yield from run("insert_edges", edges)
    rows = [_wait_row(job, fence, wait, counts[job]) for job, wait in waits.items()]
    for job, *_ in (yield from run("begin_waits", rows)):
        decided.wake.append(uuid_of(job))  # its signal had been sent already
    batches = [job for job, wait in waits.items() if wait.batch]
    if batches:
        yield from run("count_batch", batches)
    ended = yield from _write_decisions(decided)
    return BegunWaits(frozenset(decided.wake), ended)


def _edge_row(job: UUID, fence: int, edge: Edge, state: State | None) -> dict[str, object]:
    done = state in ENDED
    return {
        "awaited": edge.awaited,
        "waiter": job,
        "fence": fence,
        "policy": edge.policy,
        "done": done,
        "ok": state is State.SUCCEEDED or (done and edge.policy is Policy.CONTINUE),
    }


def _wait_row(job: UUID, fence: int, wait: Wait, count: Arrivals) -> dict[str, object]:
    return {
        "job": job,
        "fence": fence,
        "need": wait.need,
        "pending": count.pending,
        "succeeded": count.succeeded,
        "bad": count.bad,
        "total": len(wait.edges),
        "batch": wait.batch,
        "signal": wait.signal,
        "delay": wait.delay,
    }


def _in_cycles(waits: Mapping[UUID, Wait], states: Mapping[UUID, State | None]) -> Statements[frozenset[UUID]]:
    """The jobs that would wait, over any number of others, for themselves: they would never wake.

    Only a wait for a job that waits itself can close such a cycle. Transactions that write one take a lock and so run
    one after the other: of two that close a cycle together, the second sees the first.
    """
    wanted = [
        {"job": job, "awaited": edge.awaited}
        for job, wait in waits.items()
        for edge in wait.edges
        if states[edge.awaited] is State.WAITING
    ]
    if not wanted:
        return frozenset()
    yield from run("lock_wait_graph")
    return frozenset(uuid_of(row[0]) for row in (yield from run("cycles", wanted)))


ENDED = FINAL | {None}
"""States of an awaited job that has ended; None stands for a job that no longer exists."""


def _states_of(awaited: set[UUID], new: frozenset[UUID]) -> Statements[dict[UUID, State | None]]:
    """The states of awaited jobs. Each job that has not ended is marked `followed` under its row's lock."""
    states: dict[UUID, State | None] = dict.fromkeys(awaited & new, State.QUEUED)
    others = sorted(awaited - new)
    if others:
        found = {uuid_of(row[0]): State(row[1]) for row in (yield from run("mark_followed", others))}
        missing = [job for job in others if job not in found]
        if missing:  # a second statement, so a later snapshot: it sees a finish that came first
            found |= {uuid_of(row[0]): State(row[1]) for row in (yield from run("ended_states", missing))}
        states |= {job: found.get(job) for job in others}
    return states


def count_ends(ends: Mapping[UUID, bool]) -> Statements[list[UUID]]:
    """Count the ends of awaited jobs for their waiters; wake, bury or cancel each waiter that this decides.

    `ends` has for each job whether it succeeded. Returns the waiters that ended.
    """
    by_wait: dict[tuple[UUID, int], Arrivals] = {}
    rows = yield from run("mark_arrivals", [{"awaited": job, "ok": ok} for job, ok in sorted(ends.items())])
    for waiter, fence, awaited, policy, ok in rows:
        count = by_wait.setdefault((uuid_of(waiter), fence), Arrivals())
        count.add(Policy(policy), done=True, ok=bool(ok), awaited=uuid_of(awaited))
    if not by_wait:
        return []
    arrivals = [
        {"job": job, "fence": fence, "arrived": count.arrived, "succeeded": count.succeeded, "bad": count.bad}
        for (job, fence), count in sorted(by_wait.items())
    ]
    decided, batches = Decisions(), []
    for job, fence, need, pending, succeeded, batch in (yield from run("count_arrivals", arrivals)):
        waiter = uuid_of(job)
        count = by_wait[waiter, fence]
        decided.decide(waiter, count, need=need, pending=pending, succeeded=succeeded)
        if batch:
            batches.append(waiter)
    if batches:
        yield from run("count_batch", sorted(batches))
    return (yield from _write_decisions(decided))


def reopen_waits(job: UUID) -> Statements[None]:
    """After a replay or a resume: each job that still waits for this one waits for its end again."""
    rows = [(uuid_of(waiter), fence, ok) for waiter, fence, ok in (yield from run("reopen_edges", [job]))]
    if not rows:
        return
    yield from run("mark_followed", [job])  # it may have ended before a job waited for it
    arrivals = [
        {"job": waiter, "fence": fence, "arrived": -1, "succeeded": -1 if ok else 0, "bad": -1}
        for waiter, fence, ok in rows  # bad: only a job that ended badly can be replayed
    ]
    batches = [uuid_of(row[0]) for row in (yield from run("count_arrivals", arrivals)) if row[-1]]
    if batches:
        yield from run("count_batch", sorted(batches))


class Arrivals:
    """The arrivals counted for one waiter."""

    def __init__(self) -> None:
        self.arrived = self.succeeded = self.pending = self.bad = 0
        self.fatal: tuple[Policy, UUID] | None = None

    def add(self, policy: Policy, *, done: bool, ok: bool, awaited: UUID) -> None:
        if not done:
            self.pending += 1
            return
        self.arrived += 1
        if ok or policy is Policy.CONTINUE:
            self.succeeded += 1
        if not ok:
            self.bad += 1
            if policy is Policy.FAIL or (policy is Policy.SKIP and self.fatal is None):
                self.fatal = (policy, awaited)


class Decisions:
    """Waiters that need not wait any longer: woken, dead because an awaited job failed, or cancelled for it."""

    def __init__(self) -> None:
        self.wake: list[UUID] = []
        self.bury: list[dict[str, object]] = []
        self.cancel: list[dict[str, object]] = []
        self.ended: set[UUID] = set()

    def end_waiter(self, job: UUID, policy: Policy, awaited: UUID) -> None:
        """An awaited job ended badly, and the edge's policy ends the waiter too, once."""
        if job in self.ended:
            return
        self.ended.add(job)
        fails = policy is Policy.FAIL
        reason = f"{'failed' if fails else 'skipped'}: job {awaited}, on which it depends, did not succeed"
        (self.bury if fails else self.cancel).append({"id": job, "reason": reason})

    def decide(self, job: UUID, count: Arrivals, *, need: int, pending: int, succeeded: int) -> None:
        if count.fatal is not None:
            self.end_waiter(job, *count.fatal)
        elif succeeded >= need or succeeded + pending < need:
            self.wake.append(job)


def wake_jobs(jobs: Iterable[UUID]) -> Statements[int]:
    """Make waiting jobs claimable; returns how many.

    A row that another transaction has locked is skipped. An arrival holds the row of the job that ended; if it waited
    for the waiter's row, it could deadlock with a cancel, which locks the waiter first and then its children.
    `wake_due_jobs` wakes the skipped job later.
    """
    woken = [row[0] for row in (yield from run("wake_waiting", sorted(jobs), wakes=True))]
    if woken:
        yield from run("delete_waits", woken)
    return len(woken)


def _write_decisions(decided: Decisions) -> Statements[list[UUID]]:
    """Write the decisions; returns the jobs that ended."""
    ended: list[UUID] = []
    if decided.wake:
        yield from wake_jobs(decided.wake)
    if decided.bury:
        dead = [{**each, "fingerprint": fingerprint(ABANDONED, str(each["reason"]))} for each in decided.bury]
        ended += [uuid_of(row[0]) for row in (yield from run("bury_waiting", dead))]
    if decided.cancel:
        ended += [uuid_of(row[0]) for row in (yield from run("cancel_many", decided.cancel))]
    return ended


def wake_due_waits(page: int) -> Statements[tuple[int, list[UUID]]]:
    """Wake jobs at the end of their timers, and decide waits that an arrival left because the waiter's row was locked.

    Returns how many woke, and the jobs that ended.
    """
    due = [uuid_of(row[0]) for row in (yield from run("due_waits", [page]))]
    if not due:
        return 0, []
    yield from run("count_batch", sorted(due))
    decided = Decisions()
    for waiter, policy, awaited in (yield from run("fatal_edges", sorted(due))):
        decided.end_waiter(uuid_of(waiter), Policy(policy), uuid_of(awaited))
    woken = yield from wake_jobs(job for job in due if job not in decided.ended)
    return woken, (yield from _write_decisions(decided))
