"""The table of transitions on plain jobs: every edge of it can be walked, and no other.

`test_every_edge.py` walks the same table with jobs that wait or waited. Each story goes through its cases in one
database, with a queue for each job.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from windlass.errors import JobNotFound, TransitionRefused
from windlass.model.job import Lease, new_id
from windlass.model.outcome import Transition
from windlass.model.state import ENDING_VERBS, STAYING_VERBS, TRANSITIONS, State, Verb, allows, sources, target

from .rig import TYPE, arrives_in

if TYPE_CHECKING:
    from .rig import Rig

HOLDERS = sorted(ENDING_VERBS | STAYING_VERBS)
OPERATORS = [Verb.CANCEL, Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.DISCARD]
SWEEPERS = [Verb.RESCUE, Verb.BURY_CRASHED]
WAITERS = {Verb.WAKE, Verb.ABANDON}  # joins and signals: in test_every_edge.py
UNDELIVERED = {Verb.BURY_UNDELIVERED}  # in test_contract_undelivered.py


def test_every_verb_has_its_story_here() -> None:
    assert {*HOLDERS, *OPERATORS, *SWEEPERS, Verb.CLAIM} | WAITERS | UNDELIVERED == set(TRANSITIONS)


async def test_the_holder_of_a_lease_walks_each_of_its_edges(rig: Rig) -> None:
    for verb in HOLDERS:
        job = await rig.running()

        finished = await rig.write(job.lease, verb)

        assert finished.states == {job.id: target(verb)}, verb
        assert finished.lost == frozenset(), verb
        assert await rig.status(job.id) is target(verb), verb


async def test_no_lease_settles_a_job_that_is_not_running(rig: Rig) -> None:
    for verb, state in product(HOLDERS, sorted(set(State) - {State.RUNNING})):
        assert sources(verb) == {State.RUNNING}
        job = await rig.find(await rig.job_in(state, type=TYPE))
        old = Lease(job.id, job.token or new_id(), job.fence)

        finished = await rig.write(old, verb)

        assert finished.states == {}, (verb, state)
        assert finished.lost == {job.id}, (verb, state)
        assert await rig.find(job.id) == job, (verb, state)


async def test_only_verbs_of_a_holder_can_be_settled(rig: Rig) -> None:
    for verb in sorted(set(Verb) - ENDING_VERBS - STAYING_VERBS):
        job = await rig.running()

        with pytest.raises(ValueError, match="holder"):
            await rig.write(job.lease, verb)

        assert await rig.find(job.id) == job, verb


async def test_an_operator_walks_the_edges_and_is_refused_elsewhere(rig: Rig) -> None:
    for verb, state in product(OPERATORS, sorted(State)):
        job = await rig.job_in(state, type=TYPE)
        before = await rig.find(job)

        if allows(verb, state):
            assert await rig.store.operate(verb, job) is target(verb), (verb, state)
            left = await rig.store.find(job)
            assert (left.status if left else None) is target(verb), (verb, state)
        elif (verb, state) == (Verb.CANCEL, State.RUNNING):
            assert await rig.store.operate(verb, job) is State.RUNNING
        else:
            with pytest.raises(TransitionRefused, match=f"is {state.value}"):
                await rig.store.operate(verb, job)
            assert await rig.find(job) == before, (verb, state)


@pytest.mark.parametrize("verb", OPERATORS)
async def test_a_job_that_never_was_cannot_be_operated_on(rig: Rig, verb: Verb) -> None:
    missing = new_id()

    with pytest.raises(JobNotFound, match=str(missing)):
        await rig.store.operate(verb, missing)


async def test_a_claim_takes_claimable_jobs_only(rig: Rig) -> None:
    jobs = {await rig.job_in(state, type=TYPE): state for state in sorted(State)}
    await rig.advance(3_600)

    claimed = {each.id for each in await rig.claim(room=100)}

    assert claimed == {job for job, state in jobs.items() if allows(Verb.CLAIM, state)}


@pytest.mark.parametrize(("verb", "max_crashes"), [(Verb.RESCUE, 3), (Verb.BURY_CRASHED, 1)])
async def test_a_sweep_touches_running_jobs_only(rig: Rig, verb: Verb, max_crashes: int) -> None:
    jobs = {await rig.job_in(state, type=TYPE): state for state in sorted(State)}
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=max_crashes)

    for job, state in jobs.items():
        assert await rig.status(job) is (arrives_in(verb) if allows(verb, state) else state), state


async def test_a_batch_settles_what_it_can_and_names_the_rest(rig: Rig) -> None:
    mine, lost, failing = await rig.enqueue_many(3)
    leases = {job.id: job.lease for job in await rig.claim()}
    await rig.write(leases[lost], Verb.RELEASE)

    finished = await rig.store.finish(
        [
            Transition(lease=leases[mine], verb=Verb.SUCCEED, output='{"sent":1}', attempt=1),
            Transition(lease=leases[lost], verb=Verb.SUCCEED, attempt=1),
            Transition(lease=leases[failing], verb=Verb.FAIL, delay=5.0, attempt=1),
        ]
    )

    assert finished.states == {mine: State.SUCCEEDED, failing: State.FAILED}
    assert finished.lost == {lost}
