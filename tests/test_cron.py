"""Timetables: the next tick, clock changes in both directions, missed ticks, descriptions, and refusals."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.errors import ScheduleError
from windlass.model.job import NewJob
from windlass.model.schedule import TEMPLATE_ID, CatchUp, Declared, Edit, ScheduleRow, Timing
from windlass.policy import cron
from windlass.policy.cron import (
    COUNTED_AT_ONCE,
    FIRED_AT_ONCE,
    apply_edit,
    due,
    first,
    parse_timing,
    timetable,
    upcoming,
)

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def ticks(timing: Timing, after: datetime, until: datetime) -> list[datetime]:
    found = []
    table = timetable(timing)
    tick = table.after(after)
    while tick is not None and tick < until:
        found.append(tick)
        tick = table.after(tick)
    return found


def on(line: str, day: date, tz: ZoneInfo = BERLIN) -> list[str]:
    """The ticks of one local day, in local time."""
    begin = datetime.combine(day, time(), tz)
    found = ticks(Timing(cron=line, tz=tz.key), begin - timedelta(seconds=1), begin + timedelta(days=1))
    return [f"{tick.astimezone(tz):%H:%M%z}" for tick in found if tick.astimezone(tz).date() == day]


# When clocks change


SPRING = date(2026, 3, 29)  # 02:00 becomes 03:00
AUTUMN = date(2026, 10, 25)  # 03:00 becomes 02:00
SUMMER = date(2026, 7, 1)


def test_a_time_that_does_not_exist_ticks_at_the_first_moment_after_it() -> None:
    assert on("30 2 * * *", SPRING) == ["03:00+0200"]
    assert on("30 2 * * *", SUMMER) == ["02:30+0200"]


def test_times_that_do_not_exist_and_the_first_after_them_tick_once() -> None:
    assert on("0,30 2,3 * * *", SPRING) == ["03:00+0200", "03:30+0200"]


def test_a_time_that_comes_twice_ticks_the_first_time_only() -> None:
    assert on("30 2 * * *", AUTUMN) == ["02:30+0200"]


def test_a_tick_of_the_first_repeated_hour_does_not_fire_again_in_the_second() -> None:
    second = datetime(2026, 10, 25, 2, 15, fold=1, tzinfo=BERLIN).astimezone(UTC)

    assert timetable(Timing(cron="30 2 * * *", tz="Europe/Berlin")).after(second) == datetime(
        2026, 10, 26, 2, 30, tzinfo=BERLIN
    )


def test_an_hourly_line_has_twenty_three_ticks_in_spring_and_twenty_five_in_autumn() -> None:
    spring, autumn = on("0 * * * *", SPRING), on("0 * * * *", AUTUMN)

    assert (len(spring), len(autumn)) == (23, 25)
    assert spring[:4] == ["00:00+0100", "01:00+0100", "03:00+0200", "04:00+0200"]
    assert autumn[:5] == ["00:00+0200", "01:00+0200", "02:00+0200", "02:00+0100", "03:00+0100"]


def test_a_line_with_a_step_follows_local_time() -> None:
    assert on("0 */2 * * *", SPRING)[:2] == ["00:00+0100", "04:00+0200"]
    assert on("0 */2 * * *", AUTUMN)[:4] == ["00:00+0200", "02:00+0200", "02:00+0100", "04:00+0100"]


def test_an_interval_ignores_clock_changes() -> None:
    begin = datetime(2026, 3, 29, tzinfo=UTC)

    found = ticks(Timing(every=3600.0), begin - timedelta(seconds=1), begin + timedelta(days=1))

    assert found == [begin + timedelta(hours=hour) for hour in range(24)]


# Every tick once, for every worker that computes it


numbers = st.integers(0, 59)
minutes = st.one_of(st.just("*"), numbers.map(str), st.sampled_from(["*/7", "*/15", "0,30", "5-10", "59"]))
hours = st.one_of(st.just("*"), st.integers(0, 23).map(str), st.sampled_from(["*/2", "1-4", "2,3", "0,12"]))
days = st.sampled_from(["*", "1", "25-31", "L", "29"])
weekdays = st.sampled_from(["*", "SUN", "1-5", "7L", "SUN#4"])
lines = st.builds("{} {} {} * {}".format, minutes, hours, days, weekdays)
zones = st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC", "Asia/Kolkata"])


def within(days: int, year: int, month: int, day: int) -> st.SearchStrategy[datetime]:
    begin = datetime(year, month, day, tzinfo=UTC)
    return st.timedeltas(timedelta(), timedelta(days=days)).map(lambda span: begin + span)


moments = st.one_of(
    within(730, 2025, 1, 1),
    within(2, 2026, 3, 28),  # Berlin changes its clocks
    within(2, 2026, 10, 24),
    within(2, 2026, 3, 7),  # New York
    within(2, 2026, 10, 31),
)
timings = st.one_of(
    st.builds(lambda line, tz: Timing(cron=line, tz=tz), lines, zones),
    st.integers(1, 10_000_000).map(lambda tenths: Timing(every=tenths / 10)),
)


@settings(max_examples=100, deadline=None)
@given(timings, moments, st.floats(0, 1))
def test_the_next_tick_is_later_and_the_same_from_every_moment_before_it(
    timing: Timing, base: datetime, far: float
) -> None:
    table = timetable(timing)
    tick = table.after(base)

    assert tick is not None
    assert tick > base
    assert tick.tzinfo is UTC
    between = min(base + (tick - base) * far, tick - timedelta(microseconds=1))
    assert table.after(between) == tick


@settings(max_examples=50, deadline=None)
@given(minutes, hours, st.sampled_from(["Europe/Berlin", "America/New_York"]), moments)
def test_no_tick_is_left_out(minute: str, hour: str, zone: str, base: datetime) -> None:
    """Compared with local time, minute by minute; fixed times only away from clock changes, where both agree."""
    tz = ZoneInfo(zone)
    timing = Timing(cron=f"{minute} {hour} * * *", tz=zone)
    wild = minute.startswith("*") or hour.startswith("*")
    begin = base.replace(second=0, microsecond=0)
    span = [begin + MINUTE * n for n in range(1, 24 * 60)]
    if (
        not wild
        and (span[-1] + timedelta(days=1)).astimezone(tz).utcoffset()
        != (begin - timedelta(days=1)).astimezone(tz).utcoffset()
    ):
        return

    wanted = [moment for moment in span if matches(minute, 60, moment.astimezone(tz).minute)
              and matches(hour, 24, moment.astimezone(tz).hour)]  # fmt: skip

    assert ticks(timing, begin, span[-1] + MINUTE) == wanted


def matches(field: str, size: int, value: int) -> bool:
    allowed: set[int] = set()
    for part in field.split(","):
        whole, _, step = part.partition("/")
        low, _, high = whole.partition("-")
        values = range(size) if whole == "*" else range(int(low), int(high or low) + 1)
        allowed.update(values[:: int(step or 1)])
    return value in allowed


def test_intervals_are_counted_from_the_epoch_and_never_drift() -> None:
    table = timetable(Timing(every=900.0))

    assert table.after(NOON) == NOON + timedelta(minutes=15)
    assert table.after(NOON + timedelta(seconds=1)) == NOON + timedelta(minutes=15)
    far = datetime(2026, 6, 1, 12, 59, 59, 999_999, tzinfo=UTC)
    assert table.after(far) == datetime(2026, 6, 1, 13, tzinfo=UTC)


def test_a_time_ticks_once() -> None:
    timing = Timing(at=NOON)

    assert first(timing, NOON - MINUTE) == NOON
    assert first(timing, NOON + MINUTE) == NOON  # it has passed, and counts as missed
    assert timetable(timing).after(NOON) is None


# Missed ticks


EVERY_MINUTE = Timing(cron="* * * * *")


@pytest.mark.parametrize(("policy", "fires"), [("skip", 0), ("one", 1), ("all", 60)])
def test_an_outage_of_an_hour(policy: str, fires: int) -> None:
    now = NOON + timedelta(hours=1) - timedelta(seconds=20)  # the last tick was missed, too

    found = due(EVERY_MINUTE, NOON, now, CatchUp(policy))

    assert len(found.fire) == fires
    assert len(found.missed) == (0 if policy == "all" else 60 - fires)
    assert found.next_at == NOON + timedelta(hours=1)
    if policy == "one":
        assert found.fire == (found.caught,) == (NOON + timedelta(minutes=59),)


@pytest.mark.parametrize("policy", CatchUp)
def test_a_tick_in_time_is_fired_under_every_policy(policy: CatchUp) -> None:
    found = due(EVERY_MINUTE, NOON, NOON + timedelta(seconds=30), policy)

    assert (found.fire, found.missed, found.caught) == ((NOON,), (), None)
    assert found.next_at == NOON + MINUTE


def test_a_tick_in_time_is_fired_beside_the_one_for_those_that_were_missed() -> None:
    found = due(EVERY_MINUTE, NOON, NOON + timedelta(minutes=10, seconds=5), CatchUp.ONE)

    assert found.fire == (NOON + 9 * MINUTE, NOON + 10 * MINUTE)
    assert found.caught == NOON + 9 * MINUTE
    assert len(found.missed) == 9


def test_a_tick_later_than_half_the_interval_is_missed() -> None:
    seconds = Timing(every=10.0)

    assert due(seconds, NOON, NOON + timedelta(seconds=5), CatchUp.SKIP).fire == (NOON,)
    assert due(seconds, NOON, NOON + timedelta(seconds=5.1), CatchUp.SKIP).fire == ()


def test_one_time_has_thirty_seconds_of_grace_and_no_tick_after() -> None:
    once = Timing(at=NOON)

    assert due(once, NOON, NOON + timedelta(seconds=30), CatchUp.SKIP) == cron.Due(fire=(NOON,), next_at=None)
    assert due(once, NOON, NOON + timedelta(days=30), CatchUp.SKIP) == cron.Due(fire=(), missed=(NOON,), next_at=None)
    late = due(once, NOON, NOON + timedelta(days=30), CatchUp.ONE)
    assert (late.fire, late.caught, late.missed) == ((NOON,), NOON, ())


@settings(max_examples=30, deadline=None)
@given(timings, moments, st.sampled_from(CatchUp), st.integers(0, 1_500), st.floats(0, 0.99))
def test_every_tick_is_fired_or_recorded_once_page_by_page(
    timing: Timing, base: datetime, policy: CatchUp, count: int, part: float
) -> None:
    table = timetable(timing)
    begin = table.after(base)
    assert begin is not None
    wanted = [begin]
    while len(wanted) <= count:
        following = table.after(wanted[-1])
        assert following is not None
        wanted.append(following)
    last = wanted.pop() if count else begin
    now = (wanted[-1] + (last - wanted[-1]) * part) if count else begin - MINUTE / 60

    fired: list[datetime] = []
    missed: list[datetime] = []
    caught = 0
    next_at: datetime | None = begin
    while next_at is not None and next_at <= now:
        page = due(timing, next_at, now, policy)
        assert page.next_at is not None
        assert page.next_at > next_at
        assert len(page.fire) <= FIRED_AT_ONCE or policy is not CatchUp.ALL
        assert len(page.fire) + len(page.missed) <= COUNTED_AT_ONCE
        fired += page.fire
        missed += page.missed
        caught += page.caught is not None
        next_at = page.next_at

    assert next_at == (last if count else begin)
    assert sorted(fired + missed) == (wanted if count else [])
    assert fired == sorted(fired)
    if policy is CatchUp.ALL:
        assert missed == []
    if policy is CatchUp.ONE and missed:
        assert caught == 1
    if policy is CatchUp.SKIP:
        assert caught == 0


# Descriptions


@pytest.mark.parametrize(
    ("given", "description"),
    [
        ({"cron": "0 3 * * *", "tz": "Europe/Berlin"}, "at 03:00 every day (Europe/Berlin)"),
        ({"cron": "@hourly"}, "at the start of every hour (UTC)"),
        ({"cron": "*/10 * * * * *"}, "every 10th second of every minute (UTC)"),
        ({"cron": "0 9 * * MON#1", "tz": BERLIN}, "at 09:00 on the first Monday of the month (Europe/Berlin)"),
        ({"every": "15m"}, "every 15 minutes"),
        ({"every": "1h"}, "every hour"),
        ({"every": "1h30m"}, "every 1 hour 30 minutes"),
        ({"every": 0.5}, "every 0.5 seconds"),
        ({"every": timedelta(days=7)}, "every 7 days"),
        ({"at": datetime(2026, 8, 1, 5, tzinfo=BERLIN)}, "once, at 2026-08-01 03:00:00 (UTC)"),
    ],
)
def test_a_timing_is_described(given: dict[str, Any], description: str) -> None:
    assert timetable(parse_timing("schedule 'x'", **given)).describe() == description


@given(lines, zones)
@settings(max_examples=100, deadline=None)
def test_every_line_has_a_description(line: str, zone: str) -> None:
    assert timetable(Timing(cron=line, tz=zone)).describe().endswith(f"({zone})")


def test_the_next_fires_of_a_paused_schedule_are_those_after_a_resume() -> None:
    declared = Declared(timing=Timing(every=3600.0), job=NewJob(id=TEMPLATE_ID, type="x", input="{}"))
    row = ScheduleRow(name="x", declared=declared, next_at=NOON, now=NOON + timedelta(minutes=150), paused=True)

    assert upcoming(row, 2) == [NOON + timedelta(hours=3), NOON + timedelta(hours=4)]


# Refusals


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give exactly one of cron=, every= and at="),
        ({"cron": "* * * * *", "every": "1m"}, "give exactly one of cron=, every= and at="),
        ({"cron": "0 0 30 2 *"}, "cron '0 0 30 2 *' never fires"),
        ({"cron": "0 0 31 4,6,9,11 *"}, "never fires"),
        ({"cron": "0 0 */20 * 1L"}, "never fires"),
        ({"cron": "0 25 * * *"}, "bad hour; it has five fields"),
        ({"cron": "0 0 32 * *"}, "bad day-of-month; it has five fields"),
        ({"cron": "every day"}, "wrong number of fields; it has five fields"),
        ({"cron": "@reboot"}, "wrong number of fields"),
        ({"cron": ""}, "cron is empty"),
        ({"cron": 5}, "cron must be text"),
        ({"cron": "9" * 5_000 + " * * * *"}, "cron has 5008 characters"),
        ({"cron": "@daily", "tz": "Europe/Berln"}, "no time zone 'Europe/Berln'; did you mean 'Europe/Berlin'?"),
        ({"cron": "@daily", "tz": "new york"}, "did you mean 'America/New_York'?"),
        ({"cron": "@daily", "tz": "../etc/passwd"}, "there is no time zone"),
        ({"cron": "@daily", "tz": ""}, "there is no time zone ''; write it like 'Europe/Berlin'"),
        ({"cron": "@daily", "tz": 1}, "is not the name of a time zone"),
        ({"every": 0}, "every=0 is too short"),
        ({"every": "10ms"}, "too short; 0.1 s is the least"),
        ({"every": timedelta(seconds=-1)}, "negative or not finite"),
        ({"every": "soon"}, "is not a duration"),
        ({"every": "1h", "tz": "UTC"}, "a time zone is for a cron line"),
        ({"at": NOON.replace(tzinfo=None)}, "has no time zone; add tzinfo=UTC, or write"),
        ({"at": "2026-01-01"}, "is not a datetime"),
        ({"at": datetime(1960, 1, 1, tzinfo=UTC)}, "is not in the years 1970 to 2999"),
    ],
)
def test_an_impossible_timing_is_refused_with_a_correct_example(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse_timing("schedule 'nightly'", **given)

    assert str(refused.value).startswith("schedule 'nightly': ")
    assert message in str(refused.value)


def test_on_a_machine_without_time_zones_the_error_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cron, "available_timezones", set)

    with pytest.raises(ScheduleError, match="pip install tzdata"):
        parse_timing("schedule 'nightly'", cron="@daily", tz="Mars/Base")


# Edits


def test_an_edit_keeps_what_it_does_not_name() -> None:
    nightly = Timing(cron="0 3 * * *", tz="Europe/Berlin")

    assert apply_edit("x", nightly, Edit(cron="0 4 * * *")) == Timing(cron="0 4 * * *", tz="Europe/Berlin")
    assert apply_edit("x", nightly, Edit(tz="UTC")) == Timing(cron="0 3 * * *")
    assert apply_edit("x", nightly, Edit(every=60.0)) == Timing(every=60.0)
    assert apply_edit("x", nightly, Edit(queue="mail")) == nightly


def test_an_impossible_edit_is_refused() -> None:
    with pytest.raises(ScheduleError, match="a time zone is for a cron line"):
        apply_edit("x", Timing(every=60.0), Edit(tz="Europe/Berlin"))
    with pytest.raises(ScheduleError, match="never fires"):
        apply_edit("x", Timing(every=60.0), Edit(cron="0 0 30 2 *"))
