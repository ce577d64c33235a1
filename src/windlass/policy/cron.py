"""Timetables: when a schedule ticks next, which of its ticks were missed, and a description for people.

The code is pure: it reads no clock. cronsim parses cron lines and decides what happens when clocks change:

- A line at a fixed time (neither minute nor hour begins with `*`) ticks once every day. A time that does not exist on
  that day ticks at the first moment after the gap; a time that exists twice ticks at the first of the two.
- Any other line follows local time, without the missing hour and with the repeated one.
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

FIRES = 5  # next ticks that a list shows
GRACE = timedelta(seconds=30)
"""A tick that is processed later than this, or later than half the interval to the next tick, was missed."""

FIRED_AT_ONCE = 100  # ticks of one schedule that are fired in one transaction
COUNTED_AT_ONCE = 500  # ticks of one schedule that are recorded as missed in one transaction
SHORTEST = 0.1  # seconds between two ticks
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
    """One way to define the ticks of a schedule."""

    def after(self, moment: datetime) -> datetime | None:
        """The first tick after a moment; None when there is none."""
        ...

    def describe(self) -> str:
        """The timetable as a phrase for people: `every 15 minutes`."""
        ...


class Cron(msgspec.Struct, frozen=True):
    """A cron line in a time zone: `0 3 * * *`."""

    line: str
    tz: str

    def after(self, moment: datetime) -> datetime | None:
        zone = UTC if self.tz == "UTC" else ZoneInfo(self.tz)
        for local in CronSim(self.line, moment.astimezone(zone)):
            # In UTC, because Python compares two times of one zone by local time, without the offset.
            tick = local.astimezone(UTC)
            if tick > moment:  # else: a tick in the first of two repeated hours, while `moment` is in the second
                return tick
        return None

    def describe(self) -> str:
        try:
            text = CronSim(self.line, EPOCH).explain()
        except Exception:  # cronsim cannot explain every line that it can fire
            text = f"cron {self.line}"
        return f"{text[0].lower()}{text[1:]} ({self.tz})"


class Every(msgspec.Struct, frozen=True):
    """A fixed interval, counted from the epoch: it is the same for all workers and never drifts."""

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
        text = " ".join(parts)
        return f"every {text.removeprefix('1 ')}" if len(parts) == 1 else f"every {text}"


class Once(msgspec.Struct, frozen=True):
    """One tick."""

    at: datetime

    def after(self, moment: datetime) -> datetime | None:
        return self.at if self.at > moment else None

    def describe(self) -> str:
        return f"once, at {self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} (UTC)"


def timetable(timing: Timing) -> Timetable:
    """The timetable of a checked timing; raises ScheduleError if this machine does not know its time zone."""
    if timing.at is not None:
        return Once(timing.at)
    if timing.every is not None:
        return Every(round(timing.every * 1_000_000))
    assert timing.cron is not None
    _check_zone(timing.tz)
    return Cron(timing.cron, timing.tz)


def first(timing: Timing, now: datetime) -> datetime | None:
    """The first tick of a schedule that is declared or changed now. A single time counts even when it has passed."""
    return timing.at if timing.at is not None else timetable(timing).after(now)


def upcoming(row: ScheduleRow, count: int) -> list[datetime]:
    """The next ticks, without any that has passed; those of a paused schedule as if it were resumed now."""
    begin = row.next_at
    if begin is not None and (row.paused or begin < row.now):
        begin = first(row.timing, row.now)
    return list(islice(_ticks_from(timetable(row.timing), begin), count))


def list_fires(row: ScheduleRow, count: int = FIRES) -> list[datetime]:
    """The next fires; where this machine does not know the time zone, only the next one, from the store."""
    try:
        return upcoming(row, count)
    except ScheduleError:
        return [] if row.next_at is None else [row.next_at]


def describe(timing: Timing) -> str:
    """`at 03:00 every day (Europe/Berlin)`; where this machine does not know the time zone, the cron line."""
    try:
        return timetable(timing).describe()
    except ScheduleError:
        return f"cron {timing.cron} ({timing.tz})"


def _ticks_from(table: Timetable, tick: datetime | None) -> Iterator[datetime]:
    while tick is not None:
        yield tick
        tick = table.after(tick)


# Due ticks


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with the ticks of a schedule up to now, or with as many of them as one transaction takes."""

    fire: tuple[datetime, ...]  # in order
    missed: tuple[datetime, ...] = ()  # not fired
    caught: datetime | None = None  # the tick in `fire` that is fired for all missed ones
    next_at: datetime | None  # the next tick; None: there is none


def due(timing: Timing, next_at: datetime, now: datetime, catch_up: CatchUp) -> Due:
    """Decide about the tick `next_at` and the ticks after it, up to now.

    Ticks in time are fired under every policy; the policy decides about missed ticks. A page that is full of missed
    ticks leaves its last tick to the next page, so that the policy `one` always finds a tick to fire.
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


# Checks of a timing


def parse_timing(
    what: str,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    at: datetime | None = None,
    tz: str | ZoneInfo | None = None,
) -> Timing:
    """A checked timing; every error message begins with `what`."""
    if sum(given is not None for given in (cron, every, at)) != 1:
        raise ScheduleError(f"{what}: give exactly one of cron=, every= and at=")
    if cron is not None:
        zone = _zone_name(what, tz)
        return Timing(cron=_parse_line(what, cron, zone), tz=zone)
    if tz is not None:
        raise ScheduleError(
            f"{what}: a time zone is for a cron line; an interval counts from the epoch, and at= has its own zone"
        )
    if every is not None:
        return Timing(every=_parse_interval(what, every))
    return Timing(at=_check_moment(what, at))


def apply_edit(what: str, timing: Timing, edit: Edit) -> Timing:
    """The timing after an edit. A new cron line keeps the time zone unless the edit has one."""
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
    except Exception as error:  # CronSimError, and what unusual digits raise inside cronsim
        problem = str(error)
        if problem == "Bad day-of-month" and _has_no_such_day(line):
            raise _never_fires_error(what, line) from None
        raise ScheduleError(
            f"{what}: cron {given!r}: {problem[:1].lower()}{problem[1:]}; it has five fields, minute, hour, day of "
            "month, month and day of week, as in '0 3 * * *': at 03:00 every day"
        ) from None
    if Cron(line, zone).after(EPOCH + timedelta(days=20_000)) is None:
        raise _never_fires_error(what, line)
    return line


def _has_no_such_day(line: str) -> bool:
    """Whether the line is valid but for its months, which are too short for its day."""
    fields = line.split()
    fields[-2] = "*"
    try:
        CronSim(" ".join(fields), EPOCH)
    except Exception:
        return False
    return True


def _never_fires_error(what: str, line: str) -> ScheduleError:
    return ScheduleError(f"{what}: cron {line!r} never fires: there is no such day in fifty years; correct its days")


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
    """The known zone with the most similar name: the whole name, or the city."""
    folded = {zone.lower(): zone for zone in sorted(known)}
    cities = {zone.rpartition("/")[2].lower(): zone for zone in sorted(known)}
    wanted = name.lower().replace(" ", "_")
    found = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.8)
    if found:
        return folded[found[0]]
    found = difflib.get_close_matches(wanted.rpartition("/")[2], cities, n=1, cutoff=0.8)
    return cities[found[0]] if found else None
