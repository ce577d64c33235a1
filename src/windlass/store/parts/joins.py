"""Who waits for whom: counted arrivals, and what they decide. Generators, driven as `statements.py` says.

The race that all of it has to survive: a job ends while another begins to wait for it. The waiter marks the awaited
row `followed` under its lock. A finish that comes first has moved the row, and the waiter, in a statement of its own
and so with a snapshot of its own, sees it ended. A finish that comes second finds the mark, goes the way that looks for
edges, and sees this one. Arrivals are counted on one row per waiter: its lock makes one of them the last.

Locks are taken in this order: jobs, edges, waits; only an arrival goes back to a job's row, its waiter's, and it does
not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from windlass.model.job import Policy, Wait
from windlass.model.state import FINAL, State
from windlass.store.parts.statements import Statements, run, uuid_of


class Begun(NamedTuple):
    """What beginning to wait decided at once."""

    woken: frozenset[UUID]
    ended: list[UUID]


def begin_waits(waits: Mapping[UUID, Wait], *, fence: int, new: frozenset[UUID]) -> Statements[Begun]:
    """Jobs that are `waiting` by now begin to wait; those whose need is met already are woken at once.

    The fence tells one wait of a job from the next: an edge of an earlier one counts for nothing. `new` are awaited
    jobs that this very transaction wrote: nobody else can have changed them.
    """
    states = yield from _states_of({edge.awaited for wait in waits.values() for edge in wait.edges}, new)
    looping = yield from _in_a_round(waits, states)
    edges: list[dict[str, object]] = []
    counts: dict[UUID, Count] = {}
    decided = Decided()
    for job, wait in waits.items():
        count = counts[job] = Count()
        for edge in wait.edges:
            state = states[edge.awaited]
            done, ok = state in ENDED, state is State.SUCCEEDED
            count.add(edge.policy, done=done, ok=ok, awaited=edge.awaited)
            good = ok or (done and edge.policy is Policy.CONTINUE)
            edges.append(
                {
                    "awaited": edge.awaited,
                    "waiter": job,
                    "fence": fence,
                    "policy": edge.policy,
                    "done": done,
                    "ok": good,
                }
            )
        if job in looping:
            decided.abandon.append({"id": job, "reason": "it waits for a job that waits for it"})
        elif wait.edges or (wait.signal is None and wait.delay is None):
            decided.decide(job, count, need=wait.need, pending=count.pending, succeeded=count.succeeded)
    if edges:
        yield from run("insert_edges", edges)
    rows = [_wait_row(job, fence, wait, counts[job]) for job, wait in waits.items()]
    for job, *_ in (yield from run("begin_waits", rows)):
        decided.wake.append(uuid_of(job))  # its signal was there already
    batches = [job for job, wait in waits.items() if wait.batch]
    if batches:
        yield from run("count_batch", batches)
    ended = yield from _carry_out(decided)
    return Begun(frozenset(decided.wake), ended)


def _wait_row(job: UUID, fence: int, wait: Wait, count: Count) -> dict[str, object]:
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


def _in_a_round(waits: Mapping[UUID, Wait], states: Mapping[UUID, State | None]) -> Statements[frozenset[UUID]]:
    """Waiters that would wait for each other: they would never wake.

    Only somebody who waits already can close a round. Whoever begins to wait for such a job does so one after the
    other, so that of two who close one together the second sees the first.
    """
    wishes = [
        {"job": job, "awaited": edge.awaited}
        for job, wait in waits.items()
        for edge in wait.edges
        if states[edge.awaited] is State.WAITING
    ]
    if not wishes:
        return frozenset()
    yield from run("lock_wait_graph")
    return frozenset(uuid_of(row[0]) for row in (yield from run("cycles", wishes)))


ENDED = FINAL | {None}
"""States of an awaited job that has ended; None stands for one that is gone."""


def _states_of(awaited: set[UUID], new: frozenset[UUID]) -> Statements[dict[UUID, State | None]]:
    """The states of awaited jobs, each marked as followed under its row's lock."""
    states: dict[UUID, State | None] = dict.fromkeys(awaited & new, State.QUEUED)
    others = sorted(awaited - new)
    if others:
        found = {uuid_of(row[0]): State(row[1]) for row in (yield from run("mark_followed", others))}
        missing = [job for job in others if job not in found]
        if missing:  # a statement of its own, and so a later snapshot: a finish that came first is seen here
            found |= {uuid_of(row[0]): State(row[1]) for row in (yield from run("ended_states", missing))}
        states |= {job: found.get(job) for job in others}
    return states


