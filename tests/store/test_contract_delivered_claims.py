"""Claims of the very jobs that a broker delivered: the conditions are a claim's, and every refusal has its reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import pytest_asyncio

from windlass.model.admission import GateKind, GateState
from windlass.model.delivery import DeliveredClaim, DeliveryMode, RefusalReason
from windlass.model.flow import Flow
from windlass.model.job import Wait, new_id
from windlass.model.state import State, Verb
from windlass.store.protocol import Claim, Suspects

from .admissions import PATIENCE, limit, rate
from .rig import TYPE

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.protocol import Store

    from .rig import Rig


@pytest_asyncio.fixture(loop_scope="session")
async def box(rig: Rig) -> Rig:
    await rig.store.set_delivery(DeliveryMode.OUTBOX)
    return rig


async def deliver(rig: Rig, *jobs: UUID, store: Store | None = None, **options: Any) -> DeliveredClaim:
    defaults: dict[str, Any] = {"worker": rig.worker, "room": len(jobs), "types": (TYPE,)}
    return await (store or rig.store).claim_delivered(Claim(**(defaults | options)), jobs)


async def relayed(rig: Rig) -> list[UUID]:
    """What a relay would publish now. Rows that it leases are deleted, as after the broker's confirmation."""
    answer = await rig.store.lease_outbox(100, 30.0)
    await rig.store.settle_outbox([row.id for row in answer.rows], [])
    return [row.job for row in answer.rows]


async def test_a_delivered_job_is_leased_like_any_other(box: Rig) -> None:
    job = await box.enqueue()

    (claimed,) = (await deliver(box, job)).jobs

    assert (claimed.id, claimed.status, claimed.worker) == (job, State.RUNNING, box.worker)
    assert (claimed.attempt, claimed.fence, claimed.token is not None) == (1, 1, True)
    assert await box.finish(claimed, Verb.SUCCEED) is State.SUCCEEDED


async def test_a_batch_is_claimed_at_once_and_nothing_else(box: Rig) -> None:
    jobs = await box.enqueue_many(40)

    answer = await deliver(box, *jobs[:30], jobs[0])

    assert ({job.id for job in answer.jobs}, answer.refused) == (set(jobs[:30]), {})
    assert len(answer.jobs) == 30
    assert {job.id for job in await box.claim(room=100)} == set(jobs[30:])


async def test_no_delivery_is_no_claim(box: Rig) -> None:
    assert await deliver(box) == DeliveredClaim(jobs=[], refused={})


async def test_a_job_that_is_delivered_twice_runs_once(box: Rig) -> None:
    job = await box.enqueue()
    async with box.stores(4) as stores:
        answers = await asyncio.gather(*(deliver(box, job, store=store) for store in stores))

    assert [len(answer.jobs) for answer in answers].count(1) == 1
    assert {reason for answer in answers for reason in answer.refused.values()} <= {
        RefusalReason.OWNED,
        RefusalReason.BUSY,
    }


# Refusals that need no further delivery


async def test_what_is_over_is_refused_and_not_put_back(box: Rig) -> None:
    running = (await box.running()).id
    waiting = await box.running()
    await box.finish(waiting, Verb.WAIT, flow=Flow(wait=Wait(signal="go")))
    succeeded, dead, cancelled = [
        await box.job_in(state, priority=0) for state in (State.SUCCEEDED, State.DEAD, State.CANCELLED)
    ]
    gone = new_id()
    await relayed(box)

    answer = await deliver(box, running, waiting.id, succeeded, dead, cancelled, gone)

    assert answer.jobs == []
    assert answer.refused == {
        running: RefusalReason.OWNED,
        waiting.id: RefusalReason.WAITING,
        succeeded: RefusalReason.FINISHED,
        dead: RefusalReason.FINISHED,
        cancelled: RefusalReason.CANCELLED,
        gone: RefusalReason.GONE,
    }
    await box.advance(10)
    assert await relayed(box) == []


async def test_a_suspect_is_left_to_the_poll(box: Rig) -> None:
    job = await box.running()
    await box.die(box.worker)
    await box.store.sweep(max_crashes=3)
    worker = await box.register()
    await relayed(box)

    answer = await deliver(box, job.id, worker=worker, suspects=Suspects.WITHOUT)

    assert answer.refused == {job.id: RefusalReason.SUSPECT}
    assert await relayed(box) == []
    assert [each.id for each in (await deliver(box, job.id, worker=worker)).jobs] == [job.id]


# Refusals that are delivered again


