"""The job types that workers announce, written once for both stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from windlass.model.job_types import TypeRow, decode_row, encode_row
from windlass.store.parts.statements import Statements, run

T = TypeVar("T")


class TypesPart:
    """The part of a store that keeps announced types. The store supplies how statements are run."""

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Run the statements in a transaction of their own."""
        raise NotImplementedError

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Run statements that only read."""
        raise NotImplementedError

    async def announce(self, types: Sequence[TypeRow]) -> None:
        if types:
            rows = [{"name": row.name, "type": row.type, "document": encode_row(row)} for row in types]
            await self._run_in_transaction(lambda: run("announce_types", rows))

    async def types(self, *names: str) -> list[TypeRow]:
        rows = await self._run_one_by_one(lambda: run("types", names))
        decoded = (decode_row(document, datetime.fromtimestamp(at, UTC)) for _, document, at in rows)
        return [row for row in decoded if row is not None]
