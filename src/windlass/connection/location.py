"""Where a connection leads: a job must land in the app's own database, and nowhere else.

A location is text: `sqlite:<real path>` or `postgres:<installation id>`. Two ways to one database (another
host name, a pooler) have the same location; a copy of a database has its original's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from windlass.connection.alchemy import AsyncAlchemy
from windlass.errors import UnusableConnection

if TYPE_CHECKING:
    from collections.abc import Generator

    from windlass.connection.borrowed import CallerConnection, Rows

# From the catalogue, because a SELECT that fails would abort the caller's transaction.
READABLE = """
SELECT has_schema_privilege(pg_namespace.oid, 'USAGE') AND has_table_privilege(pg_class.oid, 'SELECT')
  FROM pg_catalog.pg_class
  JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
 WHERE pg_namespace.nspname = 'windlass' AND pg_class.relname = 'installation'
"""
INSTALLATION = "SELECT CAST(id AS text) FROM windlass.installation"
MAIN = "PRAGMA database_list"

LOCATIONS: WeakKeyDictionary[object, str] = WeakKeyDictionary()
"""By driver connection. PostgreSQL's cannot change theirs; SQLite's are asked again: no round trip."""


def location(borrowed: CallerConnection) -> str:
    """Where a blocking connection leads."""
    anchor = _anchor(borrowed)
    if anchor is not None and anchor in LOCATIONS:
        return LOCATIONS[anchor]
    steps = _locate(borrowed, anchor)
    try:
        sql = next(steps)
        while True:
            sql = steps.send(borrowed.read(sql))
    except StopIteration as stop:
        return str(stop.value)


async def alocation(borrowed: CallerConnection) -> str:
    """Where any connection leads."""
    if isinstance(borrowed, AsyncAlchemy):
        return await borrowed.call_blocking(location)
    if not borrowed.asynchronous:
        return location(borrowed)
    anchor = _anchor(borrowed)
    if anchor is not None and anchor in LOCATIONS:
        return LOCATIONS[anchor]
    steps = _locate(borrowed, anchor)
    try:
        sql = next(steps)
        while True:
            sql = steps.send(await borrowed.aread(sql))
    except StopIteration as stop:
        return str(stop.value)


def check_identity(found: str, app: str) -> None:
    """Refuse a connection that leads elsewhere than the app does."""
    if found != app:
        raise UnusableConnection(
            f"conn leads to another database than this app: {found}, and the app's jobs are in {app}; no "
            "worker of the app would ever see the job. Leave conn= away, or connect to the app's own database"
        )


def _anchor(borrowed: CallerConnection) -> object | None:
    """What to remember the location by; None where there is nothing that a weak reference can hold."""
    anchor = borrowed.anchor() if borrowed.dialect == "postgres" else None
    return anchor if type(anchor).__weakrefoffset__ else None


def _locate(borrowed: CallerConnection, anchor: object | None) -> Generator[str, Rows, str]:
    """The questions, apart from who asks them: blocking or awaiting."""
    if borrowed.dialect == "sqlite":
        return _sqlite((yield MAIN))
    readable = yield READABLE
    if not readable:
        raise UnusableConnection(
            "conn's database has no Windlass schema, so it cannot hold the job; run: windlass migrate, or "
            "leave conn= away, and the job is enqueued on Windlass's own connection"
        )
    if not readable[0][0]:
        raise UnusableConnection(
            "conn's user may not read windlass.installation, so whose database this is cannot be seen; run: "
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
