"""Fairness: tenants share a queue by weight, no place stays empty, and old jobs run beside urgent ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.admission import TenantRow
from windlass.model.state import Verb

from .admissions import end_all, full, in_time, limit
from .rig import new_job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.model.job import Job
    from windlass.store.protocol import Store

    from .rig import Rig

pytestmark = pytest.mark.slow  # thousands of jobs

WEIGHTS = {f"tenant {weight}": weight for weight in range(1, 6)}
LARGE, SMALL = "large", "small"
WITHIN = 0.05


async def overload(rig: Rig, total: int, weights: dict[str, int], **options: Any) -> None:
    """More jobs of each tenant than its share of so many."""
    for tenant, weight in weights.items():
        await rig.store.weigh(tenant, weight)
        await rig.enqueue_many(total * weight // sum(weights.values()) + total // 10, tenant=tenant, **options)


async def serve(rig: Rig, total: int, rooms: Sequence[int], stores: Sequence[Store], **options: Any) -> Counter[str]:
    """Claims by several workers in turn until so many jobs are claimed: how many of each tenant."""
    workers = [await rig.register() for _ in stores]
    taken: Counter[str] = Counter()
    for turn in range(10 * total):
        if taken.total() >= total:
            break
        who = turn % len(stores)
        room = min(rooms[turn % len(rooms)], total - taken.total())
        jobs = await rig.claim(room=room, store=stores[who], worker=workers[who], **options)
        taken.update(job.tenant for job in jobs)
    assert taken.total() == total
    return taken


def is_shared(taken: Counter[str], weights: dict[str, int]) -> None:
    together = sum(weights.values())
    for tenant, weight in weights.items():
        due = taken.total() * weight / together
        assert abs(taken[tenant] - due) <= WITHIN * due, taken


# By weight


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("rooms", "total"), [([1], 600), ([3], 900), ([10], 1_500), ([100], 3_000), ([7, 1, 100, 3, 10, 30], 3_000)]
)
async def test_under_overload_tenants_share_by_weight(rig: Rig, rooms: list[int], total: int, workers: int) -> None:
    await overload(rig, total, WEIGHTS)

    async with rig.stores(workers) as stores:
        taken = await serve(rig, total, rooms, stores)

    print(rig.dialect, rooms, dict(taken))
    is_shared(taken, WEIGHTS)


async def test_a_tenant_without_a_weight_has_weight_one(rig: Rig) -> None:
    await rig.enqueue_many(200, tenant="none")
    await overload(rig, 300, {"two": 2})

    taken = await serve(rig, 300, [10], [rig.store])

    is_shared(taken, {"none": 1, "two": 2})


async def test_weights_change_while_jobs_run(rig: Rig) -> None:
    await rig.enqueue_many(400, tenant="a")
    await rig.enqueue_many(400, tenant="b")
    before = await serve(rig, 200, [10], [rig.store])

    await rig.store.weigh("a", 3, actor="ann")
    after = await serve(rig, 200, [10], [rig.store])

    is_shared(before, {"a": 1, "b": 1})
    is_shared(after, {"a": 3, "b": 1})
    (row,) = await rig.store.audit(action="TENANT_WEIGHED")
    assert (row.subject, row.actor, row.reason) == ("tenant:a", "ann", "weight 3")


async def test_jobs_with_limits_share_as_others_do(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 10_000)])
    kinds: dict[str, list[tuple[str, ...]]] = {"limited": [("domain:a",)], "mixed": [(), ("domain:a",)], "plain": [()]}
    for tenant, keys in kinds.items():
        await rig.store.enqueue([new_job(tenant=tenant, limits=keys[n % len(keys)]) for n in range(400)])

    taken = await serve(rig, 900, [10, 30], [rig.store])

    is_shared(taken, {"limited": 1, "mixed": 1, "plain": 1})


async def test_each_queue_is_shared_by_itself(rig: Rig) -> None:
    await rig.store.weigh("a", 2)
    for queue in ("mail", "pages"):
        await rig.enqueue_many(300, tenant="a", queue=queue)
        await rig.enqueue_many(300, tenant="b", queue=queue)

    mail = await serve(rig, 300, [10], [rig.store], queues=("mail",))
    pages = await serve(rig, 300, [10], [rig.store], queues=("pages",))

    is_shared(mail, {"a": 2, "b": 1})
    is_shared(pages, {"a": 2, "b": 1})


async def test_priority_comes_before_any_share(rig: Rig) -> None:
    await rig.store.weigh(SMALL, 100)
    await rig.enqueue_many(20, tenant=SMALL)
    await rig.enqueue_many(20, tenant=LARGE, priority=1)

    assert [job.tenant for _ in range(2) for job in await rig.claim(room=10)] == [LARGE] * 20


async def test_inside_a_tenant_the_first_come_first(rig: Rig) -> None:
    jobs: dict[str, list[Any]] = {"a": [], "b": []}
    for _ in range(30):
        for tenant in jobs:
            jobs[tenant].append(await rig.enqueue(tenant=tenant))
            await rig.advance(0.01)

    claimed: dict[str, list[Any]] = {"a": [], "b": []}
    for _ in range(6):
        for job in sorted(await rig.claim(room=10), key=lambda job: job.run_at):
            claimed[job.tenant].append(job.id)

    assert claimed == jobs


# No place stays empty


@pytest.mark.parametrize("room", [1, 3, 10, 100])
async def test_a_tenant_alone_gets_everything(rig: Rig, room: int) -> None:
    await overload(rig, 100, {SMALL: 1, LARGE: 9})
    await serve(rig, 20, [room], [rig.store])
    while any(job.tenant == LARGE for job in await rig.claim(room=100)):
        pass
    await rig.enqueue_many(3 * room, tenant=SMALL)

    assert [len(await rig.claim(room=room)) for _ in range(3)] == [room] * 3


async def test_what_one_tenant_leaves_the_others_take(rig: Rig) -> None:
    """A tenant with little to do does not keep places empty: not once its little is known."""
    await rig.store.weigh(SMALL, 5)
    await rig.enqueue_many(500, tenant=LARGE)
    sizes = []
    for _ in range(20):
        await rig.enqueue(tenant=SMALL)
        sizes.append(Counter(job.tenant for job in await rig.claim(room=10)))

    assert [size[SMALL] for size in sizes] == [1] * 20
    assert [size.total() for size in sizes[1:]] == [10] * 19


async def test_two_looks_find_everything_there_is(rig: Rig) -> None:
    for number in range(6):
        await rig.enqueue_many(1 + number, tenant=f"tenant {number}")

    assert sum([len(await rig.claim(room=21)) for _ in range(2)]) == 21


async def test_an_idle_tenant_saves_nothing_up(rig: Rig) -> None:
    await rig.enqueue_many(20, tenant=SMALL)
    await rig.enqueue_many(600, tenant=LARGE)
    await serve(rig, 300, [10], [rig.store])
    await rig.enqueue_many(300, tenant=SMALL)

    taken = await serve(rig, 200, [10], [rig.store])

    is_shared(taken, {SMALL: 1, LARGE: 1})


# No tenant waits for another's load


@pytest.mark.parametrize("room", [1, 4, 10, 50])
async def test_a_small_tenant_is_in_the_next_claim_whatever_another_has_queued(rig: Rig, room: int) -> None:
    await rig.enqueue_many(1_000, tenant=LARGE)
    await serve(rig, 100, [room], [rig.store])
    waits = []
    for _ in range(20):
        job = await rig.enqueue(tenant=SMALL)
        claims = 0
        while claims < 5:
            claims += 1
            if job in {each.id for each in await rig.claim(room=room)}:
                break
        waits.append(claims)

    assert max(waits) <= (2 if room == 1 else 1)


async def test_fifty_times_the_load_that_fails_keeps_nobody_waiting(rig: Rig) -> None:
    await rig.enqueue_many(500, tenant=LARGE)
    served = 0
    for _ in range(15):
        small = await rig.enqueue_many(2, tenant=SMALL)
        jobs = await rig.claim(room=20)
        served += len({job.id for job in jobs} & set(small))
        failing = [job for job in jobs if job.tenant == LARGE]
        await end_all(rig, [job for job in jobs if job.tenant == SMALL])
        for job in failing[:5]:
            await rig.finish(job, Verb.FAIL, delay=0.0, attempt=1)
        await end_all(rig, failing[5:])

    assert served == 30


async def test_workers_at_once_share_as_well(rig: Rig) -> None:
    await overload(rig, 1_200, WEIGHTS)
    async with rig.stores(3) as stores:
        workers = [await rig.register() for _ in stores]
        taken: Counter[str] = Counter()

        async def work(store: Store, worker: Any) -> None:
            for _ in range(40):
                taken.update(job.tenant for job in await rig.claim(room=10, store=store, worker=worker))

        await in_time(*[work(store, worker) for store, worker in zip(stores, workers, strict=True)])

    is_shared(taken, WEIGHTS)


# Ageing


@pytest.mark.parametrize("aged", [0, 1])
@pytest.mark.parametrize("limits", [(), ("domain:a",)])
async def test_the_old_get_on_under_a_flood_of_the_urgent_only_by_their_share(
    rig: Rig, aged: int, limits: tuple[str, ...]
) -> None:
    await rig.store.declare([limit("domain", 1_000)])
    old = await rig.enqueue_many(10, priority=-5, tenant=SMALL, limits=limits)
    await rig.advance(60)
    claimed: list[Job] = []
    for _ in range(10):
        await rig.enqueue_many(10, priority=5, tenant=LARGE, limits=limits)
        jobs = await rig.claim(room=10, aged=aged)
        assert len(jobs) == 10
        claimed += jobs

    assert len({job.id for job in claimed} & set(old)) == (10 if aged else 0)


async def test_the_oldest_of_all_priorities_come_first_by_their_share(rig: Rig) -> None:
    old = []
    for priority in (-1, -9, -5):
        old.append(await rig.enqueue(priority=priority, tenant=f"tenant {priority}"))
        await rig.advance(1)
    await rig.enqueue_many(100, priority=5)

    by_age = [{job.id for job in await rig.claim(room=10, aged=1)} & set(old) for _ in range(3)]

    assert by_age == [{job} for job in old]


# Reading tenants


async def test_tenants_are_shown_with_their_jobs(rig: Rig) -> None:
    await full(rig, behind=2, tenant="acme")
    await rig.store.weigh("acme", 2.5)
    await rig.store.weigh("resting", 0.5)
    await rig.enqueue(tenant="else", delay=60.0)
    await rig.advance(7)
    lag = (rig.clock.now() - (await rig.store.waiters("domain:a"))[0].run_at).total_seconds()

    rows = await rig.store.tenants()

    assert rows == [
        TenantRow(name="acme", weight=2.5, queued=2, running=1, parked=2, lag=lag, cents=0, due=2, counted=5_000),
        TenantRow(name="else", weight=1.0, queued=1, running=0, parked=0, lag=None, cents=0, counted=5_000),
        TenantRow(name="resting", weight=0.5, queued=0, running=0, parked=0, lag=None, cents=0, counted=5_000),
    ]


async def test_what_one_tenant_leaves_belongs_to_its_equals_and_not_to_lower_priorities(rig: Rig) -> None:
    """A share is half of the room, and one of the two has a single job: the other fills it, not the low one."""
    await rig.enqueue_many(20, tenant="many", priority=5)
    await rig.enqueue(tenant="one", priority=5)
    await rig.enqueue_many(20, tenant="low")

    claimed = await rig.claim(room=10)

    assert sorted(job.tenant for job in claimed) == ["many"] * 9 + ["one"]


async def test_a_tenant_that_is_new_beside_a_flood_does_not_wait_for_a_rescan(rig: Rig) -> None:
    await rig.enqueue_many(20, tenant="loud")
    assert len(await rig.claim(room=2)) == 2
    await rig.advance(0.01)
    new = await rig.enqueue(tenant="new")

    await rig.advance(0.2)
    claimed = await rig.claim(room=4, rescan=False)

    assert new in [job.id for job in claimed]
    assert len(claimed) == 4


async def test_unused_places_go_to_the_next_tenants_that_have_more(rig: Rig) -> None:
    """One tenant has less than its share: the places go to the oldest jobs of the other that were not taken yet."""
    mine = [await _after(rig, tenant="acme") for _ in range(8)]
    await rig.enqueue(tenant="else")
    await rig.advance(1)

    claimed = [job.id for job in await rig.claim(room=6) if job.tenant == "acme"]

    assert claimed == mine[:5]


async def _after(rig: Rig, **options: Any) -> UUID:
    await rig.advance(1)
    return await rig.enqueue(**options)
