"""Schedules: a deploy moves nothing that it does not change, each tick belongs to one worker, and none is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from windlass import failpoints
from windlass.model.schedule import Edit, Overlap, Ticked, TickOutcome, Timing
from windlass.store.parts.statements import run
from windlass.store.parts.ticks import micros_of

from .rig import TYPE, Rig
from .timetables import FIRED, HOURLY, MINUTE, NOTHING, declare, declared, fired, known, outcomes, to_next

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


# Deploys


async def test_a_new_schedule_begins_with_the_next_tick_from_now(rig: Rig) -> None:
    row = await declare(rig, HOURLY)

    assert row.next_at == datetime(2026, 1, 1, 13, tzinfo=UTC)
    assert (row.paused, row.edited, row.last_at, row.last_job) == (False, None, None, None)
    assert row.now == rig.clock.now()


async def test_an_unchanged_declaration_does_not_move_the_next_tick(rig: Rig) -> None:
    before = await declare(rig)
    await rig.advance(10 * MINUTE)  # several ticks are due, and no worker fired them

    after = await declare(rig)

    assert after.next_at == before.next_at


async def test_another_timetable_begins_anew_from_now(rig: Rig) -> None:
    await declare(rig)
    await rig.advance(10 * MINUTE)

    assert (await declare(rig, HOURLY)).next_at == datetime(2026, 1, 1, 13, tzinfo=UTC)


async def test_what_else_is_declared_changes_without_moving_the_tick(rig: Rig) -> None:
    before = await declare(rig)
    await rig.advance(10 * MINUTE)

    after = await declare(rig, catch_up="all", overlap="skip", input='{"n":2}', queue="mail")

    assert after.next_at == before.next_at
    assert (after.catch_up, after.overlap, after.job.input, after.job.queue) == ("all", "skip", '{"n":2}', "mail")


async def test_a_deploy_does_not_overwrite_what_was_edited(rig: Rig) -> None:
    await declare(rig)
    await rig.store.edit_schedule("nightly", Edit(cron="30 * * * *", queue="mail", priority=3), actor="ann")
    before = await known(rig)

    after = await declare(rig, HOURLY, overlap="skip")

    assert after.next_at == before.next_at == datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    assert (after.timing, after.overlap) == (Timing(cron="30 * * * *"), Overlap.SKIP)
    assert (after.job.queue, after.job.priority, after.edited_by) == ("mail", 3, "ann")


async def test_a_deploy_does_not_resume_what_was_paused(rig: Rig) -> None:
    await declare(rig)
    await rig.store.pause_schedule("nightly", reason="the report is wrong", actor="ann")

    await declare(rig, HOURLY)
    await to_next(rig)

    row = await known(rig)
    assert (row.paused, row.paused_by, row.reason) == (True, "ann", "the report is wrong")
    assert await rig.store.tick("nightly") == NOTHING
    assert await rig.store.due_schedules(["nightly"]) == []


# Each tick once


async def test_a_tick_makes_a_job_whose_time_is_the_ticks(rig: Rig) -> None:
    await declare(rig, queue="mail", tenant="acme", priority=7, limits=("tenant:acme",))
    assert await rig.store.tick("nightly") == NOTHING  # not due yet
    tick = await to_next(rig, late=10)

    assert await rig.store.tick("nightly") == FIRED

    (job,) = await fired(rig)
    assert (job.type, job.input, job.run_at, job.created_at) == (TYPE, '{"n":1}', tick, rig.clock.now())
    assert (job.queue, job.tenant, job.priority, job.limits) == ("mail", "acme", 7, ["tenant:acme"])
    row = await known(rig)
    assert (row.last_at, row.last_job, row.next_at) == (tick, job.id, tick + timedelta(minutes=1))
    (note,) = await rig.store.ticks("nightly")
    assert (note.at, note.outcome, note.job, note.noted_at) == (tick, TickOutcome.FIRED, job.id, rig.clock.now())


async def test_many_workers_at_once_fire_each_tick_once(rig: Rig) -> None:
    """The race: all of them see the tick, and ask for it at the same moment."""
    await declare(rig)
    async with rig.stores(4) as stores:
        for _ in range(15):
            await to_next(rig)
            answers = await asyncio.gather(*(store.tick("nightly") for store in stores for _ in range(2)))
            assert sorted(answer.fired for answer in answers) == [0] * 7 + [1]

    jobs = await fired(rig)
    assert [job.run_at for job in jobs] == sorted({job.run_at for job in jobs})
    assert (len(jobs), await outcomes(rig)) == (15, ["fired"] * 15)


async def test_many_workers_that_catch_up_at_once_fire_each_tick_once(rig: Rig) -> None:
    """The race: pages of one outage are taken by turns, by several workers."""
    begin = (await declare(rig, catch_up="all")).next_at
    assert begin is not None
    await rig.advance(250 * MINUTE)

    async def until_nothing_is_due(store: Any) -> int:
        total = 0
        while await store.due_schedules(["nightly"]) and (await store.due_schedules(["nightly"]))[0][1] <= 0:
            total += (await store.tick("nightly")).fired
        return total

    async with rig.stores(3) as stores:
        counts = await asyncio.gather(*(until_nothing_is_due(store) for store in stores))

    assert sum(counts) == 250
    assert [job.run_at for job in await fired(rig)] == [begin + timedelta(minutes=n) for n in range(250)]


async def test_two_programs_that_start_at_once_declare_one_schedule(rig: Rig) -> None:
    names = {f"schedule-{number}": declared() for number in range(20)}
    backwards = dict(reversed(names.items()))
    async with rig.stores(4) as stores:
        await asyncio.gather(*(store.declare_schedules(each) for store in stores for each in (names, backwards)))

    assert [row.name for row in await rig.store.schedules()] == sorted(names)


async def test_a_worker_that_fails_in_the_middle_leaves_the_tick_to_the_next(rig: Rig) -> None:
    await declare(rig)
    tick = await to_next(rig)

    def fail() -> None:
        failpoints.disarm()
        raise RuntimeError("pulled the plug")

    failpoints.arm("tick.moved", fail)
    with pytest.raises(RuntimeError):
        await rig.store.tick("nightly")

    assert (await fired(rig), (await known(rig)).next_at) == ([], tick)
    assert await rig.store.tick("nightly") == FIRED


async def test_a_schedule_that_another_worker_has_locked_is_skipped_without_waiting(rig: Rig) -> None:
    """The race: a worker froze while it was firing. On SQLite it holds the whole file, and there is nothing to pass."""
    if rig.dialect == "sqlite":
        pytest.skip("a transaction that is open on SQLite keeps every other writer out")
    await declare(rig)
    await to_next(rig)
    await rig.run("BEGIN")
    await rig.run("SELECT 1 FROM {}schedules FOR UPDATE")

    async with asyncio.timeout(4):  # less than any lock is waited for
        assert await rig.store.tick("nightly") == NOTHING

    await rig.run("ROLLBACK")
    assert await rig.store.tick("nightly") == FIRED


async def test_a_clock_that_was_set_back_does_not_repeat_a_tick(rig: Rig) -> None:
    await declare(rig)
    tick = await to_next(rig)
    assert await rig.store.tick("nightly") == FIRED

    await rig.run(
        f"UPDATE {{}}schedules SET next_at = {as_stored(rig, tick)}"
    )  # where an edit a second ago would begin
    assert await rig.store.tick("nightly") == Ticked(moved=True)

    assert len(await fired(rig)) == 1
    assert (await known(rig)).next_at == tick + timedelta(minutes=1)


def as_stored(rig: Rig, moment: datetime) -> str:
    return f"'{moment.isoformat()}'" if rig.dialect == "postgres" else str(round(moment.timestamp() * 1_000_000))


async def test_each_schedule_has_its_own_ticks(rig: Rig) -> None:
    await rig.store.declare_schedules({"a": declared(), "b": declared(HOURLY), "c": declared(Timing(every=30.0))})

    waits = await rig.store.due_schedules(["a", "b", "nobody"])

    assert waits == [("a", 60.0), ("b", 3600.0)]


# Catching up


@pytest.mark.parametrize(
    ("policy", "fires", "noted"),
    [("skip", 0, ["missed"]), ("one", 1, ["missed", "fired"]), ("all", 60, ["fired"] * 50)],
)
async def test_an_outage_of_an_hour(rig: Rig, policy: str, fires: int, noted: list[str]) -> None:
    begin = (await declare(rig, catch_up=policy)).next_at
    assert begin is not None
    await rig.advance(60 * MINUTE + 59)  # the sixtieth tick was missed as well

    total = 0
    while (answer := await rig.store.tick("nightly")).moved:
        total += answer.fired

    jobs = await fired(rig)
    assert (total, len(jobs)) == (fires, fires)
    assert await outcomes(rig) == noted
    if policy == "one":
        assert jobs[0].run_at == begin + timedelta(minutes=59)
        newest, oldest = await rig.store.ticks("nightly")
        assert (newest.reason, oldest.reason, oldest.at) == ("for 60 missed ticks", "59 ticks", begin)
    await rig.advance(MINUTE - 59)
    assert await rig.store.tick("nightly") == FIRED  # and then it goes on


async def test_all_is_fired_in_pages(rig: Rig) -> None:
    await declare(rig, catch_up="all")
    await rig.advance(250 * MINUTE)

    answers = [(await rig.store.tick("nightly")).fired for _ in range(4)]

    assert answers == [100, 100, 50, 0]


async def test_a_long_outage_is_counted_in_pages_and_made_up_for_once(rig: Rig) -> None:
    await declare(rig, catch_up="one")
    await rig.advance(1_200 * MINUTE + 50)

    answers = []
    while (answer := await rig.store.tick("nightly")).moved:
        answers.append((answer.fired, answer.missed))

    assert [count for count, _ in answers] == [0, 0, 1]
    assert sum(missed for _, missed in answers) == 1_199


# One time


async def test_one_time_fires_once_whatever_is_deployed(rig: Rig) -> None:
    at = rig.clock.now() + timedelta(minutes=5)
    assert (await declare(rig, Timing(at=at))).next_at == at
    await to_next(rig)
    assert await rig.store.tick("nightly") == FIRED

    row = await declare(rig, Timing(at=at), input='{"n":2}')
    assert (row.next_at, row.last_at) == (None, at)
    assert await rig.store.due_schedules(["nightly"]) == []

    again = at + timedelta(hours=1)
    assert (await declare(rig, Timing(at=again))).next_at == again


@pytest.mark.parametrize(("policy", "outcome"), [("one", "fired"), ("skip", "missed")])
async def test_a_time_that_has_passed_when_it_is_declared_counts_as_missed(rig: Rig, policy: str, outcome: str) -> None:
    await declare(rig, Timing(at=rig.clock.now() - timedelta(hours=1)), catch_up=policy)

    assert (await rig.store.tick("nightly")).moved
    assert await outcomes(rig) == [outcome]
    assert not (await rig.store.tick("nightly")).moved


async def test_a_tick_belongs_to_the_transaction_that_moves_the_schedule_from_it(rig: Rig) -> None:
    """The statement itself: the lock of the schedule's row comes before it, and this condition stands behind that."""
    row = await declare(rig)
    assert row.next_at is not None
    store: Any = rig.store
    later = row.next_at + timedelta(minutes=1)
    moves = [
        {"name": "nightly", "old": micros_of(old), "new": micros_of(later)} for old in (later, row.next_at, row.next_at)
    ]

    moved = [await store._run_in_transaction(partial(run, "move_schedule", [move])) for move in moves]

    assert [len(rows) for rows in moved] == [0, 1, 0]
