"""What may run now, as plain values: rules of limits and rates, gates, budgets, and what a look at them tells.

A *limit* is how many jobs of one key run at a time, a *rate* how many start (or call out) per second; both are declared
as a `Rule` by name, and a job carries the keys it counts against: `domain:example.org`, or the bare name where there is
one key for all. A *gate* is closed by people, a *budget* closes by itself when it is spent.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from windlass.clock import spell

APART = ":"
"""Between a rule's name and the key; a name has none."""

LONGEST_KEY = 200  # characters; a longer one is cut and ends with its hash

WINDOWS: dict[str, float | None] = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0, "month": None}
"""Of a budget, by name, in seconds; a month is as long as it is."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A limit (`most`) or a rate (`period`, `burst`), as a program declares it."""

    name: str
    most: int | None = None  # so many at a time
    period: float | None = None  # seconds from token to token
    burst: int = 1  # so many tokens at most are kept


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a bucket: a token for the time `wait` seconds from now, or none because that is too far away."""

    granted: bool
    wait: float


class GateKind(StrEnum):
    """What a gate is for."""

    ALL = "all"
    QUEUE = "queue"
    TYPE = "type"
    TENANT = "tenant"


class GateState(StrEnum):
    """Closed is whatever is not open."""

    OPEN = "open"
    PAUSED = "paused"  # nothing starts; what waits in a worker's memory goes back
    DRAINING = "draining"  # nothing is claimed; what a worker has claimed already still runs


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that somebody touched."""

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
    seconds: float | None  # windows of so many seconds, counted from the epoch (UTC); None: calendar months


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A budget and what is left of it."""

    kind: str
    name: str
    cents: int
    seconds: float | None
    spent: int  # in the window that is now
    until: datetime  # when the next window begins


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key in use: a limit's slots, or a rate's bucket."""

    key: str
    name: str
    most: int | None
    used: int  # slots; of a rate: tokens that are gone
    period: float | None
    burst: int
    free_in: float  # seconds until there may be room: 0 where there is; of a limit that is full: 0 as well
    waiting: int  # jobs that are parked on it
    held: float = 0.0  # seconds for which everybody holds back


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant: its weight, its jobs, and what it cost in the last 24 hours."""

    name: str
    weight: float
    queued: int  # due or not, and failed ones that come back
    running: int
    parked: int  # of the queued: at a limit
    lag: float | None  # seconds since its oldest due job could have started
    cents: int


class Closure(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that keeps jobs from starting, as the coordinator needs it."""

    kind: str  # all, queue, type, tenant; `bucket` for a rate that everybody holds back
    name: str
    state: str  # paused, draining, spent, held


def key_of(name: str, value: str | None) -> str:
    """The key a job counts against: the rule's name, with the value where keys differ."""
    if value is None:
        return name
    return f"{name}{APART}{value}"


def spelled_window(length: float | None) -> str:
    """`day`, or how long it is."""
    names = {seconds: name for name, seconds in WINDOWS.items()}
    return names[length] if length in names else spell(length or 0.0)
