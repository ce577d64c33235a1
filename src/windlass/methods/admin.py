"""An operator's calls in a program: `app.pause(queue="mail")`, `app.set_budget(…)`; awaited: `app.apause(…)`.

The command line uses the same functions. Wrong arguments are refused here, before the store is asked.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import msgspec

from windlass.blocking import blocking
from windlass.clock import Duration, seconds, spell
from windlass.config import suggest
from windlass.errors import AdmissionError, ConfigError
from windlass.model.admission import WINDOWS, Budget, GateKind, GateState
from windlass.names import name_problem
from windlass.policy.limit import LONGEST_HOLD

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.model.admission import LimitRow
    from windlass.store.protocol import Store

SHORTEST_WINDOW = 1.0  # seconds
MOST_CENTS = 10**15
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1_000_000.0
LONGEST_REASON = 1_000  # characters


class GateName(msgspec.Struct, frozen=True):
    """Which gate is meant; `name` is empty for the gate of everything."""

    kind: GateKind
    name: str = ""

    def __str__(self) -> str:
        return "everything" if self.kind is GateKind.ALL else f"{self.kind} {self.name}"


EVERYTHING = GateName(GateKind.ALL)


ClaimedJobs = Literal["return", "finish"]
"""What a pause means for jobs that a worker has claimed and not started."""


class GateArguments(TypedDict, total=False):
    """How a program names a gate: one of the first four, and a reason."""

    queue: str | None
    type: str | None
    tenant: str | None
    all: bool
    reason: str | None


class Operators:
    """The methods of `Windlass` that pause and resume jobs, set budgets and weights, and wake workers."""

    _client: Client
    _noun = "app"

    # Gates

    async def apause(self, *, claimed: ClaimedJobs = "return", **gate: Unpack[GateArguments]) -> bool:
        """Start no more jobs of a queue, type or tenant: `app.pause(queue="mail", reason="the server moves")`.

        Give one of queue=, type= and tenant=, or all=True. Running jobs finish. Jobs that a worker has claimed and not
        started go back to the queue; with `claimed="finish"` they still run. Workers know within a second. False: it
        was paused in that way already, for the same reason. `app.resume(…)` lets the jobs start again.
        """
        if claimed not in ("return", "finish"):
            raise AdmissionError(f"claimed={claimed!r}: claimed jobs go back ('return') or still run ('finish')")
        return await self._turn(GateState.DRAINING if claimed == "finish" else GateState.PAUSED, gate)

    async def aresume(self, **gate: Unpack[GateArguments]) -> bool:
        """Start jobs of a paused queue, type or tenant again: `app.resume(queue="mail")`. False: it was not paused.

        Give the same name as to `app.pause(…)`. `all=True` resumes the gate of everything and leaves the others as they
        are.
        """
        return await self._turn(GateState.OPEN, gate)

    pause = blocking(apause)
    resume = blocking(aresume)

    async def _turn(self, state: GateState, named: GateArguments) -> bool:
        for name in named:
            if name not in GateArguments.__annotations__:
                raise AdmissionError(f"unknown option {name!r}{suggest(name, GateArguments.__annotations__)}")
        reason = checked_reason(named.get("reason"))
        gate = gate_of(named.get("queue"), named.get("type"), named.get("tenant"), named.get("all", False))
        return await self._client.aask(lambda store: turn(store, gate, state, reason=reason, actor=self._actor))

    # Budgets

    async def aset_budget(
        self, *, tenant: str | None = None, queue: str | None = None, cents: int, per: Duration | None = None
    ) -> None:
        """What a tenant or a queue may cost: `app.set_budget(tenant="acme", cents=500, per="day")`.

        `per` has to be given: hour, day, week, month or a span; windows are counted in UTC. The cost of the current
        window so far counts.
        """
        checked = budget(tenant, queue, cents, per)
        await self._client.aask(lambda store: store.set_budget(checked, actor=self._actor))

    async def adrop_budget(self, *, tenant: str | None = None, queue: str | None = None) -> bool:
        """Remove the budget of a tenant or a queue: `app.drop_budget(tenant="acme")`. False where there was none."""
        kind, name = spender(tenant, queue)
        return await self._client.aask(lambda store: store.drop_budget(kind, name, actor=self._actor))

    set_budget = blocking(aset_budget)
    drop_budget = blocking(adrop_budget)

    # Tenants

    async def aset_weight(self, tenant: str, weight: float) -> None:
        """Set a tenant's weight: `app.set_weight("acme", 3)`.

        Its share of a queue is its weight among the tenants that have jobs there. The default weight is 1.
        """
        check_name("tenant", tenant)
        checked = checked_weight(weight)
        await self._client.aask(lambda store: store.weigh(tenant, checked, actor=self._actor))

    set_weight = blocking(aset_weight)

    # Limits

    async def ahold_back(self, key: str, span: Duration) -> float:
        """Give out no slot or token of a key for a while: `app.hold_back("domain:example.org", "2m")`.

        Running jobs finish. Returns for how many seconds the key is held now: a longer hold stays. A day is the most.
        `app.release(key)` ends it. Raises UnknownLimit.
        """
        length = checked_hold(span)
        return await self._client.aask(lambda store: hold_back(store, key, length, self._actor))

    async def arelease(self, key: str) -> bool:
        """End a hold of a key: `app.release("domain:example.org")`. False: it was not held back.

        Raises UnknownLimit.
        """
        return await self._client.aask(lambda store: release(store, key, self._actor))

    hold_back = blocking(ahold_back)
    release = blocking(arelease)

    # Workers

    async def awake(self, queue: str = "*") -> None:
        """Wake the workers of a queue after your own commit of an enqueue with `conn=`: `app.wake("mail")`.

        Without it they find the job by their next poll, a second later at most. A SQLAlchemy session wakes them itself.
        """
        await self._client.aask(lambda store: store.wake(queue))

    wake = blocking(awake)

    @property
    def _actor(self) -> str:
        return self._client.settings.acting


async def turn(store: Store, gate: GateName, state: GateState, *, reason: str | None, actor: str) -> bool:
    """Open or close a gate; False when it has that state already, and then nothing is written.

    Two operators that make the same change at the same moment may both get True: the second write changes only the
    actor.
    """
    for known in await store.gates():
        if (known.kind, known.name) == (gate.kind, gate.name):
            same = known.state is state and reason in (None, known.reason)
            break
    else:
        same = state is GateState.OPEN
    if not same:
        await store.set_gate(gate.kind, gate.name, state, reason=reason, actor=actor)
    return not same


async def hold_back(store: Store, key: str, span: float, actor: str) -> float:
    """Hold a key back; returns for how many seconds it is held now."""
    refuse_bare_name(key, await store.limits())
    await store.hold_back(key, span, actor=actor)
    return await store.held_for(key)


async def release(store: Store, key: str, actor: str) -> bool:
    from windlass.methods.reads import unknown_key

    released = await store.end_hold(key, actor=actor)
    if not released and not any(row.key == key for row in await store.limits(key)):
        raise await unknown_key(store, key)
    return released


# Checks


def checked_hold(span: Duration) -> float:
    length = seconds(span, what="span")
    if not 0 < length <= LONGEST_HOLD:
        raise AdmissionError(
            f"a hold of {span!r}: it is above 0 and {spell(LONGEST_HOLD)} at most; for longer: app.pause(type=…)"
        )
    return length


def refuse_bare_name(key: str, rows: Sequence[LimitRow]) -> None:
    """Where a limit has a key per value, no job counts against the bare name: a hold of it would have no effect."""
    own = [row.key for row in rows if row.name == key and row.key != key]
    shared = any(row.key == key and (row.used or row.waiting) for row in rows)
    if own and not shared:
        raise AdmissionError(
            f"{key} has a key per value; name one, as in {own[0]} (windlass limits {shlex.join([key])} lists them); "
            "for all of them: windlass gates pause --type …"
        )


def gate_of(queue: str | None, type: str | None, tenant: str | None, all: bool) -> GateName:
    """The one gate that the arguments name."""
    named = {GateKind.QUEUE: queue, GateKind.TYPE: type, GateKind.TENANT: tenant}
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) + bool(all) != 1:
        parts = [f"{kind}=" for kind, _ in given] + ["all=True"] * bool(all)
        what = f"{' and '.join(parts)} are two gates; close one at a time" if parts else "no gate was named"
        raise AdmissionError(f"{what}: give queue=, type= or tenant=, or all=True for everything")
    if all:
        return EVERYTHING
    (kind, name), *_ = given
    check_name(kind, name)
    return GateName(kind, name)


def spender(tenant: str | None, queue: str | None) -> tuple[str, str]:
    """The kind and name of the tenant or queue that has the budget."""
    if (tenant is None) == (queue is None):
        what = "no tenant or queue was named" if tenant is None else "a budget is a tenant's or a queue's, not both"
        raise AdmissionError(f"{what}: give tenant= or queue=")
    kind, name = ("queue", queue) if tenant is None else ("tenant", tenant)
    assert name is not None
    check_name(kind, name)
    return kind, name


def budget(tenant: str | None, queue: str | None, cents: int, per: Duration | None) -> Budget:
    kind, name = spender(tenant, queue)
    if per is None:
        raise AdmissionError(f"a budget without a window; give per=, as in per='day': {_windows()}")
    if isinstance(cents, bool) or not isinstance(cents, int):
        raise AdmissionError(f"a budget of {cents!r}: it is a whole number of cents, such as 500")
    if cents < 0:
        raise AdmissionError(f"a budget of {cents} cents is below zero; 0 lets nothing start")
    if cents > MOST_CENTS:
        raise AdmissionError(f"the budget is more than {MOST_CENTS:,} cents; without any: drop it")
    return Budget(kind=kind, name=name, cents=cents, seconds=window(per))


def window(per: Duration) -> float | None:
    """The length of a budget's window in seconds; None for months."""
    if isinstance(per, str) and per.strip().lower() in WINDOWS:
        return WINDOWS[per.strip().lower()]
    try:
        length = seconds(per, what="per")
    except ConfigError:
        raise AdmissionError(f"per {per!r} is no window: write {_windows()}") from None
    if length < SHORTEST_WINDOW:
        raise AdmissionError(f"per {per!r} is too short a window; {spell(SHORTEST_WINDOW)} is the least")
    return length


def _windows() -> str:
    return f"{', '.join(WINDOWS)}, or a span such as 30m"


def checked_weight(weight: float) -> float:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise AdmissionError(f"a weight of {weight!r}: it is a number, such as 3 or 0.5")
    if not weight > 0 or weight == math.inf:  # NaN is not above anything
        raise AdmissionError(
            f"a weight of {weight!r}: it must be above 0 and finite; to let a tenant start nothing, pause it: "
            "app.pause(tenant=…)"
        )
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise AdmissionError(f"a weight of {weight!r:.30} is not between {LEAST_WEIGHT:g} and {MOST_WEIGHT:,.0f}")
    return float(weight)


def check_name(kind: str, name: object) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise AdmissionError(f"{kind} {problem}")


def checked_reason(reason: str | None) -> str | None:
    if reason is None:
        return None
    stripped = reason.strip() if isinstance(reason, str) else reason
    problem = name_problem(stripped, longest=LONGEST_REASON)
    if problem is not None:
        raise AdmissionError(f"the reason {problem}")
    return stripped
