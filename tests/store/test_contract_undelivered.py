"""The switch of the delivery, and jobs that have been due for long and reached no worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from windlass.errors import StoreBusy
from windlass.model.admission import GateKind, GateState
from windlass.model.delivery import DeliveryMode, UndeliveredAction
from windlass.model.flow import Flow
from windlass.model.state import State, Verb

from .admissions import PATIENCE, full
from .flows import waiting_for
from .rig import TYPE, alone, new_job
from .test_contract_limit_races import only_on_postgres, until_waiting

if TYPE_CHECKING:
    from uuid import UUID

    from .rig import Rig

PUBLISH, FAIL = UndeliveredAction.PUBLISH, UndeliveredAction.FAIL


async def rows_of_outbox(rig: Rig) -> int:
    ((count,),) = await rig.run("SELECT count(*) FROM {}outbox")
    return int(count)


# The switch


async def test_the_delivery_is_switched_on_and_off(rig: Rig) -> None:
    store = rig.store
    await rig.enqueue()
    assert await store.set_delivery(DeliveryMode.OUTBOX)
    assert not await store.set_delivery(DeliveryMode.OUTBOX)
    assert await store.delivery() is DeliveryMode.OUTBOX
    await rig.enqueue()
    assert await rows_of_outbox(rig) == 1  # nothing is written for the job that was there

    assert await store.set_delivery(DeliveryMode.DIRECT)
    await rig.enqueue()  # its enqueue does not publish it, so it has a row as well
    assert (await store.delivery(), await rows_of_outbox(rig)) == (DeliveryMode.DIRECT, 2)

    assert await store.set_delivery(None)
    assert not await store.set_delivery(None)
    await rig.finish(await rig.running(), Verb.RELEASE)
    assert (await store.delivery(), await rows_of_outbox(rig)) == (None, 0)


async def test_two_processes_that_switch_at_once_make_the_triggers_once(rig: Rig) -> None:
    async with rig.stores(4) as stores, asyncio.timeout(PATIENCE):
        changed = await asyncio.gather(*(store.set_delivery(DeliveryMode.OUTBOX) for store in stores))

    assert changed.count(True) == 1
    await rig.enqueue()
    assert await rows_of_outbox(rig) == 1


async def test_the_switch_waits_for_a_long_transaction_and_no_writer_waits_for_the_switch(rig: Rig) -> None:
    """CREATE TRIGGER waits for every transaction that wrote jobs, and each writer would wait behind it."""
    only_on_postgres(rig)
    async with rig.store.transaction(limit=60.0) as long, rig.stores(2) as (_, other):
        await long.enqueue([alone()])
        switching = asyncio.create_task(other.set_delivery(DeliveryMode.OUTBOX))
        await until_waiting(rig, 1, switching)
        async with asyncio.timeout(PATIENCE):
            for _ in range(20):  # while the switch tries again and again
                await rig.enqueue()
        assert not switching.done()
        assert await rig.store.delivery() is None
        await long.commit()
        async with asyncio.timeout(PATIENCE):
            assert await switching

    before = await rows_of_outbox(rig)
    await rig.enqueue()
    assert await rows_of_outbox(rig) == before + 1


async def test_a_switch_that_never_gets_its_turn_says_what_to_do(rig: Rig) -> None:
    only_on_postgres(rig)
    async with rig.store.transaction(limit=60.0) as long, rig.stores(2) as (_, other):
        await long.enqueue([alone()])
        switching = asyncio.create_task(other.set_delivery(DeliveryMode.OUTBOX))
        await until_waiting(rig, 1, switching)
        rig.clock.advance(120)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreBusy, match="windlass doctor"):
                await switching


# Undelivered jobs


@pytest_asyncio.fixture(loop_scope="session")
async def box(rig: Rig) -> Rig:
    await rig.store.set_delivery(DeliveryMode.OUTBOX)
    return rig


async def lost(rig: Rig, count: int, **options: object) -> list[UUID]:
    """Jobs whose deliveries the broker lost: they are due, and no row of the outbox is left."""
    jobs = await rig.enqueue_many(count, **options)
    await rig.run("DELETE FROM {}outbox")
    return jobs


async def test_jobs_that_reached_no_worker_are_published_again(box: Rig) -> None:
    jobs = await lost(box, 5)
    await box.advance(60)
    await lost(box, 1)

    assert await box.store.undelivered(older=60.0, action=PUBLISH, page=2) == 5

    assert {row.job for row in (await box.store.lease_outbox(10, 30.0)).rows} == set(jobs)
    assert await box.store.undelivered(older=60.0, action=PUBLISH, page=2) == 0  # their rows are still there


async def test_jobs_that_reached_no_worker_are_dead_where_that_is_wanted(box: Rig) -> None:
    jobs = await lost(box, 5)
    (failed,) = await box.claim(room=1)
    await box.finish(failed, Verb.FAIL, attempt=1, delay=1.0)
    await box.advance(61)
    young = await box.enqueue()

    assert await box.store.undelivered(older=60.0, action=FAIL, page=2) == 5

    for job in [await box.find(job) for job in jobs]:
        assert (job.status, job.reason) == (State.DEAD, "undelivered")
        assert job.retries == (1 if job.id == failed.id else 0)
        failure = job.failure()
        assert failure is not None
        assert "1m" in failure.message
    assert await box.status(young) is State.QUEUED
    actions = [row for row in await box.store.audit() if row.action == "JOB_DEAD"]
    assert {(row.job, row.reason) for row in actions} == {(job, "undelivered") for job in jobs}
    await box.store.operate(Verb.REPLAY, jobs[0])
    assert await box.status(jobs[0]) is State.QUEUED


async def test_the_end_of_an_undelivered_job_has_its_consequences(box: Rig) -> None:
    job = alone()
    await box.store.enqueue([job])
    waiter = await box.running()
    await box.finish(waiter, Verb.WAIT, flow=Flow(wait=waiting_for(job.id)))
    await box.advance(61)
    await box.store.undelivered(older=60.0, action=FAIL)

    assert await box.status(job.id) is State.DEAD
    assert await box.status(waiter.id) is State.QUEUED  # what it waits for cannot succeed any more


async def test_jobs_that_wait_for_another_reason_are_left_out(box: Rig) -> None:
    await full(box)
    await box.store.set_gate(GateKind.QUEUE, "paused", GateState.PAUSED)
    await box.store.set_gate(GateKind.TENANT, "paused", GateState.PAUSED)
    await box.store.set_gate(GateKind.TYPE, "paused", GateState.PAUSED)
    await box.register(types=("paused",), lease=1_000.0)
    await box.register(types=("elsewhere",), queues=("other",), lease=1_000.0)
    await lost(box, 2, queue="paused")
    await lost(box, 2, tenant="paused")
    await lost(box, 2, type="paused")
    await lost(box, 2, type="unknown")
    await lost(box, 2, type="elsewhere")
    await lost(box, 2, delay=1_000.0)
    await box.advance(61)

    for action in (PUBLISH, FAIL):
        assert await box.store.undelivered(older=60.0, action=action) == 0


async def test_a_sweep_ends_while_rows_stay_as_they_are(box: Rig) -> None:
    """Publishing again changes no job: a page that began at the first job would never end."""
    for priority in (0, 5):
        for tenant in ("one", "two"):
            await lost(box, 7, tenant=tenant, priority=priority)
    await box.store.enqueue([new_job(limits=("domain:a",)) for _ in range(3)])
    await box.run("DELETE FROM {}outbox")
    await box.advance(61)

    async with asyncio.timeout(PATIENCE):
        assert await box.store.undelivered(older=60.0, action=PUBLISH, page=3) == 4 * 7 + 3


async def test_a_job_that_another_transaction_holds_is_not_waited_for(box: Rig) -> None:
    only_on_postgres(box)
    held, free = await lost(box, 2)
    await box.advance(61)
    async with box.store.transaction(limit=60.0) as transaction:
        await transaction.fetch("SELECT id FROM windlass.jobs WHERE id = $1 FOR UPDATE", held)
        async with asyncio.timeout(PATIENCE):
            assert await box.store.undelivered(older=60.0, action=FAIL) == 1

    assert (await box.status(held), await box.status(free)) == (State.QUEUED, State.DEAD)


async def test_the_size_of_the_outbox_is_counted_up_to_a_number(box: Rig) -> None:
    assert await box.store.outbox_size(10) == (0, None)
    await box.enqueue_many(5, type=TYPE)
    await box.enqueue(delay=1_000.0)
    await box.advance(7)

    due, oldest = await box.store.outbox_size(10)
    assert due == 5
    assert oldest == pytest.approx(7.0)
    assert (await box.store.outbox_size(3))[0] == 3
