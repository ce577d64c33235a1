"""The admission of a store: what may run. `store/parts/admission.py` implements this once for both stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windlass.model.admission import (
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
)
from windlass.model.job import Job


class AdmissionStore(Protocol):
    """Limits, rates, gates, budgets and tenants."""

    async def declare(self, rules: Sequence[Rule]) -> None:
        """Write a program's limits and rates, before its worker claims; the last declaration of a name counts."""
        ...

    async def acquire(self, bucket: str, *, most: float) -> Grant:
        """Take a token of a rate that is free in at most `most` seconds; the caller waits until then before it uses it.

        Raises UnknownLimit when no limit or rate of that name was declared.
        """
        ...

    async def hold_back(self, bucket: str, seconds: float, *, actor: str | None = None) -> None:
        """Give out no token (or slot) of this key for so many seconds; a longer hold stays. Raises UnknownLimit.

        The hold of an `actor` is recorded in the audit, that of a handler is not.
        """
        ...

    async def end_hold(self, bucket: str, *, actor: str | None = None) -> bool:
        """End the hold of this key, with a row of the audit; False where there was none.

        A rate goes on with its next token, which may be as far away as a whole bucket takes to fill: when the last
        token was taken is no longer known, and the rate must not be exceeded.
        """
        ...

    async def held_for(self, bucket: str) -> float:
        """For how many more seconds this key is held back; 0 where it is not."""
        ...

    async def record_action(self, action: str, actor: str | None, subject: str, reason: str | None) -> None:
        """Write a row of the audit for what was done outside of the store: a hold of a rate that is in Redis."""
        ...

    async def closures(self) -> list[Closure]:
        """Everything that keeps jobs from starting now: closed gates, spent budgets, buckets that are held back."""
        ...

    async def gates(self) -> list[Gate]:
        """Every gate that an operator ever set, closed ones first."""
        ...

    async def set_gate(
        self, kind: GateKind, name: str, state: GateState, *, reason: str | None = None, actor: str | None = None
    ) -> None:
        """Open or close a gate, with a row of the audit; workers are notified at once, and know it within a second."""
        ...

    async def limits(self, *names: str) -> list[LimitRow]:
        """The keys in use, those with most parked jobs first; with names, only those of these names or keys."""
        ...

    async def holders(self, key: str, *, page: int = 50) -> list[Job]:
        """The running jobs that hold a slot of this key, those that hold it longest first."""
        ...

    async def waiters(self, key: str, *, page: int = 50) -> list[Job]:
        """The jobs that are parked on this key, in the order in which they become claimable."""
        ...

    async def budgets(self) -> list[BudgetRow]: ...

    async def set_budget(self, budget: Budget, *, actor: str | None = None) -> None:
        """Set or change a budget. What the current window has cost already counts."""
        ...

    async def drop_budget(self, kind: str, name: str, *, actor: str | None = None) -> bool:
        """Delete a budget; False where there was none."""
        ...

    async def tenants(self) -> list[TenantRow]: ...

    async def weigh(self, tenant: str, weight: float, *, actor: str | None = None) -> None:
        """Set a tenant's weight. Its share of a queue is its weight among tenants with jobs there; 1 by default."""
        ...
