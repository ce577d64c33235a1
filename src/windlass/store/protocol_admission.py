"""What is asked of a store about admission. `store/parts/admission.py` answers it once for both of them."""

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
        """Make a program's limits and rates known, before its worker claims: the last to declare a name is right."""
        ...

    async def acquire(self, bucket: str, *, most: float) -> Grant:
        """A token of a rate, in at most `most` seconds: the caller waits so long before it does what the token is for.

        Raises UnknownLimit when nothing of that name was declared.
        """
        ...

    async def hold_back(self, bucket: str, seconds: float, *, actor: str | None = None) -> None:
        """Nobody gets a token (or a slot) of this key for so long; a longer hold stays. Raises UnknownLimit.

        What an `actor` holds back has a row of the audit, what a handler does has none.
        """
        ...

    async def end_hold(self, bucket: str, *, actor: str | None = None) -> bool:
        """Nobody holds back any more, with a row of the audit; False where nobody did.

        A rate goes on with its next token, which may be as far away as a whole bucket takes to fill: when the last one
        was taken is not known any more, and the rate must hold.
        """
        ...

    async def held_for(self, bucket: str) -> float:
        """For how many more seconds everybody holds back; 0 where nobody does."""
        ...

    async def closures(self) -> list[Closure]:
        """Everything that keeps jobs from starting now: closed gates, spent budgets, buckets that are held back."""
        ...

    async def gates(self) -> list[Gate]:
        """Every gate that somebody touched, closed ones first."""
        ...

    async def set_gate(
        self, kind: GateKind, name: str, state: GateState, *, reason: str | None = None, actor: str | None = None
    ) -> None:
        """Open or close a gate, with a row of the audit; workers are told at once, and know it within a second."""
        ...

    async def limits(self, name: str | None = None) -> list[LimitRow]:
        """The keys in use, those with most jobs waiting first; of one name, or one key, where it is given."""
        ...

    async def holders(self, key: str, *, page: int = 50) -> list[Job]:
        """The running jobs that hold a slot of this key, the longest first."""
        ...

    async def waiters(self, key: str, *, page: int = 50) -> list[Job]:
        """The jobs that are parked on this key, in the order in which they will be let in."""
        ...

    async def budgets(self) -> list[BudgetRow]: ...

    async def set_budget(self, budget: Budget, *, actor: str | None = None) -> None:
        """Set or change a budget. What the current window has cost already counts."""
        ...

    async def drop_budget(self, kind: str, name: str, *, actor: str | None = None) -> bool:
        """Forget a budget; False where there was none."""
        ...

    async def tenants(self) -> list[TenantRow]: ...

    async def weigh(self, tenant: str, weight: float, *, actor: str | None = None) -> None:
        """A tenant's share of a queue is its weight among those who have jobs there; 1 where none was given."""
        ...
