"""A claim: which worker gets which jobs, in which order, and how many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from windlass.model.state import State, Verb
from windlass.store.protocol import Claim, Suspects

from .rig import TYPE, new_job

if TYPE_CHECKING:
    from uuid import UUID

    from .rig import Rig


async def test_a_claimed_job_is_running_under_a_lease(rig: Rig) -> None:
    job = await rig.enqueue()
    await rig.advance(5)

    (claimed,) = await rig.claim()

    assert claimed == await rig.find(job)
    assert (claimed.status, claimed.worker) == (State.RUNNING, rig.worker)
    assert (claimed.attempt, claimed.fence) == (1, 1)
    assert claimed.token is not None
    assert claimed.claimed_at == claimed.started_at == claimed.updated_at == rig.clock.now()


async def test_the_order_is_phase_then_priority_then_time_then_id(rig: Rig) -> None:
    start = rig.clock.now()
    await rig.advance(10)
    late, soon = rig.clock.now(), start
    first, second = sorted(new_job().id for _ in range(2))
    expected = [
        new_job(phase_rank=0, priority=-5, run_at=late),
        new_job(phase_rank=1, priority=9, run_at=late),
        new_job(phase_rank=1, priority=0, run_at=soon),
        new_job(phase_rank=1, priority=0, run_at=late, id=first),
        new_job(phase_rank=1, priority=0, run_at=late, id=second),
        new_job(phase_rank=2, priority=99, run_at=soon),
    ]
    await rig.store.enqueue(expected[::-1])

    claimed = [job.id for _ in expected for job in await rig.claim(room=1)]

    assert claimed == [job.id for job in expected]


async def test_queues_of_one_priority_are_served_by_time_and_not_by_name(rig: Rig) -> None:
    expected = []
    for queue in ("b", "a", "c", "a"):
        expected.append(await rig.enqueue(queue=queue))
        await rig.advance(1)

    claimed = [job.id for _ in expected for job in await rig.claim(room=1)]

    assert claimed == expected


async def test_a_batch_comes_in_the_order_in_which_it_should_start(rig: Rig) -> None:
    low, high, first = [new_job(priority=priority, phase_rank=rank) for priority, rank in [(0, 1), (5, 1), (0, 0)]]
    await rig.store.enqueue([low, high, first])

    assert [job.id for job in await rig.claim()] == [first.id, high.id, low.id]


async def test_the_steady_pace_takes_the_first_created_first(rig: Rig) -> None:
    created_first = await rig.enqueue(delay=8.0)
    await rig.advance(1)
    due_first = await rig.enqueue()
    await rig.advance(10)

    assert [job.id for job in await rig.claim(room=1, by_creation=True)] == [created_first]
    assert [job.id for job in await rig.claim(room=1, by_creation=True)] == [due_first]


async def test_without_the_steady_pace_the_first_due_comes_first(rig: Rig) -> None:
    await rig.enqueue(delay=8.0)
    await rig.advance(1)
    due_first = await rig.enqueue()
    await rig.advance(10)

    assert [job.id for job in await rig.claim(room=1)] == [due_first]


async def test_a_claim_takes_no_more_than_its_room(rig: Rig) -> None:
    for priority in range(3):
        await rig.enqueue_many(4, priority=priority)

    assert len(await rig.claim(room=5, aged=9)) == 5
    assert len(await rig.claim(room=50)) == 7


async def test_one_token_covers_one_claim_and_no_other(rig: Rig) -> None:
    await rig.enqueue_many(4)

    tokens = [{job.token for job in await rig.claim(room=2)} for _ in range(2)]

    assert [len(each) for each in tokens] == [1, 1]
    assert tokens[0] != tokens[1]


async def test_a_job_that_is_not_due_waits_and_says_how_long(rig: Rig) -> None:
    await rig.enqueue(delay=40.0)
    await rig.enqueue(delay=60.0, priority=5)
    claim = Claim(worker=rig.worker, room=10, types=(TYPE,), rescan=True)

    early = await rig.store.claim(claim)
    await rig.advance(40)
    due = await rig.store.claim(claim)

    assert [len(early.jobs), len(due.jobs)] == [0, 1]
    assert [early.next_due, due.next_due] == [40.0, 20.0]


async def test_a_failed_job_is_claimed_again_when_it_is_due(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.FAIL, delay=10.0, attempt=1)

    assert await rig.claim() == []
    await rig.advance(10)
    (again,) = await rig.claim()

    assert (again.id, again.attempt, again.fence) == (job.id, 2, 2)
    assert again.token != job.token


async def test_types_that_a_program_does_not_know_are_left_untouched(rig: Rig) -> None:
    foreign = await rig.enqueue(type="report.make")
    known = await rig.enqueue()

    assert [job.id for job in await rig.claim()] == [known]
    left = await rig.find(foreign)
    assert (left.status, left.attempt, left.fence) == (State.QUEUED, 0, 0)


async def test_a_worker_of_one_queue_takes_nothing_of_another(rig: Rig) -> None:
    mail, pages, _ = [await rig.enqueue(queue=queue) for queue in ("mail", "pages", "video")]

    assert {job.id for job in await rig.claim(queues=("mail", "pages"))} == {mail, pages}


async def test_an_open_gate_keeps_nothing(rig: Rig) -> None:
    await rig.enqueue()
    await rig.close_gate("all", "", "open")

    assert len(await rig.claim()) == 1


async def test_only_rows_that_rested_are_taken_at_the_steady_pace(rig: Rig) -> None:
    rested = await rig.enqueue()
    await rig.advance(20)
    await rig.enqueue()
    await rig.advance(10)

    assert [job.id for job in await rig.claim(untouched=30.0)] == [rested]


async def test_ageing_lets_the_oldest_in_beside_the_urgent(rig: Rig) -> None:
    old = await rig.enqueue(priority=0)
    await rig.advance(60)
    await rig.enqueue_many(10, priority=5)

    without = await rig.claim(room=4, aged=0)
    beside = await rig.claim(room=4, aged=1)

    assert old not in {job.id for job in without}
    assert old in {job.id for job in beside}
    assert len(beside) == 4


async def test_a_suspect_is_claimed_only_by_a_claim_for_suspects(rig: Rig) -> None:
    suspect = await a_suspect(rig)
    innocent = await rig.enqueue()

    assert [job.id for job in await rig.claim(suspects=Suspects.WITHOUT)] == [innocent]
    assert [job.id for job in await rig.claim(suspects=Suspects.ONLY)] == [suspect]


async def test_a_claim_for_suspects_takes_other_jobs_too(rig: Rig) -> None:
    suspect = await a_suspect(rig)
    innocent = await rig.enqueue()

    assert {job.id for job in await rig.claim(suspects=Suspects.WITH)} == {suspect, innocent}


async def test_two_claims_at_once_never_share_a_job(rig: Rig) -> None:
    jobs = await rig.enqueue_many(60)

    workers = [await rig.register() for _ in range(12)]

    batches = await asyncio.gather(*[rig.claim(room=7, worker=worker) for worker in workers])

    claimed = [job.id for batch in batches for job in batch]
    assert claimed
    assert len(claimed) == len(set(claimed))
    rest = [job.id for job in await rig.claim(room=100)]
    assert sorted(claimed + rest) == sorted(jobs)


async def a_suspect(rig: Rig) -> UUID:
    job = await rig.held()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    assert (await rig.find(job.id)).suspect
    rig.worker = await rig.register()
    return job.id


async def test_a_worker_that_was_declared_dead_claims_nothing(rig: Rig) -> None:
    job = await rig.enqueue()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)

    for by_creation in (False, True):
        assert await rig.claim(by_creation=by_creation) == []
        assert await rig.claim(worker=uuid4(), by_creation=by_creation) == []

    rig.worker = await rig.register()
    assert [claimed.id for claimed in await rig.claim()] == [job]
