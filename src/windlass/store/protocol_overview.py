"""What a store reads for overviews: due jobs, facets of a filter, what operators changed, and keys that are held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from windlass.model.rows import AuditRow, DueRow

if TYPE_CHECKING:
    from windlass.model.filter import Filter
    from windlass.model.job import Key


class OverviewStore(Protocol):
    """Each of these is one statement, and reads a bounded number of rows unless it says otherwise."""

    async def count_due(self) -> list[DueRow]:
        """The due jobs of each queue that has some."""
        ...

    async def facets(
        self, filter: Filter, fields: Sequence[str], *, tenant: str | None = None
    ) -> dict[str, dict[str, int]]:
        """The jobs that match by their values of each field, the most frequent value first; 10,001 jobs at most.

        At most 20,000 rows are read of each state, or the newest 20,000 of each table, where the filter names neither a
        state nor a queue, or names a tenant.
        """
        ...

    async def changes(self, *, page: int = 5) -> list[AuditRow]:
        """What operators did, newest first, among the newest 5,000 rows of the audit."""
        ...

    async def held_keys(self, keys: Sequence[Key]) -> dict[tuple[str, str], UUID]:
        """By scope and key the job for which an enqueue with this key would be refused now; nothing is taken."""
        ...
