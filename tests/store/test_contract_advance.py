"""Advance: a pipeline's job moves to its next phase in the transaction that ends the present one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.flow import Advance, Flow
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import LIMIT, decoded, end, is_woken, spawning, unique, waiter
from .rig import TYPE, alone

if TYPE_CHECKING:
    from windlass.model.job import Job

    from .rig import Rig

NEXT = Advance(type="site.form", phase="form", phase_rank=1, queue="forms", max_attempts=7)
ERROR = '{"type":"Boom","message":"no","attempt":1,"attemptedAt":"2026-01-01T12:00:00Z"}'


async def in_the_pipeline(rig: Rig, **options: Any) -> Job:
    return await rig.running(**({"pipeline": "site", "phase": "analyse", "priority": 3, "tenant": "acme"} | options))


async def advance(rig: Rig, job: Job, **options: Any) -> State | None:
    defaults: dict[str, Any] = {"flow": Flow(advance=NEXT), "output": '{"pages":3}'}
    return await rig.finish(job, Verb.ADVANCE, **(defaults | options))


async def in_the_second_phase(rig: Rig, **options: Any) -> Job:
    job = await in_the_pipeline(rig, **options)
    assert await advance(rig, job) is State.QUEUED
    return await rig.take(job.id)


async def test_the_next_phase_is_another_type_in_another_queue(rig: Rig) -> None:
    job = await in_the_pipeline(rig, input='{"url":"a"}')
    await rig.advance(4)

    assert await advance(rig, job) is State.QUEUED

    moved = await rig.find(job.id)
    assert (moved.type, moved.phase, moved.phase_rank, moved.queue) == ("site.form", "form", 1, "forms")
    assert (moved.max_attempts, moved.attempt, moved.crashes) == (7, 0, 0)
    assert (moved.status, moved.token, moved.worker, moved.finished_at) == (State.QUEUED, None, None, None)
    assert (moved.run_at, moved.updated_at) == (rig.clock.now(), rig.clock.now())
    assert (moved.pipeline, moved.priority, moved.tenant, moved.input) == ("site", 3, "acme", '{"url":"a"}')
    assert (moved.created_at, moved.fence) == (job.created_at, job.fence)
    assert decoded(moved.output) == {"pages": 3}


async def test_only_a_worker_that_knows_the_new_type_claims_it(rig: Rig) -> None:
    job = await in_the_pipeline(rig)
    await advance(rig, job)

    assert await rig.claim(types=(TYPE,)) == []
    assert await rig.claim(queues=(job.queue,), types=(TYPE, "site.form")) == []
    (claimed,) = await rig.claim(types=("site.form",))

    assert (claimed.id, claimed.attempt, claimed.fence) == (job.id, 1, 2)
    assert decoded(claimed.output) == {"pages": 3}


async def test_a_delay_counts_from_the_move(rig: Rig) -> None:
    job = await in_the_pipeline(rig)
    await rig.advance(4)

    await advance(rig, job, delay=30.0)

    assert (await rig.find(job.id)).run_at == rig.clock.now() + timedelta(seconds=30)


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.WAIT, Verb.BURY])
async def test_what_a_phase_left_is_kept_until_the_next_one_succeeds(rig: Rig, verb: Verb) -> None:
    job = await in_the_second_phase(rig)

    await rig.finish(job, verb, attempt=1)

    kept = await rig.find(job.id)
    assert decoded(kept.output) == {"pages": 3}
    assert (kept.type, kept.phase, kept.max_attempts) == ("site.form", "form", 7)


async def test_what_a_phase_left_outlives_a_worker_and_a_replay(rig: Rig) -> None:
    job = await in_the_second_phase(rig)
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    await end(rig, job.id, Verb.BURY)

    await rig.store.operate(Verb.REPLAY, job.id)

    again = await rig.take(job.id)
    assert (again.type, again.phase, again.attempt) == ("site.form", "form", 1)
    assert decoded(again.output) == {"pages": 3}


async def test_what_a_phase_left_outlives_a_cancel_and_a_resume(rig: Rig) -> None:
    job = await in_the_pipeline(rig)
    await advance(rig, job)
    await rig.store.operate(Verb.CANCEL, job.id)

    await rig.store.operate(Verb.RESUME, job.id)

    back = await rig.find(job.id)
    assert (back.type, back.phase, back.phase_rank, back.queue) == ("site.form", "form", 1, "forms")
    assert decoded(back.output) == {"pages": 3}


async def test_the_last_phase_has_the_last_word(rig: Rig) -> None:
    job = await in_the_second_phase(rig)

    await rig.finish(job, Verb.SUCCEED, output='"done"')

    done = await rig.find(job.id)
    assert (done.status, done.output, done.type, done.phase) == (State.SUCCEEDED, '"done"', "site.form", "form")


async def test_errors_and_attempts_of_an_earlier_phase_are_remembered(rig: Rig) -> None:
    job = await in_the_pipeline(rig)
    await rig.finish(job, Verb.FAIL, attempt=1, error=ERROR, entry='{"n":1}')
    again = await rig.take(job.id)

    await advance(rig, again, entry='{"n":2}')

    assert decoded((await rig.find(job.id)).attempts) == [{"n": 1}, {"n": 2}]


async def test_a_job_that_was_asked_to_cancel_does_not_move_on(rig: Rig) -> None:
    job = await in_the_pipeline(rig)
    await rig.store.operate(Verb.CANCEL, job.id)

    assert await advance(rig, job) is State.CANCELLED

    cancelled = await rig.find(job.id)
    assert (cancelled.status, cancelled.finished_at) == (State.CANCELLED, rig.clock.now())
    assert await rig.claim(types=(TYPE, "site.form")) == []


async def test_a_lost_lease_moves_nothing(rig: Rig) -> None:
    stale = await in_the_pipeline(rig)
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    current = await rig.take(stale.id)

    assert await advance(rig, stale) is None

    assert await rig.find(stale.id) == current


async def test_a_move_is_written_once(rig: Rig) -> None:
    job = await in_the_pipeline(rig)
    await advance(rig, job)
    moved = await rig.find(job.id)

    assert await advance(rig, job) is None

    assert await rig.find(job.id) == moved


@pytest.mark.parametrize("commit", [True, False])
async def test_a_move_in_a_transaction_commits_with_it(rig: Rig, commit: bool) -> None:
    job = await in_the_pipeline(rig)
    transition = Transition(
        lease=job.lease, verb=Verb.ADVANCE, flow=Flow(advance=NEXT), output="[1]", followed=job.followed
    )

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(transition)
        if commit:
            await transaction.commit()

    found = await rig.find(job.id)
    if commit:
        assert (found.status, found.type, decoded(found.output)) == (State.QUEUED, "site.form", [1])
        assert await rig.store.finished_by(job.lease) is False
    else:
        assert found == job


async def test_many_jobs_move_in_one_batch_each_its_own_way(rig: Rig) -> None:
    jobs = [await in_the_pipeline(rig) for _ in range(4)]
    plain = await rig.running()
    ways = [
        Advance(type=f"site.{number}", phase=f"phase {number}", phase_rank=number, queue=f"q{number}", max_attempts=2)
        for number in range(4)
    ]

    finished = await rig.store.finish(
        [
            *[
                Transition(lease=job.lease, verb=Verb.ADVANCE, output=str(number), flow=Flow(advance=way))
                for number, (job, way) in enumerate(zip(jobs, ways, strict=True))
            ],
            Transition(lease=plain.lease, verb=Verb.SUCCEED),
        ]
    )

    assert set(finished.states.values()) == {State.QUEUED, State.SUCCEEDED}
    for number, job in enumerate(jobs):
        moved = await rig.find(job.id)
        assert (moved.type, moved.phase, moved.queue, moved.output) == (
            f"site.{number}",
            f"phase {number}",
            f"q{number}",
            str(number),
        )


async def test_children_spawned_by_a_phase_come_with_the_move(rig: Rig) -> None:
    job = await in_the_pipeline(rig)
    child = alone(parent=job.id)

    await advance(rig, job, flow=Flow(advance=NEXT, spawns=spawning(child)))

    assert await rig.status(child.id) is State.QUEUED
    assert [link.id for link in await rig.store.links(job.id)] == [child.id]


async def test_a_wait_for_a_pipeline_is_a_wait_for_its_end(rig: Rig) -> None:
    job = await in_the_pipeline(rig, unique=unique())
    watcher = await waiter(rig, job.id)

    await advance(rig, job)
    assert await rig.status(watcher) is State.WAITING
    refused = alone(unique=unique())
    assert await rig.store.enqueue([refused]) == {refused.id: job.id}
    await end(rig, job.id)

    assert await is_woken(rig, watcher)
