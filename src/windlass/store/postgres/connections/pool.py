"""Connections to PostgreSQL: settings of an engine session, errors as Windlass's errors, retries after deadlocks.

A server that turned read-only or shuts down makes every session of the pool stale: the pool gives all of them up, and
new sessions go to whichever host takes writes now.

The engine relies on no session state: with `pooler="transaction"` nothing is set at connect time, no statement has a
name, and each piece of work runs in a transaction that begins with its settings.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlencode

import asyncpg

from windlass.address import Address, Host, read_address
from windlass.errors import (
    ConfigError,
    SchemaMissing,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    ValueRefused,
)
from windlass.store.contact import Contact
from windlass.store.postgres.connections.sqlstate import Fault, code_of, fault_of, lost_its_statements

T = TypeVar("T")

STATEMENT_TIMEOUT = 15.0  # seconds, on the server
COMMAND_TIMEOUT = 20.0  # seconds, on the client: a hung fetch ends even when the server never answers
CONNECT_TIMEOUT = 10.0  # seconds, for all hosts of a URL together
CLOSE_TIMEOUT = 2.0  # seconds, for a clean close
SETTINGS = {
    "statement_timeout": "15s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "60s",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    # A scan that is disabled below has so high a cost that the planner would start processes to share an empty table.
    "max_parallel_workers_per_gather": "0",
    # The engine's statements find their rows by index. With stale statistics (an empty table that fills within a
    # second) the planner may estimate a scan of the whole table as cheaper.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}
CATALOG_FIRST = (
    "SELECT pg_catalog.set_config('search_path', pg_catalog.concat('pg_catalog, ', path), {local})"
    " FROM pg_catalog.current_setting('search_path') AS path"
    " WHERE pg_catalog.strpos(path, 'pg_catalog') OPERATOR(pg_catalog.>) 1"
)
"""Puts pg_catalog first in a search_path that names it after other schemas. Otherwise functions and operators of these
schemas would replace the built-in ones that the engine's statements mean. In any other path pg_catalog is first by
itself, and the path stays as it is."""
PIN, PIN_LOCALLY = CATALOG_FIRST.format(local="false"), CATALOG_FIRST.format(local="true")
BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    + " ".join(
        f"SET LOCAL {name} = '{value}';" for name, value in SETTINGS.items() if name != "default_transaction_isolation"
    )
    + PIN_LOCALLY
)
RETRIES = 6  # of work that a deadlock rolled back, or that met a connection without its prepared statements
POOLER = "set WINDLASS_POOLER=transaction, and WINDLASS_DIRECT_URL to the database behind it"
ODD_TIMES = (
    "find it: SELECT id FROM windlass.jobs WHERE least(run_at, created_at, updated_at) < '0001-01-01' OR "
    "greatest(run_at, created_at, updated_at, claimed_at, started_at, finished_at) > '9999-12-31'"
)
NO_GRANT = "42501"
CERTIFICATE = (
    "the URL has to name a host that is in the certificate, and its authority: ?sslmode=verify-full&sslrootcert=ca.pem"
)
HOME = (
    "the driver looks for certificates and passwords in the home directory; set HOME to one that this user can read, "
    "in a systemd unit with ProtectHome=tmpfs"
)
READ_ONLY = (
    "jobs have to be written; name the primary in WINDLASS_URL, or all hosts: "
    "postgresql://user@one,two/database?target_session_attrs=read-write"
)

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


FIRST_OWN_TYPE = 16_384  # types below this number are built into PostgreSQL
BUILT_IN: dict[frozenset[int], Any] = {}
NOT_ASKED = SimpleNamespace(name="not asked")  # for a statement that did not run, and so displaced none


class EngineConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that returns to the pool without a round trip: engine statements leave no session state behind."""

    host: Host | None = None  # the one of the URL's hosts that it is connected to

    def get_reset_query(self) -> str:
        return ""

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
        """Read built-in types once per process.

        The driver reads them again on every connection, for each array type that a statement uses: three round trips
        and 7 ms of the server's time, twice, before the first claim. Built-in types have the same numbers on every
        server.
        """
        wanted = frozenset(typeoids)
        if wanted in BUILT_IN:
            return BUILT_IN[wanted], NOT_ASKED
        types, statement = await super()._introspect_types(typeoids, timeout)
        if max(wanted) < FIRST_OWN_TYPE:
            BUILT_IN[wanted] = types
        return types, statement

    async def close(self, *, timeout: float | None = None) -> None:
        """Close cleanly, or terminate: the driver closes sessions in tasks, and no code would read their errors."""
        try:
            await super().close(timeout=min(timeout or CLOSE_TIMEOUT, CLOSE_TIMEOUT))
        except (TimeoutError, *UNREACHABLE):
            self.terminate()


