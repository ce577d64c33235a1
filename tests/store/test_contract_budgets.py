"""Budgets: what attempts cost is written once, stops claims when it is spent, and adds up."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.admission import Budget, BudgetRow, Closure
from windlass.model.outcome import Progress, Transition
from windlass.model.state import State, Verb

from .admissions import finish_in_transaction, in_time, limit, nothing_is_left
from .flows import LIMIT

if TYPE_CHECKING:
    from windlass.model.job import Job

    from .rig import Rig

HOUR = 3600.0


def budget(kind: str = "tenant", name: str = "acme", *, cents: int = 100, seconds: float | None = HOUR) -> Budget:
    return Budget(kind=kind, name=name, cents=cents, seconds=seconds)


async def cost(rig: Rig, job: Job, cents: int, verb: Verb = Verb.SUCCEED, **options: Any) -> State | None:
    """The attempt ends, and the job has cost so much in all."""
    return await rig.finish(job, verb, cost_cents=cents, charged=True, **options)


async def say(rig: Rig, job: Job, cents: int | None) -> None:
    """So much in all, as far as it is known, while it runs."""
    await rig.store.record([Progress(lease=job.lease, total=None, processed=0, failed=0, cost_cents=cents)])


async def spent(rig: Rig, kind: str = "tenant", name: str = "acme") -> int:
    (row,) = [row for row in await rig.store.budgets() if (row.kind, row.name) == (kind, name)]
    return row.spent


async def ledger(rig: Rig) -> dict[str, int]:
    """What the ledger has of each job."""
    rows = await rig.run("SELECT job, sum(cents) FROM {}ledger GROUP BY job")
    return {str(job): int(cents) for job, cents in map(tuple, rows)}


async def adds_up(rig: Rig) -> int:
    """The ledger's rows of each job are its cost; the sum of all."""
    rows = await rig.run("SELECT id, cost_cents FROM {0}jobs UNION ALL SELECT id, cost_cents FROM {0}history")
    costs = {str(job): int(cents) for job, cents in map(tuple, rows) if cents}
    assert await ledger(rig) == costs
    return sum(costs.values())


# What is written


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.FAIL, Verb.BURY, Verb.SNOOZE, Verb.RELEASE, Verb.STOP])
async def test_however_an_attempt_ends_its_cost_counts(rig: Rig, verb: Verb) -> None:
    await rig.store.set_budget(budget())
    job = await rig.held(tenant="acme")

    await cost(rig, job, 30, verb, attempt=1)

    assert (await rig.find(job.id)).cost_cents == 30
    assert (await spent(rig), await adds_up(rig)) == (30, 30)


async def test_the_cost_of_every_attempt_counts(rig: Rig) -> None:
    await rig.store.set_budget(budget(cents=1_000))
    job = await rig.held(tenant="acme")
    await cost(rig, job, 10, Verb.FAIL, attempt=1)
    (job,) = await rig.claim()
    await cost(rig, job, 25, Verb.FAIL, attempt=2)
    (job,) = await rig.claim()
    await rig.finish(job, Verb.SUCCEED, cost_cents=25)  # this one cost nothing

    assert (await rig.find(job.id)).cost_cents == 25
    rows = await rig.run("SELECT fence, cents, tenant, queue, type FROM {}ledger ORDER BY fence")
    assert [tuple(row) for row in rows] == [(1, 10, "acme", "default", job.type), (2, 15, "acme", "default", job.type)]
    assert (await spent(rig), await adds_up(rig)) == (25, 25)


async def test_cost_is_told_while_a_job_runs_and_counted_once(rig: Rig) -> None:
    await rig.store.set_budget(budget())
    job = await rig.held(tenant="acme")

    for cents in (10, 10, None, 25):
        await say(rig, job, cents)
    during = await spent(rig)
    await cost(rig, job, 40)

    assert (during, await spent(rig), await adds_up(rig)) == (25, 40, 40)


async def test_what_was_written_stays_though_less_is_said(rig: Rig) -> None:
    await rig.store.set_budget(budget())
    job = await rig.held(tenant="acme")
    await say(rig, job, 25)

    await say(rig, job, 10)

    assert ((await rig.find(job.id)).cost_cents, await spent(rig)) == (25, 25)
    await rig.finish(job, Verb.FAIL, cost_cents=25, attempt=1)
    assert await adds_up(rig) == 25


async def test_the_cost_of_a_dead_worker_stays(rig: Rig) -> None:
    await rig.store.set_budget(budget())
    job = await rig.held(tenant="acme")
    await say(rig, job, 25)
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)

    assert ((await rig.find(job.id)).cost_cents, await spent(rig), await adds_up(rig)) == (25, 25, 25)


async def test_the_cost_of_a_job_survives_its_death_and_its_replay(rig: Rig) -> None:
    await rig.store.set_budget(budget())
    job = await rig.held(tenant="acme")
    await cost(rig, job, 25, Verb.BURY)
    await rig.store.operate(Verb.REPLAY, job.id)
    (again,) = await rig.claim()
    assert again.cost_cents == 25

    await cost(rig, again, 60)

    assert (await spent(rig), await adds_up(rig)) == (60, 60)


