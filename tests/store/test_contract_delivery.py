"""The outbox: a row commits with whatever makes its job claimable, and a relay leases it once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from windlass.model.admission import Budget, GateKind, GateState
from windlass.model.delivery import PUBLISHED_BY_ENQUEUE, DeliveryMode, OutboxKind
from windlass.model.flow import Advance, Flow
from windlass.model.job import Wait
from windlass.model.state import State, Verb
from windlass.store.parts.statements import uuid_of

from .admissions import PATIENCE, full
from .rig import TYPE, new_job
from .timetables import declare, to_next

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from windlass.store.protocol import Store

    from .rig import Rig


@pytest_asyncio.fixture(loop_scope="session")
async def box(rig: Rig) -> Rig:
    assert await rig.store.set_delivery(DeliveryMode.OUTBOX)
    return rig


async def in_outbox(rig: Rig) -> list[tuple[UUID, str]]:
    """The jobs of the outbox's rows, due or not, in the order in which they were written."""
    found = await rig.run("SELECT job, kind FROM {}outbox ORDER BY id")
    return [(uuid_of(row[0]), row[1]) for row in found]


async def leased(rig: Rig, most: int = 100) -> list[UUID]:
    return [row.job for row in (await rig.store.lease_outbox(most, 30.0)).rows]


async def test_without_a_broker_nothing_writes_an_outbox(rig: Rig) -> None:
    assert await rig.store.delivery() is None
    job = await rig.held()
    await rig.finish(job, Verb.RELEASE)

    assert await in_outbox(rig) == []


async def test_a_job_that_is_enqueued_is_leased_with_what_its_envelope_needs(box: Rig) -> None:
    job = await box.enqueue(queue="mail", priority=5, input='{"to":"ann"}', trace="00-1-2-01", max_attempts=7)

    (row,) = (await box.store.lease_outbox(10, 30.0)).rows

    assert (row.job, row.kind, row.queue, row.priority, row.type) == (job, OutboxKind.DELIVER, "mail", 5, TYPE)
    assert (row.input, row.trace, row.attempt, row.max_attempts) == ('{"to":"ann"}', "00-1-2-01", 1, 7)
    assert row.created_at == (await box.find(job)).created_at
    assert await leased(box) == []  # it is leased

    await box.store.settle_outbox([row.id], [])
    assert await box.store.outbox_size(10) == (0, None)


# What writes a row


async def test_a_row_is_written_with_the_job_or_not_at_all(box: Rig) -> None:
    async with box.store.transaction(limit=10.0) as transaction:
        job = new_job()
        await transaction.enqueue([job])
        await transaction.rollback()
    assert await in_outbox(box) == []

    async with box.store.transaction(limit=10.0) as transaction:
        await transaction.enqueue([job])
        await transaction.commit()
    assert await in_outbox(box) == [(job.id, "deliver")]


async def test_a_thousand_jobs_of_one_enqueue_have_a_row_each(box: Rig) -> None:
    jobs = await box.enqueue_many(1_000)

    assert {job for job, _ in await in_outbox(box)} == set(jobs)


async def test_a_delayed_job_is_leased_when_it_is_due(box: Rig) -> None:
    job = await box.enqueue(delay=60.0)

    early = await box.store.lease_outbox(10, 30.0)
    await box.advance(60)

    assert early.rows == []
    assert early.next_due == pytest.approx(60.0)
    assert await leased(box) == [job]


@pytest.mark.parametrize("verb", [Verb.RELEASE, Verb.SNOOZE, Verb.FAIL])
async def test_a_job_that_comes_back_has_another_row(box: Rig, verb: Verb) -> None:
    job = await box.held()
    assert await leased(box) == []  # it is running: its first row is dropped

    await box.finish(job, verb, delay=None if verb is Verb.RELEASE else 30.0, attempt=1)
    assert await leased(box) == ([job.id] if verb is Verb.RELEASE else [])

    await box.advance(31)
    assert await leased(box) == [job.id]


async def test_a_job_that_fails_is_delivered_for_its_next_attempt(box: Rig) -> None:
    job = await box.held()
    assert await leased(box) == []
    await box.finish(job, Verb.FAIL, attempt=1, delay=1.0)
    await box.advance(1)

    (row,) = (await box.store.lease_outbox(10, 30.0)).rows

    assert row.attempt == 2


async def rescued(rig: Rig) -> UUID:
    job = await rig.running()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    return job.id


async def replayed(rig: Rig) -> UUID:
    job = await rig.job_in(State.DEAD)
    await rig.store.operate(Verb.REPLAY, job)
    return job


