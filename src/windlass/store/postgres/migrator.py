"""Migrations on PostgreSQL, beside workers that run: each part of a migration is one short transaction.

A statement that waits for a lock lets every later statement on its table wait behind it, claims among them. So no part
waits or lasts for longer than a claim can bear: it gives up, rolls back, and is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import asyncpg

from windlass.address import read_address
from windlass.errors import StoreBusy, StoreError
from windlass.store.migrate import LAST_WITH_A_STOP, Migration, missing, outdated, refuse_outdated
from windlass.store.postgres.connections.pool import PIN_LOCALLY, connect, transact, translate_error
from windlass.store.postgres.partitions import AUDIT, HISTORY

T = TypeVar("T")

log = logging.getLogger("windlass")

LOCK = 0x57494E444C415353  # "WINDLASS": a transaction's advisory lock, which also works behind a pooler
TRY_LOCK = f"SELECT FROM (VALUES (1)) AS one WHERE pg_catalog.pg_try_advisory_xact_lock({LOCK})"
LOOK = 0.1  # seconds between two tries of a migrator that waits for another one
LOCK_WAIT = "300ms"  # for one lock
LONGEST = 0.9  # seconds for a part, all its locks and statements together: what a claim waits at most
PATIENCE = 60.0  # seconds of tries before a part gives up
PAUSE = (0.3, 1.0)  # seconds between two tries: what waited behind the locks goes on
BUILD = 86_400.0  # seconds for an index that is built beside writes
QUIET = 5.0  # seconds of waiting for others without a word
AGAIN = 60.0  # seconds until the next word

BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0;"
    f" SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '{LOCK_WAIT}'; {PIN_LOCALLY}"
)
# A waiting ALTER TABLE ends an autovacuum of its table, but only after deadlock_timeout, which is longer than our wait.
CANCEL_AUTOVACUUM = """
DO $$ BEGIN PERFORM set_config('deadlock_timeout', '100ms', true);
EXCEPTION WHEN insufficient_privilege THEN NULL; END $$
"""
CONCURRENT = re.compile(r"^CREATE (?:UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS (\w+)", re.MULTILINE)

# `to_jsonb`: the column is missing before the migration 0010.
WORKERS = """
SELECT name, coalesce((to_jsonb(workers) ->> 'schema_number')::int, $1::int)
  FROM windlass.workers WHERE NOT dead AND alive_until > windlass.now() ORDER BY started_at
"""
# Another user's transaction shows no start to a user without the role pg_read_all_stats.
SESSIONS = """
SELECT pid, coalesce(nullif(application_name, ''), backend_type, '?') AS program, usename AS name,
       extract(epoch FROM clock_timestamp() - xact_start)::int AS seconds
  FROM pg_stat_activity
 WHERE """
BLOCKERS = f"{SESSIONS} pid = ANY (pg_blocking_pids($1)) ORDER BY xact_start NULLS LAST LIMIT 3"
MIGRATORS = f"""
{SESSIONS} pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
                AND classid = {LOCK >> 32} AND objid = {LOCK & 0xFFFFFFFF}
                AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""
HOLDERS = f"""
{SESSIONS} pid IN (SELECT pg_locks.pid FROM pg_locks JOIN pg_class ON pg_class.oid = pg_locks.relation
                WHERE pg_locks.granted AND pg_class.relnamespace = 'windlass'::regnamespace
                  AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
   AND pid <> pg_backend_pid() AND coalesce(clock_timestamp() - xact_start > interval '1 second', true)
 ORDER BY xact_start NULLS LAST LIMIT 3
"""