class ConnectionPool:
    """A few connections, opened on first use."""

    def __init__(self, url: str, *, size: int, pooler: bool, contact: Contact) -> None:
        self.address = read_address(url)
        self.size = size
        self.pooler = pooler
        self.contact = contact
        self.on_expired: set[Callable[[], None]] = set()  # called when all sessions are given up
        self._pool: Any = None

    async def open(self) -> None:
        """Create the pool. It connects on first use: the driver keeps no connection by itself and logs no errors."""
        if self._pool is None:
            self._pool = await asyncpg.create_pool(
                min_size=0,
                max_size=self.size,
                max_inactive_connection_lifetime=300.0,
                connection_class=EngineConnection,
                connect=self._connect,
            )

    async def _connect(self, *_: Any, **__: Any) -> Any:
        connection = await open_session(self.address, pooler=self.pooler)
        self.address = self.address.preferring(connection.host)
        return connection

    async def is_pooled(self) -> bool:
        """Whether a pooler between this process and the server hands out the server's sessions.

        The check runs in a transaction, so that it is prepared and executed in one session. A session that already has
        a statement of that name, or lost it, was handed out by a pooler as well.
        """
        try:
            return await self.transact(leads_through_pooler)
        except StoreUnavailable as error:
            if error.__cause__ is not None and lost_its_statements(error.__cause__):
                return True
            raise

    async def expire(self) -> None:
        """Give up every session, also those that listen: each closes when it is free. The next use opens another."""
        if self._pool is not None:
            await self._pool.expire_connections()
        for callback in list(self.on_expired):
            callback()

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
        """Run `work` on a connection.

        A deadlock or serialisation failure has rolled back, and a connection that lost its prepared statements has
        executed nothing: both are tried again, the latter on another connection.
        """
        for attempt in range(RETRIES):
            try:
                async with self.acquire() as connection:
                    result = await self._work(connection, work)
                self.contact.answered()
                return result
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
                if attempt == RETRIES - 1:
                    raise StoreBusy(f"gave up after {RETRIES} deadlocks: {error}") from error
                await asyncio.sleep(random.uniform(0, 0.01 * 2**attempt))
            except Exception as error:
                if is_stale(error):
                    await self.expire()
                if attempt == RETRIES - 1 or not lost_its_statements(error):
                    raise translate_error(error, self.address) from error
        raise AssertionError("unreachable")

    async def transact(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work` of several statements in one transaction."""
        return await self.run(work if self.pooler else lambda connection: transact(connection, "BEGIN", work))

    def acquire(self) -> Any:
        if self._pool is None:
            raise StoreUnavailable("the store is not open")
        return self._pool.acquire(timeout=COMMAND_TIMEOUT)

    async def _work(self, connection: Any, work: Callable[[Any], Awaitable[T]]) -> T:
        try:
            return await (transact(connection, BEGIN, work) if self.pooler else work(connection))
        except Exception as error:
            if lost_its_statements(error):
                connection.terminate()
            raise


async def transact(connection: Any, begin: str, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run `work` between `begin` and COMMIT."""
    try:  # BEGIN is inside: a cancelled task must not return a connection with an open transaction
        await connection.execute(begin)
        result = await work(connection)
    except BaseException:
        with suppress(Exception):
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return result


def session(pooler: bool) -> dict[str, Any]:
    """Arguments of a connection, without those that a transaction pooler would refuse if there is one."""
    if pooler:
        return {"statement_cache_size": 0}
    return {"server_settings": {**SETTINGS, "application_name": "windlass"}}


async def connect(url: str, *, pooler: bool = False, timeout: float = CONNECT_TIMEOUT) -> Any:
    """One connection outside every pool: for the beat, for LISTEN, for a migration."""
    address = read_address(url)
    try:
        return await open_session(address, pooler=pooler, timeout=timeout)
    except Exception as error:
        raise translate_error(error, address) from error


async def open_session(address: Address, *, pooler: bool, timeout: float = CONNECT_TIMEOUT) -> Any:
    """Connect to the first host that answers; if there are several, to the first that takes writes.

    Each host gets an equal part of the time: a silent host must leave some for the next.
    """
    failures: list[Exception] = []
    for host in address.hosts or (None,):
        try:
            connection = await _connect(address, host, pooler, timeout / (len(address.hosts) or 1))
            await _keep_alive(connection)
            if not pooler:
                await connection.execute(PIN)
            connection.host = host
            return connection
        except (*UNREACHABLE, asyncpg.PostgresError) as error:
            failures.append(error)
    # The error of a read-only host is more helpful than the error of an unreachable one.
    raise next((each for each in failures if is_read_only(each)), failures[-1])


async def _connect(address: Address, host: Host | None, pooler: bool, timeout: float) -> Any:
    target = "read-write" if len(address.hosts) > 1 else None  # if the URL does not set it
    return await asyncpg.connect(
        f"postgresql://?{urlencode(address.options)}",
        host=None if host is None else host.name,
        port=None if host is None else host.port,
        user=address.user,
        password=address.password,
        database=address.database,
        target_session_attrs=address.options.get("target_session_attrs", target),
        timeout=timeout,
        command_timeout=COMMAND_TIMEOUT,
        connection_class=EngineConnection,
        **session(pooler),
    )


async def leads_through_pooler(connection: Any) -> bool:
    """Whether the connection's key is a pooler's own: its process id is not that of the server's process."""
    return bool(connection.get_server_pid() != await connection.fetchval("SELECT pg_catalog.pg_backend_pid()"))


def reports_read_only(connection: Any) -> bool:
    """Whether the server reported this session as read-only, by its own message. PostgreSQL 13 sends none."""
    try:
        settings = connection.get_settings()
    except asyncpg.InterfaceError:  # the connection is closed, and the pool has it back
        return False
    return "on" in (getattr(settings, "in_hot_standby", None), getattr(settings, "default_transaction_read_only", None))


def is_read_only(error: BaseException) -> bool:
    return isinstance(error, (asyncpg.ReadOnlySQLTransactionError, asyncpg.TargetServerAttributeNotMatched))


def is_stale(error: BaseException) -> bool:
    """Whether the session belongs to a server that is read-only, shuts down or has just come up."""
    code = str(getattr(error, "sqlstate", ""))
    return code == "25006" or code.startswith("57P0")


async def _keep_alive(connection: Any) -> None:
    """Detect a peer that vanished without closing the connection, in about half a minute."""
    sock = connection._transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def translate_error(error: Exception, address: Address) -> Exception:
    """The Windlass error for a driver's error; an error that is not the database's stays as it is."""
    where, shown = address.shown, f"{type(error).__name__}: {error}".removesuffix(": ")
    if isinstance(error, StoreError):
        return error
    if isinstance(error, (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError)):
        return StoreUnavailable(f"{where}: {error}; check the database's name, user and password in WINDLASS_URL")
    if is_read_only(error):
        return StoreUnavailable(f"{where} is read-only ({shown}); {READ_ONLY}")
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
        return StoreUnavailable(f"a pooler is in front of {where}: it refused a setting ({error}); {POOLER}")
    fault = fault_of(error)
    if fault is Fault.VALUE:
        return ValueRefused(f"PostgreSQL refused a value ({describe_error(error)})")
    if lost_its_statements(error):
        return StoreUnavailable(
            f"{where} hands out sessions with other statements than were prepared there ({error.args[0]}): a pooler "
            f"that pools transactions is in front of it; {POOLER}"
        )
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return ConfigError(f"{where}: {error}; correct it in WINDLASS_URL")
    if isinstance(error, (asyncpg.InternalClientError, asyncpg.InterfaceError)):
        return StoreUnavailable(f"{where}: a connection was not usable, another one is tried: {error}")
    if isinstance(error, asyncpg.QueryCanceledError):
        return StoreBusy(f"{where} took longer than {STATEMENT_TIMEOUT:g} s for a statement: {error}")
    if isinstance(error, ssl.SSLError):
        return StoreUnavailable(f"{where} has a certificate that was not accepted ({shown}); {CERTIFICATE}")
    if isinstance(error, PermissionError) and error.filename is not None:
        return StoreUnavailable(f"{where}: this user may not read {error.filename} ({shown}); {HOME}")
    if isinstance(error, UNREACHABLE):
        return StoreUnavailable(f"{where} does not answer ({shown}); is PostgreSQL running, and is WINDLASS_URL right?")
    if isinstance(error, (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError)):
        return SchemaMissing(f"{where} has no Windlass schema ({error}); run: windlass migrate")
    if isinstance(error, OverflowError):
        return StoreError(
            f"{where} holds a job with a time outside the years 1 to 9999, which no program can read; {ODD_TIMES}"
        )
    if isinstance(error, asyncpg.PostgresError):
        kind = StoreRefused if fault is Fault.DATABASE else StoreError
        return kind(f"PostgreSQL refused a statement ({describe_error(error)})")
    return error


def describe_error(error: Exception) -> str:
    """The driver's error with its SQLSTATE, in one line."""
    said = f"{code_of(error) or type(error).__name__}: {error}".splitlines()[0]
    roles = "; deploy/postgres/roles.sql has the grants of each part: run it as the owner, also after an upgrade"
    return said + roles if code_of(error) == NO_GRANT else said
