"""The audit: a row for every final transition and every operator's action, in its transaction, and none besides."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.errors import TransitionRefused
from windlass.model import audit as words
from windlass.model.flow import Flow
from windlass.model.job import Policy, new_id
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import BAD_ENDS, LIMIT, die, end, family, fan_out, node, waiting_for
from .rig import TYPE, alone

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.model.rows import AuditRow

    from .rig import Rig

DAY = timedelta(days=1).total_seconds()


async def actions(rig: Rig, job: UUID) -> list[tuple[str, str | None]]:
    """What was recorded about a job, with the actor, the oldest first."""
    rows = await rig.store.audit(job=job)
    return [(row.action, row.actor) for row in reversed(rows)]


# Final transitions


@pytest.mark.parametrize(
    ("verb", "action"),
    [
        (Verb.SUCCEED, "JOB_SUCCEEDED"),
        (Verb.SUCCEED, "EMAIL_SENT"),
        (Verb.BURY, "JOB_DEAD"),
        (Verb.BURY, "JOB_EXHAUSTED_RETRIES"),
        (Verb.STOP, "JOB_CANCELLED"),
    ],
)
async def test_an_end_is_recorded_under_its_word(rig: Rig, verb: Verb, action: str) -> None:
    job = await rig.running(tenant="acme", queue="mail")
    await rig.advance(9)

    await rig.finish(job, verb, action=action, reason="because")

    (row,) = await rig.store.audit()
    assert (row.action, row.actor, row.job, row.type, row.queue, row.tenant) == (
        action,
        None,
        job.id,
        TYPE,
        "mail",
        "acme",
    )
    assert row.at == rig.clock.now()
    assert await rig.store.audit(job=job.id) == [row]


async def test_a_death_is_recorded_with_its_reason(rig: Rig) -> None:
    job = await rig.running()

    await rig.finish(job, Verb.BURY, action=words.DEAD, reason="permanent")

    assert [row.reason for row in await rig.store.audit(job=job.id)] == ["permanent"]


async def test_success_rows_can_be_turned_off(rig: Rig) -> None:
    job = await rig.running()

    await rig.finish(job, Verb.SUCCEED, action=None)

    assert await rig.store.audit() == []


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.WAIT, Verb.ADVANCE])
async def test_what_is_no_end_is_not_recorded(rig: Rig, verb: Verb) -> None:
    job = await rig.running()

    await rig.finish(job, verb, attempt=1, action=words.action(verb))

    assert await rig.store.audit() == []


async def test_a_signal_is_recorded_once_with_its_sender(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.signal(job.id, "approved", "1", actor="ann")
    await rig.store.signal(job.id, "approved", "2", actor="bob")

    assert await actions(rig, job.id) == [("JOB_SIGNALLED", "ann")]


async def test_a_rescue_and_a_wake_are_not_recorded(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    await rig.take(child)
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    await end(rig, child)

    assert await rig.status(parent) is State.QUEUED
    assert await rig.store.audit() == []


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.WAIT, Verb.ADVANCE])
async def test_a_cancel_that_came_instead_is_recorded(rig: Rig, verb: Verb) -> None:
    job = await rig.running()
    await rig.store.operate(Verb.CANCEL, job.id, actor="ann")

    assert await rig.finish(job, verb, attempt=1, action=words.action(verb)) is State.CANCELLED

    assert await actions(rig, job.id) == [("JOB_CANCEL_REQUESTED", "ann"), ("JOB_CANCELLED", None)]


async def test_a_success_that_was_faster_than_the_cancel_is_recorded_as_such(rig: Rig) -> None:
    job = await rig.running()
    await rig.store.operate(Verb.CANCEL, job.id, actor="ann")

    await rig.finish(job, Verb.SUCCEED, action="EMAIL_SENT")

    assert await actions(rig, job.id) == [("JOB_CANCEL_REQUESTED", "ann"), ("EMAIL_SENT", None)]


async def test_a_condemned_job_is_recorded(rig: Rig) -> None:
    job = alone()
    await rig.store.enqueue([job])

    await BAD_ENDS["condemned"](rig, job.id)

    (row,) = await rig.store.audit(job=job.id)
    assert (row.action, row.actor, row.reason, row.type) == ("JOB_DEAD", None, "crashed", TYPE)


async def test_a_cancel_written_by_a_sweep_is_recorded(rig: Rig) -> None:
    job = alone()
    await rig.store.enqueue([job])

    await BAD_ENDS["rescued after a cancel"](rig, job.id)

    assert await actions(rig, job.id) == [("JOB_CANCEL_REQUESTED", None), ("JOB_CANCELLED", None)]


@pytest.mark.parametrize(("policy", "action"), [(Policy.FAIL, "JOB_DEAD"), (Policy.SKIP, "JOB_CANCELLED")])
async def test_a_node_that_goes_with_its_dependency_is_recorded(rig: Rig, policy: Policy, action: str) -> None:
    dependency = alone()
    await rig.store.enqueue([dependency])
    after = await node(rig, dependency.id, policy=policy)

    await die(rig, dependency.id)

    (row,) = await rig.store.audit(job=after)
    assert (row.action, row.actor) == (action, None)
    assert row.reason


async def test_a_node_that_was_never_to_be_is_recorded(rig: Rig) -> None:
    after = alone(wait=waiting_for(new_id(), policy=Policy.FAIL))

    await rig.store.enqueue([after])

    assert await rig.status(after.id) is State.DEAD
    assert await actions(rig, after.id) == [("JOB_DEAD", None)]


async def test_a_lost_lease_records_nothing(rig: Rig) -> None:
    stale = await rig.running()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)

    for verb in (Verb.SUCCEED, Verb.BURY, Verb.STOP):
        assert await rig.finish(stale, verb, action=words.action(verb)) is None

    assert await rig.store.audit() == []


@pytest.mark.parametrize("commit", [True, False])
async def test_an_end_in_a_transaction_is_recorded_with_its_commit(rig: Rig, commit: bool) -> None:
    job = await rig.running()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.finish(Transition(lease=job.lease, verb=Verb.SUCCEED, action="EMAIL_SENT"))
        if commit:
            await transaction.commit()

    assert await actions(rig, job.id) == ([("EMAIL_SENT", None)] if commit else [])


async def test_a_batch_is_recorded_job_by_job(rig: Rig) -> None:
    jobs = [await rig.running() for _ in range(5)]
    verbs = [Verb.SUCCEED, Verb.BURY, Verb.STOP, Verb.FAIL, Verb.SUCCEED]
    said = ["JOB_SUCCEEDED", "JOB_DEAD", "JOB_CANCELLED", None, None]

    await rig.store.finish(
        [
            Transition(lease=job.lease, verb=verb, action=action)
            for job, verb, action in zip(jobs, verbs, said, strict=True)
        ]
    )

    recorded = {row.job: row.action for row in await rig.store.audit()}
    assert recorded == {job.id: action for job, action in zip(jobs, said, strict=True) if action}


# Operators


async def test_a_job_that_is_cancelled_at_once_is_recorded_with_its_actor(rig: Rig) -> None:
    job = await rig.enqueue(tenant="acme", queue="mail")

    await rig.store.operate(Verb.CANCEL, job, actor="ann")

    (row,) = await rig.store.audit()
    assert (row.action, row.actor, row.job, row.type) == ("JOB_CANCELLED", "ann", job, TYPE)
    assert (row.queue, row.tenant, row.at) == ("mail", "acme", rig.clock.now())


@pytest.mark.parametrize(
    ("state", "verb"),
    [
        (State.FAILED, Verb.RETRY),
        (State.DEAD, Verb.REPLAY),
        (State.CANCELLED, Verb.RESUME),
        (State.DEAD, Verb.DISCARD),
        (State.RUNNING, Verb.CANCEL),
    ],
)
@pytest.mark.parametrize("actor", ["ann", None])
async def test_what_an_operator_did_is_recorded(rig: Rig, state: State, verb: Verb, actor: str | None) -> None:
    job = await rig.job_in(state, tenant="acme")

    await rig.store.operate(verb, job, actor=actor)

    (row,) = await rig.store.audit(action=words.OPERATIONS[verb])
    assert (row.actor, row.job, row.tenant, row.type) == (actor, job, "acme", TYPE)
    assert await actions(rig, job) == [(words.OPERATIONS[verb], actor)]


async def test_what_was_refused_is_not_recorded(rig: Rig) -> None:
    job = await rig.job_in(State.SUCCEEDED)

    for verb in words.OPERATIONS:
        with pytest.raises(TransitionRefused):
            await rig.store.operate(verb, job, actor="ann")

    assert await rig.store.audit() == []


async def test_a_family_that_is_cancelled_is_recorded_job_by_job(rig: Rig) -> None:
    parent, (queued, asked) = await family(rig, 2)
    running = await rig.take(asked)

    await rig.store.operate(Verb.CANCEL, parent, actor="ann")

    assert await actions(rig, parent) == [("JOB_CANCELLED", "ann")]
    assert [action for action, _ in await actions(rig, queued)] == ["JOB_CANCELLED"]
    assert await rig.finish(running, Verb.STOP, action=words.CANCELLED) is State.CANCELLED
    assert (await actions(rig, asked))[-1] == ("JOB_CANCELLED", None)


async def test_of_many_cancels_at_once_one_is_recorded(rig: Rig) -> None:
    async with rig.stores(4) as stores:
        job = await rig.enqueue()

        await asyncio.gather(
            *[store.operate(Verb.CANCEL, job, actor=str(n)) for n, store in enumerate(stores)],
            return_exceptions=True,
        )

    assert len(await rig.store.audit(job=job)) == 1


# Looking


async def test_rows_are_told_newest_first_page_by_page(rig: Rig) -> None:
    jobs = [await an_end(rig) for _ in range(7)]

    pages = await all_pages(rig, page=3)

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [row.job for page in pages for row in page] == jobs[::-1]


async def test_rows_of_several_stores_are_told_newest_first_and_each_once(rig: Rig) -> None:
    async with rig.stores(3) as stores:
        jobs = []
        for number in range(12):
            jobs.append(await rig.running())
            await rig.advance(1)
            await rig.finish(jobs[-1], Verb.SUCCEED, store=stores[number % 3], action=words.SUCCEEDED)

    rows = [row for page in await all_pages(rig, page=5) for row in page]

    assert [row.job for row in rows] == [job.id for job in reversed(jobs)]


async def test_rows_of_one_action_are_found(rig: Rig) -> None:
    wanted = [await an_end(rig, action="EMAIL_SENT") for _ in range(3)]
    await an_end(rig)

    rows = [row for page in await all_pages(rig, page=2, action="EMAIL_SENT") for row in page]

    assert [row.job for row in rows] == wanted[::-1]
    assert await rig.store.audit(action="EMAIL_SENT", job=wanted[0]) == [rows[-1]]
    assert await rig.store.audit(action="NO_SUCH_WORD") == []
    assert await rig.store.audit(job=new_id()) == []


async def test_rows_outlive_a_discarded_job(rig: Rig) -> None:
    job = await rig.running()
    await rig.finish(job, Verb.BURY, action=words.DEAD)

    await rig.store.operate(Verb.DISCARD, job.id, actor="ann")

    assert await actions(rig, job.id) == [("JOB_DEAD", None), ("JOB_DISCARDED", "ann")]


# Retention


@pytest.mark.parametrize("kept_between", [True, False], ids=["kept every day", "kept once"])
async def test_rows_are_pruned_by_age(rig: Rig, kept_between: bool) -> None:
    old = await an_end(rig)
    for _ in range(5):
        await rig.advance(10 * DAY)
        if kept_between:
            await rig.store.prune(history=7 * DAY, audit=90 * DAY)
    young = await an_end(rig)
    await rig.advance(45 * DAY)

    await rig.store.prune(history=7 * DAY, audit=90 * DAY)

    assert await rig.store.audit(job=old) == []
    assert len(await rig.store.audit(job=young)) == 1
    assert [row.job for row in await rig.store.audit()] == [young]


async def test_rows_outlive_the_history_of_their_jobs(rig: Rig) -> None:
    job = await an_end(rig)
    await rig.advance(30 * DAY)

    await rig.store.prune(history=7 * DAY, audit=90 * DAY)

    assert await rig.store.find(job) is None
    assert len(await rig.store.audit(job=job)) == 1


async def test_numbers_go_on_after_a_pruning(rig: Rig) -> None:
    await an_end(rig)
    (before,) = await rig.store.audit()
    await rig.advance(100 * DAY)
    await rig.store.prune(history=7 * DAY, audit=90 * DAY)

    await an_end(rig)

    (after,) = await rig.store.audit()
    assert after.number > before.number


async def test_a_wait_that_spawns_records_nothing(rig: Rig) -> None:
    job = await rig.running()
    child = alone(parent=job.id)

    await rig.finish(job, Verb.WAIT, flow=fan_out(child))
    await end(rig, child.id)
    await end(rig, job.id, Verb.WAIT, flow=Flow(wait=waiting_for(delay=5.0)))

    assert await rig.store.audit() == []


async def an_end(rig: Rig, **options: Any) -> UUID:
    job = await rig.running()
    await rig.finish(job, Verb.SUCCEED, **({"action": words.SUCCEEDED} | options))
    return job.id


async def all_pages(rig: Rig, *, page: int, **options: Any) -> list[list[AuditRow]]:
    pages: list[list[AuditRow]] = []
    while rows := await rig.store.audit(page=page, below=pages[-1][-1].number if pages else None, **options):
        pages.append(rows)
    return pages


# One tenant, one actor


async def test_pages_of_one_tenant_and_of_one_actor(rig: Rig) -> None:
    jobs = {tenant: [await rig.enqueue(tenant=tenant) for _ in range(3)] for tenant in ("acme", "default")}
    for tenant, ids in jobs.items():
        for actor, job in zip(("ann", "bob", "ann"), ids, strict=True):
            await rig.store.operate(Verb.CANCEL, job, actor=f"{actor} of {tenant}")

    first = await rig.store.audit(tenant="acme", page=2)
    rest = await rig.store.audit(tenant="acme", page=2, below=first[-1].number)

    assert [row.job for row in (*first, *rest)] == jobs["acme"][::-1]
    assert [row.job for row in await rig.store.audit(tenant="default")] == jobs["default"][::-1]
    assert [row.job for row in await rig.store.audit(actor="ann of acme")] == [jobs["acme"][2], jobs["acme"][0]]
    assert await rig.store.audit(tenant="default", actor="ann of acme") == []
    assert await rig.store.audit(tenant="other") == []


async def test_a_reveal_is_recorded_where_the_job_is(rig: Rig) -> None:
    job = await rig.enqueue(tenant="acme")

    assert await rig.store.record_reveal(job, actor="ann")
    assert not await rig.store.record_reveal(new_id(), actor="ann")

    (row,) = await rig.store.audit()
    assert (row.action, row.actor, row.job, row.tenant) == (words.REVEALED, "ann", job, "acme")
