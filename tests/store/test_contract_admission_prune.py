"""Pruning of admission: limit counters without use, costs of jobs that are gone, rules that change their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.admission import GateKind, GateState
from windlass.model.state import Verb

from .admissions import BUCKET, end_all, full, limit, limit_counter, rate, running, used

if TYPE_CHECKING:
    from uuid import UUID

    from .rig import Rig

HOUR = 3600.0
DAY = 24 * HOUR


async def prune(rig: Rig, *, history: float = 7 * DAY) -> None:
    await rig.store.prune(history=history, audit=90 * DAY)


async def ledger(rig: Rig, job: UUID) -> int:
    rows = await rig.run(f"SELECT coalesce(sum(cents), 0) FROM {{}}ledger WHERE job = '{job}'")
    return int(rows[0][0])


# Limit counters


async def test_a_limit_counter_without_use_for_an_hour_goes_and_comes_back(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    await rig.enqueue_many(2, limits=("domain:a",))
    await end_all(rig, await rig.claim())
    await rig.advance(HOUR - 60)
    await prune(rig)
    assert await limit_counter(rig, "domain:a") is not None

    await rig.advance(120)
    await prune(rig)

    assert await limit_counter(rig, "domain:a") is None
    await rig.enqueue_many(3, limits=("domain:a",))
    assert len(await rig.claim()) == 2


async def test_a_limit_counter_with_slots_taken_stays(rig: Rig) -> None:
    await full(rig, behind=0)
    await rig.advance(2 * HOUR)

    await prune(rig)

    assert await used(rig, "domain:a") == 1


async def test_a_limit_counter_with_parked_jobs_stays(rig: Rig) -> None:
    holder, (first,) = await full(rig, behind=1)
    await rig.store.set_gate(GateKind.QUEUE, "default", GateState.PAUSED)
    await rig.finish(holder, Verb.SUCCEED)  # and no job is let in
    await rig.advance(2 * HOUR)

    await prune(rig)

    row = await limit_counter(rig, "domain:a")
    assert row is not None
    assert (row.used, row.waiting) == (0, 1)
    await rig.store.set_gate(GateKind.QUEUE, "default", GateState.OPEN)
    assert [job.id for job in await rig.claim()] == [first]


async def test_a_bucket_that_owes_keeps_its_debt(rig: Rig) -> None:
    """One a day: two hours later the next token is still to come."""
    await rig.store.declare([rate(BUCKET, 1, every=DAY)])
    await rig.enqueue(limits=(BUCKET,))
    assert len(await rig.claim()) == 1
    await rig.advance(2 * HOUR)

    await prune(rig)

    await rig.enqueue(limits=(BUCKET,))
    assert await rig.claim() == []
    await rig.advance(DAY)
    assert len(await rig.claim()) == 1


async def test_a_long_hold_outlives_a_prune(rig: Rig) -> None:
    await rig.store.declare([limit("domain")])
    await rig.store.hold_back("domain:a", 3 * HOUR)
    await rig.advance(2 * HOUR)

    await prune(rig)

    assert await rig.store.held_for("domain:a") == pytest.approx(HOUR)


# Costs


async def test_costs_stay_as_long_as_their_job(rig: Rig) -> None:
    job = await rig.held()
    await rig.finish(job, Verb.BURY, attempt=1, cost_cents=7, charged=True)
    await rig.advance(100 * DAY)

    await prune(rig)

    assert (await rig.find(job.id)).cost_cents == await ledger(rig, job.id) == 7


async def test_old_costs_of_a_job_that_ended_late_stay_with_it(rig: Rig) -> None:
    job = await rig.held()
    await rig.finish(job, Verb.SNOOZE, delay=100 * DAY, cost_cents=7, charged=True)
    await rig.advance(100 * DAY)
    rig.worker = await rig.register()
    (again,) = await rig.claim()
    await rig.finish(again, Verb.SUCCEED, cost_cents=9, charged=True)
    await rig.advance(DAY)

    await prune(rig, history=70 * DAY)

    assert (await rig.find(job.id)).cost_cents == await ledger(rig, job.id) == 9


async def test_costs_of_jobs_that_are_gone_pass_after_two_months(rig: Rig) -> None:
    job = await rig.held()
    await rig.finish(job, Verb.SUCCEED, cost_cents=7, charged=True)

    await rig.advance(10 * DAY)
    await prune(rig)
    assert await rig.store.find(job.id) is None
    assert await ledger(rig, job.id) == 7  # a budget that is set now counts it

    await rig.advance(60 * DAY)
    await prune(rig)
    assert await ledger(rig, job.id) == 0


# A rule of another kind


async def test_a_rate_that_becomes_a_limit_counts_running_jobs(rig: Rig) -> None:
    await rig.store.declare([rate("domain", 100, burst=3)])
    await rig.enqueue_many(3, limits=("domain:a",))
    early = await rig.claim()
    assert len(early) == 3

    await rig.store.declare([limit("domain", 2)])
    await rig.enqueue_many(3, limits=("domain:a",))

    assert await rig.claim() == []
    await rig.finish(early[0], Verb.SUCCEED)
    assert await rig.claim() == []
    await rig.finish(early[1], Verb.SUCCEED)
    assert len(await rig.claim()) == 1
    assert await used(rig, "domain:a") == await running(rig, "domain:a") == 2


async def test_a_limit_that_becomes_a_rate_and_back_loses_no_slot(rig: Rig) -> None:
    holder, (first, *_) = await full(rig)
    await rig.store.declare([rate("domain", 1, every=1_000.0)])
    await rig.finish(holder, Verb.SUCCEED)

    await rig.store.declare([limit("domain", 1)])

    assert [job.id for job in await rig.claim()] == [first]
    assert await used(rig, "domain:a") == 1