async def test_a_job_with_a_lost_lease_costs_nothing(rig: Rig) -> None:
    await rig.store.set_budget(budget())
    job = await rig.held(tenant="acme")
    await rig.finish(job, Verb.RELEASE, delay=None)

    assert await cost(rig, job, 30) is None
    await say(rig, job, 30)

    assert (await spent(rig), await adds_up(rig)) == (0, 0)


async def test_cost_is_written_with_the_transaction_and_not_before(rig: Rig) -> None:
    await rig.store.set_budget(budget())
    job = await rig.held(tenant="acme")

    async with rig.store.transaction(limit=LIMIT) as transaction:
        transition = Transition(lease=job.lease, verb=Verb.SUCCEED, cost_cents=30, charged=True)
        assert await transaction.finish(transition)
    assert (await spent(rig), await adds_up(rig)) == (0, 0)

    await finish_in_transaction(rig.store, job, cost_cents=30, charged=True)
    assert (await spent(rig), await adds_up(rig)) == (30, 30)


async def test_a_batch_is_charged_job_by_job(rig: Rig) -> None:
    await rig.store.set_budget(budget("tenant", "acme", cents=1_000))
    await rig.store.set_budget(budget("tenant", "else", cents=1_000))
    await rig.store.set_budget(budget("queue", "default", cents=1_000))
    for tenant in ("acme", "else", "third"):
        await rig.enqueue_many(3, tenant=tenant)
    jobs = await rig.claim()

    await rig.store.finish(
        [
            Transition(lease=job.lease, verb=verb, cost_cents=n, charged=n > 0, attempt=1)
            for n, (job, verb) in enumerate(zip(jobs, [Verb.SUCCEED, Verb.FAIL, Verb.BURY] * 3, strict=True))
        ]
    )

    by_tenant = {name: sum(n for n, job in enumerate(jobs) if job.tenant == name) for name in ("acme", "else")}
    assert {name: await spent(rig, "tenant", name) for name in by_tenant} == by_tenant
    assert (await spent(rig, "queue", "default"), await adds_up(rig)) == (36, 36)


async def test_a_limited_job_is_charged_too(rig: Rig) -> None:
    await rig.store.declare([limit("domain")])
    await rig.store.set_budget(budget())
    await rig.enqueue(tenant="acme", limits=("domain:a",))
    (job,) = await rig.claim()

    await cost(rig, job, 30)

    assert (await spent(rig), await adds_up(rig)) == (30, 30)
    await nothing_is_left(rig)


# What it stops


@pytest.mark.parametrize("options", [{}, {"by_creation": True}, {"aged": 2}])
@pytest.mark.parametrize("limits", [(), ("domain:a",)])
@pytest.mark.parametrize(("kind", "name"), [("tenant", "acme"), ("queue", "mail")])
async def test_a_spent_budget_stops_claims_until_its_next_window(
    rig: Rig, kind: str, name: str, limits: tuple[str, ...], options: dict[str, Any]
) -> None:
    await rig.store.declare([limit("domain", 9)])
    await rig.store.set_budget(budget(kind, name, cents=100, seconds=HOUR))
    for priority in (0, 1):
        await rig.enqueue_many(2, tenant="acme", queue="mail", limits=limits, priority=priority)
    (job,) = await rig.claim(room=1, **options)
    other = await rig.enqueue(tenant="else", queue="pages", limits=limits)

    await cost(rig, job, 100)

    assert await rig.store.closures() == [Closure(kind=kind, name=name, state="spent")]
    assert [each.id for each in await rig.claim(**options)] == [other]
    (row,) = await rig.store.budgets()
    await rig.advance((row.until - rig.clock.now()).total_seconds() - 0.001)
    worker = await rig.register()
    assert await rig.claim(worker=worker, **options) == []
    await rig.advance(0.001)
    assert await rig.store.closures() == []
    assert len(await rig.claim(worker=worker, **options)) == 3
    assert await spent(rig, kind, name) == 0


async def test_a_budget_that_is_not_spent_stops_nobody(rig: Rig) -> None:
    await rig.store.set_budget(budget(cents=100))
    job = await rig.held(tenant="acme")
    await rig.enqueue(tenant="acme")

    await cost(rig, job, 99)

    assert await rig.store.closures() == []
    assert len(await rig.claim()) == 1


async def test_the_overshoot_is_what_was_running(rig: Rig) -> None:
    await rig.store.set_budget(budget(cents=100))
    await rig.enqueue_many(9, tenant="acme")
    running = await rig.claim(room=4)

    for job in running:
        assert await cost(rig, job, 60) is State.SUCCEEDED

    assert await spent(rig) == 240
    assert await rig.claim() == []


async def test_a_cost_told_by_progress_stops_claims_too(rig: Rig) -> None:
    await rig.store.set_budget(budget(cents=100))
    job = await rig.held(tenant="acme")
    await rig.enqueue(tenant="acme")

    await say(rig, job, 150)

    assert await rig.claim() == []
    assert await rig.finish(job, Verb.SUCCEED, cost_cents=150) is State.SUCCEEDED


