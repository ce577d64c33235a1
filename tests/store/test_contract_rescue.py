"""Rescue: what becomes of the jobs of a worker that died."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from windlass.model.job import Attempt, Failure
from windlass.model.state import State, Verb
from windlass.store.protocol import RESCUES_PER_CRASH, Swept

from .rig import LEASE

if TYPE_CHECKING:
    from .rig import Rig


async def test_the_jobs_of_a_silent_worker_are_given_back(rig: Rig) -> None:
    job = await rig.held()
    await rig.die(rig.worker)

    swept = await rig.store.sweep(max_crashes=3)

    assert swept == Swept(deaths=1, rescued=1, dead_after_crashes=0)
    back = await rig.find(job.id)
    assert (back.status, back.token, back.worker) == (State.QUEUED, None, None)
    assert (back.attempt, back.crashes, back.fence) == (0, 1, 1)
    assert (back.run_at, back.updated_at) == (job.run_at, rig.clock.now())


async def test_the_jobs_of_a_live_worker_stay_beside_those_of_a_dead_one(rig: Rig) -> None:
    orphan = await rig.held()
    live = await rig.register()
    kept = await rig.enqueue()
    (claimed,) = await rig.claim(worker=live)
    await rig.advance(LEASE - 1)
    heartbeat = rig.store.heartbeat()
    try:
        assert await heartbeat.beat(live, LEASE)
    finally:
        await heartbeat.close()
    await rig.advance(2)

    swept = await rig.store.sweep(max_crashes=3)

    assert swept == Swept(deaths=1, rescued=1, dead_after_crashes=0)
    assert (await rig.find(orphan.id)).status is State.QUEUED
    running = await rig.find(kept)
    assert (running.status, running.token, running.crashes) == (State.RUNNING, claimed.token, 0)


async def test_a_rescue_tells_what_happened(rig: Rig) -> None:
    job = await rig.held()
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=3)

    back = await rig.find(job.id)
    assert back.error is not None
    assert back.attempts is not None
    failure = msgspec.json.decode(back.error, type=Failure)
    (entry,) = msgspec.json.decode(back.attempts, type=list[Attempt])
    assert (failure.type, failure.attempt, failure.attempted_at) == ("WorkerDied", 1, rig.clock.now())
    assert (entry.outcome, entry.attempt, entry.fence, entry.worker) == ("crashed", 1, 1, rig.worker)
    assert (entry.started_at, entry.finished_at) == (job.started_at, rig.clock.now())
    assert entry.error == failure


async def test_the_third_crash_is_the_last(rig: Rig) -> None:
    job = await rig.enqueue()
    swept = []
    for _ in range(3):
        rig.worker = await rig.register()
        assert [each.id for each in await rig.claim()] == [job]
        await rig.die(rig.worker)
        swept.append(await rig.store.sweep(max_crashes=3))

    assert [(each.rescued, each.dead_after_crashes) for each in swept] == [(1, 0), (1, 0), (0, 1)]
    dead = await rig.find(job)
    assert (dead.status, dead.reason, dead.crashes) == (State.DEAD, "crashed", 3)
    assert dead.finished_at == rig.clock.now()
    assert await rig.claim() == []


async def test_nothing_is_taken_from_a_worker_that_beats(rig: Rig) -> None:
    job = await rig.held()
    heartbeat = rig.store.heartbeat()
    try:
        for _ in range(5):
            await rig.advance(LEASE - 1)
            assert await heartbeat.beat(rig.worker, LEASE)
            assert await rig.store.sweep(max_crashes=3) == Swept()
    finally:
        await heartbeat.close()

    assert await rig.status(job.id) is State.RUNNING


async def test_a_worker_that_was_declared_dead_cannot_come_back(rig: Rig) -> None:
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    heartbeat = rig.store.heartbeat()

    try:
        assert not await heartbeat.beat(rig.worker, LEASE)
        assert not await heartbeat.beat(uuid4(), LEASE)
    finally:
        await heartbeat.close()

    (row,) = await rig.store.workers()
    assert row.dead
    assert row.alive_until < rig.clock.now()


async def test_a_late_beat_before_the_sweep_still_counts(rig: Rig) -> None:
    job = await rig.held()
    await rig.die(rig.worker)
    heartbeat = rig.store.heartbeat()

    try:
        assert await heartbeat.beat(rig.worker, LEASE)
    finally:
        await heartbeat.close()
    await rig.store.sweep(max_crashes=3)

    assert await rig.status(job.id) is State.RUNNING


async def test_the_jobs_of_a_worker_nobody_knows_are_given_back(rig: Rig) -> None:
    job = await rig.held()
    await rig.run(f"DELETE FROM {{}}workers WHERE id = '{rig.worker}'")

    swept = await rig.store.sweep(max_crashes=3)

    assert (swept.deaths, swept.rescued) == (0, 1)
    assert await rig.status(job.id) is State.QUEUED


async def test_a_sweep_goes_on_page_by_page_until_none_is_left(rig: Rig) -> None:
    jobs = await rig.enqueue_many(7)
    await rig.claim()
    await rig.die(rig.worker)

    swept = await rig.store.sweep(max_crashes=3, page=3)

    assert swept.rescued == 7
    rig.worker = await rig.register()
    assert {job.id for job in await rig.claim()} == set(jobs)


async def test_a_finished_job_stays_finished(rig: Rig) -> None:
    job = await rig.held()
    await rig.die(rig.worker)
    await rig.write(job.lease, Verb.SUCCEED)

    swept = await rig.store.sweep(max_crashes=3)

    assert (swept.deaths, swept.rescued) == (1, 0)
    assert await rig.status(job.id) is State.SUCCEEDED


async def test_two_sweepers_count_a_crash_once(rig: Rig) -> None:
    jobs = await rig.enqueue_many(10)
    await rig.claim()
    await rig.die(rig.worker)

    swept = await asyncio.gather(*[rig.store.sweep(max_crashes=3, page=2) for _ in range(4)])

    assert sum(each.deaths for each in swept) == 1
    assert sum(each.rescued for each in swept) == 10
    assert {(await rig.find(job)).crashes for job in jobs} == {1}


async def test_a_dead_worker_is_forgotten_a_minute_later_and_not_before(rig: Rig) -> None:
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    assert [row.id for row in await rig.store.workers()] == [rig.worker]

    await rig.advance(timedelta(minutes=1).total_seconds())
    await rig.store.sweep(max_crashes=3)

    assert await rig.store.workers() == []


async def test_a_worker_removes_its_row_only_when_it_holds_no_job(rig: Rig) -> None:
    job = await rig.held()

    await rig.store.deregister(rig.worker)
    assert [row.running for row in await rig.store.workers()] == [1]
    await rig.write(job.lease, Verb.SUCCEED)
    await rig.store.deregister(rig.worker)

    assert await rig.store.workers() == []


async def test_a_worker_is_seen_as_it_registered(rig: Rig) -> None:
    worker = await rig.register(queues=("mail", "pages"))
    await rig.store.set_idle(worker, idle=True)

    row = {each.id: each for each in await rig.store.workers()}[worker]

    assert (row.name, row.queues, row.types, row.concurrency) == (
        "host:1",
        ("mail", "pages"),
        ("mail.send",),
        10,
    )
    assert (row.dead, row.idle, row.running) == (False, True, 0)
    assert (row.started_at, row.alive_until) == (rig.clock.now(), rig.clock.now() + timedelta(seconds=LEASE))


async def test_a_suspect_in_a_process_of_its_own_is_not_blamed_for_its_workers_death(rig: Rig) -> None:
    job = await rig.enqueue()

    for deaths in range(1, 6):
        rig.worker = await rig.register(isolates=True)
        assert [each.id for each in await rig.claim()] == [job]
        await rig.die(rig.worker)
        await rig.store.sweep(max_crashes=3)

        record = await rig.find(job)
        assert (record.status, record.crashes, record.rescues) == (State.QUEUED, 1, deaths)


async def test_no_poison_runs_for_ever_even_when_nothing_speaks_against_it(rig: Rig) -> None:
    job = await rig.enqueue()

    for _ in range(RESCUES_PER_CRASH * 3):
        rig.worker = await rig.register(isolates=True)
        await rig.claim()
        await rig.die(rig.worker)
        await rig.store.sweep(max_crashes=3)

    record = await rig.find(job)
    assert (record.status, record.reason, record.crashes) == (State.DEAD, "crashed", 1)


async def test_after_an_outage_nothing_is_counted_but_the_rescue(rig: Rig) -> None:
    job = await rig.held()
    await rig.die(rig.worker)

    swept = await rig.store.sweep(max_crashes=1, blames=False)

    assert swept == Swept(deaths=1, rescued=1, dead_after_crashes=0)
    back = await rig.find(job.id)
    assert (back.status, back.attempt, back.crashes, back.rescues) == (State.QUEUED, 0, 0, 1)


async def test_a_sweep_that_waited_for_the_database_gives_nothing_back_yet(rig: Rig) -> None:
    job = await rig.held()
    await rig.die(rig.worker)

    assert await rig.store.sweep(max_crashes=3, patience=-1.0) == Swept(deaths=1, late=True)
    assert await rig.status(job.id) is State.RUNNING
    assert (await rig.store.sweep(max_crashes=3)).rescued == 1


async def test_where_crashes_count_a_job_is_dead_when_its_attempts_are_used_up(rig: Rig) -> None:
    job = await rig.enqueue(max_attempts=2)
    seen = []
    for _ in range(2):
        rig.worker = await rig.register(isolates=True)
        assert [each.id for each in await rig.claim()] == [job]
        await rig.die(rig.worker)
        await rig.store.sweep(max_crashes=3, crash_counts=True)
        record = await rig.find(job)
        seen.append((record.status, record.attempt, record.crashes, record.reason))

    assert seen == [(State.QUEUED, 1, 1, None), (State.DEAD, 2, 1, "exhausted")]
    assert [row.action for row in await rig.store.audit(job=job)] == ["JOB_EXHAUSTED_RETRIES"]
