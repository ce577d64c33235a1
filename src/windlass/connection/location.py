"""The location of a connection's database: a job must be written into the app's own database and no other.

A location is text: `sqlite:<real path>` or `postgres:<installation id>`. Two routes to one database (another host name,
a pooler) have the same location. A copy of a database has the location of its original.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from windlass.connection.alchemy import AsyncAlchemy
from windlass.errors import UnusableConnection
from windlass.store.parts.statements import aexecute, execute

if TYPE_CHECKING:
    from collections.abc import Generator

    from windlass.connection.borrowed import CallerConnection, Rows

# Read from the catalogue, because a SELECT that fails would abort the caller's transaction.
READABLE = """
SELECT has_schema_privilege(pg_namespace.oid, 'USAGE') AND has_table_privilege(pg_class.oid, 'SELECT')
  FROM pg_catalog.pg_class
  JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
 WHERE pg_namespace.nspname = 'windlass' AND pg_class.relname = 'installation'
"""
INSTALLATION = "SELECT CAST(id AS text) FROM windlass.installation"
MAIN = "PRAGMA database_list"

LOCATIONS: WeakKeyDictionary[object, str] = WeakKeyDictionary()
"""By driver connection. A PostgreSQL connection cannot change its database. SQLite is asked each time, as that needs no
round trip."""


def location(borrowed: CallerConnection) -> str:
    """The location of a blocking connection."""
    anchor = _anchor(borrowed)
    if anchor is not None and anchor in LOCATIONS:
        return LOCATIONS[anchor]
    return execute(_locate(borrowed, anchor), borrowed.read)


async def alocation(borrowed: CallerConnection) -> str:
    """The location of any connection."""
    if isinstance(borrowed, AsyncAlchemy):
        return await borrowed.call_blocking(location)
    if not borrowed.asynchronous:
        return location(borrowed)
    anchor = _anchor(borrowed)
    if anchor is not None and anchor in LOCATIONS:
        return LOCATIONS[anchor]
    return await aexecute(_locate(borrowed, anchor), borrowed.aread)


def check_identity(found: str, app: str) -> None:
    """Refuse a connection to another database than the app's."""
    if found != app:
        raise UnusableConnection(
            f"conn is connected to another database than this app: {found}, and the app's jobs are in {app}; no worker "
            "of the app would ever see the job. Leave conn= out, or connect to the app's own database"
        )


def _anchor(borrowed: CallerConnection) -> object | None:
    """The object by which the location is cached; None if a weak reference cannot hold it."""
    anchor = borrowed.anchor() if borrowed.dialect == "postgres" else None
    return anchor if type(anchor).__weakrefoffset__ else None


def _locate(borrowed: CallerConnection, anchor: object | None) -> Generator[str, Rows, str]:
    """The queries, for a blocking or an asynchronous driver."""
    if borrowed.dialect == "sqlite":
        return _sqlite((yield MAIN))
    readable = yield READABLE
    if not readable:
        raise UnusableConnection(
            "conn's database has no Windlass schema, so it cannot hold the job; run: windlass migrate, or "
            "leave conn= out, and the job is enqueued on Windlass's own connection"
        )
    if not readable[0][0]:
        raise UnusableConnection(
            "conn's user may not read windlass.installation, so this database cannot be compared with the app's; run: "
            "GRANT USAGE ON SCHEMA windlass TO <user>; GRANT SELECT ON windlass.installation TO <user>"
        )
    installation = yield INSTALLATION
    found = f"postgres:{installation[0][0]}"
    if anchor is not None:
        LOCATIONS[anchor] = found
    return found


def _sqlite(databases: Rows) -> str:
    path = next((row[2] for row in databases if os.fsdecode(row[1]) == "main"), None)
    if not path:
        raise UnusableConnection(
            "conn is a database in memory, which no worker can open; give a connection to the app's file: "
            "sqlite3.connect(path)"
        )
    return f"sqlite:{os.path.realpath(os.fsdecode(path))}"
