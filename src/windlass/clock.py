"""Time: durations as users write them, and the clocks of a process.

Every component is given its clock; only tests replace it. Decisions about jobs use the *store's* clock (the
database's); the clock here paces loops and measures spans of time in this process.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol

from windlass.errors import ConfigError

HINT = "write it like '10s', '5m', '1h30m', '250ms', as seconds or as a timedelta"

Duration = timedelta | int | float | str

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.ASCII)
LONGEST = timedelta(days=36_500).total_seconds()


class Clock(Protocol):
    """The time functions that the runtime uses."""

    def now(self) -> datetime:
        """The wall clock, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait(clock: Clock, event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or until that many seconds of this clock have passed."""
    if event.is_set() or seconds == 0:
        await asyncio.sleep(0)
        return
    if seconds is None:
        await event.wait()
        return
    if isinstance(clock, SystemClock):  # the same as below with one timer instead of two tasks
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        return
    waiters = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))}
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)


def is_duration(text: str) -> bool:
    """Whether a text is written like a duration, such as `10s` or `1h30m`."""
    return PART.sub("", text.strip()) == "" and bool(text.strip())


def seconds(value: Duration, *, what: str = "duration") -> float:
    """`value` in seconds; refuses a value that is negative, infinite or no duration."""
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, bool):
        raise ConfigError(f"{what}: {value!r} is not a duration; {HINT}")
    elif isinstance(value, (int, float)):
        result = float(value)
    elif isinstance(value, str):
        result = _parse(value, what)
    else:
        raise ConfigError(f"{what}: {value!r} is not a duration; {HINT}")
    if not math.isfinite(result) or result < 0:
        raise ConfigError(f"{what}: {value!r} is negative or not finite; {HINT}")
    if result > LONGEST:
        raise ConfigError(f"{what}: {value!r} is longer than a hundred years; {HINT}")
    return result


def _parse(text: str, what: str) -> float:
    stripped = text.strip()
    try:
        return float(stripped)
    except ValueError:
        pass
    parts = PART.findall(stripped)
    if not parts or PART.sub("", stripped).strip():
        raise ConfigError(f"{what}: {text!r} is not a duration; {HINT}")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def seconds_from_now(value: Duration, *, what: str) -> float:
    """As `seconds`, and an HTTP date as well: a `Retry-After` is either. A date that has passed is now.

    The date is compared with this machine's clock: the server that sent it is not the database.
    """
    if isinstance(value, str) and "," in value:  # "Wed, 18 Nov 2026 16:30:00 GMT"; no duration has a comma
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            raise ConfigError(f"{what}: {value!r} is neither a duration nor an HTTP date; {HINT}") from None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)  # -0000 means UTC without a place
        return seconds(max(0.0, (at - datetime.now(UTC)).total_seconds()), what=what)
    return seconds(value, what=what)


def spell(value: float) -> str:
    """Seconds as a user would write them: 90.0 → `1m30s`."""
    if value < 1:
        return f"{value * 1000:.0f}ms"
    pieces: list[str] = []
    rest = round(value, 3)
    for unit in ("d", "h", "m"):
        whole, rest = divmod(rest, UNITS[unit])
        if whole:
            pieces.append(f"{whole:.0f}{unit}")
    if rest or not pieces:
        pieces.append(f"{rest:g}s")
    return "".join(pieces)


def format_span(seconds: float) -> str:
    """A duration in one unit: `45s`, `12m`, `30h`, `9d`."""
    seconds = max(0.0, seconds)
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.0f}{unit}" if seconds >= 1 else ("0s" if seconds == 0 else "<1s")
    return f"{seconds / 86_400:.0f}d"


def in_words(seconds: float, *, coarse: bool = False) -> str:
    """A duration for a sentence: `420 ms`, `6.2 s`, `38 s`, `7 m 52 s`, `3 h 12 m`, `2 d 4 h`; coarse: `7 m`, `3 h`.

    Its spaces do not break, so that no line ends between a number and its unit.
    """
    seconds = max(0.0, seconds)
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if seconds < 0.9995:
        text = f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "0 s"
    elif seconds < 9.95:
        text = f"{round(seconds, 1):g} s"
    elif days:
        text = f"{days:,} d" + (f" {hour} h" if hour and not coarse else "")
    elif hours:
        text = f"{hours} h" + (f" {minute:02} m" if minute and not coarse else "")
    elif minutes:
        text = f"{minutes} m" + (f" {second:02} s" if second and not coarse else "")
    else:
        text = f"{second} s"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def to_local(moment: datetime) -> datetime:
    """The moment in this machine's time zone; unchanged at the ends of the calendar, where no zone can show it."""
    try:
        return moment.astimezone()
    except (OverflowError, ValueError):
        return moment
