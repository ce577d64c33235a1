"""What this worker holds: every lease that it was given and has not finished, and the executions under them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.model.job import Job, Lease
from windlass.model.outcome import Transition
from windlass.model.state import Verb

if TYPE_CHECKING:
    from windlass.runtime.processor import Execution


class Leases:
    """Held leases, with two moments of their claim on the monotonic clock: it was sent, and its answer came.

    The store leased the jobs between the two. What must not be too late counts from the first, and what must not be
    too early from the second.

    Compared by token: after a lost lease this worker may hold the same job again, and what is left of the old lease
    must not count for the new one.
    """

    def __init__(self) -> None:
        self._claimed: dict[UUID, tuple[Job, float, float]] = {}  # by the job's id: as it was claimed, sent, answered
        self.executions: dict[UUID, Execution] = {}  # by the job's id

    def take(self, jobs: Iterable[Job], sent: float, answered: float) -> None:
        for job in jobs:
            self._claimed[job.id] = (job, sent, answered)

    def sent_at(self, lease: Lease) -> float | None:
        """When the claim of this very lease was sent; None when it is not held any more."""
        held = self._claimed.get(lease.job)
        return held[1] if held is not None and held[0].token == lease.token else None

    def answered_at(self, lease: Lease) -> float | None:
        """When this very lease arrived here; None when it is not held any more."""
        held = self._claimed.get(lease.job)
        return held[2] if held is not None and held[0].token == lease.token else None

    def holds(self, lease: Lease) -> bool:
        held = self._claimed.get(lease.job)
        return held is not None and held[0].token == lease.token

    def forget(self, leases: Iterable[Lease]) -> None:
        """These are written, or lost."""
        for lease in leases:
            if self.holds(lease):
                del self._claimed[lease.job]

    def known(self) -> set[UUID]:
        """The jobs held now."""
        return set(self._claimed)

    def drop_all(self) -> list[Job]:
        """Every lease is gone: the jobs that were held."""
        dropped = [job for job, _, _ in self._claimed.values()]
        self._claimed.clear()
        return dropped

    def __len__(self) -> int:
        return len(self._claimed)


def release_unstarted(job: Job, *, delay: float | None = None) -> Transition:
    """The release of a job that was never started: it keeps its place, and no attempt is burned."""
    return Transition(
        lease=job.lease,
        verb=Verb.RELEASE,
        delay=delay,
        attempt=job.attempt - 1,
        crashes=job.crashes,
        total=job.total,
        processed=job.processed,
        failed=job.failed,
        cost_cents=job.cost_cents,
        limited=bool(job.limits),
    )
