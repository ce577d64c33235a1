"""The database's clock is set back by a day: what was due stays due, and nothing else comes early."""

from __future__ import annotations

from datetime import timedelta

import pytest

from store.conftest import making, rig
from store.rig import Rig
from store.timetables import MINUTE, declare, fired, known, outcomes, to_next
from windlass.model.state import Verb

__all__ = ["making", "rig"]

pytestmark = pytest.mark.asyncio(loop_scope="session")  # that of `rig`

DAY = 86_400.0  # seconds
HOUR = 3_600.0


async def set_back(rig: Rig, seconds: float) -> None:
    """The wall's time goes back; the time that only grows does not."""
    rig.clock._start -= timedelta(seconds=seconds)
    await rig.move()


# Jobs


@pytest.mark.parametrize("fresh", [False, True], ids=["by its worker", "by a worker that starts now"])
async def test_a_job_that_was_due_is_claimed(rig: Rig, fresh: bool) -> None:
    job = await rig.enqueue()
    await rig.ask(room=1, types=("other",))  # the store has recorded the time as it was

    await set_back(rig, DAY)

    async with rig.stores(2) as stores:
        store = stores[fresh]
        claimed = (await rig.ask(store=store)).jobs or (await rig.ask(store=store)).jobs
    assert [each.id for each in claimed] == [job]


@pytest.mark.parametrize("options", [{"untouched": 30.0}, {"by_creation": True}, {"aged": 2}, {"rescan": False}])
async def test_whatever_the_pace_a_job_that_was_due_is_claimed(rig: Rig, options: dict[str, object]) -> None:
    jobs = {await rig.enqueue(), await rig.enqueue(priority=5)}
    await rig.ask(types=("other",))
    await rig.advance(MINUTE)
    await rig.ask(types=("other",))

    await set_back(rig, DAY)
    await rig.advance(MINUTE)

    claimed = (await rig.ask(**options)).jobs or (await rig.ask(**options)).jobs  # type: ignore[arg-type]
    assert {each.id for each in claimed} == jobs


async def test_a_job_with_limits_that_was_due_is_claimed(rig: Rig) -> None:
    await rig.run("INSERT INTO {}limits (name, most, declared_at) VALUES ('domain', 1, " + now(rig) + ")")
    job = await rig.enqueue(limits=("domain:a",))

    await set_back(rig, DAY)

    claimed = await rig.claim() or await rig.claim()
    assert [each.id for each in claimed] == [job]


def now(rig: Rig) -> str:
    return "now()" if rig.dialect == "postgres" else "0"


async def test_a_job_that_was_delayed_does_not_come_early(rig: Rig) -> None:
    before = await rig.enqueue(delay=MINUTE)
    due = await rig.enqueue()
    await rig.store.sweep(max_crashes=3)

    await set_back(rig, DAY)
    after = await rig.enqueue(delay=MINUTE)

    async with rig.stores(2) as (_, fresh):  # a worker that starts now, and has not seen the time as it was
        claimed = [each.id for _ in range(3) for each in await rig.claim(store=fresh)]
    assert claimed == [due]
    await rig.advance(MINUTE)
    assert [each.id for each in await rig.claim()] == [after]
    await rig.advance(DAY)
    assert [each.id for each in await rig.claim()] == [before]


async def test_a_job_that_was_due_behind_one_that_came_due_is_claimed(rig: Rig) -> None:
    await rig.enqueue(delay=MINUTE)
    await rig.advance(2 * MINUTE)
    behind = await rig.enqueue()
    await rig.ask(types=("other",))

    await set_back(rig, DAY)

    claimed = [each.id for _ in range(2) for each in await rig.claim()]
    assert claimed == [behind]


async def test_a_job_that_ran_when_the_clock_changed_is_due_again_when_it_is_given_back(rig: Rig) -> None:
    job = await rig.enqueue(delay=MINUTE)
    await rig.advance(MINUTE)
    (held,) = await rig.claim()

    await set_back(rig, DAY)
    await rig.write(held.lease, Verb.RELEASE)

    assert [each.id for each in await rig.claim()] == [job]


async def test_jobs_that_come_after_are_found_without_a_rescan(rig: Rig) -> None:
    await rig.enqueue_many(3)
    await rig.claim(room=1)
    await set_back(rig, DAY)
    await rig.claim()  # jobs of tomorrow must not move the place where the next claim begins

    jobs = set(await rig.enqueue_many(3))

    claimed = (await rig.ask(rescan=False)).jobs
    assert {each.id for each in claimed} == jobs


# Schedules


async def test_a_schedule_goes_on_with_its_next_tick_from_now(rig: Rig) -> None:
    await declare(rig)
    for _ in range(3):
        await to_next(rig)
        await rig.store.tick("nightly")

    await set_back(rig, DAY)

    assert await ticks_of_ten_minutes(rig) == 10
    assert len(await fired(rig)) == 13
    assert set(await outcomes(rig)) == {"fired"}


async def test_a_schedule_that_never_ticked_goes_on_with_its_next_tick_from_now(rig: Rig) -> None:
    await declare(rig)

    await set_back(rig, DAY)

    assert await ticks_of_ten_minutes(rig) == 10


async def ticks_of_ten_minutes(rig: Rig) -> int:
    """What a worker that polls every few seconds fires in ten minutes."""
    total = 0
    for _ in range(60):
        await rig.advance(10.0)
        while any(wait <= 0 for _, wait in await rig.store.due_schedules(["nightly"])):
            total += (await rig.store.tick("nightly")).fired
    return total


async def test_a_clock_that_was_set_back_by_minutes_fires_no_tick_twice(rig: Rig) -> None:
    await declare(rig)
    for _ in range(3):
        await to_next(rig)
        await rig.store.tick("nightly")
    next_at = (await known(rig)).next_at

    await set_back(rig, 2 * MINUTE)

    assert await ticks_of_ten_minutes(rig) == 8
    assert [job.run_at for job in await fired(rig)][3] == next_at