async def test_a_budget_of_nothing_lets_nobody_in(rig: Rig) -> None:
    await rig.enqueue(tenant="acme")

    await rig.store.set_budget(budget(cents=0))

    assert await rig.claim() == []
    await rig.advance(2 * HOUR)
    assert await rig.claim(worker=await rig.register()) == []


# Setting it


async def test_what_the_window_has_cost_already_counts(rig: Rig) -> None:
    early = await rig.held(tenant="acme")
    await cost(rig, early, 70)
    await rig.advance(_to_the_next_hour(rig))
    rig.worker = await rig.register()
    for cents in (50, 60):
        await cost(rig, await rig.held(tenant="acme"), cents)
    await cost(rig, await rig.held(tenant="else"), 1_000)

    await rig.store.set_budget(budget(cents=100))

    assert await spent(rig) == 110
    assert Closure(kind="tenant", name="acme", state="spent") in await rig.store.closures()
    await rig.store.set_budget(budget(cents=111))
    assert await rig.store.closures() == []
    await rig.store.set_budget(budget(cents=180, seconds=100 * 365 * 24 * HOUR))
    assert await spent(rig) == 180


async def test_a_window_ends_at_a_whole_number_of_its_seconds(rig: Rig) -> None:
    await rig.store.set_budget(budget(seconds=HOUR))
    await rig.advance(_to_the_next_hour(rig) + 600)

    (row,) = await rig.store.budgets()

    assert row == BudgetRow(
        kind="tenant", name="acme", cents=100, seconds=HOUR, spent=0, until=rig.clock.now() + timedelta(seconds=3000)
    )


async def test_a_month_ends_with_the_calendar_in_utc(rig: Rig) -> None:
    await rig.store.set_budget(budget(seconds=None))
    job = await rig.held(tenant="acme")
    await cost(rig, job, 100)
    (row,) = await rig.store.budgets()
    now = rig.clock.now().astimezone(UTC)

    assert row.until == datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    await rig.advance((row.until - now).total_seconds())
    (row,) = await rig.store.budgets()
    assert (row.spent, await rig.store.closures()) == (0, [])
    assert 28 <= (row.until - rig.clock.now()).days <= 31


async def test_a_budget_can_be_forgotten(rig: Rig) -> None:
    await rig.store.set_budget(budget(cents=0))
    await rig.enqueue(tenant="acme")

    assert await rig.store.drop_budget("tenant", "acme", actor="ann") is True
    assert await rig.store.drop_budget("tenant", "acme") is False

    assert await rig.store.budgets() == []
    assert len(await rig.claim()) == 1


async def test_the_actor_of_a_budget_is_in_the_audit(rig: Rig) -> None:
    await rig.store.set_budget(budget(cents=500, seconds=None), actor="ann")
    await rig.store.set_budget(budget("queue", "mail", cents=5, seconds=60.0))
    await rig.store.drop_budget("tenant", "acme", actor="bob")

    assert [(row.action, row.subject, row.actor) for row in await rig.store.audit()] == [
        ("BUDGET_DROPPED", "tenant:acme", "bob"),
        ("BUDGET_SET", "queue:mail", None),
        ("BUDGET_SET", "tenant:acme", "ann"),
    ]


def _to_the_next_hour(rig: Rig) -> float:
    return HOUR - rig.clock.now().timestamp() % HOUR


# It adds up


async def test_costs_at_once_from_everywhere_add_up(rig: Rig) -> None:
    chance = random.Random(3)
    tenants, queues = ("acme", "else"), ("mail", "pages")
    for kind, names in (("tenant", tenants), ("queue", queues)):
        for name in names:
            await rig.store.set_budget(budget(kind, name, cents=1_000_000))
    for tenant in tenants:
        for queue in queues:
            await rig.enqueue_many(20, tenant=tenant, queue=queue)

    async with rig.stores(4) as stores:
        for turn in range(8):
            jobs = await rig.claim(room=40)
            chance.shuffle(jobs)
            verb = Verb.FAIL if turn < 5 else Verb.SUCCEED
            marks = [
                Progress(lease=job.lease, total=None, processed=0, failed=0, cost_cents=job.cost_cents + 3)
                for job in jobs[:15]
            ]
            ends = [
                Transition(lease=job.lease, verb=verb, cost_cents=job.cost_cents + 7, charged=True, attempt=1)
                for job in jobs
            ]
            await in_time(
                stores[3].record(marks),
                *[stores[n % 3].finish(ends[start : start + 8]) for n, start in enumerate(range(0, len(ends), 8))],
            )

    total = await adds_up(rig)
    assert total > 0
    assert sum([await spent(rig, "tenant", name) for name in tenants]) == total
    assert sum([await spent(rig, "queue", name) for name in queues]) == total
    rows = await rig.store.tenants()
    assert {row.name: row.cents for row in rows} == {name: await spent(rig, "tenant", name) for name in tenants}
