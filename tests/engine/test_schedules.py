"""Schedules in running workers: one tick, one job; deploys, lost answers, and programs that differ."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from windlass import Context, State, SyncContext, Windlass
from windlass.errors import StoreUnavailable
from windlass.model.filter import parse
from windlass.model.job import Job
from windlass.model.schedule import ScheduleRow
from windlass.testing.clock import START, ManualClock

from .rig import PATIENCE, Database, eventually, in_state, stores_of, working

BERLIN = ZoneInfo("Europe/Berlin")
CREEP = 0.1  # seconds: a poll
LONG = {"lease": "10h", "beat": "1h"}  # a clock that is moved by hours leaves no time to beat


def declare(app: Windlass) -> Any:
    """A type with jobs that return the time of their tick."""

    @app.job
    def report(ctx: SyncContext, name: str = "sales") -> str:
        return f"{name} {ctx.job.run_at:%Y-%m-%d %H:%M:%S}"

    return report


async def reports(app: Windlass) -> list[Job]:
    found = await app._client.aask(lambda store: store.search(parse("type:report"), page=1_000))
    return sorted(found, key=lambda job: (job.run_at, job.id))


async def known(app: Windlass, name: str = "nightly") -> ScheduleRow:
    """The schedule, once a worker has declared it."""

    async def look() -> list[ScheduleRow]:
        return [row for row in await app.aschedules() if row.name == name]

    return (await eventually(look, bool))[0]


async def move(database: Database, clock: ManualClock, seconds: float) -> None:
    """The database's time first: a worker that wakes by the clock finds it moved."""
    if database.dialect == "postgres":
        await database.run("UPDATE {}test_clock SET now = ?", clock.now() + timedelta(seconds=seconds))
    clock.advance(seconds)


async def until(database: Database, app: Windlass, clock: ManualClock, count: int) -> list[Job]:
    """So many jobs, or more, have come. Time creeps: a worker that slept after the last move would sleep for ever."""

    async def look() -> list[Job]:
        await move(database, clock, CREEP)
        return await reports(app)

    return await eventually(look, lambda jobs: len(jobs) >= count)


# By the clock of the machine


async def test_jobs_come_by_themselves_each_for_its_own_tick(app: Windlass) -> None:
    report = declare(app)
    app.schedule("often", report.call("beat"), every="100ms", catch_up="all")

    async with working(app):
        found = await eventually(lambda: reports(app), lambda jobs: sum(j.status == "succeeded" for j in jobs) >= 5)

    times = [job.run_at for job in found]
    assert times == [times[0] + n * timedelta(milliseconds=100) for n in range(len(times))]
    assert (times[0] - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(milliseconds=100) == timedelta()
    done = next(job for job in found if job.status is State.SUCCEEDED)
    assert done.output == f'"beat {done.run_at:%Y-%m-%d %H:%M:%S}"'


async def test_a_tick_wakes_a_worker_that_polls_seldom(database: Database) -> None:
    """The schedule's own worker fires the tick; the one that serves the queue is woken by it."""
    app, elsewhere = database.app(poll="1h"), database.app(poll="1h")
    declare(elsewhere)
    report = declare(app)
    app.schedule("soon", report.options(queue="there").call(), at=datetime.now(UTC) + timedelta(seconds=1))

    async with working(elsewhere, queues=["there"]), working(app, queues=["here"]):
        (job,) = await eventually(lambda: reports(app), bool)
        assert await (await app.afind(job.id)).aresult(timeout=PATIENCE)


async def test_a_running_job_is_cancelled_by_the_next_tick(database: Database) -> None:
    app = database.app(grace="100ms")

    @app.job
    async def report(ctx: Context) -> None:
        await asyncio.sleep(600)

    schedule = app.schedule("often", report.call(), every="1s", overlap="cancel")

    async with working(app):
        first = (await eventually(lambda: reports(app), bool))[0]
        await in_state(await app.afind(first.id), State.CANCELLED)
        await schedule.apause()

    rows = await app._client.aask(lambda store: store.audit(job=first.id))
    assert "schedule:often" in {row.actor for row in rows}


# On a clock that stands still


async def test_two_workers_race_for_every_tick(still_database: Database) -> None:
    """Both sleep until the same moment, and ask for the same tick."""
    clock = ManualClock()
    apps = [still_database.app(clock=clock, **LONG) for _ in range(2)]
    for app in apps:
        app.schedule("nightly", declare(app).call(), every="5s", catch_up="all")

    async with working(apps[0]), working(apps[1]):
        await known(apps[0])
        for count in range(1, 21):
            await move(still_database, clock, 5)
            await until(still_database, apps[0], clock, count)

    times = [job.run_at for job in await reports(apps[0])]
    assert times == [START + timedelta(seconds=5 * n) for n in range(1, len(times) + 1)]


async def test_a_worker_starts_with_what_is_due_and_goes_on(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock, **LONG)
    app.schedule("nightly", declare(app).call(), every="1m", catch_up="all")
    async with working(app):
        await known(app)
    await move(still_database, clock, 3600)  # no worker runs

    again = still_database.app(clock=clock, **LONG)
    again.schedule("nightly", declare(again).call(), every="1m", catch_up="all")
    async with working(again):
        await until(still_database, app, clock, 60)
        await move(still_database, clock, 60)
        await until(still_database, app, clock, 61)

    times = [job.run_at for job in await reports(app)]
    assert times == [START + timedelta(minutes=n) for n in range(1, len(times) + 1)]


async def test_a_lost_answer_fires_nothing_twice(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock, **LONG)
    app.schedule("nightly", declare(app).call(), every="1m", catch_up="all")
    asked = 0

    async with working(app) as (worker, _):
        await known(app)
        store = stores_of(worker)
        tick = store.tick

        async def lose(name: str) -> Any:
            nonlocal asked
            asked += 1
            answer = await tick(name)
            if asked == 1:
                raise StoreUnavailable("the answer was lost")
            return answer

        store.tick = lose
        await move(still_database, clock, 60)
        await until(still_database, app, clock, 1)
        await move(still_database, clock, 60)
        await until(still_database, app, clock, 2)

    times = [job.run_at for job in await reports(app)]
    assert times == [START + timedelta(minutes=n) for n in range(1, len(times) + 1)]
    assert asked >= 2


async def test_a_schedule_that_cannot_be_served_here_does_not_keep_the_others(
    still_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock, **LONG)
    report = declare(app)
    app.schedule("mars", report.call("mars"), every="1m")
    app.schedule("nightly", report.call("here"), every="1m")
    caplog.set_level(logging.ERROR, "windlass")

    async with working(app):
        await known(app, "mars")
        # As a machine writes it that knows more time zones than this one.
        edited = '{"timing":{"cron":"* * * * *","tz":"Mars/Base"}}'
        await still_database.run("UPDATE {}schedules SET edited = ? WHERE name = 'mars'", edited)
        for count in (1, 2):
            await move(still_database, clock, 60)
            await until(still_database, app, clock, count)

    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("schedule ")] == [
        "schedule mars: there is no time zone 'Mars/Base'; write it like 'Europe/Berlin'"
    ]
    assert {job.arguments().get("name") for job in await reports(app)} == {"here"}