def arrive(ends: Mapping[UUID, bool]) -> Statements[list[UUID]]:
    """Awaited jobs ended: count them on their waiters, and wake, abandon or skip whom that decides."""
    by_wait: dict[tuple[UUID, int], Count] = {}
    rows = yield from run("mark_arrivals", [{"awaited": job, "ok": ok} for job, ok in sorted(ends.items())])
    for waiter, fence, awaited, policy, ok in rows:
        count = by_wait.setdefault((uuid_of(waiter), fence), Count())
        count.add(Policy(policy), done=True, ok=bool(ok), awaited=uuid_of(awaited))
    if not by_wait:
        return []
    arrivals = [
        {"job": job, "fence": fence, "arrived": count.arrived, "succeeded": count.succeeded, "bad": count.bad}
        for (job, fence), count in sorted(by_wait.items())
    ]
    decided, batches = Decided(), []
    for job, fence, need, pending, succeeded, batch in (yield from run("count_arrivals", arrivals)):
        waiter = uuid_of(job)
        count = by_wait[waiter, fence]
        decided.decide(waiter, count, need=need, pending=pending, succeeded=succeeded)
        if batch:
            batches.append(waiter)
    if batches:
        yield from run("count_batch", sorted(batches))
    return (yield from _carry_out(decided))


def reopen(job: UUID) -> Statements[None]:
    """A replay or a resume: whoever still waits for this job waits for it again."""
    rows = [(uuid_of(waiter), fence, ok) for waiter, fence, ok in (yield from run("reopen_edges", [job]))]
    if not rows:
        return
    yield from run("mark_followed", [job])  # it may have ended before anybody waited for it
    arrivals = [
        {"job": waiter, "fence": fence, "arrived": -1, "succeeded": -1 if ok else 0, "bad": -1}
        for waiter, fence, ok in rows  # only a bad end has a way back
    ]
    batches = [uuid_of(row[0]) for row in (yield from run("count_arrivals", arrivals)) if row[-1]]
    if batches:
        yield from run("count_batch", sorted(batches))


class Count:
    """What arrived for one waiter."""

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


class Decided:
    """Waiters whose wait is over."""

    def __init__(self) -> None:
        self.wake: list[UUID] = []
        self.abandon: list[dict[str, object]] = []
        self.skip: list[dict[str, object]] = []
        self.condemned: set[UUID] = set()

    def condemn(self, job: UUID, policy: Policy, awaited: UUID) -> None:
        """An awaited job's bad end ends its waiter, once."""
        if job in self.condemned:
            return
        self.condemned.add(job)
        verdict = self.abandon if policy is Policy.FAIL else self.skip
        word = "failed" if policy is Policy.FAIL else "skipped"
        verdict.append({"id": job, "reason": f"{word}: job {awaited}, on which it depends, did not succeed"})

    def decide(self, job: UUID, count: Count, *, need: int, pending: int, succeeded: int) -> None:
        if count.fatal is not None:
            self.condemn(job, *count.fatal)
        elif succeeded >= need or succeeded + pending < need:
            self.wake.append(job)


def wake(jobs: Iterable[UUID]) -> Statements[int]:
    """Wake jobs that wait: how many.

    A row that somebody else holds is left alone: an arrival that waited for it, holding the row of its own job, would
    meet a cancel that comes the other way round, from the waiter down to its children. `wake_due_jobs` looks after it.
    """
    woken = [row[0] for row in (yield from run("wake_waiting", sorted(jobs), wakes=True))]
    if woken:
        yield from run("delete_waits", woken)
    return len(woken)


def _carry_out(decided: Decided) -> Statements[list[UUID]]:
    """The jobs that ended by it."""
    ended: list[UUID] = []
    if decided.wake:
        yield from wake(decided.wake)
    if decided.abandon:
        ended += [uuid_of(row[0]) for row in (yield from run("bury_waiting", decided.abandon))]
    if decided.skip:
        ended += [uuid_of(row[0]) for row in (yield from run("cancel_many", decided.skip))]
    return ended


def wake_due_waits(page: int) -> Statements[tuple[int, list[UUID]]]:
    """Wake jobs whose time is up, and decide waits that no arrival could, because somebody held the waiter's row."""
    due = [uuid_of(row[0]) for row in (yield from run("due_waits", [page]))]
    if not due:
        return 0, []
    yield from run("count_batch", sorted(due))
    decided = Decided()
    for waiter, policy, awaited in (yield from run("fatal_edges", sorted(due))):
        decided.condemn(uuid_of(waiter), Policy(policy), uuid_of(awaited))
    woken = yield from wake(job for job in due if job not in decided.condemned)
    return woken, (yield from _carry_out(decided))
