"""Partitions of the history and the audit, one per day: prepared a few days ahead, dropped whole when they are too old.

Every DDL statement here wants a lock that could queue behind a long reader and stop every finish behind itself. So it
waits half a second at most; what did not work is tried again in the next round. Rows of a day that nobody prepared
are in the default partition, and leave it by a paged delete.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any

import asyncpg

AHEAD = 3  # days
LOCK_WAIT = "500ms"
PAGE = 5_000  # rows of the default partition per delete
GIVES_UP = (asyncpg.LockNotAvailableError, asyncpg.CheckViolationError, asyncpg.DeadlockDetectedError)


class Daily:
    """A table with one partition per day and a default one."""

    def __init__(self, table: str, column: str) -> None:
        self._table = table
        self._column = column
        self._name = re.compile(rf"^{table}_(\d{{4}})(\d{{2}})(\d{{2}})$", re.ASCII)

    async def prepare(self, connection: Any) -> None:
        """Make the partitions of today and the next days."""
        now: datetime = await connection.fetchval("SELECT windlass.now() AT TIME ZONE 'UTC'")
        known = {day for _, day in await self._existing(connection)}
        for offset in range(AHEAD + 1):
            day = now.date() + timedelta(days=offset)
            if day not in known:
                await _guarded(
                    connection,
                    f"CREATE TABLE IF NOT EXISTS windlass.{self._table}_{day:%Y%m%d} PARTITION OF "
                    f"windlass.{self._table} FOR VALUES FROM ('{day}T00:00:00Z') TO "
                    f"('{day + timedelta(days=1)}T00:00:00Z')",
                )

    async def prune(self, connection: Any, *, age: float) -> None:
        """Drop the partitions whose last row is older than `age` seconds, and page such rows out of the default."""
        horizon: datetime = await connection.fetchval(
            "SELECT (windlass.now() - make_interval(secs => $1::float8)) AT TIME ZONE 'UTC'", age
        )
        for name, day in await self._existing(connection):
            if day + timedelta(days=1) <= horizon.date():
                await _guarded(connection, f"DROP TABLE IF EXISTS windlass.{name}")
        default = f"{self._table}_default"
        while await connection.fetchval(
            f"WITH old AS (SELECT ctid FROM windlass.{default}"
            f" WHERE {self._column} < windlass.now() - make_interval(secs => $1::float8) LIMIT $2),"
            f" gone AS (DELETE FROM windlass.{default} USING old WHERE {default}.ctid = old.ctid RETURNING 1)"
            " SELECT count(*) = $2 FROM gone",
            age,
            PAGE,
        ):
            pass

    async def _existing(self, connection: Any) -> list[tuple[str, date]]:
        names = await connection.fetch(
            "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid"
            " WHERE inhparent = $1::regclass",
            f"windlass.{self._table}",
        )
        found = [(row[0], self._name.match(row[0])) for row in names]
        return [(name, date(*map(int, match.groups()))) for name, match in found if match is not None]


HISTORY = Daily("history", "finished_at")
AUDIT = Daily("audit", "at")


async def _guarded(connection: Any, statement: str) -> None:
    """Run DDL that gives up instead of waiting: a later round does what this one could not.

    By hand: behind a pooler a transaction is open already that the driver did not begin, and it would refuse its own.
    """
    inside = connection.is_in_transaction()
    await connection.execute("SAVEPOINT partition" if inside else "BEGIN")
    try:
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
        await connection.execute(statement)
    except BaseException as error:
        await connection.execute("ROLLBACK TO SAVEPOINT partition" if inside else "ROLLBACK")
        if not isinstance(error, GIVES_UP):
            raise
    else:
        await connection.execute("RELEASE SAVEPOINT partition" if inside else "COMMIT")