async def test_a_type_that_the_worker_does_not_know_waits_for_one_that_does(box: Rig) -> None:
    job = await box.enqueue(type="report.make", queue="reports")
    await relayed(box)

    assert (await deliver(box, job)).refused == {job: RefusalReason.UNKNOWN_TYPE}
    await box.advance(2)
    assert await relayed(box) == []

    await box.register(types=("report.make",), queues=("other",))
    assert await relayed(box) == []  # it does not serve the queue
    worker = await box.register(types=("report.make",), queues=("reports",))
    assert await relayed(box) == [job]
    assert len((await deliver(box, job, worker=worker, types=("report.make",))).jobs) == 1


async def test_a_type_that_another_worker_knows_comes_back_after_a_second(box: Rig) -> None:
    """A fleet whose workers know different types: the broker may choose the wrong worker again and again."""
    await box.register(types=("report.make",))
    job = await box.enqueue(type="report.make")
    await relayed(box)

    assert (await deliver(box, job)).refused == {job: RefusalReason.UNKNOWN_TYPE}

    answer = await box.store.lease_outbox(10, 30.0)
    assert answer.rows == []
    assert answer.next_due == pytest.approx(1.0)
    await box.advance(1)
    assert await relayed(box) == [job]


async def test_a_queue_that_the_worker_does_not_serve_is_put_back(box: Rig) -> None:
    job = await box.enqueue(queue="reports")
    await relayed(box)

    assert (await deliver(box, job, queues=("mail",))).refused == {job: RefusalReason.OTHER_QUEUE}

    await box.advance(1)
    assert await relayed(box) == [job]


@pytest.mark.parametrize(("kind", "name"), [("all", ""), ("queue", "default"), ("type", TYPE), ("tenant", "default")])
async def test_a_closed_job_is_delivered_again_when_the_gate_opens(box: Rig, kind: str, name: str) -> None:
    job = await box.enqueue()
    await relayed(box)
    await box.store.set_gate(GateKind(kind), name, GateState.PAUSED)

    assert (await deliver(box, job)).refused == {job: RefusalReason.CLOSED}
    await box.advance(60)
    assert await relayed(box) == []

    await box.store.set_gate(GateKind(kind), name, GateState.OPEN)
    assert await relayed(box) == [job]


async def test_a_job_that_is_not_due_is_delivered_when_it_is(box: Rig) -> None:
    job = await box.held()
    await box.finish(job, Verb.FAIL, delay=30.0, attempt=1)
    await relayed(box)

    assert (await deliver(box, job.id)).refused == {job.id: RefusalReason.NOT_DUE}

    await box.advance(30)
    assert set(await relayed(box)) == {job.id}


@pytest.mark.parametrize("known", [True, False], ids=["of a dead worker", "of an unknown worker"])
async def test_a_worker_without_a_lease_claims_nothing(box: Rig, known: bool) -> None:
    job = await box.enqueue()
    await relayed(box)
    worker = box.worker if known else uuid4()
    if known:
        await box.die(box.worker)
        await box.store.sweep(max_crashes=3)

    assert (await deliver(box, job, worker=worker)).refused == {job: RefusalReason.BUSY}

    await box.advance(1)
    assert await relayed(box) == [job]


async def test_without_a_broker_nothing_is_put_back(rig: Rig) -> None:
    job = await rig.enqueue()

    assert (await deliver(rig, job, types=("other",))).refused == {job: RefusalReason.UNKNOWN_TYPE}

    assert await rig.run("SELECT 1 FROM {}outbox") == []


async def test_a_job_whose_row_is_locked_is_busy_and_delivered_again(box: Rig) -> None:
    if box.dialect == "sqlite":
        pytest.skip("a file has one writer: the claim waits for its turn")
    job = await box.enqueue()
    await relayed(box)
    async with box.store.transaction(limit=60.0) as transaction:
        await transaction.fetch("SELECT id FROM windlass.jobs WHERE id = $1 FOR UPDATE", job)

        assert (await deliver(box, job)).refused == {job: RefusalReason.BUSY}

    await box.advance(1)
    assert await relayed(box) == [job]


# Limits and rates


async def test_a_delivered_job_at_a_full_key_is_parked_and_comes_back_with_a_slot(box: Rig) -> None:
    await box.store.declare([limit(most=1)])
    first, second = await box.enqueue_many(2, limits=("domain:a",))
    await relayed(box)

    answer = await deliver(box, first, second)

    assert ([job.id for job in answer.jobs], answer.refused) == ([first], {second: RefusalReason.LIMITED})
    await box.advance(10)
    assert await relayed(box) == []
    await box.finish(answer.jobs[0], Verb.SUCCEED)
    assert await relayed(box) == [second]
    assert len((await deliver(box, second)).jobs) == 1