async def resumed(rig: Rig) -> UUID:
    job = await rig.job_in(State.CANCELLED)
    await rig.advance(1)  # a resume in the mode `direct` is told from an enqueue by its times
    await rig.store.operate(Verb.RESUME, job)
    return job


async def retried_by_hand(rig: Rig) -> UUID:
    job = await rig.job_in(State.FAILED)
    await rig.store.operate(Verb.RETRY, job)
    return job


async def in_its_next_phase(rig: Rig) -> UUID:
    job = await rig.running()
    to = Advance(type=TYPE, phase="ask", phase_rank=1, queue="ask", max_attempts=4)
    await rig.finish(job, Verb.ADVANCE, flow=Flow(advance=to))
    return job.id


async def woken(rig: Rig) -> UUID:
    job = await rig.running()
    await rig.finish(job, Verb.WAIT, flow=Flow(wait=Wait(signal="go")))
    await rig.store.signal(job.id, "go", "1")
    return job.id


async def unparked(rig: Rig) -> UUID:
    holder, (parked,) = await full(rig, behind=1)
    await rig.finish(holder, Verb.SUCCEED)
    return parked


async def fired_by_a_schedule(rig: Rig) -> UUID:
    await declare(rig)
    await to_next(rig)
    await rig.store.tick("nightly")
    (job,) = await rig.run("SELECT id FROM {}jobs")
    return uuid_of(job[0])


COMEBACKS = [rescued, replayed, resumed, retried_by_hand, in_its_next_phase, woken, unparked, fired_by_a_schedule]


@pytest.mark.parametrize("come", COMEBACKS, ids=lambda come: come.__name__)
async def test_every_way_to_become_claimable_writes_a_row(box: Rig, come: Callable[[Rig], Awaitable[UUID]]) -> None:
    job = await come(box)

    last, kind = (await in_outbox(box))[-1]

    assert (last, kind) == (job, "deliver")
    assert job in await leased(box)


@pytest.mark.parametrize("come", COMEBACKS[:-1], ids=lambda come: come.__name__)
async def test_in_the_mode_direct_a_job_that_comes_back_has_a_row(
    rig: Rig, come: Callable[[Rig], Awaitable[UUID]]
) -> None:
    await rig.store.set_delivery(DeliveryMode.DIRECT)

    job = await come(rig)

    assert (job, "deliver") in await in_outbox(rig)


async def test_in_the_mode_direct_a_job_that_its_enqueue_publishes_has_no_row(rig: Rig) -> None:
    await rig.store.set_delivery(DeliveryMode.DIRECT)
    await rig.enqueue(delay=PUBLISHED_BY_ENQUEUE)
    await rig.enqueue_many(30, delay=PUBLISHED_BY_ENQUEUE)
    if rig.dialect == "postgres":  # COPY carries no mark in its rows, and is keeps its speed all the same
        assert len(await rig.run("SELECT id FROM {}jobs WHERE run_at = created_at")) == 30

    later = await rig.enqueue(delay=10.0)

    assert await in_outbox(rig) == [(later, "deliver")]


@pytest.mark.parametrize("verb", [Verb.CLAIM, Verb.SUCCEED, Verb.STOP, Verb.WAIT])
async def test_what_makes_no_job_claimable_writes_no_row(box: Rig, verb: Verb) -> None:
    job = await box.held()
    if verb is not Verb.CLAIM:
        await box.finish(job, verb)

    assert await in_outbox(box) == [(job.id, "deliver")]  # of its enqueue


async def test_a_dead_job_has_a_row_of_its_own_kind(box: Rig) -> None:
    job = await box.held()
    await box.finish(job, Verb.BURY, reason="permanent", attempt=1)

    (row,) = (await box.store.lease_outbox(10, 30.0)).rows

    assert (row.job, row.kind, row.attempt, row.reason) == (job.id, OutboxKind.DEAD, 1, "permanent")


async def test_a_dead_job_that_is_replayed_is_no_dead_letter_any_more(box: Rig) -> None:
    job = await replayed(box)

    rows = (await box.store.lease_outbox(10, 30.0)).rows

    assert {(row.job, row.kind) for row in rows} == {(job, OutboxKind.DELIVER)}


# Leases


async def test_an_expired_lease_is_leased_again(box: Rig) -> None:
    job = await box.enqueue()
    assert await leased(box) == [job]
    await box.advance(29)
    assert await leased(box) == []

    await box.advance(1)

    assert await leased(box) == [job]


