"""Django's `connection` and `connections[alias]`, used through Django itself.

A statement on the raw connection below would bypass Django's `atomic`: its savepoints, its flag that a block must roll
back, and its `on_commit`. Django's cursors take `%(name)s` on PostgreSQL and on SQLite.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windlass.connection.borrowed import (
    FAILED_TRANSACTION,
    CallerConnection,
    Dialect,
    Rows,
    autocommit_error,
    failed_transaction_error,
    name_parameters,
    translate,
)
from windlass.errors import SchemaMissing, UnusableConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("windlass.connection")

DIALECTS: dict[str, Dialect] = {"postgresql": "postgres", "sqlite": "sqlite"}
NO_TABLE = "no such table: windlass_jobs"
FIX = "with transaction.atomic(): …"


class DjangoConnection(CallerConnection):
    """A `DatabaseWrapper` inside `transaction.atomic`."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.dialect = _dialect(conn)
        with _refuse_event_loop():
            conn.ensure_connection()
        if not conn.in_atomic_block and conn.get_autocommit():
            raise autocommit_error("conn", FIX)
        if conn.needs_rollback:
            raise UnusableConnection(
                "conn's atomic block has to roll back: a statement in it raised, so the job would be lost with it; "
                f"put the statement that may fail into a block of its own: {FIX}"
            )

    def run(self, sql: str, *values: object) -> Rows:
        # If the program commits by hand, SQLite's driver begins a transaction by itself only before some statements.
        if self.dialect == "sqlite" and not self._conn.connection.in_transaction:
            self._fetch("BEGIN IMMEDIATE", ())
        return self._fetch(sql, values)

    def read(self, sql: str) -> Rows:
        return self._fetch(sql, ())

    def _fetch(self, sql: str, values: tuple[object, ...]) -> Rows:
        with _explain_errors(), self._conn.cursor() as cursor:
            cursor.execute(translate(sql, "pyformat"), name_parameters(values))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def anchor(self) -> object:
        driver: object = self._conn.connection
        return driver

    def after_commit(self, callback: Callable[[], None]) -> bool:
        """Call back after the outermost block. A savepoint that rolls back drops its callbacks."""
        if not self._conn.in_atomic_block:
            return False  # Django has no on_commit if the program commits by hand

        def call() -> None:
            try:
                callback()
            except Exception:
                # The caller's commit has succeeded: an error of a callback must not reach the caller.
                log.exception("a wake-up after the commit failed; workers find the job at their next poll")

        self._conn.on_commit(call)
        return True


def borrow_proxy(proxy: Any) -> DjangoConnection:
    """Borrow the connection behind `django.db.connection` on this thread."""
    from django.db import connections

    if not hasattr(proxy, "vendor"):  # the default cache and the default task backend are proxies of the same class
        raise UnusableConnection("conn is one of Django's proxies, and not for a database; give: conn=connection")
    return DjangoConnection(connections[proxy.alias])


def _dialect(conn: Any) -> Dialect:
    try:
        return DIALECTS[conn.vendor]
    except KeyError:
        raise UnusableConnection(
            f"conn is a connection to {conn.vendor}, and jobs are stored in PostgreSQL or SQLite; without conn= "
            "the job is enqueued on Windlass's own connection"
        ) from None


@contextmanager
def _refuse_event_loop() -> Iterator[None]:
    """Explain how to leave the event loop: Django's connections belong to a thread, and refuse to work on a loop."""
    from django.core.exceptions import SynchronousOnlyOperation

    try:
        yield
    except SynchronousOnlyOperation as error:
        raise UnusableConnection(
            "conn is Django's, which blocks and has no transactions on an event loop; put the atomic block and the "
            "enqueue into one function and write: await sync_to_async(function)()"
        ) from error


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Explain a failed transaction and a missing schema. Django wraps the driver's errors; the cause has the code."""
    try:
        yield
    except Exception as error:
        origin = error.__cause__
        if FAILED_TRANSACTION in (getattr(origin, "sqlstate", None), getattr(origin, "pgcode", None)):
            raise failed_transaction_error("conn") from error
        if NO_TABLE in str(error):
            raise SchemaMissing("conn's database has no Windlass schema; run: manage.py windlass migrate") from error
        raise
