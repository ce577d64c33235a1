"""Partitions of the history and the audit, one per day: prepared a few days ahead, dropped whole when they are too old.

Every DDL statement here takes a lock that could queue behind a long reader and block every finish behind itself. So it
waits half a second at most; a statement that gave up is tried again in the next round. Functions of the schema run it
with the rights of the tables' owner: the role of a worker need not own them. Rows of a day without a partition are in
the default partition, and a paged delete removes them.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any

import asyncpg

AHEAD = 3  # days that have a partition before they begin
LOCK_WAIT = "500ms"  # for the lock of a DDL statement
PAGE = 5_000  # rows of the default partition per delete
GIVES_UP = (asyncpg.LockNotAvailableError, asyncpg.CheckViolationError, asyncpg.DeadlockDetectedError)


class DailyTable:
    """A table with one partition per day and a default partition."""

    def __init__(self, table: str, column: str) -> None:
        self._table = table
        self._column = column
        self._name = re.compile(rf"^{table}_(\d{{4}})(\d{{2}})(\d{{2}})$", re.ASCII)

    async def prepare(self, connection: Any) -> None:
        """Create the partitions of today and the next days."""
        now: datetime = await connection.fetchval("SELECT windlass.now() AT TIME ZONE 'UTC'")
        known = {day for _, day in await self._existing(connection)}
        for offset in range(AHEAD + 1):
            day = now.date() + timedelta(days=offset)
            if day not in known:
                await _run_or_give_up(connection, f"SELECT windlass.add_partition('{self._table}', '{day}')")

    async def prune(self, connection: Any, *, age: float) -> None:
        """Drop partitions with only rows older than `age` seconds, and delete such rows from the default by pages."""
        horizon: datetime = await connection.fetchval(
            "SELECT (windlass.now() - make_interval(secs => $1::float8)) AT TIME ZONE 'UTC'", age
        )
        for _, day in await self._existing(connection):
            if day + timedelta(days=1) <= horizon.date():
                await _run_or_give_up(connection, f"SELECT windlass.drop_partition('{self._table}', '{day}')")
        default = f"{self._table}_default"
        while await connection.fetchval(
            f"WITH old AS (SELECT ctid FROM windlass.{default}"
            f" WHERE {self._column} < windlass.now() - make_interval(secs => $1::float8) LIMIT $2),"
            f" deleted AS (DELETE FROM windlass.{default} USING old WHERE {default}.ctid = old.ctid RETURNING 1)"
            " SELECT count(*) = $2 FROM deleted",
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


HISTORY = DailyTable("history", "finished_at")
AUDIT = DailyTable("audit", "at")


async def _run_or_give_up(connection: Any, statement: str) -> None:
    """Run DDL that gives up instead of waiting for its lock: a later round tries again.

    The statements are sent by hand: behind a pooler a transaction is open that the driver did not begin, and the driver
    would refuse to begin its own.
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
