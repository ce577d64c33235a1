"""SQLAlchemy connections and sessions, blocking and asynchronous.

Every statement goes through SQLAlchemy and never through the raw connection below it: SQLAlchemy begins a transaction
late, and an INSERT on a raw connection without a transaction would survive the caller's rollback. Asynchronous
connections run the blocking code under `run_sync`, SQLAlchemy's own bridge, so that the code exists once.
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
"""The key in `session.info` of the callbacks that wait for the session's commit."""

DIALECTS: dict[str, Dialect] = {"postgresql": "postgres", "sqlite": "sqlite"}
FIX = "with engine.begin() as conn: …"


class AlchemyConnection(CallerConnection):
    """A SQLAlchemy `Connection`."""

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
    """A SQLAlchemy `Session`. Statements use the connection of its transaction, and begin it if necessary."""

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
    """An `AsyncConnection` or `AsyncSession`, and the blocking connection inside it."""

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
        """Call a function with the blocking connection."""
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
            f"conn is a connection to {bind.dialect.name}, and jobs are stored in PostgreSQL or SQLite; without conn= "
            "the job is enqueued on Windlass's own connection"
        ) from None


def _check_usable(connection: Any) -> Any:
    """Return the connection; refuse it if it is broken or commits every statement."""
    if connection.closed or connection.invalidated:
        raise closed_error("conn", FIX)
    if _is_autocommit(connection):
        raise autocommit_error("conn", 'conn = conn.execution_options(isolation_level="READ COMMITTED")')
    return connection


def _is_autocommit(connection: Any) -> bool:
    """Whether the driver commits every statement.

    The engine's isolation level, an execution option and connect_args all end in the driver's `autocommit`.

    SQLite's attribute of that name means something else; `_begin_sqlite` checks SQLite.
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
    """Turn SQLAlchemy's errors about an unusable session or connection into `UnusableConnection`."""
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
            "the session cannot choose which of its databases to use; give that connection: "
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
    """Add one pair of listeners for the whole life of a session: a listener cannot be removed while it is called."""
    from sqlalchemy import event

    def after_commit(session: Any) -> None:
        if session.in_nested_transaction():
            return  # only a savepoint was released; other transactions see nothing yet
        callbacks, session.info[PENDING][:] = list(session.info[PENDING]), []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                # The caller's commit has succeeded: an error of a callback must not reach the caller.
                log.exception("a wake-up after the commit failed; workers find the job at their next poll")

    def after_transaction_end(session: Any, transaction: Any) -> None:
        if transaction.parent is None:
            session.info[PENDING].clear()  # the session was rolled back, or closed without a commit

    event.listen(session, "after_commit", after_commit)
    event.listen(session, "after_transaction_end", after_transaction_end)
