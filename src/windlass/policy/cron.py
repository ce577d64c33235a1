"""Timetables: when a schedule ticks next, which of its ticks were missed, and the same in plain words.

Pure: nobody is asked for the time. Cron lines are cronsim's, and so is what happens when clocks change: a line at a
fixed time (neither minute nor hour begins with `*`) ticks once on every day, at the first moment after a time that the
change leaps over and at the first of a time that comes twice; any other line follows the clock on the wall, with the
hour that is missing and the hour that comes twice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSim

from windlass.clock import Duration, seconds
from windlass.errors import ConfigError, ScheduleError
from windlass.model.schedule import CatchUp, Edit, ScheduleRow, Timing
from windlass.names import name_problem

GRACE = timedelta(seconds=30)
"""A tick that is later than this, or than half the way to the next one, was missed."""

FIRED_AT_ONCE = 100  # ticks of one schedule that are fired in one transaction
COUNTED_AT_ONCE = 500  # …that are passed over in one
SHORTEST = 0.1  # seconds from tick to tick
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
SIZES = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000))  # microseconds


class Timetable(Protocol):
    """One way to say when."""

    def after(self, moment: datetime) -> datetime | None:
        """The first tick after a moment; None when there is none."""
        ...

    def describe(self) -> str: ...


class Cron(msgspec.Struct, frozen=True):
    """`0 3 * * *` in a time zone."""

    line: str
    tz: str

    def after(self, moment: datetime) -> datetime | None:
        zone = UTC if self.tz == "UTC" else ZoneInfo(self.tz)
        for local in CronSim(self.line, moment.astimezone(zone)):
            tick = local.astimezone(UTC)  # times of one zone are compared by what the wall says
            if tick > moment:  # else: of an hour that comes twice, the first; this moment is in the second
                return tick
        return None

    def describe(self) -> str:
        try:
            told = CronSim(self.line, EPOCH).explain()
        except Exception:  # it explains most lines, and fires all of them
            told = f"cron {self.line}"
        return f"{told[0].lower()}{told[1:]} ({self.tz})"


class Every(msgspec.Struct, frozen=True):
    """Every so often, counted from the epoch: the same for all workers, and it never drifts."""

    step: int  # microseconds

    def after(self, moment: datetime) -> datetime | None:
        passed = (moment - EPOCH) // MICROSECOND
        return EPOCH + (passed // self.step + 1) * self.step * MICROSECOND

    def describe(self) -> str:
        parts, rest = [], self.step
        for noun, size in SIZES:
            count, rest = divmod(rest, size)
            if count:
                parts.append(f"{count} {noun}" if count == 1 else f"{count} {noun}s")
        if rest:
            parts.append("1 second" if rest == 1_000_000 else f"{rest / 1_000_000:g} seconds")
        told = " ".join(parts)
        return f"every {told.removeprefix('1 ')}" if len(parts) == 1 else f"every {told}"


class Once(msgspec.Struct, frozen=True):
    """At one time, and never again."""

    at: datetime

    def after(self, moment: datetime) -> datetime | None:
        return self.at if self.at > moment else None

    def describe(self) -> str:
        return f"once, at {self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} (UTC)"


def timetable(timing: Timing) -> Timetable:
    """What a checked timing means on this machine; raises ScheduleError where its time zone is unknown."""
    if timing.at is not None:
        return Once(timing.at)
    if timing.every is not None:
        return Every(round(timing.every * 1_000_000))
    assert timing.cron is not None
    _check_zone(timing.tz)
    return Cron(timing.cron, timing.tz)


def first(timing: Timing, now: datetime) -> datetime | None:
    """Where a schedule begins that is declared or changed now. One time counts even when it has passed."""
    return timing.at if timing.at is not None else timetable(timing).after(now)


def upcoming(row: ScheduleRow, count: int) -> list[datetime]:
    """The next tick and those after it, none that has passed; of a schedule that is paused, as if it went on now."""
    begin = row.next_at
    if begin is not None and (row.paused or begin < row.now):
        begin = first(row.timing, row.now)
    return list(islice(_ticks_from(timetable(row.timing), begin), count))


def _ticks_from(table: Timetable, tick: datetime | None) -> Iterator[datetime]:
    while tick is not None:
        yield tick
        tick = table.after(tick)


# What is due


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about the ticks of a schedule up to now, or as many of them as one transaction takes."""

    fire: tuple[datetime, ...]  # in order
    missed: tuple[datetime, ...] = ()  # not fired
    caught: datetime | None = None  # the one of `fire` that stands for the missed ones
    next_at: datetime | None  # where it goes on; None: never again


def due(timing: Timing, next_at: datetime, now: datetime, catch_up: CatchUp) -> Due:
    """Take `next_at` and what follows it, up to now.

    Ticks in time are fired whatever the policy says; the policy is for those that were missed. A page that is full of
    missed ticks leaves its last one to the next page, so that `one` always finds one to fire.
    """
    most = FIRED_AT_ONCE if catch_up is CatchUp.ALL else COUNTED_AT_ONCE
    passed: list[datetime] = []
    full, following = False, None
    for tick in _ticks_from(timetable(timing), next_at):
        full = len(passed) == most
        if full or tick > now:
            following = tick
            break
        passed.append(tick)
    full = full and following is not None and following <= now
    if catch_up is CatchUp.ALL:
        return Due(fire=tuple(passed), next_at=following)
    if full:
        following = passed.pop()
    after = [*passed[1:], following]
    missed = [tick for tick, later in zip(passed, after, strict=True) if now - tick > _grace(tick, later)]
    in_time = [tick for tick in passed if tick not in missed]
    caught = missed.pop() if catch_up is CatchUp.ONE and missed and not full else None
    fire = in_time if caught is None else sorted([caught, *in_time])
    return Due(fire=tuple(fire), missed=tuple(missed), caught=caught, next_at=following)


