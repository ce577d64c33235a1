"""What this worker holds: every lease it was given and has not settled, and the attempts that run under them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.job import Job

if TYPE_CHECKING:
    from windlass.runtime.processor import Attempt


class Leases:
    """Held leases by job, with the moment of their claim on the monotonic clock."""

    def __init__(self) -> None:
        self._claimed: dict[UUID, float] = {}
        self.attempts: dict[UUID, Attempt] = {}

    def take(self, jobs: Iterable[Job], at: float) -> None:
        for job in jobs:
            self._claimed[job.id] = at

    def claimed_at(self, job: UUID) -> float:
        return self._claimed[job]

    def holds(self, job: UUID) -> bool:
        return job in self._claimed

    def settle(self, jobs: Iterable[UUID]) -> None:
        """These are written, or lost: they are nobody's business here any more."""
        for job in jobs:
            self._claimed.pop(job, None)

    def drop_all(self) -> list[Attempt]:
        """Every lease is gone; the attempts that still run are to be stopped."""
        self._claimed.clear()
        return list(self.attempts.values())

    def __len__(self) -> int:
        return len(self._claimed)
