"""Leaders, retention and wake-ups."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from windlass.model.state import State, Verb

from .rig import LEASE

if TYPE_CHECKING:
    from .rig import Rig

DAY = timedelta(days=1).total_seconds()
PATIENCE = 10.0  # seconds for a signal that comes in milliseconds


async def test_one_worker_leads_while_its_lease_lasts(rig: Rig) -> None:
    first, second = uuid4(), uuid4()

    assert await rig.store.lead("sweep", first, LEASE)
    assert not await rig.store.lead("sweep", second, LEASE)
    await rig.advance(LEASE - 1)
    assert await rig.store.lead("sweep", first, LEASE)
    await rig.advance(LEASE - 1)
    assert not await rig.store.lead("sweep", second, LEASE)


async def test_a_silent_leader_is_replaced_and_its_return_refused(rig: Rig) -> None:
    first, second = uuid4(), uuid4()
    await rig.store.lead("sweep", first, LEASE)
    await rig.advance(LEASE + 1)

    assert await rig.store.lead("sweep", second, LEASE)

    assert not await rig.store.lead("sweep", first, LEASE)
    ((term,),) = [tuple(row) for row in await rig.run("SELECT term FROM {}leaders WHERE name = 'sweep'")]
    assert term == 2


async def test_duties_have_leaders_of_their_own(rig: Rig) -> None:
    assert await rig.store.lead("sweep", uuid4(), LEASE)
    assert await rig.store.lead("schedules", uuid4(), LEASE)


async def test_only_one_of_many_candidates_wins(rig: Rig) -> None:
    won = await asyncio.gather(*[rig.store.lead("sweep", uuid4(), LEASE) for _ in range(8)])

    assert sum(won) == 1


async def test_history_passes_after_its_time_and_the_dead_stay(rig: Rig) -> None:
    old, dead = await rig.job_in(State.SUCCEEDED), await rig.job_in(State.DEAD)
    await rig.advance(9 * DAY)
    young = await rig.job_in(State.CANCELLED)
    waiting = await rig.enqueue()
    await rig.advance(DAY)

    await rig.store.prune(history=7 * DAY, audit=90 * DAY)

    assert await rig.store.find(old) is None
    assert await rig.status(young) is State.CANCELLED
    assert await rig.status(dead) is State.DEAD
    assert await rig.status(waiting) is State.QUEUED


async def test_an_enqueue_wakes_an_idle_worker(rig: Rig) -> None:
    await rig.store.set_idle(rig.worker, idle=True)

    async with rig.store.wakeups() as wakeups, asyncio.timeout(PATIENCE):
        await rig.enqueue(queue="mail")

        assert await anext(wakeups) in ("mail", "*")


async def test_a_message_reaches_every_listener(rig: Rig) -> None:
    async with rig.store.wakeups() as one, rig.store.wakeups() as other, asyncio.timeout(PATIENCE):
        await rig.store.wake("cancel:7")

        assert [await anext(one), await anext(other)] == ["cancel:7", "cancel:7"]


async def test_a_claim_follows_the_wake_up(rig: Rig) -> None:
    await rig.store.set_idle(rig.worker, idle=True)

    async with rig.store.wakeups() as wakeups, asyncio.timeout(PATIENCE):
        job = await rig.enqueue()
        await anext(wakeups)

        assert [each.id for each in await rig.claim()] == [job]
        await rig.store.operate(Verb.CANCEL, job)
