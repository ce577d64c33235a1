"""What a store does for the delivery through a broker: the outbox, and claims by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from windlass.model.delivery import DeliveredClaim, DeliveryMode, LeasedOutbox, UndeliveredAction

if TYPE_CHECKING:
    from windlass.store.protocol import Claim


class DeliveryStore(Protocol):
    """Part of `store.protocol.Store`."""

    async def delivery(self) -> DeliveryMode | None:
        """How jobs reach a broker; None: no broker carries them, and no trigger writes an outbox."""
        ...

    async def set_delivery(self, mode: DeliveryMode | None) -> bool:
        """Make or drop the triggers that write the outbox; False when nothing had to change.

        On PostgreSQL it waits for the table's lock only in short tries, so that no writer waits behind it for longer
        than a moment. None also empties the outbox.
        """
        ...

    async def lease_outbox(self, most: int, lease: float) -> LeasedOutbox:
        """Lease up to `most` due rows for `lease` seconds, in order of time; a row that is leased is not leased again.

        Rows whose job is not claimable any more are deleted. Rows that wait for a gate, or for a worker that knows
        the type, are leased when that has come.
        """
        ...

    async def settle_outbox(self, sent: Collection[int], unsent: Collection[int], *, delay: float = 0.0) -> None:
        """Delete the rows that the broker confirmed; give the others back, due after `delay` seconds."""
        ...

    async def claim_delivered(self, claim: Claim, jobs: Sequence[UUID]) -> DeliveredClaim:
        """Lease these very jobs, where they may be claimed now; gates, budgets, limits and rates hold as in `claim`.

        Every other one has its reason. What can be claimed later is put back into the outbox by the same transaction,
        so that what lets it in delivers it again.
        """
        ...

    async def undelivered(self, *, older: float, action: UndeliveredAction, page: int = 500) -> int:
        """Publish again, or bury, the jobs that have been due and unclaimed for over `older` seconds; returns how many.

        Jobs that are parked, closed off by a gate or a budget, or of a type that no live worker knows, are left out:
        they wait for another reason. Every page is a transaction of its own, and each job is seen once.
        """
        ...

    async def outbox_size(self, most: int) -> tuple[int, float | None]:
        """Rows that are due, counted up to `most`, and the seconds since the oldest of them was due."""
        ...
