"""SQLAlchemy: connections and sessions, blocking and to be awaited.

Everything goes through SQLAlchemy itself and never through the raw connection below it: SQLAlchemy begins
late, and an INSERT on a raw connection that has not begun would survive the caller's rollback. The
asynchronous kinds run the blocking code under `run_sync`, which is SQLAlchemy's own bridge, so that there is
one copy of it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from windlass.connection.borrowed import (
    AwaitedConnection,
    CallerConnection,
    Dialect,
    Rows,
    autocommit_error,
    closed_error,
    explain_failed_transaction,
    name_parameters,
    translate,
)
from windlass.errors import UnusableConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("windlass.connection")

PENDING = "windlass.after_commit"
"""Where a session keeps the callbacks that wait for its commit."""

DIALECTS: dict[str, Dialect] = {"postgresql": "postgres", "sqlite": "sqlite"}
FIX = "with engine.begin() as conn: …"


class AlchemyConnection(CallerConnection):
    """A `Connection`."""

    def __init__(self, conn: Any) -> None:
        self._given = conn
        if conn.closed:
            raise closed_error("conn", FIX)
        self.dialect = _dialect(conn)
        self.runs_on_loop = bool(conn.dialect.is_async)

    def run(self, sql: str, *values: object) -> Rows:
        with _explain_refusals(), explain_failed_transaction():
            connection = self._connection()
            if self.dialect == "sqlite":
                _begin_sqlite(connection)
            return _fetch(connection, sql, values)

    def read(self, sql: str) -> Rows:
        with _explain_refusals(), explain_failed_transaction():
            return _fetch(self._connection(), sql, ())

    def anchor(self) -> object:
        with _explain_refusals():
            driver: object = self._connection().connection.driver_connection
        return driver

    def _connection(self) -> Any:
        return _check_usable(self._given)


class AlchemySession(AlchemyConnection):
    """A `Session`; the connection is the one its transaction uses, and is begun with it."""

    def __init__(self, session: Any) -> None:
        self._given = session
        with _explain_refusals():
            bind = session.get_bind()
            self.dialect = _dialect(bind)
            self.runs_on_loop = bool(bind.dialect.is_async)

    def _connection(self) -> Any:
        return _check_usable(self._given.connection())

    def after_commit(self, callback: Callable[[], None]) -> bool:
        pending = self._given.info.get(PENDING)
        if pending is None:
            pending = self._given.info[PENDING] = []
            _listen(self._given)
        pending.append(callback)
        return True


class AsyncAlchemy(AwaitedConnection):
    """An `AsyncConnection` or `AsyncSession`, around the blocking one inside it."""

    def __init__(self, outer: Any, inner: AlchemyConnection) -> None:
        self._outer = outer
        self._inner = inner
        self.dialect = inner.dialect

    async def arun(self, sql: str, *values: object) -> Rows:
        rows: Rows = await self._outer.run_sync(lambda _: self._inner.run(sql, *values))
        return rows

    async def aread(self, sql: str) -> Rows:
        rows: Rows = await self._outer.run_sync(lambda _: self._inner.read(sql))
        return rows

    async def call_blocking(self, call: Callable[[CallerConnection], str]) -> str:
        """What `call` says of the blocking connection inside."""
        answer: str = await self._outer.run_sync(lambda _: call(self._inner))
        return answer

    def after_commit(self, callback: Callable[[], None]) -> bool:
        return self._inner.after_commit(callback)


def async_connection(conn: Any) -> AsyncAlchemy:
    """Borrow an `AsyncConnection`."""
    if conn.sync_connection is None:
        raise UnusableConnection("conn has not been started yet; enter it first: async with engine.begin() as conn: …")
    return AsyncAlchemy(conn, AlchemyConnection(conn.sync_connection))


def async_session(session: Any) -> AsyncAlchemy:
    """Borrow an `AsyncSession`."""
    return AsyncAlchemy(session, AlchemySession(session.sync_session))


def _dialect(bind: Any) -> Dialect:
    try:
        return DIALECTS[bind.dialect.name]
    except KeyError:
        raise UnusableConnection(
            f"conn speaks {bind.dialect.name}, and jobs live in PostgreSQL or SQLite; leave conn= away, and "
            "the job is enqueued on Windlass's own connection"
        ) from None


def _check_usable(connection: Any) -> Any:
    """`connection`, unless it is broken or commits by itself."""
    if connection.closed or connection.invalidated:
        raise closed_error("conn", FIX)
    if _commits_by_itself(connection):
        raise autocommit_error("conn", 'conn = conn.execution_options(isolation_level="READ COMMITTED")')
    return connection


def _commits_by_itself(connection: Any) -> bool:
    """Asked of the driver, where every way ends: the engine's isolation level, an execution option, connect_args.

    SQLite's attribute of that name means something else; `_begin_sqlite` looks there.
    """
    driver = connection.connection.dbapi_connection
    return connection.dialect.name == "postgresql" and getattr(driver, "autocommit", False) is True


def _begin_sqlite(connection: Any) -> None:
    """Begin as drivers.Sqlite does. SQLAlchemy's own begin comes first: a listener may send BEGIN there."""
    if not connection.in_transaction():
        connection.begin()
    driver = connection.connection.driver_connection
    if driver.in_transaction:
        return
    if driver.isolation_level is None:
        raise autocommit_error("conn", 'create_engine(url, isolation_level="SERIALIZABLE")')
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _fetch(connection: Any, sql: str, values: tuple[object, ...]) -> Rows:
    result = connection.execute(_text(sql), name_parameters(values))
    return [tuple(row) for row in result] if result.returns_rows else []


@cache
def _text(sql: str) -> Any:
    from sqlalchemy import text

    return text(translate(sql, "text"))


@contextmanager
def _explain_refusals() -> Iterator[None]:
    """SQLAlchemy's word for a session or connection in a state that allows nothing, as ours."""
    from sqlalchemy.exc import InvalidRequestError, PendingRollbackError, UnboundExecutionError

    try:
        yield
    except PendingRollbackError as error:
        raise UnusableConnection(
            "conn is in a failed transaction; roll back and begin again: conn.rollback() "
            f"(SQLAlchemy: {_first_line(error)})"
        ) from error
    except UnboundExecutionError as error:
        raise UnusableConnection(
            "the session does not say which of its databases is meant; give that connection: "
            'conn=session.connection(bind_arguments={"mapper": Model})'
        ) from error
    except InvalidRequestError as error:
        raise UnusableConnection(
            f"conn allows no statement now; begin a transaction on it first: with conn.begin(): … "
            f"(SQLAlchemy: {_first_line(error)})"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _listen(session: Any) -> None:
    """One pair of listeners for a session's life: a listener cannot be removed while it is called."""
    from sqlalchemy import event

    def committed(session: Any) -> None:
        if session.in_nested_transaction():
            return  # a savepoint was released; nothing is visible to others yet
        callbacks, session.info[PENDING][:] = list(session.info[PENDING]), []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                # The caller's commit has happened: it must not look as if it had failed.
                log.exception("a wake-up after the commit failed; workers find the job at their next poll")

    def ended(session: Any, transaction: Any) -> None:
        if transaction.parent is None:
            session.info[PENDING].clear()  # rolled back, or closed without a commit

    event.listen(session, "after_commit", committed)
    event.listen(session, "after_transaction_end", ended)
