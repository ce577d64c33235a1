"""Links: the jobs that one knows by name, and that a flow is written with its transition or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.flow import Flow, Link, Linked, Memory, Recollection, Spawn
from windlass.model.job import new_id
from windlass.model.outcome import Progress, Transition
from windlass.model.rows import JobState
from windlass.model.state import State, Verb

from .flows import LIMIT, be_discarded, decoded, end, fan_out, is_woken, unique, waiting_for
from .rig import alone

if TYPE_CHECKING:
    from windlass.model.job import Job, NewJob

    from .rig import Rig

ERROR = '{"type":"Boom","message":"no","attempt":1,"attemptedAt":"2026-01-01T12:00:00Z"}'


# Names


async def test_a_job_without_children_knows_nobody(rig: Rig) -> None:
    assert await rig.store.links(await rig.enqueue()) == []
    assert await rig.store.links(new_id()) == []


async def test_children_are_found_by_name_as_they_are_now(rig: Rig) -> None:
    job = await rig.running()
    names = ("good", "bad", "stopped", "gone", "pending")
    children = {name: alone(parent=job.id) for name in names}
    flow = Flow(
        spawns=tuple(Spawn(name=name, job=child) for name, child in children.items()),
        wait=waiting_for(*children.values(), need=1),
    )
    assert await rig.finish(job, Verb.WAIT, flow=flow) is State.WAITING
    assert await rig.store.links(job.id) == [Linked(name, children[name].id, State.QUEUED) for name in names]

    await end(rig, children["bad"].id, Verb.BURY, error=ERROR)
    await rig.store.operate(Verb.CANCEL, children["stopped"].id)
    await be_discarded(rig, children["gone"].id)
    await end(rig, children["good"].id, output='{"n":1}')

    links = {link.name: link for link in await rig.store.links(job.id)}
    assert {name: link.id for name, link in links.items()} == {name: child.id for name, child in children.items()}
    assert {name: link.status for name, link in links.items()} == {
        "good": State.SUCCEEDED,
        "bad": State.DEAD,
        "stopped": State.CANCELLED,
        "gone": None,
        "pending": State.QUEUED,
    }
    assert decoded(links["good"].output) == {"n": 1}
    assert decoded(links["bad"].error) == decoded(ERROR)
    assert [link.name for link in await rig.store.links(job.id, page=2)] == ["good", "bad"]


async def test_jobs_that_existed_already_are_linked_too(rig: Rig) -> None:
    other = await rig.job_in(State.SUCCEEDED, priority=0)
    job = await rig.running()

    await rig.finish(job, Verb.WAIT, flow=Flow(links=(Link("other", other),), wait=waiting_for(other)))

    (link,) = await rig.store.links(job.id)
    assert (link.name, link.id, link.status) == ("other", other, State.SUCCEEDED)


async def test_a_nodes_dependencies_are_linked_from_the_start(rig: Rig) -> None:
    first, second = alone(), alone()
    node = alone(links=(("b", first.id), ("a", second.id)), wait=waiting_for(first, second))

    await rig.store.enqueue([first, second, node])

    assert [(link.name, link.id, link.status) for link in await rig.store.links(node.id)] == [
        ("b", first.id, State.QUEUED),
        ("a", second.id, State.QUEUED),
    ]


async def test_links_outlive_attempts_and_grow(rig: Rig) -> None:
    job = await rig.running()
    first, second = alone(parent=job.id), alone(parent=job.id)
    await rig.finish(job, Verb.WAIT, flow=fan_out(first))
    await end(rig, first.id)
    await end(rig, job.id, Verb.FAIL, attempt=1)
    again = await rig.take(job.id)

    await rig.finish(
        again, Verb.WAIT, flow=Flow(spawns=(Spawn(name="second", job=second),), wait=waiting_for(first, second))
    )

    assert [(link.name, link.id) for link in await rig.store.links(job.id)] == [
        ("child-0", first.id),
        ("second", second.id),
    ]


async def test_a_thousand_children_are_found_in_their_order(rig: Rig) -> None:
    job = await rig.running()
    children = [alone(parent=job.id, queue="children") for _ in range(1_000)]

    await rig.finish(job, Verb.WAIT, flow=fan_out(*children))

    assert [link.id for link in await rig.store.links(job.id)] == [child.id for child in children]


async def test_many_jobs_are_found_at_once(rig: Rig) -> None:
    states = [State.QUEUED, State.RUNNING, State.SUCCEEDED, State.DEAD, State.CANCELLED]
    jobs = [await rig.job_in(state, priority=0) for state in states]

    found = await rig.store.find_many([*jobs, new_id(), jobs[0]])

    assert found == {job: await rig.find(job) for job in jobs}
    assert await rig.store.find_many([]) == {}


async def test_the_states_of_many_jobs_are_read_at_once_from_jobs_and_history(rig: Rig) -> None:
    states = [State.QUEUED, State.RUNNING, State.SUCCEEDED, State.DEAD, State.CANCELLED]
    jobs = [await rig.job_in(state, priority=0, tenant=f"tenant of {state}") for state in states]
    running = await rig.find(jobs[1])
    await rig.store.record([Progress(lease=running.lease, total=10, processed=4, failed=1)])

    found = await rig.store.states([*jobs, new_id(), jobs[0]])

    assert {id: row.state for id, row in found.items()} == dict(zip(jobs, states, strict=True))
    for id, row in found.items():
        job = await rig.find(id)
        assert row == JobState(
            id=id,
            tenant=job.tenant,
            state=job.status,
            attempt=job.attempt,
            total=job.total,
            processed=job.processed,
            failed=job.failed,
            updated_at=job.updated_at,
        )
    assert (found[jobs[1]].total, found[jobs[1]].processed, found[jobs[1]].failed) == (10, 4, 1)
    assert await rig.store.states([]) == {}


# Spawns with a key that is held


async def test_a_spawn_whose_key_is_held_is_the_job_that_holds_it(rig: Rig) -> None:
    holder = await rig.running(unique=unique())
    job = await rig.running()
    refused = alone(parent=job.id, unique=unique())

    assert await rig.finish(job, Verb.WAIT, flow=fan_out(refused)) is State.WAITING

    assert await rig.store.find(refused.id) is None
    assert [link.id for link in await rig.store.links(job.id)] == [holder.id]
    await rig.finish(holder, Verb.SUCCEED)
    assert await is_woken(rig, job.id)


async def test_a_spawn_whose_key_is_held_by_a_success_is_done(rig: Rig) -> None:
    holder = await rig.job_in(State.SUCCEEDED, unique=unique())
    job = await rig.running()

    assert await rig.finish(job, Verb.WAIT, flow=fan_out(alone(parent=job.id, unique=unique()))) is State.QUEUED

    assert [(link.id, link.status) for link in await rig.store.links(job.id)] == [(holder, State.SUCCEEDED)]


async def test_two_spawns_of_one_key_are_one_job_under_two_names(rig: Rig) -> None:
    job = await rig.running()
    first, second = alone(parent=job.id, unique=unique()), alone(parent=job.id, unique=unique())

    assert await rig.finish(job, Verb.WAIT, flow=fan_out(first, second)) is State.WAITING

    assert [link.id for link in await rig.store.links(job.id)] == [first.id, first.id]
    await end(rig, first.id)
    assert await is_woken(rig, job.id)


async def test_a_node_that_depends_on_a_refused_job_waits_for_the_one_that_holds_its_key(rig: Rig) -> None:
    holder = await rig.running(unique=unique())
    refused = alone(unique=unique())
    node = alone(wait=waiting_for(refused), links=(("dependency", refused.id),))

    assert await rig.store.enqueue([refused, node]) == {refused.id: holder.id}

    assert await rig.status(node.id) is State.WAITING
    assert [link.id for link in await rig.store.links(node.id)] == [holder.id]
    await rig.finish(holder, Verb.SUCCEED)
    assert await is_woken(rig, node.id)


# Whole, or not there


async def test_a_lost_lease_writes_nothing_of_the_flow(rig: Rig) -> None:
    stale, current, awaited = await an_overtaken_wait(rig)
    child = alone(parent=stale.id, unique=unique())

    finished = await rig.store.finish([a_whole_flow(stale, child, awaited)])

    assert finished.lost == {stale.id}
    await nothing_was_written(rig, current, child, awaited)


async def test_a_lost_lease_writes_nothing_of_the_flow_in_a_transaction(rig: Rig) -> None:
    stale, current, awaited = await an_overtaken_wait(rig)
    child = alone(parent=stale.id, unique=unique())

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(a_whole_flow(stale, child, awaited)) is False
        await transaction.commit()

    await nothing_was_written(rig, current, child, awaited)


@pytest.mark.parametrize("verb", [Verb.WAIT, Verb.SUCCEED, Verb.ADVANCE])
async def test_a_flow_that_is_rolled_back_leaves_nothing(rig: Rig, verb: Verb) -> None:
    job, awaited = await rig.running(), await rig.running()
    child = alone(parent=job.id, unique=unique())

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(a_whole_flow(job, child, awaited, verb))

    await nothing_was_written(rig, job, child, awaited)


async def test_a_flow_that_is_committed_is_whole(rig: Rig) -> None:
    job, awaited = await rig.running(), await rig.running()
    child = alone(parent=job.id, unique=unique())

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(a_whole_flow(job, child, awaited))
        assert await rig.store.find(child.id) is None
        await transaction.commit()

    assert await rig.status(job.id) is State.WAITING
    assert {link.id for link in await rig.store.links(job.id)} == {child.id, awaited.id}
    assert (await rig.store.recall(job.id)).steps == {"nap": "1"}
    await end(rig, child.id)
    await rig.finish(awaited, Verb.SUCCEED)
    assert await is_woken(rig, job.id)


async def test_a_lost_transition_harms_no_other_of_its_batch(rig: Rig) -> None:
    stale, current, awaited = await an_overtaken_wait(rig)
    job = await rig.running()
    lost, child = alone(parent=stale.id, unique=unique()), alone(parent=job.id)

    finished = await rig.store.finish(
        [
            a_whole_flow(stale, lost, awaited),
            Transition(lease=job.lease, verb=Verb.WAIT, flow=fan_out(child)),
        ]
    )

    assert finished.states == {job.id: State.WAITING}
    assert finished.lost == {stale.id}
    assert await rig.status(child.id) is State.QUEUED
    await nothing_was_written(rig, current, lost, awaited)


def a_whole_flow(job: Job, child: NewJob, awaited: Job, verb: Verb = Verb.WAIT) -> Transition:
    flow = Flow(
        spawns=(Spawn(name="child", job=child),),
        links=(Link("awaited", awaited.id),),
        memories=(Memory("nap", "1"),),
        wait=waiting_for(child, awaited.id) if verb is Verb.WAIT else None,
    )
    return Transition(lease=job.lease, verb=verb, flow=flow, action="JOB_SUCCEEDED", followed=job.followed)


async def an_overtaken_wait(rig: Rig) -> tuple[Job, Job, Job]:
    """A job as its first worker holds it still, as the second one holds it, and a job that is worth waiting for."""
    stale = await rig.running()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    return stale, await rig.take(stale.id), await rig.running()


async def nothing_was_written(rig: Rig, current: Job, child: NewJob, awaited: Job) -> None:
    assert await rig.find(current.id) == current
    assert await rig.store.find(child.id) is None
    assert await rig.store.links(current.id) == []
    assert await rig.store.recall(current.id) == Recollection(steps={}, signals={})
    assert await rig.store.audit(job=current.id) == []
    new = alone(unique=child.unique)
    assert await rig.store.enqueue([new]) == {}
    await rig.finish(awaited, Verb.SUCCEED)
    assert await rig.find(current.id) == current
