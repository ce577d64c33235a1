"""Which jobs may start now, as plain values: rules of limits and rates, gates, budgets, and the rows that list them.

A *limit* is how many jobs of one key run at a time, a *rate* how many start (or call out) per second. Both are declared
as a `Rule` by name. A job carries the keys it counts against: `domain:example.org`, or the bare name of a rule with one
key for all jobs. An operator closes a *gate*; a *budget* closes by itself when it is spent.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from windlass.clock import spell

APART = ":"
"""Between a rule's name and the value; no name contains it."""

LONGEST_KEY = 200  # characters; a longer key is cut and ends with its hash

WINDOWS: dict[str, float | None] = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0, "month": None}
"""The windows of a budget by name, in seconds; None: a calendar month."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A limit (`most`) or a rate (`period`, `burst`), as a program declares it."""

    name: str
    most: int | None = None  # jobs that may run at a time
    period: float | None = None  # seconds from token to token
    burst: int = 1  # tokens that a bucket can hold


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a bucket: a token that is valid `wait` seconds from now, or none because that is too long."""

    granted: bool
    wait: float


class GateKind(StrEnum):
    """Which jobs a gate is for."""

    ALL = "all"
    QUEUE = "queue"
    TYPE = "type"
    TENANT = "tenant"


class GateState(StrEnum):
    """The states of a gate; every state but OPEN is closed."""

    OPEN = "open"
    PAUSED = "paused"  # no job starts; jobs in a worker's memory are released
    DRAINING = "draining"  # no job is claimed; claimed jobs still run


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that was opened or closed at least once."""

    kind: GateKind
    name: str  # empty for `all`
    state: GateState
    reason: str | None = None
    actor: str | None = None
    since: datetime


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of a tenant or queue may cost per window."""

    kind: str  # tenant or queue
    name: str
    cents: int
    seconds: float | None  # length of a window, counted from the epoch (UTC); None: calendar months


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A budget and what is left of it."""

    kind: str
    name: str
    cents: int
    seconds: float | None
    spent: int  # in the current window
    until: datetime  # when the next window begins


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key in use: a limit's slots, or a rate's bucket."""

    key: str
    name: str
    most: int | None
    used: int  # slots; of a rate: tokens that were taken
    period: float | None
    burst: int
    free_in: float  # seconds until a token is free; 0 when one is, and always 0 for a limit
    waiting: int  # jobs that are parked on the key
    held: float = 0.0  # seconds for which the rate is held back


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant: its weight, its jobs, and what it cost in the last 24 hours."""

    name: str
    weight: float
    queued: int  # due or not, and failed jobs that are retried
    running: int
    parked: int  # of the queued jobs: parked at a limit
    lag: float | None  # seconds since its oldest due job could have started
    cents: int


class Closure(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for which jobs may not start, as the coordinator needs it."""

    kind: str  # all, queue, type, tenant; `bucket` for a rate that is held back
    name: str
    state: str  # paused, draining, spent, held


def key_of(name: str, value: str | None) -> str:
    """The key that a job counts against: the rule's name, with the value if the rule has a key per value."""
    if value is None:
        return name
    return f"{name}{APART}{value}"


def spelled_window(length: float | None) -> str:
    """The name of a window, such as `day`, or its length."""
    names = {seconds: name for name, seconds in WINDOWS.items()}
    return names[length] if length in names else spell(length or 0.0)
