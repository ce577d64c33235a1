"""The invariants that a store keeps, whatever happens to it. Each message begins with the promise that broke.

I1 nothing accepted vanishes · I2 one effect for a job that succeeded in a transaction, else none · I3 no stale lease
changes a row · I4 whatever is due can be claimed · I5 one final state per life · I6 fences grow · I7 attempts and
crashes are bounded · I8 created = live + finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.model.state import ARCHIVED, FINAL, State

from .truth import FACTS, MAX_CRASHES, MAX_RESCUES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.model.job import Job
    from windlass.store.protocol import Claim, Claimed

    from .bench import Seen
    from .truth import Life, Truth


def check_tables(truth: Truth, seen: Seen, fences: dict[UUID, int]) -> None:
    """After every step. `fences` remembers the highest fence that was ever seen on a job."""
    rows = [*seen.jobs, *seen.history]
    found = {row.id: row for row in rows}
    assert len(rows) == len(found), "I1: a job is in two places at once"
    assert found.keys() >= truth.jobs.keys(), f"I1: vanished: {truth.jobs.keys() - found.keys()}"
    assert found.keys() <= truth.jobs.keys(), f"I1: never accepted: {found.keys() - truth.jobs.keys()}"
    for row in rows:
        _check_row(truth.jobs[row.id], row, fences)
        fences[row.id] = row.fence
    for row in seen.history:
        assert row.status in ARCHIVED, f"I1: {row.status} is no state for the history"
    _check_effects(truth, seen)
    left = truth.accepted - truth.discarded - truth.pruned
    assert len(rows) == left, f"I8: {truth.accepted} accepted, {left} should be left, {len(rows)} are"
    assert seen.workers == {worker: row.dead for worker, row in truth.workers.items()}, "workers differ"


def _check_row(life: Life, row: Job, fences: dict[UUID, int]) -> None:
    assert row.fence >= fences.get(row.id, 0), f"I6: the fence of {row.id} went back to {row.fence}"
    assert row.attempt <= row.max_attempts, f"I7: {row.attempt} attempts of {row.max_attempts}"
    assert row.crashes <= MAX_CRASHES, f"I7: {row.crashes} crashes of {MAX_CRASHES}"
    assert row.rescues <= MAX_RESCUES, f"I7: {row.rescues} rescues of {MAX_RESCUES}"
    wrong = {
        name: (getattr(life, name), getattr(row, name)) for name in FACTS if getattr(life, name) != getattr(row, name)
    }
    assert not wrong, f"I3: {row.id} changed without a right to: (expected, found) {wrong}"
    assert life.finals == (life.status in FINAL), f"I5: {life.finals} final states reported for a {life.status} job"


def _check_effects(truth: Truth, seen: Seen) -> None:
    for job, effects in seen.effects.items():
        assert effects == 1, f"I2: {job} has {effects} effects"
    for life in truth.jobs.values():
        assert seen.effects[life.id] == life.effects, f"I2: {seen.effects[life.id]} effects, not {life.effects}"
        assert not life.effects or life.status is State.SUCCEEDED, f"I2: an effect of a {life.status} job"


def check_untaken(held: Sequence[Life], seen: Seen) -> None:
    """After a sweep: what workers that are alive held before it, they hold."""
    rows = {row.id: row for row in seen.jobs}
    for life in held:
        row = rows.get(life.id)
        assert row is not None, f"rescue: {life.id} vanished from a worker that is alive"
        assert row.token == life.token, f"rescue: {life.id} was taken from a worker that is alive"


def check_claim(truth: Truth, claim: Claim, claimed: Claimed, now: datetime, *, scope: Scope) -> None:
    """Nothing that must not be claimed, and by `scope` everything that must be, in its order."""
    eligible = truth.eligible(claim, now)
    assert len(claimed.jobs) <= claim.room, f"claim: {len(claimed.jobs)} jobs for a room of {claim.room}"
    for job in claimed.jobs:
        life = truth.jobs[job.id]
        assert job.id in eligible, f"claim: {life} is not claimable by {claim} at {now}"
        assert job.fence == life.fence + 1, f"I6: fence {life.fence} was followed by {job.fence}"
        assert job.token is not None
    assert len({job.token for job in claimed.jobs}) <= 1, "claim: one claim, one token"
    assert [job.id for job in claimed.jobs] == [
        job.id for job in sorted(claimed.jobs, key=lambda job: _place(job, claim))
    ], "claim: not in the order in which the jobs should start"
    if scope.complete:
        _check_choice(claim, claimed, eligible, merged=scope.merged)
        if truth.alive(claim.worker):
            _check_patience(truth, claim, claimed, now)


class Scope:
    """How much a store promises of one claim."""

    def __init__(self, *, complete: bool, merged: bool) -> None:
        self.complete = complete  # it read all lanes: nothing below a floor was left out
        self.merged = merged  # queues of one priority are merged job by job, and not queue by queue


def _check_choice(claim: Claim, claimed: Claimed, eligible: dict[UUID, Life], *, merged: bool) -> None:
    """I4 and the order of a claim: the oldest jobs have their places, and no due job was passed over."""
    size = min(claim.room, len(eligible))
    assert len(claimed.jobs) == size, f"I4: {len(claimed.jobs)} of {size} due jobs were claimed"
    chosen = {job.id for job in claimed.jobs}
    # Ageing is between levels. Inside one level tenants take turns: the oldest job may have to wait for its tenant's.
    aged = min(claim.aged, claim.room) if len({_lane(life) for life in eligible.values()}) > 1 else 0
    oldest = sorted(eligible.values(), key=lambda life: (life.run_at, life.id))[:aged]
    for life in oldest:
        assert life.id in chosen, f"claim: {life.id} is among the oldest and was left out"
    chosen -= {life.id for life in oldest}
    left = [life for life in eligible.values() if life.id not in chosen and life not in oldest]
    for taken in (eligible[job] for job in chosen):
        for other in left:
            if _comparable(taken, other, eligible, merged=merged):
                assert _place(taken, claim) < _place(other, claim), f"claim: {taken.id} passed {other.id}"


def _comparable(one: Life, other: Life, eligible: dict[UUID, Life], *, merged: bool) -> bool:
    """Whether time decides between two jobs: tenants of one priority take turns, and what each has is by time."""
    if _lane(one) != _lane(other):
        return True
    alone = len({life.tenant for life in eligible.values() if _lane(life) == _lane(one)}) == 1
    return one.tenant == other.tenant and (one.queue == other.queue or (merged and alone))


def _check_patience(truth: Truth, claim: Claim, claimed: Claimed, now: datetime) -> None:
    """A worker that sleeps until `next_due` does not sleep past a job."""
    later = [life.run_at for life in truth.wanted(claim, now) if life.run_at > now]
    if later and len(claimed.jobs) < claim.room and not claim.by_creation and not claim.untouched:
        wait = (min(later) - now).total_seconds()
        assert claimed.next_due is not None, f"claim: a job is due in {wait} s and next_due is missing"
        assert 0 <= claimed.next_due <= wait, f"claim: {claimed.next_due} s is longer than the {wait} s it takes"


def _place(job: Job | Life, claim: Claim) -> tuple[Any, ...]:
    return (*_lane(job), job.created_at if claim.by_creation else job.run_at, job.id)


def _lane(job: Job | Life) -> tuple[int, int]:
    return (job.phase_rank, -job.priority)