async def test_a_token_of_a_rate_is_taken_and_the_next_one_is_announced(box: Rig) -> None:
    await box.store.declare([rate(count=1, every=10.0)])
    jobs = await box.enqueue_many(2, limits=("wikidata",))
    await relayed(box)

    answer = await deliver(box, *jobs)

    assert (len(answer.jobs), list(answer.refused.values())) == (1, [RefusalReason.LIMITED])
    assert answer.next_token == pytest.approx(10.0)
    await box.advance(10)
    await box.ask(types=(), rescan=True)  # a rescan unparks, whatever it may claim
    assert await relayed(box) == [next(iter(answer.refused))]


async def test_jobs_with_and_without_limits_are_claimed_together(box: Rig) -> None:
    await box.store.declare([limit(most=10)])
    plain = await box.enqueue_many(5)
    limited = await box.enqueue_many(5, limits=("domain:a",))
    for batch in ([*plain[:2], *limited[:2]], [plain[2], *limited[2:]], plain[3:]):
        answer = await deliver(box, *batch)
        assert ({job.id for job in answer.jobs}, answer.refused) == (set(batch), {})


async def test_a_key_whose_counter_is_locked_makes_a_job_busy_and_not_lost(box: Rig) -> None:
    if box.dialect == "sqlite":
        pytest.skip("a file has one writer: the claim waits for its turn")
    await box.store.declare([limit(most=5)])
    await deliver(box, await box.enqueue(limits=("domain:a",)))
    job = await box.enqueue(limits=("domain:a",))
    await relayed(box)
    async with box.store.transaction(limit=60.0) as transaction:
        await transaction.fetch("SELECT key FROM windlass.limit_counters FOR UPDATE")

        assert (await deliver(box, job)).refused == {job: RefusalReason.BUSY}

    await box.advance(1)
    assert await relayed(box) == [job]


async def test_no_limit_is_exceeded_by_deliveries_and_claims_at_once(box: Rig) -> None:
    """Two relays' deliveries and two pollers, over keys that are declared while the first claims run."""
    most, keys = 2, [f"domain:{place}" for place in range(3)]
    await box.store.declare([limit(most=most)])
    jobs = [job for key in keys for job in await box.enqueue_many(20, limits=(key,))]
    running: Counter[str] = Counter()
    done: set[UUID] = set()

    async def work(store: Store, place: int) -> None:
        while len(done) < len(jobs):
            if place % 2:
                claimed = (await box.ask(store=store, room=5)).jobs
            else:
                delivered = [row.job for row in (await store.lease_outbox(5, 0.0)).rows]
                claimed = (await deliver(box, *delivered, store=store)).jobs
            for job in claimed:
                assert job.limits is not None
                running.update(job.limits)
                assert running[job.limits[0]] <= most
            await asyncio.sleep(0)
            for job in claimed:
                assert job.limits is not None
                running.subtract(job.limits)  # before the write: afterwards another claim may have its slot
                await box.finish(job, Verb.SUCCEED, store=store)
                done.add(job.id)

    async with box.stores(4) as stores, asyncio.timeout(PATIENCE):
        await asyncio.gather(*(work(store, place) for place, store in enumerate(stores)))

    assert done == set(jobs)


# The poll beside a broker


async def test_a_claim_of_overdue_jobs_leaves_those_that_were_just_due(box: Rig) -> None:
    old = await box.enqueue()
    await box.advance(20)
    touched = await box.held(priority=9)
    await box.finish(touched, Verb.RELEASE)
    await box.advance(15)
    await box.enqueue(priority=9)

    assert [job.id for job in await box.claim(overdue=30.0)] == [old]
    assert [job.id for job in await box.claim(overdue=30.0)] == []
    await box.advance(15)
    assert [job.id for job in await box.claim(overdue=30.0)] == [touched.id]


async def test_a_claim_of_overdue_jobs_hides_none_from_the_next_claim(box: Rig) -> None:
    """A floor that rose to an overdue job would hide a job below it that was only touched."""
    first, second = await box.enqueue_many(2)
    (job,) = await box.claim(room=1)
    await box.die(box.worker)
    await box.store.sweep(max_crashes=3)  # a rescued job keeps its place, and its row has just changed
    box.worker = await box.register()

    (overdue,) = (await box.ask(overdue=30.0, rescan=False)).jobs

    assert {job.id, overdue.id} == {first, second}
    assert [each.id for each in (await box.ask(rescan=False)).jobs] == [job.id]
