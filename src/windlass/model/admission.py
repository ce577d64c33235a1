"""Which jobs may start now, as plain values: rules of limits and rates, gates, budgets, and the rows that list them.

A *limit* is how many jobs of one key run at a time, a *rate* how many start (or call out) per second. Both are declared
as a `Rule` by name. A job carries the keys it counts against: `domain:example.org`, or the bare name of a rule with one
key for all jobs. An operator closes a *gate*; a *budget* closes by itself when it is spent.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from enum import StrEnum

import msgspec

from windlass.clock import spell

APART = ":"
"""Between a rule's name and the value; no name contains it."""

EVEN = 1e-6  # seconds by which a whole number of periods may differ from one second
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
    """The answer of a bucket: a token that is valid after `wait` seconds, or none because that is too long."""

    granted: bool
    wait: float
    age: float = 0.0  # seconds of `wait` that have passed


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

    @property
    def is_closed(self) -> bool:
        """Whether no job of it starts."""
        return self.state is not GateState.OPEN

    def describe(self) -> str:
        """`queue mail is paused by ann: the server moves`."""
        what = "everything" if self.kind is GateKind.ALL else f"{self.kind} {self.name}"
        by, why = f" by {self.actor}" if self.actor else "", f": {self.reason}" if self.reason else ""
        state = "draining, paused" if self.state is GateState.DRAINING else self.state.value
        return f"{what} is {state}{by}{why}"


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

    @property
    def left(self) -> int:
        """The cents left in the current window."""
        return max(0, self.cents - self.spent)

    @property
    def is_spent(self) -> bool:
        """Whether no job of it starts until the next window."""
        return self.spent >= self.cents


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

    @property
    def capacity(self) -> int | None:
        """The slots of a limit, or the tokens that a rate's bucket can hold; None: no limit now."""
        return self.most if self.period is None else self.burst

    @property
    def room_in(self) -> float:
        """Seconds until there may be room; 0: now, or when a job ends."""
        return max(self.free_in, self.held)

    @property
    def is_full(self) -> bool:
        """Whether no job with this key may start now."""
        if self.held > 0:
            return True
        return self.free_in > 0 if self.period is not None else self.most is not None and self.used >= self.most

    def describe_rule(self) -> str:
        """`2 at a time`, `5 per second`, `1 per 10s, 3 at once`."""
        if self.period is None:
            return "no limit now" if self.most is None else f"{self.most} at a time"
        count = round(1 / self.period)
        even = count > 1 and abs(count * self.period - 1) < EVEN
        spaced = f"{count:,} per second" if even else f"1 per {spell(self.period)}"
        return spaced + (f", {self.burst} at once" if self.burst > 1 else "")

    def describe_use(self) -> str:
        """The slots that are taken, `2 of 2`; for a rate the tokens, `3 left of 5`."""
        if self.period is not None:
            return f"{self.burst - self.used} left of {self.burst}"
        return str(self.used) if self.most is None else f"{self.used} of {self.most}"

    def describe_room(self) -> str:
        """When the next job may start."""
        if self.held > 0:
            return f"held back for {spell(round_seconds(self.held))}"
        if self.period is not None:
            return f"in {spell(round_seconds(self.free_in))}" if self.free_in > 0 else "now"
        return "when one ends" if self.is_full else "now"


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant: its weight, its jobs, and what it cost in the last 24 hours. A number above `counted` means: more."""

    name: str
    weight: float
    queued: int  # due or not, and failed jobs that are retried
    running: int
    parked: int  # of the queued jobs: parked at a limit
    lag: float | None  # seconds since its oldest due job could have started
    cents: int
    due: int = 0  # of the queued jobs: those that could start now, parked ones included
    counted: int = 10_000  # the most jobs that were counted for a number: fewer in a list of more than four lanes


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


def round_seconds(seconds: float) -> float:
    """Rounded to a tenth of a second below ten seconds, and to a second above."""
    return round(seconds, 1) if 1 <= seconds < 10 else float(round(seconds)) if seconds >= 10 else seconds


def resume_command(kind: str, name: str) -> str:
    """The command that resumes a paused gate."""
    return "windlass gates resume --all" if kind == "all" else f"windlass gates resume --{kind} {shlex.quote(name)}"
