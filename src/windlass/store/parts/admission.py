"""Limits, rates, gates, budgets and tenants, written once for both stores.

Generators of statements (see `statements.py`). Some run in the transaction of a claim or a finish (`release_slots`,
`charge`, `hold_back`), the others in one of their own. Times go in as seconds from now and come back as seconds since
the epoch.

Order of locks: jobs, budgets, limit counters, each sorted. Parked jobs that become claimable again are locked with SKIP
LOCKED. So a transaction that waits for a limit counter holds no lock that the counter's holder could wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from windlass.clock import Clock, spell
from windlass.errors import UnknownLimit
from windlass.model import audit
from windlass.model.admission import (
    APART,
    Budget,
    BudgetRow,
    Closure,
    Gate,
    GateKind,
    GateState,
    Grant,
    LimitRow,
    Rule,
    TenantRow,
    spelled_window,
)
from windlass.model.outcome import Progress, Transition
from windlass.store.parts.messages import WAKE_GATES
from windlass.store.parts.statements import Rows, Statements, run

T = TypeVar("T")

log = logging.getLogger("windlass")

ACQUIRING_AT_ONCE = 2  # calls per process: one waits for the bucket's row while the other commits


class AdmissionPart:
    """The part of a store that decides what may run. The store supplies how statements are run."""

    clock: Clock

    def __init__(self) -> None:
        # A thousand handlers may call acquire at once: claims and finishes still need a free connection.
        self._turn_to_acquire = asyncio.Semaphore(ACQUIRING_AT_ONCE)

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Run the statements in a transaction of their own."""
        raise NotImplementedError

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Run the statements without a transaction: each commits alone."""
        raise NotImplementedError

    async def _run_list(self, what: str, name: str) -> Rows:
        """Run one statement that a person asked for, within `read_timeout`."""
        raise NotImplementedError

    async def wake(self, message: str) -> None:
        raise NotImplementedError

    # Limits and rates

    async def declare(self, rules: Sequence[Rule]) -> None:
        if rules:
            await self._run_in_transaction(lambda: run("declare_limits", sorted(rules, key=lambda rule: rule.name)))

    async def acquire(self, bucket: str, *, most: float) -> Grant:
        asked = 0.0

        def ask() -> Statements[Grant]:
            nonlocal asked
            asked = self.clock.monotonic()
            return (yield from acquire_token(bucket, most))

        async with self._turn_to_acquire:
            grant = await self._run_in_transaction(ask)
        # Another process may have had the bucket's row, and the commit may be slow: `wait` does not begin now.
        return msgspec.structs.replace(grant, age=self.clock.monotonic() - asked)

    async def hold_back(self, bucket: str, seconds: float, *, actor: str | None = None) -> None:
        def hold() -> Statements[None]:
            before = [] if actor is None else (yield from run("hold_left", [bucket]))
            yield from hold_back([(bucket, seconds)])
            if actor is not None and not (before and before[0][0] >= seconds):  # a longer hold stays
                yield from record_subject_action(audit.LIMIT_HELD, actor, f"limit:{bucket}", f"for {spell(seconds)}")

        await self._run_in_transaction(hold)
        await self.wake(WAKE_GATES)

    async def end_hold(self, bucket: str, *, actor: str | None = None) -> bool:
        def end() -> Statements[bool]:
            found = bool((yield from run("end_hold", [bucket])))
            if found:
                yield from run("unpark", [bucket], unparks=True)
                yield from record_subject_action(audit.LIMIT_RELEASED, actor, f"limit:{bucket}", None)
            return found

        found = await self._run_in_transaction(end)
        if found:
            await self.wake(WAKE_GATES)
            await self.wake("*")
        return found

    async def held_for(self, bucket: str) -> float:
        rows = await self._run_one_by_one(lambda: run("hold_left", [bucket]))
        return float(rows[0][0]) if rows else 0.0

    async def record_action(self, action: str, actor: str | None, subject: str, reason: str | None) -> None:
        await self._run_in_transaction(lambda: record_subject_action(action, actor, subject, reason))
        await self.wake(WAKE_GATES)

    async def limits(self, *names: str) -> list[LimitRow]:
        return [_limit_row(row) for row in await self._run_one_by_one(lambda: run("limits", names))]

    # Gates

    async def closures(self) -> list[Closure]:
        rows = await self._run_one_by_one(lambda: run("closures"))
        return [Closure(kind=kind, name=name, state=state) for kind, name, state in rows]

    async def gates(self) -> list[Gate]:
        return [
            Gate(
                kind=GateKind(kind),
                name=name,
                state=GateState(state),
                reason=reason,
                actor=actor,
                since=_time(since),
            )
            for kind, name, state, reason, actor, since in await self._run_one_by_one(lambda: run("gates"))
        ]

    async def set_gate(
        self, kind: GateKind, name: str, state: GateState, *, reason: str | None = None, actor: str | None = None
    ) -> None:
        row = {"kind": kind.value, "name": name, "state": state.value, "reason": reason, "actor": actor}
        subject = kind.value if kind is GateKind.ALL else f"{kind.value}:{name}"

        def set_it() -> Statements[None]:
            yield from run("set_gate", [row])
            yield from record_subject_action(audit.GATES[state], actor, subject, reason)

        await self._run_in_transaction(set_it)
        await self.wake(WAKE_GATES)
        if state is GateState.OPEN:
            await self.wake("*")

    # Budgets

    async def budgets(self) -> list[BudgetRow]:
        return [
            BudgetRow(kind=kind, name=name, cents=cents, seconds=seconds, spent=spent, until=_time(until))
            for kind, name, cents, seconds, spent, until in await self._run_one_by_one(lambda: run("budgets"))
        ]

    async def set_budget(self, budget: Budget, *, actor: str | None = None) -> None:
        new = (budget.kind, budget.name, budget.cents, budget.seconds)
        description = f"{budget.cents} cent{'' if budget.cents == 1 else 's'} per {spelled_window(budget.seconds)}"

        def set_it() -> Statements[None]:
            known = any(tuple(row[:4]) == new for row in (yield from run("budgets")))
            yield from run("set_budget", [budget])
            if not known:
                yield from record_subject_action(audit.BUDGET_SET, actor, f"{budget.kind}:{budget.name}", description)

        await self._run_in_transaction(set_it)
        await self.wake(WAKE_GATES)
        await self.wake("*")

    async def drop_budget(self, kind: str, name: str, *, actor: str | None = None) -> bool:
        def drop_it() -> Statements[bool]:
            found = bool((yield from run("drop_budget", [{"kind": kind, "name": name}])))
            if found:
                yield from record_subject_action(audit.BUDGET_DROPPED, actor, f"{kind}:{name}", None)
            return found

        found = await self._run_in_transaction(drop_it)
        await self.wake(WAKE_GATES)
        await self.wake("*")
        return found

    # Tenants

    async def tenants(self) -> list[TenantRow]:
        names = TenantRow.__struct_fields__
        found = await self._run_list("the tenants", "tenants")
        return [TenantRow(**dict(zip(names, row, strict=True))) for row in found]

    async def weigh(self, tenant: str, weight: float, *, actor: str | None = None) -> None:
        def set_it() -> Statements[None]:
            if (yield from run("set_weight", [{"name": tenant, "weight": weight}])):
                yield from record_subject_action(audit.TENANT_WEIGHED, actor, f"tenant:{tenant}", f"weight {weight:g}")

        await self._run_in_transaction(set_it)


# In the transaction of a transition


def release_slots(held: Iterable[Sequence[str] | None]) -> Statements[None]:
    """Give back the slots that ended attempts held, and make jobs that are parked on their keys claimable again.

    These are two statements. The second has a snapshot of its own, taken after the limit counters are locked: it sees
    the jobs that a claim parked while the first statement waited for its lock.
    """
    counted = Counter(key for keys in held for key in keys or ())
    if counted:
        rows = yield from run("release_slots", [{"key": key, "n": n} for key, n in sorted(counted.items())])
        parked_at = sorted(key for (key,) in rows if key is not None)
        if parked_at:
            yield from run("unpark", parked_at, unparks=True)


def unpark_ready() -> Statements[float | None]:
    """Make jobs claimable that are parked on a key with room.

    Returns the seconds until the first bucket with parked jobs has its next token; None without such a bucket.
    """
    keys, soonest = [], None
    for key, room, wait in (yield from run("parked_keys")):
        if room > 0:
            keys.append(key)
        if wait is not None:
            soonest = wait if soonest is None else min(soonest, wait)
    if keys:
        yield from run("unpark", keys, unparks=True)
    return soonest


def charge(costs: Iterable[Transition | Progress]) -> Statements[None]:
    """Add what attempts cost to job, ledger and budgets, each under its lease; a cost written before counts once."""
    given = [(cost.lease, cost.cost_cents) for cost in costs if cost.cost_cents]
    if given:
        rows = [{"job": lease.job, "token": lease.token, "cents": cents} for lease, cents in given]
        yield from run("charge", sorted(rows, key=lambda row: str(row["job"])))


def hold_back(holds: Iterable[tuple[str, float]], *, strict: bool = True) -> Statements[None]:
    """Give out no token or slot of these keys for so many seconds.

    `strict` raises UnknownLimit for an undeclared key. A transition is not strict: it is written all the same.
    """
    longest: dict[str, float] = {}
    for key, span in holds:
        longest[key] = max(span, longest.get(key, 0.0))
    rows = [{"key": key, "name": key.partition(APART)[0], "seconds": span} for key, span in sorted(longest.items())]
    if not rows:
        return
    yield from run("make_limit_counters", sorted(longest))
    known = {row[0] for row in (yield from run("hold_back", rows))}
    for row in rows:
        if row["key"] in known:
            continue
        if strict:
            raise unknown_limit(str(row["name"]))
        log.warning("Retry(bucket=%r) holds nothing back: %s", row["key"], unknown_limit(str(row["name"])))


def acquire_token(bucket: str, most: float) -> Statements[Grant]:
    """Take one token, for now or for a time that is at most `most` seconds away."""
    rows = yield from run("acquire_token", [{"key": bucket, "most": most}])
    if not rows:  # the key is used for the first time
        yield from run("make_limit_counters", [bucket])
        rows = yield from run("acquire_token", [{"key": bucket, "most": most}])
    if not rows:
        raise unknown_limit(bucket.partition(APART)[0])
    wait, granted = rows[0]
    return Grant(granted=bool(granted), wait=float(wait))


def record_subject_action(action: str, actor: str | None, subject: str, reason: str | None) -> Statements[None]:
    """Write a row of the audit for an operation on something that is no job."""
    yield from run("record_subject_action", [{"action": action, "actor": actor, "subject": subject, "reason": reason}])


def unknown_limit(name: str) -> UnknownLimit:
    return UnknownLimit(
        f"no limit or rate is called {name!r}: no worker that declares it has been started; declare it with "
        f'app.rate("{name}", 5, every="1s") or in a job\'s limits=[…]'
    )


def _limit_row(row: Sequence[Any]) -> LimitRow:
    key, name, most, used, period, burst, free_in, held, waiting = row
    return LimitRow(
        key=key,
        name=name,
        most=most,
        used=used,
        period=period,
        burst=burst,
        free_in=free_in,
        held=held,
        waiting=waiting,
    )


def _time(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)