async def test_a_row_that_was_not_sent_comes_back(box: Rig) -> None:
    one, other = await box.enqueue_many(2)
    rows = {row.job: row.id for row in (await box.store.lease_outbox(10, 30.0)).rows}

    await box.store.settle_outbox([], [rows[one]])
    assert await leased(box) == [one]
    await box.store.settle_outbox([rows[one]], [rows[other]], delay=5.0)
    assert await leased(box) == []
    await box.advance(5)
    assert await leased(box) == [other]


async def test_rows_of_jobs_that_need_no_delivery_are_dropped(box: Rig) -> None:
    await box.held()
    gone = await box.running()
    await box.finish(gone, Verb.SUCCEED)
    cancelled = await box.enqueue()
    await box.store.operate(Verb.CANCEL, cancelled)
    due = await box.enqueue()

    answer = await box.store.lease_outbox(10, 30.0)

    assert [row.job for row in answer.rows] == [due]
    assert (answer.dropped, answer.next_due) == (3, None)
    assert [job for job, _ in await in_outbox(box)] == [due]


async def test_a_full_page_of_dropped_rows_asks_for_the_next_one(box: Rig) -> None:
    for _ in range(2):
        await box.finish(await box.held(), Verb.SUCCEED)
    due = await box.enqueue()

    first = await box.store.lease_outbox(2, 30.0)

    assert (first.rows, first.dropped, first.next_due) == ([], 2, 0.0)
    assert await leased(box, 2) == [due]


async def test_two_relays_never_lease_one_row(box: Rig) -> None:
    jobs = set(await box.enqueue_many(200))
    async with box.stores(4) as stores:
        found: list[UUID] = []

        async def relay(store: Store) -> None:
            while rows := (await store.lease_outbox(7, 30.0)).rows:
                found.extend(row.job for row in rows)

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*map(relay, stores))

    assert len(found) == len(jobs)
    assert set(found) == jobs


async def test_a_row_that_commits_after_a_later_one_is_not_lost(box: Rig) -> None:
    """The transaction that took the lower id is slower: a relay that read beyond the last id would miss its row."""
    if box.dialect == "sqlite":
        pytest.skip("a file has one writer: rows commit in the order of their ids")
    async with box.store.transaction(limit=60.0) as slow:
        early = new_job()
        await slow.enqueue([early])
        late = await box.enqueue()
        (row,) = (await box.store.lease_outbox(10, 30.0)).rows
        await box.store.settle_outbox([row.id], [])
        assert row.job == late
        await slow.commit()

    assert await leased(box) == [early.id]


# Waits for a gate, and for a worker


@pytest.mark.parametrize(("kind", "name"), [("all", ""), ("queue", "default"), ("type", TYPE), ("tenant", "default")])
async def test_a_row_behind_a_gate_is_leased_when_it_opens(box: Rig, kind: str, name: str) -> None:
    await box.store.set_gate(GateKind(kind), name, GateState.PAUSED)
    job = await box.enqueue()
    closed = await box.store.lease_outbox(10, 30.0)
    assert (closed.rows, closed.dropped) == ([], 0)

    await box.store.set_gate(GateKind(kind), name, GateState.OPEN)

    assert await leased(box) == [job]


async def test_a_row_behind_two_gates_waits_for_both(box: Rig) -> None:
    await box.store.set_gate(GateKind.QUEUE, "default", GateState.PAUSED)
    job = await box.enqueue()
    assert await leased(box) == []
    await box.store.set_gate(GateKind.TENANT, "default", GateState.PAUSED)
    await box.store.set_gate(GateKind.QUEUE, "default", GateState.OPEN)
    assert await leased(box) == []

    await box.store.set_gate(GateKind.TENANT, "default", GateState.OPEN)

    assert await leased(box) == [job]


async def test_a_row_behind_a_spent_budget_is_leased_when_it_is_raised(box: Rig) -> None:
    await box.store.set_budget(Budget(kind="queue", name="default", cents=0, seconds=100.0))
    job = await box.enqueue()
    assert await leased(box) == []

    await box.store.set_budget(Budget(kind="queue", name="default", cents=5, seconds=100.0))

    assert await leased(box) == [job]


async def test_rows_behind_a_gate_leave_room_for_others(box: Rig) -> None:
    """Half of an answer at most: neither they nor the rows that never waited starve."""
    await box.store.set_gate(GateKind.QUEUE, "paused", GateState.PAUSED)
    await box.enqueue_many(8, queue="paused")
    for _ in range(2):
        assert await leased(box) == []
    await box.store.set_gate(GateKind.QUEUE, "paused", GateState.OPEN)
    await box.enqueue_many(8)

    queues = [row.queue for row in (await box.store.lease_outbox(4, 30.0)).rows]

    assert {"paused", "default"} >= set(queues)
    assert len(queues) == 4
