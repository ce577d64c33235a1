"""SQL functions of admission: how much room a turnstile has, and where a budget's window begins and ends.

Times are microseconds since the epoch. PostgreSQL has functions of the same names.
"""

from __future__ import annotations

import math

from windlass.store.sqlite.rows import micros, moment, span

UNLIMITED = 1_000_000
"""The room of a key that nobody declared."""

ALMOST = 1e-6  # of a token: what a float may lose


def room(
    most: int | None,
    used: int,
    period: float | None,
    burst: int,
    next_at: int,
    held_until: int | None,
    now: int,
) -> int:
    """How many slots or tokens a turnstile has now."""
    if held_until is not None and held_until > now:
        return 0
    if period is not None:
        return min(burst, max(0, math.floor(burst - (next_at - now) / (period * 1_000_000) + ALMOST)))
    return UNLIMITED if most is None else max(0, most - used)


def token_at(period: float | None, burst: int, next_at: int, held_until: int | None, now: int) -> int:
    """When a bucket's next token is there: now, or later. Of a limit: when nobody holds back any more."""
    token = now if period is None else next_at - span((burst - 1) * period)
    return max(token, held_until or now, now)


def window_end(seconds: float | None, now: int) -> int:
    """The end of the window that is now, in UTC; a month where `seconds` is None."""
    if seconds is None:
        year, month = _month(now)
        return micros(moment(0).replace(year=year + month // 12, month=month % 12 + 1))
    return (now // span(seconds) + 1) * span(seconds)


def window_begin(seconds: float | None, now: int) -> int:
    """The beginning of the window that is now."""
    if seconds is None:
        year, month = _month(now)
        return micros(moment(0).replace(year=year, month=month))
    return now // span(seconds) * span(seconds)


def _month(now: int) -> tuple[int, int]:
    today = moment(now)
    return today.year, today.month


FUNCTIONS = (
    ("room", 7, room),
    ("token_at", 5, token_at),
    ("window_begin", 2, window_begin),
    ("window_end", 2, window_end),
)
