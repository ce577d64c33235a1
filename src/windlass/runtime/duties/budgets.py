"""What budgets have left, as a worker knows it: the store's last word, less what its own attempts have cost since.

A claim looks at what is committed. Jobs that wait in memory start faster than that: without this, a hundred of them may
have begun before the first one's cost is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from windlass.model.admission import BudgetRow
from windlass.model.job import Job

Purse = tuple[str, str]
"""Kind (tenant or queue) and name."""


class BudgetCache:
    """Read before every start while one is empty."""

    def __init__(self) -> None:
        self.empty: frozenset[Purse] = frozenset()
        self._left: dict[Purse, int] = {}
        self._unwritten: dict[UUID, tuple[Job, int]] = {}

    @property
    def known(self) -> bool:
        return bool(self._left)

    def learn(self, budgets: Iterable[BudgetRow], held: set[UUID]) -> None:
        """The store's answer. What a job that is still held here has cost may be missing in it, and comes off again.

        What the store itself calls spent is closed as a gate is, and not here: a claim that finds its next window open
        knows better.
        """
        self._left = {(row.kind, row.name): row.cents - row.spent for row in budgets if row.spent < row.cents}
        self._unwritten = {id: paid for id, paid in self._unwritten.items() if id in held}
        for job, cents in self._unwritten.values():
            self._take(job, cents)
        self.empty = frozenset(purse for purse, left in self._left.items() if left <= 0)

    def pay(self, job: Job, cents: int) -> bool:
        """An attempt ended that has cost so much; whether a purse is empty by that."""
        if not self._left:
            return False
        self._unwritten[job.id] = (job, cents)
        self._take(job, cents)
        emptied = {purse for purse in _of(job) if self._left.get(purse, 1) <= 0} - self.empty
        self.empty |= emptied
        return bool(emptied)

    def stops(self, job: Job) -> bool:
        return not self.empty.isdisjoint(_of(job))

    def _take(self, job: Job, cents: int) -> None:
        for purse in _of(job):
            if purse in self._left:
                self._left[purse] -= cents


def _of(job: Job) -> tuple[Purse, Purse]:
    return ("tenant", job.tenant), ("queue", job.queue)
