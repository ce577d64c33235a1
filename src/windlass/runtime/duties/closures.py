"""What is closed, as a worker last read it: gates, spent budgets, and rates that are held back."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from windlass.model.admission import BudgetRow, Closure, GateState
from windlass.model.job import Job
from windlass.runtime.duties.budgets import BudgetCache


class Closures:
    """Read before every start; `anything_closed` is all that this costs while nothing is closed."""

    def __init__(self) -> None:
        self._newly_spent = False  # a budget was spent by attempts of this worker: others do not know yet
        self._budgets = BudgetCache()
        self._read_at = float("-inf")
        self._known: dict[tuple[str, str, str], Closure] = {}
        self._names: dict[str, frozenset[str]] = {}

    @property
    def anything_closed(self) -> bool:
        """Whether something keeps jobs that are in memory from starting."""
        return bool(self._names) or bool(self._budgets.spent)

    def learn(self, closures: Iterable[Closure], at: float) -> tuple[list[Closure], list[Closure]]:
        """The store's answer, which came at this time of the monotonic clock; returns what closed and what opened."""
        before, self._known = self._known, {_place(closure): closure for closure in closures}
        # Jobs of a draining gate are not claimed any more. What a worker has claimed already still runs.
        stopping = [closure for closure in self._known.values() if closure.state != GateState.DRAINING]
        kinds = {closure.kind for closure in stopping}
        self._names = {kind: frozenset(each.name for each in stopping if each.kind == kind) for kind in kinds}
        self._read_at = at
        closed = [closure for place, closure in self._known.items() if before.get(place) != closure]
        return closed, [closure for place, closure in before.items() if place not in self._known]

    def learn_budgets(self, budgets: Iterable[BudgetRow], held: set[UUID]) -> None:
        """The store's answer, and the jobs that are held here."""
        self._budgets.learn(budgets, held)

    @property
    def knows_budgets(self) -> bool:
        return self._budgets.known

    def charge(self, job: Job, cents: int) -> None:
        """An attempt of this job ended that has cost something; the cost is written later."""
        self._newly_spent |= self._budgets.charge(job, cents)

    def take_newly_spent(self) -> bool:
        """Whether attempts of this worker spent a budget since the last call."""
        newly_spent, self._newly_spent = self._newly_spent, False
        return newly_spent

    def stops(self, job: Job, claimed_at: float | None) -> bool:
        """Whether this job must not start.

        A claim reads the gates itself. A claim that began after the answer came knows better than the answer; else a
        worker that has not read yet that a gate opened would claim and release, again and again.
        """
        if self._budgets.stops(job):
            return True
        if claimed_at is not None and claimed_at > self._read_at:
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
