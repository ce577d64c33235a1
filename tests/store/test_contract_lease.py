"""Leases: what the holder writes, and that no other worker writes anything."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from windlass.model.job import Lease, new_id
from windlass.model.outcome import Progress, Transition
from windlass.model.state import ENDING_VERBS, STAYING_VERBS, State, Verb

if TYPE_CHECKING:
    from windlass.model.job import Job

    from .rig import Rig

ERROR = '{"type":"Boom","message":"no","attempt":1,"attemptedAt":"2026-01-01T12:00:00Z"}'
REMEMBERED = 100


async def test_a_success_goes_to_the_history_with_all_it_brought(rig: Rig) -> None:
    job = await rig.held()
    await rig.advance(8)

    await rig.write(
        job.lease,
        Verb.SUCCEED,
        output="[1]",
        attempt=1,
        elapsed=3.0,
        total=9,
        processed=8,
        failed=1,
        cost_cents=42,
    )

    done = await rig.find(job.id)
    assert (done.status, done.output, done.attempt) == (State.SUCCEEDED, "[1]", 1)
    assert (done.total, done.processed, done.failed, done.cost_cents) == (9, 8, 1, 42)
    assert done.finished_at == done.updated_at == rig.clock.now()
    assert done.started_at == rig.clock.now() - timedelta(seconds=3)
    assert (done.token, done.worker, done.fence) == (job.token, rig.worker, 1)
    assert (done.created_at, done.claimed_at) == (job.created_at, job.claimed_at)


async def test_a_failure_lets_go_and_comes_back_later(rig: Rig) -> None:
    job = await rig.held()
    await rig.advance(4)

    await rig.write(job.lease, Verb.FAIL, delay=10.5, attempt=1, error=ERROR, entry='{"n":1}', elapsed=2.0, processed=3)

    failed = await rig.find(job.id)
    assert (failed.status, failed.token, failed.worker, failed.fence) == (State.FAILED, None, None, 1)
    assert failed.run_at == rig.clock.now() + timedelta(seconds=10.5)
    assert failed.started_at == rig.clock.now() - timedelta(seconds=2)
    assert (failed.attempt, failed.processed, failed.finished_at) == (1, 3, None)
    assert decoded(failed.error) == decoded(ERROR)
    assert decoded(failed.attempts) == [{"n": 1}]


async def test_a_burial_says_when_and_why(rig: Rig) -> None:
    job = await rig.held()

    await rig.write(job.lease, Verb.BURY, attempt=1, reason="permanent", error=ERROR)

    dead = await rig.find(job.id)
    assert (dead.status, dead.reason, dead.finished_at) == (State.DEAD, "permanent", rig.clock.now())


@pytest.mark.parametrize("verb", [Verb.RELEASE, Verb.SNOOZE])
async def test_a_job_given_back_burns_no_attempt_and_keeps_its_error(rig: Rig, verb: Verb) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.FAIL, attempt=1, error=ERROR)
    (again,) = await rig.claim()

    await rig.write(again.lease, verb, attempt=1)

    back = await rig.find(job.id)
    assert (back.status, back.attempt, back.fence) == (State.QUEUED, 1, 2)
    assert decoded(back.error) == decoded(ERROR)


async def test_a_job_without_a_delay_keeps_its_place(rig: Rig) -> None:
    job = await rig.held()
    await rig.advance(10)

    await rig.write(job.lease, Verb.RELEASE, delay=None)

    assert (await rig.find(job.id)).run_at == job.run_at


async def test_the_last_hundred_attempts_are_remembered(rig: Rig) -> None:
    await rig.enqueue()
    for number in range(REMEMBERED + 3):
        (job,) = await rig.claim()
        await rig.write(job.lease, Verb.SNOOZE, entry=f'{{"n":{number}}}')

    entries = decoded((await rig.find(job.id)).attempts)

    assert [entry["n"] for entry in entries] == list(range(3, REMEMBERED + 3))


async def test_a_last_entry_goes_to_the_history_with_its_job(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.FAIL, entry='{"n":1}', error=ERROR)
    (again,) = await rig.claim()

    await rig.write(again.lease, Verb.SUCCEED, entry='{"n":2}')

    done = await rig.find(job.id)
    assert decoded(done.attempts) == [{"n": 1}, {"n": 2}]
    assert decoded(done.error) == decoded(ERROR)


async def test_progress_is_written_under_the_lease(rig: Rig) -> None:
    job = await rig.held()

    await rig.store.record([Progress(lease=job.lease, total=10, processed=4, failed=1)])

    now = await rig.find(job.id)
    assert (now.total, now.processed, now.failed, now.status) == (10, 4, 1, State.RUNNING)


@pytest.mark.parametrize("verb", sorted(ENDING_VERBS | STAYING_VERBS))
async def test_a_stale_lease_settles_nothing(rig: Rig, verb: Verb) -> None:
    stale, current = await an_overtaken_lease(rig)

    finished = await rig.write(stale, verb, output="1", error=ERROR, attempt=9)

    assert finished.lost == {current.id}
    assert await rig.find(current.id) == current


async def test_a_stale_lease_records_no_progress(rig: Rig) -> None:
    stale, current = await an_overtaken_lease(rig)

    await rig.store.record([Progress(lease=stale, total=10, processed=4, failed=1)])

    assert await rig.find(current.id) == current


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.FAIL])
async def test_a_stale_lease_finishes_nothing_in_a_transaction(rig: Rig, verb: Verb) -> None:
    stale, current = await an_overtaken_lease(rig)

    async with rig.store.transaction(limit=10) as transaction:
        assert await transaction.finish(Transition(lease=stale, verb=verb)) is False
        await transaction.commit()

    assert await rig.find(current.id) == current


async def test_the_fence_alone_opens_nothing(rig: Rig) -> None:
    job = await rig.held()

    finished = await rig.write(Lease(job.id, new_id(), job.fence), Verb.SUCCEED)

    assert finished.lost == {job.id}


async def test_the_store_knows_which_lease_finished_a_job(rig: Rig) -> None:
    stale, current = await an_overtaken_lease(rig)
    assert not await rig.store.finished_by(current.lease)

    await rig.write(current.lease, Verb.SUCCEED)

    assert await rig.store.finished_by(current.lease)
    assert not await rig.store.finished_by(stale)


async def test_a_job_is_found_while_it_moves_to_the_history(rig: Rig) -> None:
    job = await rig.held()
    moved = asyncio.Event()
    seen: list[State] = []

    async def watch() -> None:
        while not moved.is_set():
            seen.append(await rig.status(job.id))
        seen.append(await rig.status(job.id))

    async def move() -> None:
        lease = job.lease
        for _ in range(20):
            await rig.write(lease, Verb.STOP)
            await rig.store.operate(Verb.RESUME, job.id)
            (again,) = await rig.claim()
            lease = again.lease
        await rig.write(lease, Verb.SUCCEED)
        moved.set()

    await asyncio.gather(watch(), move())

    assert seen[-1] is State.SUCCEEDED
    assert len(seen) > 2


async def an_overtaken_lease(rig: Rig) -> tuple[Lease, Job]:
    """A lease of a worker that was taken for dead, and the job as its successor holds it."""
    stale = (await rig.held()).lease
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    (current,) = await rig.claim()
    return stale, current


def decoded(text: str | None) -> Any:
    assert text is not None
    return msgspec.json.decode(text)
