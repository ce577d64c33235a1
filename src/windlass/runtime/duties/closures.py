"""What is closed, as a worker last heard it: gates, spent budgets, rates that everybody holds back."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from windlass.model.admission import BudgetRow, Closure, GateState
from windlass.model.job import Job
from windlass.runtime.duties.budgets import BudgetCache


class Gates:
    """Read before every start; `closed` is all that this costs while nothing is closed."""

    def __init__(self) -> None:
        self.emptied = False  # a budget was spent by what ended here: others do not know yet
        self._purses = BudgetCache()
        self._heard_at = float("-inf")
        self._known: dict[tuple[str, str, str], Closure] = {}
        self._names: dict[str, frozenset[str]] = {}

    @property
    def closed(self) -> bool:
        """Something keeps jobs that are in memory from starting."""
        return bool(self._names) or bool(self._purses.empty)

    def learn(self, closures: Iterable[Closure], at: float) -> tuple[list[Closure], list[Closure]]:
        """The store's answer, that came at this time of the monotonic clock; returns what closed and what opened."""
        before, self._known = self._known, {_place(closure): closure for closure in closures}
        # What drains is not claimed any more. What a worker has claimed already still runs.
        stopping = [closure for closure in self._known.values() if closure.state != GateState.DRAINING]
        kinds = {closure.kind for closure in stopping}
        self._names = {kind: frozenset(each.name for each in stopping if each.kind == kind) for kind in kinds}
        self._heard_at = at
        closed = [closure for place, closure in self._known.items() if before.get(place) != closure]
        return closed, [closure for place, closure in before.items() if place not in self._known]

    def learn_budgets(self, budgets: Iterable[BudgetRow], held: set[UUID]) -> None:
        """The store's answer, and the jobs that are held here."""
        self._purses.learn(budgets, held)

    @property
    def knows_budgets(self) -> bool:
        return self._purses.known

    def pay(self, job: Job, cents: int) -> None:
        """An attempt of this job ended that has cost something; it is written later."""
        self.emptied |= self._purses.pay(job, cents)

    def stops(self, job: Job, claimed_at: float | None) -> bool:
        """Whether this job must not start.

        A claim looks at the gates itself. One that began after the answer came knows better than the answer; else a
        worker that has not heard yet of an opened gate would claim and give back, again and again.
        """
        if self._purses.stops(job):
            return True
        if claimed_at is not None and claimed_at > self._heard_at:
            return False
        names = self._names
        return (
            "all" in names
            or job.queue in names.get("queue", ())
            or job.type in names.get("type", ())
            or job.tenant in names.get("tenant", ())
            or (job.limits is not None and not names.get("bucket", frozenset()).isdisjoint(job.limits))
        )


def _place(closure: Closure) -> tuple[str, str, str]:
    """A gate stays the same gate when it drains; a budget of the same queue is something else."""
    return (
        ("gate" if closure.state in (GateState.PAUSED, GateState.DRAINING) else closure.state),
        closure.kind,
        closure.name,
    )