async def test_a_worker_looks_after_its_own_programs_schedules_only(still_database: Database) -> None:
    clock = ManualClock()
    gone, here = (still_database.app(clock=clock, **LONG) for _ in range(2))
    gone.schedule("gone", declare(gone).call("gone"), every="1m")
    async with working(gone):
        await known(gone, "gone")
    here.schedule("nightly", declare(here).call("here"), every="1m")

    async with working(here):
        await known(here)
        for count in (1, 2):
            await move(still_database, clock, 60)
            await until(still_database, here, clock, count)

    assert {job.arguments().get("name") for job in await reports(here)} == {"here"}


# Deploys


async def deploy(database: Database, clock: ManualClock, name: str = "sales", **when: Any) -> ScheduleRow:
    """A program starts, is known to the store, and stops."""
    app = database.app(clock=clock, **LONG)
    app.schedule("nightly", declare(app).call(name), **when)
    async with working(app) as (worker, _):
        schedules = worker.parts.services["schedules"]
        await eventually(lambda: _rests(schedules), bool)
        return await known(app)


async def _rests(service: Any) -> bool:
    return bool(service.is_waiting)


async def test_a_deploy_changes_what_it_changes(still_database: Database) -> None:
    clock = ManualClock()
    first = await deploy(still_database, clock, cron="0 3 * * *", tz="Europe/Berlin")
    await move(still_database, clock, 600)

    same = await deploy(still_database, clock, "tax", cron="0 3 * * *", tz="Europe/Berlin")
    other = await deploy(still_database, clock, cron="0 3 * * *", tz="America/New_York")

    assert first.next_at == same.next_at == datetime(2026, 1, 2, 3, tzinfo=BERLIN)
    assert same.job.input == '{"name":"tax"}'
    assert other.next_at == datetime(2026, 1, 2, 8, tzinfo=UTC)


async def test_a_deploy_leaves_edits_and_pauses(still_database: Database) -> None:
    clock = ManualClock()
    await deploy(still_database, clock, every="1h")
    operator = still_database.app(clock=clock)
    schedule = operator.schedule("nightly", declare(operator).call(), every="1h")
    await schedule.aedit(every="2h", queue="slow")
    await schedule.apause("until monday")

    row = await deploy(still_database, clock, every="3h")

    assert (row.timing.every, row.job.queue, row.next_at) == (7200.0, "slow", START + timedelta(hours=2))
    assert (row.paused, row.reason) == (True, "until monday")
    await schedule.areset()
    assert (await schedule.arecord()).next_at == START + timedelta(hours=3)
