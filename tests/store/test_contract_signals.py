"""Signals: kept before a job waits, delivered once, and never lost between a send and a wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from windlass.errors import JobNotFound, TransitionRefused
from windlass.model.flow import Flow
from windlass.model.job import Wait, new_id
from windlass.model.outcome import Transition
from windlass.model.state import FINAL, State, Verb

from .flows import LIMIT, decoded, end, is_woken, waiting_for
from .rig import alone

if TYPE_CHECKING:
    from typing import Any
    from uuid import UUID

    from .rig import Rig


async def signals(rig: Rig, job: UUID) -> dict[str, Any]:
    return {name: decoded(payload) for name, payload in (await rig.store.recall(job)).signals.items()}


async def waits_for_a_signal(rig: Rig, **options: Any) -> UUID:
    job = await rig.running()
    wait = Wait(**({"signal": "approved"} | options))
    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=wait)) is State.WAITING
    return job.id


async def test_a_signal_wakes_the_job_that_waits_for_it(rig: Rig) -> None:
    job = await waits_for_a_signal(rig)
    await rig.advance(5)

    assert await rig.store.signal(job, "approved", '{"by":"ann"}') is True

    assert await is_woken(rig, job)
    assert await signals(rig, job) == {"approved": {"by": "ann"}}
    again = await rig.take(job)
    assert (again.attempt, again.fence) == (1, 2)


async def test_a_signal_wakes_once(rig: Rig) -> None:
    job = await waits_for_a_signal(rig)
    await rig.store.signal(job, "approved", "1")
    running = await rig.take(job)

    await rig.store.signal(job, "approved", "2")
    await rig.store.signal(job, "else", "3")
    await rig.store.wake_due()

    assert await rig.find(job) == running


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.FAILED, State.WAITING])
async def test_a_signal_before_anybody_waits_is_kept(rig: Rig, state: State) -> None:
    job = await rig.job_in(state)
    before = await rig.find(job)

    assert await rig.store.signal(job, "approved", "[1,null]") is True

    assert await signals(rig, job) == {"approved": [1, None]}
    assert (await rig.find(job)).status is before.status


async def test_a_wait_for_a_signal_that_came_already_is_over_at_once(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.signal(job.id, "approved", "1")

    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=Wait(signal="approved"))) is State.QUEUED

    assert await is_woken(rig, job.id)
    await rig.take(job.id)


async def test_a_signal_of_another_name_wakes_nobody(rig: Rig) -> None:
    job = await waits_for_a_signal(rig)

    assert await rig.store.signal(job, "refused", "1")

    assert await rig.status(job) is State.WAITING
    assert await rig.store.signal(job, "approved", "2")
    assert await signals(rig, job) == {"refused": 1, "approved": 2}
    assert await is_woken(rig, job)


async def test_a_signal_to_another_job_wakes_nobody(rig: Rig) -> None:
    job, other = await waits_for_a_signal(rig), await waits_for_a_signal(rig)

    await rig.store.signal(other, "approved", "1")

    assert (await rig.status(job), await signals(rig, job)) == (State.WAITING, {})


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
async def test_the_first_signal_of_a_name_is_kept(rig: Rig, state: State) -> None:
    job = await rig.job_in(state)

    assert await rig.store.signal(job, "approved", "1") is True
    assert await rig.store.signal(job, "approved", "2") is False

    assert await signals(rig, job) == {"approved": 1}


@pytest.mark.parametrize("state", sorted(FINAL))
async def test_a_job_that_has_ended_takes_no_signal(rig: Rig, state: State) -> None:
    job = await rig.job_in(state)
    before = await rig.find(job)

    with pytest.raises(TransitionRefused, match=f"{job}.*{state.value}"):
        await rig.store.signal(job, "approved", "1")

    assert await rig.find(job) == before
    assert await signals(rig, job) == {}


async def test_a_job_that_never_was_takes_no_signal(rig: Rig) -> None:
    missing = new_id()

    with pytest.raises(JobNotFound, match=str(missing)):
        await rig.store.signal(missing, "approved", "1")

    assert await signals(rig, missing) == {}


async def test_a_discarded_job_takes_no_signal(rig: Rig) -> None:
    job = await rig.job_in(State.DEAD)
    await rig.store.operate(Verb.DISCARD, job)

    with pytest.raises(JobNotFound):
        await rig.store.signal(job, "approved", "1")


async def test_a_payload_keeps_its_json_to_the_last_digit(rig: Rig) -> None:
    job = await rig.enqueue()

    await rig.store.signal(job, "approved", '{"big":18446744073709551616,"float":1.0}')

    (payload,) = (await rig.store.recall(job)).signals.values()
    assert decoded(payload) == {"big": 18446744073709551616, "float": 1.0}
    assert "1.0" in payload


async def test_a_signal_survives_retries(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.signal(job.id, "approved", "1")

    await rig.finish(job, Verb.FAIL, attempt=1)
    await end(rig, job.id, Verb.BURY)
    await rig.store.operate(Verb.REPLAY, job.id)

    assert await signals(rig, job.id) == {"approved": 1}


async def test_a_deadline_wakes_a_job_whose_signal_did_not_come(rig: Rig) -> None:
    job = await waits_for_a_signal(rig, delay=60.0)
    await rig.advance(59)
    assert await rig.store.wake_due() == 0
    await rig.advance(2)

    assert await rig.store.wake_due() == 1

    assert await is_woken(rig, job)
    assert await signals(rig, job) == {}
    running = await rig.take(job)
    assert await rig.store.signal(job, "approved", "1") is True  # late, and kept all the same
    assert await rig.find(job) == running


async def test_a_signal_before_the_deadline_ends_the_deadline_too(rig: Rig) -> None:
    job = await waits_for_a_signal(rig, delay=60.0)
    await rig.store.signal(job, "approved", "1")
    running = await rig.take(job)
    await rig.advance(61)

    assert await rig.store.wake_due() == 0

    assert await rig.find(job) == running


async def test_a_signal_wakes_a_job_that_waits_for_others_too(rig: Rig) -> None:
    job = await rig.running()
    child = alone()
    await rig.store.enqueue([child])
    wait = waiting_for(child, signal="hurry")
    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=wait)) is State.WAITING

    await rig.store.signal(job.id, "hurry", "1")

    assert await is_woken(rig, job.id)
    running = await rig.take(job.id)
    await end(rig, child.id)
    assert await rig.find(job.id) == running


async def test_others_wake_a_job_that_waits_for_a_signal_too(rig: Rig) -> None:
    job = await rig.running()
    child = alone()
    await rig.store.enqueue([child])
    await rig.finish(job, Verb.WAIT, flow=Flow(wait=waiting_for(child, signal="hurry")))

    await end(rig, child.id)

    assert await is_woken(rig, job.id)
    running = await rig.take(job.id)
    assert await rig.store.signal(job.id, "hurry", "1") is True
    assert await rig.find(job.id) == running


async def test_a_cancelled_job_is_not_woken(rig: Rig) -> None:
    job = await waits_for_a_signal(rig, delay=60.0)
    await rig.store.operate(Verb.CANCEL, job)
    await rig.advance(61)

    with pytest.raises(TransitionRefused):
        await rig.store.signal(job, "approved", "1")

    assert await rig.store.wake_due() == 0
    assert await rig.status(job) is State.CANCELLED


async def test_a_resumed_job_waits_for_nothing_any_more(rig: Rig) -> None:
    job = await waits_for_a_signal(rig, delay=60.0)
    await rig.store.operate(Verb.CANCEL, job)
    await rig.store.operate(Verb.RESUME, job)
    running = await rig.take(job)
    await rig.advance(61)

    await rig.store.signal(job, "approved", "1")
    assert await rig.store.wake_due() == 0

    assert await rig.find(job) == running


async def test_a_wait_written_in_a_transaction_sees_the_signal(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.signal(job.id, "approved", "1")

    async with rig.store.transaction(limit=LIMIT) as transaction:
        wait = Flow(wait=Wait(signal="approved"))
        assert await transaction.finish(Transition(lease=job.lease, verb=Verb.WAIT, flow=wait))
        await transaction.commit()

    assert await is_woken(rig, job.id)


async def test_a_signal_and_a_wait_at_once_never_miss_each_other(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(40):
            job = await rig.running()
            wait = Flow(wait=Wait(signal="approved"))
            actions = [rig.finish(job, Verb.WAIT, store=one, flow=wait), other.signal(job.id, "approved", "1")]
            if turn % 2:
                actions.reverse()

            await asyncio.gather(*actions)

            assert await rig.status(job.id) is State.QUEUED, turn
            assert await signals(rig, job.id) == {"approved": 1}


async def test_a_signal_and_a_deadline_at_once_wake_once(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for turn in range(15):
            job = await waits_for_a_signal(rig, delay=1.0)
            await rig.advance(2)

            woken, answer = await asyncio.gather(one.wake_due(), other.signal(job, "approved", "1"))

            assert woken in (0, 1)
            assert answer is True
            assert await rig.status(job) is State.QUEUED, turn
            running = await rig.take(job)
            assert await rig.store.wake_due() == 0
            assert await rig.find(job) == running


async def test_of_many_signals_at_once_one_is_kept(rig: Rig) -> None:
    job = await waits_for_a_signal(rig)

    async with rig.stores(4) as stores:
        answer = await asyncio.gather(*[stores[n % 4].signal(job, "approved", str(n)) for n in range(32)])

    (winner,) = [number for number, first in enumerate(answer) if first]
    assert await signals(rig, job) == {"approved": winner}
    assert await is_woken(rig, job)


async def test_a_signal_at_the_very_end_is_kept_or_refused(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for _ in range(15):
            job = await rig.running()

            state, answer = await asyncio.gather(
                rig.finish(job, Verb.SUCCEED, store=one),
                other.signal(job.id, "approved", "1"),
                return_exceptions=True,
            )

            assert state is State.SUCCEEDED
            assert answer is True or isinstance(answer, TransitionRefused), answer
