"""Decides by SQLSTATE what caused an error of PostgreSQL: a value or the database. Only this module decides it.

Only a value can break a constraint or be out of range: then the job that brought the value is at fault, and the same
statement would be refused again. A missing grant, a missing table, a full disk or a lost connection is the database's
fault: the statement is right, and it is tried again. An exception that a trigger raises shows neither.
"""

from __future__ import annotations

from enum import StrEnum

import asyncpg
from asyncpg.exceptions._base import DataError as UnencodableValue


class Fault(StrEnum):
    """What caused an error."""

    VALUE = "value"
    DATABASE = "database"
    UNKNOWN = "unknown"  # raised by a trigger or another function, or a fault inside the server


VALUE_CLASSES = frozenset({"22", "23"})  # data exceptions, broken constraints
VALUE_CODES = frozenset({"54000"})  # a limit of the program: a value too large for an index
SEQUENCE_EXHAUSTED = "2200H"  # of class 22, and not caused by a value
BROKEN_CHECK = "23514"

DATABASE_CLASSES = frozenset(
    {"08", "0A", "0B", "0L", "0P", "24", "25", "26", "28", "2B", "2D", "34", "3B", "3D", "3F", "40", "42", "53", "54"}
    | {"55", "57", "58", "72", "F0"}
)

LOST_STATEMENTS = frozenset({"26000", "42P05"})  # a prepared statement is gone, or is there already


LOST_ATTEMPT_CLASSES = frozenset({"08", "53", "58"})  # the connection broke, the server has no room, its disk failed


def fault_of(error: BaseException) -> Fault:
    """What caused the error. An error that the server did not report is unknown, unless the driver refused a value."""
    if isinstance(error, UnencodableValue):
        return Fault.VALUE
    code = code_of(error)
    if code == SEQUENCE_EXHAUSTED or _lacks_partition(error):
        return Fault.DATABASE
    if code[:2] in VALUE_CLASSES or code in VALUE_CODES:
        return Fault.VALUE
    return Fault.DATABASE if code[:2] in DATABASE_CLASSES else Fault.UNKNOWN


def lost_its_statements(error: BaseException) -> bool:
    """Whether the connection and the server disagree about prepared statements.

    A handler ran DEALLOCATE ALL, an undeclared pooler hands out other sessions, or a table was altered. The connection
    stays in that state, so it is not used again. Nothing was executed: another connection may try at once.
    """
    return code_of(error) in LOST_STATEMENTS or isinstance(error, asyncpg.InvalidCachedStatementError)


def lost_an_attempt(error: BaseException) -> bool:
    """Whether a handler's own transaction failed at its end for a reason that the handler cannot have caused.

    A handler can revoke its own rights, leave its transaction in error or keep it open for too long. So these are fewer
    errors than those of `Fault.DATABASE`.
    """
    return lost_its_statements(error) or code_of(error)[:2] in LOST_ATTEMPT_CLASSES


def code_of(error: BaseException) -> str:
    """The SQLSTATE; empty if the error is not the server's."""
    return getattr(error, "sqlstate", None) or ""


def _lacks_partition(error: BaseException) -> bool:
    """A row without a partition has the code of a broken CHECK, and names a table but no constraint."""
    constraint, table = getattr(error, "constraint_name", None), getattr(error, "table_name", None)
    return code_of(error) == BROKEN_CHECK and constraint is None and table is not None
