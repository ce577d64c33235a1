"""What budgets have left, as a worker knows it: the store's last answer, less what its own attempts have cost since.

A claim reads what is committed. Jobs that wait in memory start faster than that: without this, a hundred of them may
have begun before the first one's cost is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from windlass.model.admission import BudgetRow
from windlass.model.job import Job

BudgetKey = tuple[str, str]
"""Kind (tenant or queue) and name."""


class BudgetCache:
    """Read before every start while a budget is spent."""

    def __init__(self) -> None:
        self.spent: frozenset[BudgetKey] = frozenset()
        self._left: dict[BudgetKey, int] = {}  # cents
        self._unwritten: dict[UUID, tuple[Job, int]] = {}

    @property
    def known(self) -> bool:
        return bool(self._left)

    def learn(self, budgets: Iterable[BudgetRow], held: set[UUID]) -> None:
        """The store's answer. The cost of a job that is still held here may be missing in it, and is subtracted again.

        A budget that the store itself calls spent is closed as a gate is, and not here: a claim that finds its next
        window open knows better.
        """
        self._left = {(row.kind, row.name): row.cents - row.spent for row in budgets if row.spent < row.cents}
        self._unwritten = {id: charged for id, charged in self._unwritten.items() if id in held}
        for job, cents in self._unwritten.values():
            self._subtract(job, cents)
        self.spent = frozenset(budget for budget, left in self._left.items() if left <= 0)

    def charge(self, job: Job, cents: int) -> bool:
        """Subtract the cost of an attempt that ended; returns whether that spent a budget."""
        if not self._left:
            return False
        self._unwritten[job.id] = (job, cents)
        self._subtract(job, cents)
        newly_spent = {budget for budget in _budgets_of(job) if self._left.get(budget, 1) <= 0} - self.spent
        self.spent |= newly_spent
        return bool(newly_spent)

    def stops(self, job: Job) -> bool:
        return not self.spent.isdisjoint(_budgets_of(job))

    def _subtract(self, job: Job, cents: int) -> None:
        for budget in _budgets_of(job):
            if budget in self._left:
                self._left[budget] -= cents


def _budgets_of(job: Job) -> tuple[BudgetKey, BudgetKey]:
    return ("tenant", job.tenant), ("queue", job.queue)
