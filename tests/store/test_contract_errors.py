"""A failure is stored with its fingerprint, its time and its worker; they stay whatever becomes of the job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from windlass.methods.error_groups import read_errors
from windlass.model.flow import Advance, Flow
from windlass.model.state import State, Verb
from windlass.policy.fingerprint import fingerprint

from .errors import HOUR, fail, failing, failure_of
from .flows import node
from .rig import alone

if TYPE_CHECKING:
    from .rig import Rig

PRINT = fingerprint("ValueError", "no such user 7")


async def test_a_failed_attempt_leaves_its_fingerprint_its_time_and_its_worker(rig: Rig) -> None:
    job = await fail(rig, "no such user 7")

    (group,) = await read_errors(rig.store, HOUR)

    assert (await rig.find(job)).fingerprint == group.fingerprint == PRINT
    assert await failure_of(rig, job) == (PRINT, True, str(rig.worker))
    assert (group.first, group.last, group.newest) == (rig.clock.now(), rig.clock.now(), job)
    assert [share.name for share in group.workers] == ["host:1"]


async def test_a_job_without_a_failure_has_no_fingerprint(rig: Rig) -> None:
    done = await rig.held()
    assert done.fingerprint is None
    await rig.write(done.lease, Verb.SUCCEED)
    for verb in (Verb.SNOOZE, Verb.RELEASE):
        other = await rig.held()
        await rig.write(other.lease, verb, delay=3_600.0)

    found = await rig.run(
        "SELECT fingerprint, error_at, error_worker FROM {}jobs UNION ALL"
        " SELECT fingerprint, error_at, error_worker FROM {}history".replace("{}", "{0}")
    )

    assert [tuple(row) for row in found] == [(None, None, None)] * 3
    assert await read_errors(rig.store, HOUR) == []


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.STOP, Verb.SNOOZE, Verb.RELEASE])
async def test_a_failure_stays_when_a_later_attempt_ends_in_another_way(rig: Rig, verb: Verb) -> None:
    job = await fail(rig, "no such user 7", delay=0.0)
    before = await failure_of(rig, job)
    await rig.advance(60)
    other = await rig.register()
    again = await rig.take(job, worker=other)
    await rig.write(again.lease, verb, delay=3_600.0)

    (group,) = await read_errors(rig.store, HOUR)

    assert await failure_of(rig, job, ago=60) == before == (PRINT, True, str(rig.worker))
    assert group.states == {(await rig.find(job)).status: 1}
    assert (rig.clock.now() - group.last).total_seconds() == 60


async def test_the_last_error_decides_the_group(rig: Rig) -> None:
    job = await fail(rig, "no such user 7", delay=0.0)
    await rig.advance(60)
    await fail(rig, "timed out", type="TimeoutError", job=await rig.take(job))

    (group,) = await read_errors(rig.store, HOUR)

    assert (group.type, group.message, group.count) == ("TimeoutError", "timed out", 1)
    assert group.last == rig.clock.now()


async def test_a_failure_that_becomes_a_cancel_keeps_its_error(rig: Rig) -> None:
    """A request to cancel came while the attempt ran: its failure is written to the history."""
    job = await rig.running()
    assert await rig.store.operate(Verb.CANCEL, job.id) is State.RUNNING

    await fail(rig, "no such user 7", job=job)

    assert await rig.status(job.id) is State.CANCELLED
    assert await failure_of(rig, job.id) == (PRINT, True, str(rig.worker))


async def test_operators_move_a_failure_with_its_job(rig: Rig) -> None:
    job = await fail(rig, "no such user 7")
    for verb in (Verb.RETRY, Verb.CANCEL, Verb.RESUME):
        await rig.store.operate(verb, job)
        assert await failure_of(rig, job) == (PRINT, True, str(rig.worker)), verb
    dead = await fail(rig, "no such user 8", verb=Verb.BURY)
    await rig.store.operate(Verb.REPLAY, dead)

    (group,) = await read_errors(rig.store, HOUR)

    assert group.states == {State.QUEUED: 2}


@pytest.mark.parametrize(("max_crashes", "state"), [(3, State.QUEUED), (1, State.DEAD)])
async def test_the_jobs_of_a_dead_worker_are_a_group(rig: Rig, max_crashes: int, state: State) -> None:
    jobs = [await rig.running() for _ in range(2)]
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=max_crashes)

    (group,) = await read_errors(rig.store, HOUR)
    error = (await rig.find(jobs[0].id)).failure()
    assert error is not None
    assert group.fingerprint == fingerprint(error.type, error.message)
    assert (group.type, group.states) == ("WorkerDied", {state: 2})
    assert await failure_of(rig, jobs[0].id) == (group.fingerprint, True, str(rig.worker))


async def test_jobs_that_waited_for_a_dead_job_are_a_group(rig: Rig) -> None:
    awaited = [alone() for _ in range(2)]
    await rig.store.enqueue(awaited)
    waiting = [await node(rig, each.id) for each in awaited]

    for each in awaited:
        await fail(rig, "no such user 7", verb=Verb.BURY, job=await rig.take(each.id))

    groups = {group.type: group for group in await read_errors(rig.store, HOUR)}
    assert groups.keys() == {"ValueError", "Abandoned"}
    assert groups["Abandoned"].states == {State.DEAD: 2}
    assert groups["Abandoned"].workers == ()
    error = (await rig.find(waiting[0])).failure()
    assert error is not None
    assert groups["Abandoned"].fingerprint == fingerprint(error.type, error.message)


async def test_a_job_that_advances_keeps_its_failure_and_the_group_its_message(rig: Rig) -> None:
    """The next phase begins without an error. The message is among the attempts."""
    job = await rig.running(pipeline="site", phase="analyse")
    entry = {"attempt": 1, "fence": 1, "worker": None, "started_at": None, "finished_at": "2026-01-01T12:00:00Z"}
    told = json.loads(failing("no such user 7")["error"])
    await fail(
        rig, "no such user 7", job=job, delay=0.0, entry=json.dumps({**entry, "outcome": "raised", "error": told})
    )
    to = Advance(type="site.form", phase="form", phase_rank=1, queue="forms", max_attempts=7)
    await rig.finish(await rig.take(job.id), Verb.ADVANCE, flow=Flow(advance=to))

    (group,) = await read_errors(rig.store, HOUR)

    assert (await rig.find(job.id)).error is None
    assert (group.fingerprint, group.type, group.message) == (PRINT, "ValueError", "no such user …")
    assert group.states == {State.QUEUED: 1}
    assert [share.name for share in group.types] == ["site.form"]


async def test_errors_from_before_the_migration_are_left_out(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.BURY, error=failing("no such user 7")["error"])

    assert (await rig.find(job.id)).error is not None
    assert await read_errors(rig.store, HOUR) == []


async def test_a_lost_lease_leaves_no_failure(rig: Rig) -> None:
    late = await rig.running()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    before = await failure_of(rig, late.id)

    assert (await rig.write(late.lease, Verb.FAIL, **failing("no such user 7"))).lost == {late.id}

    assert await failure_of(rig, late.id) == before


@pytest.mark.postgres
async def test_a_success_writes_no_entry_into_the_indexes_of_errors(rig: Rig) -> None:
    """An index without any entry, ever, is one page."""
    if rig.dialect == "sqlite":
        pytest.skip("a file does not tell the size of an index")
    await rig.run("TRUNCATE {0}jobs, {0}history")  # the database may have had other jobs before
    jobs = await rig.enqueue_many(50)
    for job in await rig.claim(room=50):
        await rig.write(job.lease, Verb.SUCCEED)
    sizes = (
        "SELECT count(*), max(pg_relation_size(indexrelid)) FROM pg_index JOIN pg_class ON oid = indexrelid"
        " WHERE relkind = 'i' AND pg_get_indexdef(indexrelid) LIKE '%fingerprint IS NOT NULL%'"
    )

    ((indexes, largest),) = await rig.run(sizes)
    assert len(jobs) == 50
    assert indexes >= 4
    assert largest == 8192

    await fail(rig, "no such user 7")
    ((_, largest),) = await rig.run(sizes)
    assert largest > 8192
