"""The SQL functions that every connection has: room of a limit counter, windows of a budget, a job's attempts.

Times are microseconds since the epoch. PostgreSQL has functions of the same names.
"""

from __future__ import annotations

import math
from itertools import zip_longest

import msgspec

from windlass.model.job import Failure
from windlass.store.parts.rescue import CRASH
from windlass.store.sqlite.rows import micros, moment, span

UNLIMITED = 1_000_000
"""The room of a key that no program declared."""

REMEMBERED = 100
"""Attempts kept on a job: one that snoozes for a year must not grow without end."""

ALMOST = 1e-6  # of a token: the error that a float may have


def room(
    most: int | None,
    used: int,
    period: float | None,
    burst: int,
    next_at: int,
    held_until: int | None,
    now: int,
) -> int:
    """How many slots or tokens a limit counter has now."""
    if held_until is not None and held_until > now:
        return 0
    if period is not None:
        return min(burst, max(0, math.floor(burst - (next_at - now) / (period * 1_000_000) + ALMOST)))
    return UNLIMITED if most is None else max(0, most - used)


def token_at(period: float | None, burst: int, next_at: int, held_until: int | None, now: int) -> int:
    """When a bucket has its next token: now, or later. For a concurrency limit: when its hold ends."""
    token = now if period is None else next_at - span((burst - 1) * period)
    return max(token, held_until or now, now)


def window_end(seconds: float | None, now: int) -> int:
    """The end of the current window, in UTC; a month where `seconds` is None."""
    if seconds is None:
        year, month = _month(now)
        return micros(moment(0).replace(year=year + month // 12, month=month % 12 + 1))
    return (now // span(seconds) + 1) * span(seconds)


def window_begin(seconds: float | None, now: int) -> int:
    """The beginning of the current window."""
    if seconds is None:
        year, month = _month(now)
        return micros(moment(0).replace(year=year, month=month))
    return now // span(seconds) * span(seconds)


def _month(now: int) -> tuple[int, int]:
    today = moment(now)
    return today.year, today.month


def rfc3339(value: int | None) -> str | None:
    """A stored time as text for JSON, always with six digits and in UTC."""
    return None if value is None else moment(value).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def remember(attempts: str | None, entry: str | None) -> str | None:
    """`attempts` with `entry` at its end; the oldest beyond REMEMBERED are dropped."""
    if entry is None:
        return attempts
    past = _past(attempts)
    return msgspec.json.encode([*past, msgspec.Raw(entry.encode())][-REMEMBERED:]).decode()


def _past(attempts: str | None) -> list[msgspec.Raw]:
    """The attempts so far. A value of another shape was not written by Windlass: it is kept as the first of them."""
    if attempts is None:
        return []
    try:
        return msgspec.json.decode(attempts, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return [msgspec.Raw(attempts.encode())]
    except msgspec.DecodeError:  # no JSON at all
        return [msgspec.Raw(msgspec.json.encode(attempts))]


def crash(attempt: int, now: int) -> str:
    """The error that a rescue writes for an attempt that ended with its worker."""
    type, message = CRASH
    failure = Failure(
        type=type,
        message=message,
        attempt=attempt,
        attempted_at=moment(now),
    )
    return msgspec.json.encode(failure).decode()


def add_up(one: str, other: str) -> str:
    """Two histograms, added up."""
    return msgspec.json.encode(sum_lists(msgspec.json.decode(one), msgspec.json.decode(other))).decode()


def sum_lists(one: list[int], other: list[int]) -> list[int]:
    return [a + b for a, b in zip_longest(one, other, fillvalue=0)]


class Total:
    """The aggregate sum_of_histograms(). SQLite has a total() of its own."""

    def __init__(self) -> None:
        self._sum: list[int] = []

    def step(self, histogram: str, /) -> None:
        self._sum = sum_lists(self._sum, msgspec.json.decode(histogram))

    def finalize(self) -> str:
        return msgspec.json.encode(self._sum).decode()


FUNCTIONS = (
    ("add_up", 2, add_up),
    ("remember", 2, remember),
    ("crash", 2, crash),
    ("rfc3339", 1, rfc3339),
    ("room", 7, room),
    ("token_at", 5, token_at),
    ("window_begin", 2, window_begin),
    ("window_end", 2, window_end),
)