def _grace(tick: datetime, later: datetime | None) -> timedelta:
    return GRACE if later is None else min(GRACE, (later - tick) / 2)


# The door


def parse_timing(
    what: str,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    at: datetime | None = None,
    tz: str | ZoneInfo | None = None,
) -> Timing:
    """A checked timing; `what` begins every sentence about what is wrong with it."""
    if sum(given is not None for given in (cron, every, at)) != 1:
        raise ScheduleError(f"{what}: give exactly one of cron=, every= and at=; they say when it ticks")
    if cron is not None:
        zone = _zone_name(what, tz)
        return Timing(cron=_parse_line(what, cron, zone), tz=zone)
    if tz is not None:
        raise ScheduleError(
            f"{what}: a time zone is for a cron line; an interval counts from the epoch, and one time has its own"
        )
    if every is not None:
        return Timing(every=_parse_interval(what, every))
    return Timing(at=_check_moment(what, at))


def apply_edit(what: str, timing: Timing, edit: Edit) -> Timing:
    """The timing with an edit laid over it; a new cron line keeps the time zone unless the edit has one."""
    if edit.cron is None and edit.every is None and edit.at is None:
        if edit.tz is None:
            return timing
        return parse_timing(what, cron=timing.cron, every=timing.every, at=timing.at, tz=edit.tz)
    if edit.cron is not None and edit.every is None and edit.at is None:
        return parse_timing(what, cron=edit.cron, tz=edit.tz or timing.tz)
    return parse_timing(what, cron=edit.cron, every=edit.every, at=edit.at, tz=edit.tz)


def _parse_line(what: str, given: object, zone: str) -> str:
    problem = name_problem(given)
    if problem is not None or not isinstance(given, str):
        raise ScheduleError(f"{what}: cron {problem}; write it like '0 3 * * *': at 03:00 every day")
    line = " ".join(ALIASES.get(given.strip().lower(), given).split())
    try:
        CronSim(line, EPOCH)
    except Exception as error:  # CronSimError, and what odd digits raise inside
        told = str(error)
        if told == "Bad day-of-month" and _has_no_such_day(line):
            raise _never_fires_error(what, line) from None
        raise ScheduleError(
            f"{what}: cron {given!r}: {told[:1].lower()}{told[1:]}; it has five fields, minute, hour, day of month, "
            "month and day of week, as in '0 3 * * *': at 03:00 every day"
        ) from None
    if Cron(line, zone).after(EPOCH + timedelta(days=20_000)) is None:
        raise _never_fires_error(what, line)
    return line


def _has_no_such_day(line: str) -> bool:
    """Whether only the months are too short for the day: the same line with every month is a good one."""
    fields = line.split()
    fields[-2] = "*"
    try:
        CronSim(" ".join(fields), EPOCH)
    except Exception:
        return False
    return True


def _never_fires_error(what: str, line: str) -> ScheduleError:
    return ScheduleError(f"{what}: cron {line!r} never fires: there is no such day in fifty years; mend its days")


def _parse_interval(what: str, every: Duration) -> float:
    try:
        length = seconds(every, what=f"{what}: every")
    except ConfigError as error:
        raise ScheduleError(str(error)) from None
    if length < SHORTEST:
        raise ScheduleError(f"{what}: every={every!r} is too short; {SHORTEST:g} s is the least, as in every='15m'")
    return length


def _check_moment(what: str, at: object) -> datetime:
    if not isinstance(at, datetime):
        raise ScheduleError(f"{what}: at={at!r} is not a datetime; write datetime(2026, 8, 1, 3, tzinfo=UTC)")
    if at.tzinfo is None:
        raise ScheduleError(f"{what}: at {at} has no time zone; add tzinfo=UTC, or write 2026-08-01T03:00+02:00")
    if not 1970 <= at.year < 3000:
        raise ScheduleError(f"{what}: at {at} is not in the years 1970 to 2999")
    return at.astimezone(UTC)


def _zone_name(what: str, tz: object) -> str:
    name = tz.key if isinstance(tz, ZoneInfo) else "UTC" if tz is None else tz
    if not isinstance(name, str):
        raise ScheduleError(f"{what}: tz={tz!r} is not the name of a time zone; write it like tz='Europe/Berlin'")
    try:
        _check_zone(name)
    except ScheduleError as error:
        raise ScheduleError(f"{what}: {error}") from None
    return name


def _check_zone(name: str) -> None:
    if name == "UTC":
        return
    try:
        ZoneInfo(name)
    except Exception:  # not found; and for some texts ValueError, IsADirectoryError, UnicodeError
        known = available_timezones()
        if not known:
            raise ScheduleError(
                f"time zone {name!r} is unknown, as this machine has no data about time zones; run: pip install tzdata"
            ) from None
        close = _closest_zone(name, known)
        hint = "write it like 'Europe/Berlin'" if close is None else f"did you mean {close!r}?"
        raise ScheduleError(f"there is no time zone {name!r}; {hint}") from None


def _closest_zone(name: str, known: set[str]) -> str | None:
    """The zone that was meant: by its whole name, or by its city."""
    folded = {zone.lower(): zone for zone in sorted(known)}
    cities = {zone.rpartition("/")[2].lower(): zone for zone in sorted(known)}
    wanted = name.lower().replace(" ", "_")
    found = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.8)
    if found:
        return folded[found[0]]
    found = difflib.get_close_matches(wanted.rpartition("/")[2], cities, n=1, cutoff=0.8)
    return cities[found[0]] if found else None