class PostgresMigrator:
    """One migrator at a time: a second one waits, and then has nothing left to apply.

    Two connections: one holds the advisory lock, in a transaction without a snapshot, so that an index that is built on
    the other does not wait for it. No statement is named, as a transaction pooler requires: there may be one, whether
    it was declared or not. A migrator that is killed leaves whole parts behind, and a later one goes on from there.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.patience = PATIENCE
        self.quiet = QUIET

    async def current(self) -> int:
        async with self._connected() as connection:
            return await transact(connection, "BEGIN", current)

    async def outdated_workers(self) -> list[str]:
        async with self._connected() as connection:
            return await transact(connection, "BEGIN", outdated_workers)

    async def migrate(self) -> list[Migration]:
        async with self._connected() as holder:
            return await transact(holder, BEGIN, self._migrate)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        connection = await connect(self.url, pooler=True)
        try:
            yield connection
        except asyncpg.PostgresError as error:
            raise translate_error(error, read_address(self.url)) from error
        finally:
            await connection.close()

    async def _migrate(self, holder: Any) -> list[Migration]:
        # Tried again, and not awaited in the server: a statement that waits there holds a snapshot, and an index that
        # the other migrator builds would wait for the end of that statement, for ever.
        # A simple query, answered by its number of rows: `fetchval` would leave a portal open, and its snapshot.
        async with self._telling("another migration has its turn", MIGRATORS):
            while await holder.execute(TRY_LOCK) != "SELECT 1":  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
        async with self._connected() as connection:
            number = await transact(connection, "BEGIN", current)
            steps = missing("postgres", number)
            if not steps:
                return []
            refuse_outdated("postgres", await transact(connection, "BEGIN", outdated_workers))
            if number == 0:
                await transact(connection, BEGIN, lambda held: held.execute(TABLE))
            for step in steps:
                await self._apply(connection, step, runs=number > 0)
            for table in (HISTORY, AUDIT):
                await transact(connection, BEGIN, table.prepare)
        return steps

    async def _apply(self, connection: Any, step: Migration, *, runs: bool) -> None:
        """Apply one migration; `runs`: workers may use the schema meanwhile."""
        bound = LONGEST if runs and step.number > LAST_WITH_A_STOP else BUILD
        *before, last = step.parts
        for part in before:
            if CONCURRENT.search(part):
                what = f"migration {step.label} builds an index, beside workers, and waits for older transactions"
                async with self._telling(what, BLOCKERS, connection.get_server_pid()):
                    await self._build(connection, part)
            else:
                await self._patiently(connection, step, _statements(bound, part))
        await self._patiently(connection, step, _statements(bound, last, step))

    async def _patiently(self, connection: Any, step: Migration, work: Callable[[Any], Awaitable[None]]) -> None:
        """Run a part in a transaction, and again while it does not get its locks or takes longer than its bound."""
        end = time.monotonic() + self.patience
        while True:
            try:
                return await transact(connection, BEGIN, work)
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError, TimeoutError) as error:
                if time.monotonic() > end:
                    raise StoreBusy(await self._explain(connection, step)) from error
            await asyncio.sleep(random.uniform(*PAUSE))

    async def _build(self, connection: Any, part: str) -> None:
        """Build an index beside writes. What a killed build left is invalid, and dropped first."""
        for name in CONCURRENT.findall(part):
            index = f"windlass.{name}"
            if await transact(connection, "BEGIN", partial(_is_invalid, index=index)):
                await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}", timeout=BUILD)
        await connection.execute(part, timeout=BUILD)

    @asynccontextmanager
    async def _telling(self, what: str, query: str, *arguments: int) -> AsyncIterator[None]:
        """Name the sessions that the block waits for when it takes long; `query` finds them."""
        telling = asyncio.create_task(self._tell(what, query, *arguments))
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait([telling])

    async def _tell(self, what: str, query: str, *arguments: int) -> None:
        pause = self.quiet
        while True:
            await asyncio.sleep(pause)
            pause = AGAIN
            try:
                async with self._connected() as connection:
                    named, end = await _sessions(connection, query, *arguments)
            except StoreError as error:
                log.warning("%s; these sessions could not be read: %s", what, error)
            else:
                if named:
                    log.warning("%s: %s; waiting for the end of it, or end the first: %s", what, named, end)

    async def _explain(self, connection: Any, step: Migration) -> str:
        named, end = await _sessions(connection, HOLDERS)
        return (
            f"migration {step.label} found no lock on its tables in {self.patience:g} s, and this part of it changed "
            f"nothing. Transactions that use them: {named or 'none now'}. Wait for their end (a backup holds its locks "
            f"until it is done) or end the first: {end}. Then run windlass migrate again; workers run on meanwhile"
        )


TABLE = (
    "CREATE SCHEMA IF NOT EXISTS windlass;"
    "CREATE TABLE IF NOT EXISTS windlass.migrations (number integer PRIMARY KEY, name text NOT NULL,"
    " applied_at timestamptz NOT NULL DEFAULT statement_timestamp())"
)
INVALID = "SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)"


def _statements(bound: float, part: str, ends: Migration | None = None) -> Callable[[Any], Awaitable[None]]:
    """What runs a part within `bound` seconds, and records the migration that ends with it."""

    async def run(connection: Any) -> None:
        await connection.execute(CANCEL_AUTOVACUUM)
        async with asyncio.timeout(bound):
            await connection.execute(part, timeout=BUILD)
            if ends is not None:
                await connection.execute(
                    "INSERT INTO windlass.migrations (number, name) VALUES ($1, $2)", ends.number, ends.name
                )

    return run


async def _sessions(connection: Any, query: str, *arguments: int) -> tuple[str, str]:
    """The sessions that a query finds, by name, and the statement that ends the first of them."""
    rows = await transact(connection, "BEGIN", lambda held: held.fetch(query, *arguments))
    named = ", ".join(
        f"{row['program']} (pid {row['pid']}, user {row['name']}"
        + (f", for {row['seconds']} s)" if row["seconds"] is not None else ")")
        for row in rows
    )
    return named, f"SELECT pg_terminate_backend({rows[0]['pid']})" if rows else "windlass doctor"


async def _is_invalid(connection: Any, *, index: str) -> bool:
    return bool(await connection.fetchval(INVALID, index))


async def current(connection: Any) -> int:
    """The schema's number; 0 if there is no schema."""
    if await connection.fetchval("SELECT to_regclass('windlass.migrations') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM windlass.migrations"))


async def outdated_workers(connection: Any) -> list[str]:
    number = await current(connection)
    if number == 0:
        return []
    rows = await connection.fetch(WORKERS, min(number, LAST_WITH_A_STOP))
    return outdated("postgres", [(row[0], row[1]) for row in rows])
