"""Recognises the object that a caller gives as `conn=`, by the names of its classes.

In:   `conn=` of an enqueue: a connection that the caller has opened
Out:  a `CallerConnection` that runs statements in the caller's transaction

A connection is refused with `UnusableConnection` if the job would not roll back with the caller's rows. No driver is
imported here: a program without psycopg must not need it, and a program with psycopg has imported it.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

from windlass.connection import alchemy, django, drivers
from windlass.errors import UnusableConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.connection.borrowed import CallerConnection

KINDS: dict[tuple[str, str], Callable[[Any], CallerConnection]] = {
    ("psycopg", "Connection"): drivers.Psycopg,
    ("psycopg", "AsyncConnection"): drivers.AsyncPsycopg,
    ("psycopg2", "connection"): drivers.Psycopg2,
    ("asyncpg", "Connection"): drivers.Asyncpg,
    ("asyncpg", "PoolConnectionProxy"): drivers.Asyncpg,
    ("sqlite3", "Connection"): drivers.Sqlite,
    ("aiosqlite", "Connection"): drivers.Aiosqlite,
    ("sqlalchemy", "Connection"): alchemy.AlchemyConnection,
    ("sqlalchemy", "AsyncConnection"): alchemy.async_connection,
    ("sqlalchemy", "Session"): alchemy.AlchemySession,
    ("sqlalchemy", "AsyncSession"): alchemy.async_session,
    ("sqlalchemy", "scoped_session"): lambda scoped: alchemy.AlchemySession(scoped()),
    ("sqlalchemy", "async_scoped_session"): lambda scoped: alchemy.async_session(scoped()),
    ("django", "BaseDatabaseWrapper"): django.DjangoConnection,
    ("django", "ConnectionProxy"): django.borrow_proxy,
}
"""By the top-level package and the class's own name: the modules in between change with versions."""

ACCEPTED = (
    "conn= takes an open psycopg, psycopg2, asyncpg, sqlite3 or aiosqlite connection, a SQLAlchemy "
    "Connection, Session, AsyncConnection or AsyncSession, Django's connection, or ctx.transaction()"
)

HINTS = {
    "Engine": "an engine has many connections; open one: with engine.begin() as conn: …",
    "AsyncEngine": "an engine has many connections; open one: async with engine.begin() as conn: …",
    "sessionmaker": "a sessionmaker makes sessions; make one: with Session.begin() as session: …",
    "async_sessionmaker": "a sessionmaker makes sessions; make one: async with Session.begin() as session: …",
    "Pool": "a pool has many connections; take one: async with pool.acquire() as conn, conn.transaction(): …",
    "ConnectionPool": "a pool has many connections; take one: with pool.connection() as conn: …",
    "AsyncConnectionPool": "a pool has many connections; take one: async with pool.connection() as conn: …",
    "Cursor": "a cursor is not a connection; give: conn=cursor.connection",
    "AsyncCursor": "a cursor is not a connection; give: conn=cursor.connection",
    "cursor": "a cursor is not a connection; give: conn=cursor.connection",
    "Transaction": "a transaction is not a connection; give the connection it was begun on: conn=conn",
    "AsyncTransaction": "a transaction is not a connection; give the connection it was begun on: conn=conn",
    "SessionTransaction": "a transaction is not a session; give: conn=session",
    "AsyncSessionTransaction": "a transaction is not a session; give: conn=session",
    "str": "an address is not a connection; open one: with psycopg.connect(url) as conn: …",
    "URL": "an address is not a connection; open one: with create_engine(url).begin() as conn: …",
}
"""Hints for objects that callers pass by mistake, by the name of one of their classes."""


def borrow(conn: object) -> CallerConnection:
    """The caller's connection, ready for an enqueue; raises UnusableConnection with the reason otherwise."""
    kind = _kind(type(conn))  # type: ignore[arg-type]
    if kind is not None:
        return kind(conn)
    if hasattr(conn, "windlass_dialect"):
        return drivers.WindlassTransaction(conn)
    raise UnusableConnection(_explain_unknown(conn))


@cache
def _kind(cls: type[Any]) -> Callable[[Any], CallerConnection] | None:
    for base in cls.__mro__:
        kind = KINDS.get((base.__module__.partition(".")[0], base.__qualname__))
        if kind is not None:
            return kind
    return None


def _explain_unknown(conn: object) -> str:
    cls = type(conn)
    found = f"conn is a {cls.__module__}.{cls.__qualname__}"
    for base in cls.__mro__:
        if base.__qualname__ in HINTS:
            return f"{found}: {HINTS[base.__qualname__]}. {ACCEPTED}"
    if inspect.isawaitable(conn):
        return f"{found}: it has not been awaited; write: conn = await … . {ACCEPTED}"
    if hasattr(cls, "__aenter__"):
        return f"{found}: it has not been entered; write: async with … as conn: … . {ACCEPTED}"
    if hasattr(cls, "__enter__"):
        return f"{found}: it has not been entered; write: with … as conn: … . {ACCEPTED}"
    return f"{found}, which cannot carry an enqueue. {ACCEPTED}"
