"""Schedules: jobs that would overlap, keys that are held, and what operators do."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from windlass.errors import ScheduleError, ScheduleNotFound
from windlass.model.schedule import CatchUp, Edit, Overlap, Ticked, TickOutcome, Timing
from windlass.model.state import State, Verb

from .flows import unique
from .rig import Rig
from .timetables import (
    EVERY_MINUTE,
    FIRED,
    MINUTE,
    NOTHING,
    declare,
    declared,
    fired,
    known,
    outcomes,
    overlapping,
    to_next,
)

# Overlap


async def test_allowed_jobs_overlap(rig: Rig) -> None:
    first = await overlapping(rig, "allow")

    assert await rig.store.tick("nightly") == FIRED
    assert len(await fired(rig)) == 2
    assert await rig.status(first) is State.QUEUED


@pytest.mark.parametrize("state", ["queued", "running", "failed", "waiting"])
async def test_a_tick_is_skipped_while_the_last_job_has_not_ended(rig: Rig, state: str) -> None:
    first = await overlapping(rig, "skip")
    if state != "queued":
        (job,) = await rig.claim(room=1)
        if state != "running":
            await rig.write(job.lease, Verb.FAIL if state == "failed" else Verb.WAIT, delay=600.0)

    assert await rig.store.tick("nightly") == Ticked(skipped=1, moved=True)
    assert [job.id for job in await fired(rig)] == [first]
    (skipped, _) = await rig.store.ticks("nightly")
    assert (skipped.outcome, skipped.reason) == (TickOutcome.SKIPPED, "the last job has not ended")
    assert (await known(rig)).last_job == first


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.BURY])
async def test_a_tick_fires_when_the_last_job_has_ended(rig: Rig, verb: Verb) -> None:
    await overlapping(rig, "skip")
    (job,) = await rig.claim(room=1)
    await rig.write(job.lease, verb)

    assert await rig.store.tick("nightly") == FIRED


async def test_a_catch_up_that_may_not_overlap_is_one_job(rig: Rig) -> None:
    await declare(rig, overlap="skip", catch_up="all")
    await rig.advance(10 * MINUTE)

    assert await rig.store.tick("nightly") == Ticked(fired=1, skipped=9, moved=True)


async def test_the_old_job_is_cancelled_where_it_waits(rig: Rig) -> None:
    first = await overlapping(rig, "cancel")

    assert await rig.store.tick("nightly") == FIRED

    assert await rig.status(first) is State.CANCELLED
    (row,) = await rig.store.audit(job=first)
    assert (row.action, row.actor, row.reason) == ("JOB_CANCELLED", "schedule:nightly", "overtaken by its schedule")
    assert [job.status for job in await fired(rig) if job.id != first] == [State.QUEUED]


async def test_the_old_job_is_asked_to_stop_where_it_runs(rig: Rig) -> None:
    first = await overlapping(rig, "cancel")
    (job,) = await rig.claim(room=1)

    assert await rig.store.tick("nightly") == FIRED

    assert await rig.status(first) is State.RUNNING
    assert await rig.store.cancel_requests(rig.worker) == [first]
    (row,) = await rig.store.audit(job=first)
    assert (row.action, row.actor) == ("JOB_CANCEL_REQUESTED", "schedule:nightly")
    await rig.write(job.lease, Verb.STOP)
    assert await rig.status(first) is State.CANCELLED


async def test_a_job_that_ended_is_left_alone(rig: Rig) -> None:
    first = await overlapping(rig, "cancel")
    (job,) = await rig.claim(room=1)
    await rig.write(job.lease, Verb.SUCCEED)

    assert await rig.store.tick("nightly") == FIRED
    assert await rig.status(first) is State.SUCCEEDED


async def test_a_catch_up_that_cancels_leaves_the_last_tick_only(rig: Rig) -> None:
    await declare(rig, overlap="cancel", catch_up="all")
    await rig.advance(10 * MINUTE)

    assert await rig.store.tick("nightly") == Ticked(fired=1, skipped=9, moved=True)
    assert [job.run_at for job in await fired(rig)] == [(await known(rig)).last_at]


async def test_the_race_between_a_tick_and_the_end_of_the_last_job(rig: Rig) -> None:
    """Either the tick sees the job, or it sees its end: there is a note of one of the two, and never an error."""
    async with rig.stores(2) as stores:
        for overlap in ("skip", "cancel") * 4:
            await rig.store.declare_schedules({"nightly": declared(overlap=overlap)})
            await to_next(rig)
            await rig.store.tick("nightly")
            (job,) = await rig.claim(room=1)
            await to_next(rig)
            answer, _ = await asyncio.gather(stores[1].tick("nightly"), rig.finish(job, Verb.SUCCEED))
            assert (answer.fired + answer.skipped, answer.moved) == (1, True)
            for left in await rig.claim():
                await rig.finish(left, Verb.SUCCEED)


# Keys


async def test_a_tick_whose_key_is_held_is_skipped_with_the_holders_name(rig: Rig) -> None:
    first = await overlapping(rig, "allow", unique=unique())

    assert await rig.store.tick("nightly") == Ticked(skipped=1, moved=True)
    (note, _) = await rig.store.ticks("nightly")
    assert (note.outcome, note.job, note.reason) == (TickOutcome.SKIPPED, first, "this job has its unique key")


async def test_the_key_of_a_job_that_is_cancelled_is_free_for_the_next(rig: Rig) -> None:
    first = await overlapping(rig, "cancel", unique=unique())

    assert await rig.store.tick("nightly") == FIRED
    assert await rig.status(first) is State.CANCELLED


async def test_missed_ticks_with_one_key_make_one_job(rig: Rig) -> None:
    await declare(rig, catch_up="all", unique=unique())
    await rig.advance(5 * MINUTE)

    assert await rig.store.tick("nightly") == Ticked(fired=1, skipped=4, moved=True)


# Operators


async def test_a_fire_by_hand_moves_nothing(rig: Rig) -> None:
    before = await declare(rig, overlap="skip")
    await rig.store.pause_schedule("nightly", actor="ann")

    job, existing = await rig.store.fire_schedule("nightly", actor="ann")

    found, after = await rig.find(job), await known(rig)
    assert (existing, found.run_at, found.input) == (False, rig.clock.now(), '{"n":1}')
    assert (after.next_at, after.last_at, after.last_job) == (before.next_at, None, None)
    (note,) = await rig.store.ticks("nightly")
    assert (note.outcome, note.job) == (TickOutcome.BY_HAND, job)
    assert [tick.job for tick in await rig.store.ticks("other")] == []


async def test_two_fires_by_hand_and_a_tick_at_one_moment(rig: Rig) -> None:
    await declare(rig)
    await to_next(rig)
    await asyncio.gather(rig.store.fire_schedule("nightly"), rig.store.fire_schedule("nightly"))
    assert await rig.store.tick("nightly") == FIRED

    assert sorted(await outcomes(rig)) == ["by hand", "by hand", "fired"]


async def test_a_fire_by_hand_finds_the_holder_of_its_key(rig: Rig) -> None:
    await declare(rig, unique=unique())
    first, _ = await rig.store.fire_schedule("nightly")

    assert await rig.store.fire_schedule("nightly") == (first, True)


async def test_a_resume_goes_on_from_now(rig: Rig) -> None:
    await declare(rig, catch_up="all")
    await rig.store.pause_schedule("nightly")
    await rig.advance(10 * MINUTE + 1)

    assert await rig.store.resume_schedule("nightly") is True
    assert await rig.store.resume_schedule("nightly") is False

    row = await known(rig)
    assert (row.paused, row.paused_by, row.paused_at, row.reason) == (False, None, None, None)
    assert row.next_at == rig.clock.now() + timedelta(seconds=59)
    assert await rig.store.tick("nightly") == NOTHING


async def test_a_pause_said_twice_changes_nothing(rig: Rig) -> None:
    await declare(rig)

    assert await rig.store.pause_schedule("nightly", reason="wrong", actor="ann") is True
    assert await rig.store.pause_schedule("nightly", actor="ben") is False
    assert await rig.store.pause_schedule("nightly", reason="wrong", actor="ben") is False

    row = await known(rig)
    assert (row.paused, row.paused_by, row.reason) == (True, "ann", "wrong")
    assert [each.actor for each in await rig.store.audit()] == ["ann"]


async def test_another_reason_is_written_down(rig: Rig) -> None:
    await declare(rig)
    await rig.store.pause_schedule("nightly", reason="wrong", actor="ann")
    paused_at = (await known(rig)).paused_at
    await rig.advance(MINUTE)

    assert await rig.store.pause_schedule("nightly", reason="worse", actor="ben") is True

    row = await known(rig)
    assert (row.paused_by, row.paused_at, row.reason) == ("ben", paused_at, "worse")


async def test_one_time_that_fell_into_a_pause_is_made_up_for(rig: Rig) -> None:
    await declare(rig, Timing(at=rig.clock.now() + timedelta(minutes=1)))
    await rig.store.pause_schedule("nightly")
    await rig.advance(10 * MINUTE)
    await rig.store.resume_schedule("nightly")

    assert await rig.store.tick("nightly") == FIRED
    await rig.store.pause_schedule("nightly")
    await rig.store.resume_schedule("nightly")
    assert (await known(rig)).next_at is None


async def test_an_edit_and_its_reset(rig: Rig) -> None:
    before = await declare(rig)
    await rig.store.edit_schedule("nightly", Edit(cron="30 * * * *", tz="Asia/Kolkata", catch_up=CatchUp.ALL))
    edited = await known(rig)
    await rig.store.edit_schedule("nightly", Edit(overlap=Overlap.CANCEL))

    after = await known(rig)
    assert edited.next_at == after.next_at == datetime(2026, 1, 1, 13, tzinfo=UTC)  # half past six in India
    assert (after.timing.tz, after.catch_up, after.overlap) == ("Asia/Kolkata", "all", "cancel")

    assert await rig.store.reset_schedule("nightly") is True
    assert await rig.store.reset_schedule("nightly") is False
    reset = await known(rig)
    assert (reset.edited, reset.edited_by, reset.timing) == (None, None, EVERY_MINUTE)
    assert reset.next_at == before.next_at


async def test_an_edit_back_to_what_the_code_says_is_none(rig: Rig) -> None:
    await declare(rig)
    await rig.store.edit_schedule("nightly", Edit(every=30.0, priority=5), actor="ann")
    await rig.store.edit_schedule("nightly", Edit(every=MINUTE), actor="ben")
    assert (await known(rig)).edited is not None
    await rig.store.edit_schedule("nightly", Edit(priority=0), actor="ben")

    row = await known(rig)
    assert (row.edited, row.edited_by) == (None, None)


async def test_an_edit_said_twice_changes_nothing(rig: Rig) -> None:
    await declare(rig)
    edit = Edit(cron="30 * * * *", priority=5)

    assert await rig.store.edit_schedule("nightly", edit, actor="ann") is True
    before = await known(rig)
    assert await rig.store.edit_schedule("nightly", edit, actor="ben") is False
    assert await rig.store.edit_schedule("nightly", Edit(priority=5), actor="ben") is False

    after = await known(rig)
    assert after == msgspec.structs.replace(before, now=after.now)
    assert [each.actor for each in await rig.store.audit()] == ["ann"]


async def test_an_edit_to_what_the_code_says_changes_nothing(rig: Rig) -> None:
    await declare(rig)

    assert await rig.store.edit_schedule("nightly", Edit(every=MINUTE), actor="ann") is False
    assert await rig.store.audit() == []


async def test_edits_at_one_moment_are_all_there(rig: Rig) -> None:
    """The race: two operators read the same row, and the second to write must not undo the first."""
    await declare(rig)
    edits = [Edit(queue="mail"), Edit(priority=4), Edit(overlap=Overlap.SKIP), Edit(catch_up=CatchUp.SKIP)]
    async with rig.stores(4) as stores:
        await asyncio.gather(*(store.edit_schedule("nightly", edit) for store, edit in zip(stores, edits, strict=True)))

    row = await known(rig)
    assert (row.job.queue, row.job.priority, row.overlap, row.catch_up) == ("mail", 4, "skip", "skip")


@pytest.mark.parametrize("act", ["pause", "edit"])
async def test_the_race_between_a_tick_and_an_operator(rig: Rig, act: str) -> None:
    """The first of the two wins: a tick before it, or none after it."""
    async with rig.stores(2) as stores:
        for number in range(6):
            name = f"schedule-{number}"
            await rig.store.declare_schedules({name: declared()})
            await rig.advance(MINUTE)
            change = (
                stores[1].pause_schedule(name)
                if act == "pause"
                else stores[1].edit_schedule(name, Edit(cron="30 0 * * *"))
            )
            answer, _ = await asyncio.gather(rig.store.tick(name), change)
            (row,) = await rig.store.schedules(name)
            assert len(await rig.store.ticks(name)) == answer.fired
            if act == "pause":
                assert row.paused
            else:
                assert row.next_at == datetime(2026, 1, 2, 0, 30, tzinfo=UTC)


async def test_what_operators_did_is_in_the_audit(rig: Rig) -> None:
    await declare(rig)
    await rig.store.pause_schedule("nightly", reason="wrong", actor="ann")
    await rig.store.resume_schedule("nightly", actor="ann")
    await rig.store.edit_schedule("nightly", Edit(every=90.0, queue="mail"), actor="ben")
    await rig.store.reset_schedule("nightly", actor="ben")
    job, _ = await rig.store.fire_schedule("nightly", actor="cem")
    await rig.store.forget_schedule("nightly", actor="cem")

    rows = [(row.action, row.actor, row.reason) for row in reversed(await rig.store.audit())]
    assert rows == [
        ("SCHEDULE_PAUSED", "ann", "wrong"),
        ("SCHEDULE_RESUMED", "ann", None),
        ("SCHEDULE_EDITED", "ben", "every 1m30s, queue mail"),
        ("SCHEDULE_RESET", "ben", None),
        ("SCHEDULE_FIRED", "cem", f"job {job}"),
        ("SCHEDULE_FORGOTTEN", "cem", None),
    ]
    assert {row.subject for row in await rig.store.audit()} == {"schedule:nightly"}
    assert await rig.store.schedules() == []


async def test_an_edit_that_cannot_be_changes_nothing(rig: Rig) -> None:
    before = await declare(rig)

    for edit in (Edit(cron="0 0 30 2 *"), Edit(tz="Europe/Berln"), Edit(at=rig.clock.now() - timedelta(hours=1))):
        with pytest.raises(ScheduleError):
            await rig.store.edit_schedule("nightly", edit)

    after = await known(rig)
    assert after == msgspec.structs.replace(before, now=after.now)
    assert await rig.store.audit() == []


async def test_a_schedule_that_nobody_declared_is_told_with_what_was_meant(rig: Rig) -> None:
    with pytest.raises(ScheduleNotFound, match="nor any other: declare it"):
        await rig.store.pause_schedule("nightly")
    await declare(rig)

    for act in (
        rig.store.resume_schedule,
        rig.store.reset_schedule,
        rig.store.fire_schedule,
        rig.store.forget_schedule,
    ):
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'nihgtly'; did you mean 'nightly'"):
            await act("nihgtly")
    with pytest.raises(ScheduleNotFound):
        await rig.store.edit_schedule("nihgtly", Edit(queue="mail"))
    assert await rig.store.tick("nihgtly") == NOTHING


async def test_a_row_of_another_version_is_told_as_such(rig: Rig) -> None:
    await declare(rig)
    await rig.run('UPDATE {}schedules SET edited = \'{{"overlap": "maybe"}}\'')
    await rig.advance(MINUTE)

    with pytest.raises(ScheduleError, match="schedule 'nightly' was written by another version"):
        await rig.store.tick("nightly")
