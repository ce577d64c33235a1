"""Operating on jobs: cancel, retry, replay, resume, discard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.errors import TransitionRefused
from windlass.model.state import STAYING_VERBS, State, Verb, target

if TYPE_CHECKING:
    from .rig import Rig

ERROR = '{"type":"Boom","message":"no","attempt":1,"attemptedAt":"2026-01-01T12:00:00Z"}'


async def test_a_job_that_is_not_running_is_cancelled_at_once(rig: Rig) -> None:
    job = await rig.enqueue()

    assert await rig.store.operate(Verb.CANCEL, job) is State.CANCELLED

    cancelled = await rig.find(job)
    assert (cancelled.status, cancelled.finished_at) == (State.CANCELLED, rig.clock.now())
    assert await rig.claim() == []


async def test_a_running_job_is_asked_to_stop(rig: Rig) -> None:
    job = await rig.held()
    assert await rig.store.cancel_requests(rig.worker) == []

    assert await rig.store.operate(Verb.CANCEL, job.id) is State.RUNNING
    assert await rig.store.operate(Verb.CANCEL, job.id) is State.RUNNING

    assert (await rig.find(job.id)).cancel_requested
    assert await rig.store.cancel_requests(rig.worker) == [job.id]


async def test_a_job_that_heeds_the_request_is_cancelled(rig: Rig) -> None:
    job = await rig.held()
    await rig.store.operate(Verb.CANCEL, job.id)

    finished = await rig.write(job.lease, Verb.STOP, attempt=1)

    assert finished.states == {job.id: State.CANCELLED}
    assert await rig.store.finished_by(job.lease)
    assert await rig.store.cancel_requests(rig.worker) == []


async def test_a_job_that_was_faster_than_the_request_has_succeeded(rig: Rig) -> None:
    job = await rig.held()
    await rig.store.operate(Verb.CANCEL, job.id)

    await rig.write(job.lease, Verb.SUCCEED, output="1")

    assert await rig.status(job.id) is State.SUCCEEDED


@pytest.mark.parametrize("verb", sorted(verb for verb in STAYING_VERBS if target(verb) is not State.DEAD))
async def test_after_a_request_to_cancel_nothing_starts_any_more(rig: Rig, verb: Verb) -> None:
    job = await rig.held()
    await rig.store.operate(Verb.CANCEL, job.id)

    finished = await rig.write(job.lease, verb, attempt=1, error=ERROR, cost_cents=7)

    assert finished.states == {job.id: State.CANCELLED}
    cancelled = await rig.find(job.id)
    assert (cancelled.status, cancelled.attempt, cancelled.cost_cents) == (State.CANCELLED, 1, 7)
    assert cancelled.finished_at == rig.clock.now()
    assert await rig.store.finished_by(job.lease)
    assert await rig.claim() == []


async def test_a_burial_is_final_although_a_cancel_was_asked(rig: Rig) -> None:
    job = await rig.held()
    await rig.store.operate(Verb.CANCEL, job.id)

    await rig.write(job.lease, Verb.BURY)

    assert await rig.status(job.id) is State.DEAD


async def test_a_cancel_outlives_the_worker_that_should_have_heeded_it(rig: Rig) -> None:
    job = await rig.held()
    await rig.store.operate(Verb.CANCEL, job.id)
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=3)

    assert await rig.status(job.id) is State.CANCELLED
    assert await rig.claim() == []


@pytest.mark.parametrize("by_creation", [False, True])
async def test_a_job_with_a_forgotten_cancel_is_never_claimed(rig: Rig, by_creation: bool) -> None:
    job = await rig.enqueue()
    await rig.run(f"UPDATE {{}}jobs SET cancel_requested = (1 = 1) WHERE id = '{job}'")

    assert await rig.claim(by_creation=by_creation) == []
    assert await rig.claim(by_creation=by_creation, aged=5) == []


async def test_a_retry_makes_a_failed_job_due_now(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.FAIL, delay=3_600.0, attempt=1, error=ERROR)

    assert await rig.store.operate(Verb.RETRY, job.id) is State.QUEUED

    (again,) = await rig.claim()
    assert (again.id, again.attempt, again.run_at) == (job.id, 2, rig.clock.now())


async def test_a_replay_starts_over_and_keeps_errors_and_fence(rig: Rig) -> None:
    job = await rig.held()
    await rig.store.operate(Verb.CANCEL, job.id)
    await rig.write(job.lease, Verb.BURY, attempt=1, crashes=2, error=ERROR, entry='{"n":1}', reason="permanent")
    await rig.advance(100)
    dead = await rig.find(job.id)

    assert await rig.store.operate(Verb.REPLAY, job.id) is State.QUEUED

    back = await rig.find(job.id)
    assert (back.attempt, back.crashes, back.fence) == (0, 0, 1)
    assert (back.error, back.attempts) == (dead.error, dead.attempts)
    assert (back.reason, back.finished_at, back.run_at) == (None, None, rig.clock.now())
    assert [each.id for each in await rig.claim()] == [job.id]


async def test_a_resumed_job_comes_back_from_the_history(rig: Rig) -> None:
    job = await rig.held(priority=3, input='{"to":"you"}')
    await rig.write(job.lease, Verb.STOP, attempt=1, error=ERROR)
    await rig.advance(100)

    assert await rig.store.operate(Verb.RESUME, job.id) is State.QUEUED

    back = await rig.find(job.id)
    assert (back.token, back.worker, back.finished_at, back.cancel_requested) == (None, None, None, False)
    assert (back.priority, back.input, back.fence, back.run_at) == (3, '{"to":"you"}', 1, rig.clock.now())
    assert (await rig.store.counts())[State.CANCELLED] == 0
    assert [(each.id, each.fence) for each in await rig.claim()] == [(job.id, 2)]


async def test_a_job_can_be_cancelled_and_resumed_again_and_again(rig: Rig) -> None:
    job = await rig.enqueue()
    for _ in range(3):
        await rig.store.operate(Verb.CANCEL, job)
        await rig.store.operate(Verb.RESUME, job)

    counts = await rig.store.counts()
    assert (counts[State.QUEUED], counts[State.CANCELLED]) == (1, 0)


async def test_a_discarded_job_is_gone(rig: Rig) -> None:
    job = await rig.job_in(State.DEAD)

    assert await rig.store.operate(Verb.DISCARD, job) is None

    assert await rig.store.find(job) is None


async def test_a_refusal_says_the_state_and_what_would_be_possible(rig: Rig) -> None:
    job = await rig.job_in(State.DEAD)

    with pytest.raises(TransitionRefused, match=r"is dead.*replay"):
        await rig.store.operate(Verb.RETRY, job)


async def test_jobs_are_counted_in_every_state(rig: Rig) -> None:
    for state in State:
        await rig.job_in(state)
        if state is State.QUEUED:
            await rig.claim()  # so that the next one is alone again

    counts = await rig.store.counts()

    assert {state: counts[state] for state in State} == {
        **dict.fromkeys(State, 1),
        State.QUEUED: 0,
        State.RUNNING: 2,
    }
