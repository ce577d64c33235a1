"""Connections to PostgreSQL: settings of an engine session, errors in Windlass's words, retries of deadlocks.

No session state is relied on: with `pooler="transaction"` nothing is set at connect time, no statement has a name,
and each piece of work runs in a transaction that begins with its settings.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from windlass.errors import SchemaMissing, StoreError, StoreRefused, StoreUnavailable, ValueRefused
from windlass.store.postgres.sqlstate import Fault, code_of, fault_of, lost_its_statements

T = TypeVar("T")

STATEMENT_TIMEOUT = 15.0  # seconds, on the server
COMMAND_TIMEOUT = 20.0  # seconds, on the client: a hung fetch ends even when the server never answers
CONNECT_TIMEOUT = 10.0  # seconds
SETTINGS = {
    "statement_timeout": "15s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "60s",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    # A scan that is disabled below looks so dear to the planner that it would start processes to share an empty table.
    "max_parallel_workers_per_gather": "0",
    # The engine's statements find their rows by index. With stale statistics (an empty table that fills within a
    # second) the planner may take a scan of everything for cheaper: tell it what we know.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}
BEGIN = "BEGIN; " + " ".join(
    f"SET LOCAL {name} = '{value}';" for name, value in SETTINGS.items() if name != "default_transaction_isolation"
)
RETRIES = 6  # of work that was rolled back by a deadlock, or had no statement on its connection

UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.OperatorInterventionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
)


class EngineConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that is handed back without a round trip: engine statements leave no session state behind."""

    def get_reset_query(self) -> str:
        return ""


class Pool:
    """A few connections and one way to use them."""

    def __init__(self, url: str, *, size: int, pooler: bool) -> None:
        self.url = url
        self.size = size
        self.pooler = pooler
        self._pool: Any = None

    async def open(self) -> None:
        if self._pool is not None:
            return
        try:
            self._pool = await asyncpg.create_pool(
                self.url,
                min_size=1,
                max_size=self.size,
                timeout=CONNECT_TIMEOUT,
                command_timeout=COMMAND_TIMEOUT,
                max_inactive_connection_lifetime=300.0,
                connection_class=EngineConnection,
                init=_keep_alive,
                **session(self.pooler),
            )
        except BaseException as error:
            raise translated(error, self.url) from error

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(5):
                await pool.close()
        except (TimeoutError, *UNREACHABLE):
            pool.terminate()

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do `work` on a connection.

        A deadlock or serialisation failure has rolled back, and a connection that lost its prepared statements has
        done nothing: both are tried again, the latter on another connection.
        """
        for attempt in range(RETRIES):
            try:
                async with self.acquire() as connection:
                    return await self._work(connection, work)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
                if attempt == RETRIES - 1:
                    raise StoreUnavailable(f"gave up after {RETRIES} deadlocks: {error}") from error
                await asyncio.sleep(random.uniform(0, 0.01 * 2**attempt))
            except Exception as error:
                if attempt == RETRIES - 1 or not lost_its_statements(error):
                    raise translated(error, self.url) from error
        raise AssertionError("unreachable")

    async def transact(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do `work` of several statements in one transaction."""
        return await self.run(work if self.pooler else lambda connection: _transact(connection, "BEGIN", work))

    def acquire(self) -> Any:
        if self._pool is None:
            raise StoreUnavailable("the store is not open")
        return self._pool.acquire(timeout=COMMAND_TIMEOUT)

    async def _work(self, connection: Any, work: Callable[[Any], Awaitable[T]]) -> T:
        try:
            return await (_transact(connection, BEGIN, work) if self.pooler else work(connection))
        except Exception as error:
            if lost_its_statements(error):
                connection.terminate()
            raise


async def _transact(connection: Any, begin: str, work: Callable[[Any], Awaitable[T]]) -> T:
    try:  # from the beginning: whoever is stopped here must not hand back a connection with an open transaction
        await connection.execute(begin)
        result = await work(connection)
    except BaseException:
        with suppress(Exception):
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return result


def session(pooler: bool) -> dict[str, Any]:
    """Arguments of a connection: what a transaction pooler would refuse is left out in front of one."""
    if pooler:
        return {"statement_cache_size": 0}
    return {"server_settings": {**SETTINGS, "application_name": "windlass"}}


async def connect(url: str, *, pooler: bool = False) -> Any:
    """One connection outside every pool: for the beat, for LISTEN, for a migration."""
    try:
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT, command_timeout=COMMAND_TIMEOUT, **session(pooler)
        )
        await _keep_alive(connection)
        return connection
    except BaseException as error:
        raise translated(error, url) from error


async def _keep_alive(connection: Any) -> None:
    """Notice a peer that vanished without a word, in about half a minute."""
    sock = connection._transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def translated(error: BaseException, url: str) -> BaseException:
    """A driver's error in Windlass's words; what is not the database's fault stays as it is."""
    from windlass.store import masked

    if isinstance(error, StoreError) or not isinstance(error, Exception):
        return error
    if isinstance(error, (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError)):
        return StoreUnavailable(f"{masked(url)}: {error}; check the database's name, user and password in WINDLASS_URL")
    fault = fault_of(error)
    if fault is Fault.VALUE:
        return ValueRefused(f"PostgreSQL refused a value ({told(error)})")
    if lost_its_statements(error):
        return StoreUnavailable(
            f"{masked(url)} does not know the statements of its connections ({told(error)}); if a pooler is in front, "
            "set WINDLASS_POOLER=transaction"
        )
    if isinstance(error, (asyncpg.InternalClientError, asyncpg.InterfaceError)):
        return StoreUnavailable(f"{masked(url)}: a connection was not to be used, another one is tried: {error}")
    if isinstance(error, UNREACHABLE):
        return StoreUnavailable(
            f"{masked(url)} does not answer ({type(error).__name__}: {error}); is PostgreSQL running, and is "
            "WINDLASS_URL right?"
        )
    if isinstance(error, (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError)):
        return SchemaMissing(f"{masked(url)} has no Windlass schema ({error}); run: windlass migrate")
    if isinstance(error, asyncpg.QueryCanceledError):
        return StoreUnavailable(f"{masked(url)} took longer than {STATEMENT_TIMEOUT:g} s for a statement: {error}")
    if isinstance(error, asyncpg.PostgresError):
        kind = StoreRefused if fault is Fault.DATABASE else StoreError
        return kind(f"PostgreSQL refused a statement ({told(error)})")
    return error


def told(error: Exception) -> str:
    """An error of the driver, with its SQLSTATE, in one line."""
    return f"{code_of(error) or type(error).__name__}: {error}".splitlines()[0]
