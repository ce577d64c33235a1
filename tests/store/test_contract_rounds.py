"""Jobs that wait for each other would wait for ever: the one that closes the round dies, and wakes the others."""

from __future__ import annotations

import asyncio
import itertools

from windlass.model.flow import Flow
from windlass.model.state import State, Verb

from .flows import waiting_for
from .rig import Rig


async def test_the_job_that_closes_a_round_dies_and_wakes_the_other(rig: Rig) -> None:
    first, second = await rig.running(), await rig.running()
    assert await rig.finish(first, Verb.WAIT, flow=Flow(wait=waiting_for(second.id))) is State.WAITING

    assert await rig.finish(second, Verb.WAIT, flow=Flow(wait=waiting_for(first.id))) is State.DEAD

    dead = await rig.find(second.id)
    assert (dead.status, dead.reason) == (State.DEAD, "it waits for a job that waits for it")
    assert await rig.status(first.id) is State.QUEUED


async def test_a_round_over_several_jobs_is_seen(rig: Rig) -> None:
    jobs = [await rig.running() for _ in range(4)]
    for job, following in itertools.pairwise(jobs):
        await rig.finish(job, Verb.WAIT, flow=Flow(wait=waiting_for(following.id)))

    assert await rig.finish(jobs[3], Verb.WAIT, flow=Flow(wait=waiting_for(jobs[0].id))) is State.DEAD

    assert await rig.status(jobs[2].id) is State.QUEUED


async def test_two_that_begin_to_wait_for_each_other_at_once_do_not_hang(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        first, second = await rig.running(), await rig.running()

        states = await asyncio.gather(
            rig.finish(first, Verb.WAIT, flow=Flow(wait=waiting_for(second.id)), store=one),
            rig.finish(second, Verb.WAIT, flow=Flow(wait=waiting_for(first.id)), store=other),
        )

    assert State.DEAD in states
    assert {await rig.status(first.id), await rig.status(second.id)} == {State.DEAD, State.QUEUED}
