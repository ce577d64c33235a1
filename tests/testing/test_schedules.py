"""Schedules under a harness: the clock is moved over ticks, clock changes and outages, and a drain fires them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from windlass import State, SyncContext, Windlass
from windlass.errors import AdmissionError, ScheduleError, ScheduleNotFound
from windlass.handles.schedule import Schedule
from windlass.model.schedule import CatchUp, TickOutcome
from windlass.testing import Harness, harness
from windlass.testing.clock import START

BERLIN = ZoneInfo("Europe/Berlin")


def declare(app: Windlass) -> Any:
    """A type whose jobs return the time of their tick."""

    @app.job
    def report(ctx: SyncContext, name: str = "sales") -> str:
        return f"{name} {ctx.job.run_at:%Y-%m-%d %H:%M:%S}"

    return report


@pytest.fixture
def bench(app: Windlass, server: str | None) -> Iterator[Harness]:
    """A clock that begins at noon."""
    with harness(app, server, start=START, patience="20s") as bench:
        yield bench


def over(bench: Harness, schedule: Schedule[Any], count: int) -> list[str]:
    """The ticks of the next fires, as a clock in Berlin shows them."""
    shown = []
    for _ in range(count):
        bench.clock.advance_to(schedule.upcoming(1)[0])
        (ran,) = bench.drain(raise_errors=True)
        shown.append(f"{ran.job.run_at.astimezone(BERLIN):%d. %H:%M%z}")
    return shown


@pytest.mark.parametrize(
    ("start", "line", "ticks"),
    [
        ("2026-03-28T12:00+01:00", "30 2 * * *", ["29. 03:00+0200", "30. 02:30+0200"]),
        ("2026-10-24T12:00+02:00", "30 2 * * *", ["25. 02:30+0200", "26. 02:30+0100"]),
        ("2026-03-29T00:30+01:00", "0 * * * *", ["29. 01:00+0100", "29. 03:00+0200", "29. 04:00+0200"]),
        ("2026-10-25T01:30+02:00", "0 * * * *", ["25. 02:00+0200", "25. 02:00+0100", "25. 03:00+0100"]),
    ],
    ids=["spring", "autumn", "hourly-spring", "hourly-autumn"],
)
def test_when_clocks_change(app: Windlass, server: str | None, start: str, line: str, ticks: list[str]) -> None:
    schedule = app.schedule("nightly", declare(app).call(), cron=line, tz="Europe/Berlin")

    with harness(app, server, start=datetime.fromisoformat(start).astimezone(UTC), patience="20s") as bench:
        assert over(bench, schedule, len(ticks)) == ticks


@pytest.mark.parametrize(("policy", "fires"), [(CatchUp.SKIP, 0), (CatchUp.ONE, 1), (CatchUp.ALL, 60)])
def test_an_outage_of_an_hour(app: Windlass, server: str | None, policy: CatchUp, fires: int) -> None:
    schedule = app.schedule("minutely", declare(app).call(), every="1m", catch_up=policy)

    with harness(app, server, start=START, patience="20s") as bench:
        bench.clock.advance("60m50s")
        ran = bench.drain(raise_errors=True)

        times = [one.job.run_at for one in ran]
        assert len(times) == fires
        assert times == sorted(times)
        assert all(one.state is State.SUCCEEDED for one in ran)
        assert schedule.record().next_at == START + timedelta(minutes=61)
        bench.clock.advance("10s")
        assert len(bench.drain()) == 1


def test_a_program_operates_on_its_schedules(app: Windlass, bench: Harness) -> None:
    report = declare(app)
    schedule = app.schedule("nightly", report.call(), cron="0 3 * * *", tz=BERLIN, catch_up="skip")
    assert schedule.upcoming(2) == [datetime(2026, 1, day, 3, tzinfo=BERLIN) for day in (2, 3)]

    job = schedule.fire()
    bench.drain(raise_errors=True)
    assert (job.existing, job.result()) == (False, "sales 2026-01-01 12:00:00")

    schedule.pause("wrong")
    bench.clock.advance_to(datetime(2026, 1, 2, 3, tzinfo=BERLIN))
    assert bench.drain() == []
    assert (schedule.resume(), schedule.resume()) == (True, False)
    schedule.edit(every="1h", priority=9)
    bench.clock.advance_to(schedule.upcoming(1)[0])
    (ran,) = bench.drain()
    assert (ran.job.priority, ran.output) == (9, "sales 2026-01-02 03:00:00")
    assert (schedule.reset(), schedule.reset()) == (True, False)
    assert schedule.record().next_at == datetime(2026, 1, 3, 3, tzinfo=BERLIN)
    assert [tick.outcome for tick in schedule.ticks()] == [TickOutcome.FIRED, TickOutcome.BY_HAND]
    assert [row.name for row in app.schedules()] == ["nightly"]


def test_a_pipeline_has_a_schedule_too(app: Windlass, bench: Harness) -> None:
    @app.job
    def fetch(url: str) -> int:
        return len(url)

    @app.job
    def store(ctx: SyncContext) -> int:
        return int(ctx.previous) + 1

    site = app.pipeline("site", fetch, store)
    schedule = app.schedule("daily", site.call("example.org"), every="1d")
    bench.clock.advance_to(schedule.upcoming(1)[0])

    ran = bench.drain(raise_errors=True)

    assert [(one.type, one.output) for one in ran][-1] == ("store", 12)


def test_a_schedule_that_is_declared_later_begins_with_the_next_drain(app: Windlass, bench: Harness) -> None:
    app.schedule("nightly", declare(app).call(), every="1h")
    assert bench.drain() == []

    bench.clock.advance("1h")
    assert len(bench.drain()) == 1


def test_edits_that_cannot_be(app: Windlass, bench: Harness) -> None:
    schedule = app.schedule("nightly", declare(app).call(), every="1h")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "nothing to edit; there are: cron, every, at, tz"),
        ({"crno": "x"}, "unknown field 'crno'; did you mean 'cron'"),
        ({"cron": "@daily", "every": "1h"}, "cron, every and at each set the time"),
        ({"queue": ""}, "queue is empty"),
        ({"priority": 99_999}, "priority=99999 is not a whole number"),
        ({"catch_up": "none"}, "catch_up='none'; there are"),
        ({"every": "soon"}, "is not a duration"),
        ({"at": START - timedelta(days=1)}, "has passed; to fire it now: windlass schedules fire nightly"),
    ]

    for change, message in wrong:
        with pytest.raises(ScheduleError) as refused:
            schedule.edit(**change)
        assert message in str(refused.value)
    with pytest.raises(AdmissionError, match="the reason is empty"):
        schedule.pause("")

    assert schedule.record().edited is None
    assert schedule.record().catch_up is CatchUp.ONE


def test_a_schedule_of_another_name_is_not_found(bench: Harness, app: Windlass) -> None:
    with pytest.raises(ScheduleNotFound):
        app._client.ask(lambda store: store.fire_schedule("nightly"))
