"""Durable steps: what a job remembered under its lease, and only under it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.model.flow import Flow, Memory, Recollection
from windlass.model.job import Lease, Wait, new_id
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import LIMIT, decoded, end

if TYPE_CHECKING:
    from typing import Any
    from uuid import UUID

    from windlass.model.job import Job

    from .rig import Rig

DAY = timedelta(days=1).total_seconds()


async def steps(rig: Rig, job: UUID) -> dict[str, Any]:
    return {name: decoded(value) for name, value in (await rig.store.recall(job)).steps.items()}


async def overtaken(rig: Rig) -> Job:
    """A job as its first worker holds it still, although another one claimed it since."""
    job = await rig.running()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    await rig.take(job.id)
    return job


async def test_a_job_without_a_past_remembers_nothing(rig: Rig) -> None:
    job = await rig.running()

    assert await rig.store.recall(job.id) == Recollection(steps={}, signals={})
    assert await rig.store.recall(new_id()) == Recollection(steps={}, signals={})


async def test_a_step_is_remembered_at_once(rig: Rig) -> None:
    job = await rig.running()

    assert await rig.store.remember(job.lease, Memory("charge", '{"paid":true}'))
    assert await rig.store.remember(job.lease, Memory("mail", "null"))

    assert await steps(rig, job.id) == {"charge": {"paid": True}, "mail": None}
    assert await steps(rig, (await rig.running()).id) == {}


async def test_a_memory_keeps_its_json_to_the_last_digit(rig: Rig) -> None:
    job = await rig.running()
    text = '{"big":18446744073709551616,"float":1.0,"text":"é\\n\\"","list":[null,true,{"a":{}}],"":""}'

    await rig.store.remember(job.lease, Memory("step", text))

    (value,) = (await rig.store.recall(job.id)).steps.values()
    assert decoded(value) == decoded(text)
    assert "18446744073709551616" in value
    assert "1.0" in value


async def test_a_step_is_seen_by_another_store(rig: Rig) -> None:
    job = await rig.running()

    async with rig.stores(2) as (one, other):
        await one.remember(job.lease, Memory("charge", "1"))

        assert (await other.recall(job.id)).steps == {"charge": "1"}


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.WAIT, Verb.ADVANCE])
async def test_a_memory_outlives_its_attempt(rig: Rig, verb: Verb) -> None:
    job = await rig.running()
    await rig.store.remember(job.lease, Memory("charge", "1"))

    await rig.finish(job, verb)

    assert await steps(rig, job.id) == {"charge": 1}


async def test_a_memory_outlives_its_worker_its_death_and_its_cancel(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.remember(job.lease, Memory("charge", "1"))
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    assert await steps(rig, job.id) == {"charge": 1}

    await end(rig, job.id, Verb.BURY)
    await rig.store.operate(Verb.REPLAY, job.id)
    assert await steps(rig, job.id) == {"charge": 1}

    await rig.store.operate(Verb.CANCEL, job.id)
    await rig.store.operate(Verb.RESUME, job.id)
    assert await steps(rig, job.id) == {"charge": 1}


async def test_a_lost_lease_remembers_nothing(rig: Rig) -> None:
    stale = (await overtaken(rig)).lease

    assert await rig.store.remember(stale, Memory("charge", "1")) is False
    assert await rig.store.remember(Lease(stale.job, new_id(), stale.fence + 1), Memory("charge", "1")) is False
    assert await rig.store.remember(Lease(new_id(), new_id(), 1), Memory("charge", "1")) is False

    assert await steps(rig, stale.job) == {}


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.STOP, Verb.BURY, Verb.FAIL, Verb.WAIT])
async def test_a_lease_that_was_settled_remembers_nothing(rig: Rig, verb: Verb) -> None:
    job = await rig.running()
    await rig.finish(job, verb)

    assert await rig.store.remember(job.lease, Memory("charge", "1")) is False

    assert await steps(rig, job.id) == {}


async def test_a_job_asked_to_cancel_still_remembers_what_it_did(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.operate(Verb.CANCEL, job.id)

    assert await rig.store.remember(job.lease, Memory("charge", "1"))


async def test_a_step_in_a_transaction_is_remembered_with_its_commit(rig: Rig) -> None:
    job = await rig.running()
    await rig.run("CREATE TABLE charges (amount integer)")

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO charges VALUES (5)")
        assert await transaction.remember(job.lease, Memory("charge", "5"))
        await transaction.commit()

    assert await steps(rig, job.id) == {"charge": 5}
    assert len(await rig.run("SELECT amount FROM charges")) == 1


async def test_a_step_in_a_transaction_is_forgotten_with_its_rollback(rig: Rig) -> None:
    job = await rig.running()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.remember(job.lease, Memory("charge", "5"))

    assert await steps(rig, job.id) == {}


async def test_a_step_in_a_savepoint_goes_with_it(rig: Rig) -> None:
    job = await rig.running()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.remember(job.lease, Memory("kept", "1"))
        await transaction.savepoint()
        await transaction.remember(job.lease, Memory("undone", "2"))
        await transaction.rollback_to()
        await transaction.commit()

    assert await steps(rig, job.id) == {"kept": 1}


async def test_a_lost_lease_remembers_nothing_in_a_transaction(rig: Rig) -> None:
    stale = (await overtaken(rig)).lease

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.remember(stale, Memory("charge", "1")) is False
        await transaction.commit()

    assert await steps(rig, stale.job) == {}


async def test_a_step_and_the_finish_commit_together(rig: Rig) -> None:
    job = await rig.running()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.remember(job.lease, Memory("charge", "5"))
        assert await transaction.finish(Transition(lease=job.lease, verb=Verb.FAIL, attempt=1, followed=job.followed))
        await transaction.commit()

    assert await rig.status(job.id) is State.FAILED
    assert await steps(rig, job.id) == {"charge": 5}


async def test_memories_of_a_wait_are_written_with_it(rig: Rig) -> None:
    job = await rig.running()
    flow = Flow(memories=(Memory("nap", '"2026-01-04"'), Memory("deadline", "7")), wait=Wait(delay=60.0))

    assert await rig.finish(job, Verb.WAIT, flow=flow) is State.WAITING

    assert await steps(rig, job.id) == {"nap": "2026-01-04", "deadline": 7}


async def test_memories_of_a_lost_wait_are_not_written(rig: Rig) -> None:
    stale = await overtaken(rig)

    assert await rig.finish(stale, Verb.WAIT, flow=Flow(memories=(Memory("nap", "1"),), wait=Wait(delay=1.0))) is None

    assert await steps(rig, stale.id) == {}


async def test_many_steps_at_once_are_all_remembered(rig: Rig) -> None:
    job = await rig.running()

    async with rig.stores(2) as stores:
        kept = await asyncio.gather(
            *[stores[number % 2].remember(job.lease, Memory(str(number), str(number))) for number in range(30)]
        )

    assert all(kept)
    assert await steps(rig, job.id) == {str(number): number for number in range(30)}


async def test_what_was_said_to_be_remembered_is_remembered_although_a_rescue_came(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for _ in range(10):
            job = await rig.running()
            await rig.die(rig.worker)

            kept, _ = await asyncio.gather(one.remember(job.lease, Memory("charge", "1")), other.sweep(max_crashes=3))

            assert await steps(rig, job.id) == ({"charge": 1} if kept else {})
            rig.worker = await rig.register()


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.FAILED, State.WAITING, State.DEAD])
async def test_a_prune_forgets_nothing_of_a_job_that_is_not_over(rig: Rig, state: State) -> None:
    job = await rig.running()
    await rig.store.remember(job.lease, Memory("charge", "1"))
    await rig.store.signal(job.id, "approved", "2")
    verbs = {State.QUEUED: Verb.SNOOZE, State.FAILED: Verb.FAIL, State.WAITING: Verb.WAIT, State.DEAD: Verb.BURY}
    if state in verbs:
        await rig.finish(job, verbs[state], delay=365 * DAY)
    await rig.advance(100 * DAY)

    await rig.store.prune(history=7 * DAY, audit=90 * DAY)

    assert await rig.status(job.id) is state
    assert await rig.store.recall(job.id) == Recollection(steps={"charge": "1"}, signals={"approved": "2"})


async def test_a_prune_forgets_the_steps_of_jobs_that_have_passed(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.remember(job.lease, Memory("charge", "1"))
    await rig.store.signal(job.id, "approved", "2")
    await rig.finish(job, Verb.SUCCEED)
    await rig.advance(100 * DAY)

    await rig.store.prune(history=7 * DAY, audit=90 * DAY)

    assert await rig.store.find(job.id) is None
    assert await rig.store.recall(job.id) == Recollection(steps={}, signals={})
