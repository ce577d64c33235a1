"""Settling: what an attempt came to, written under its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.state import FINISHING, SETTLING, State, target
from windlass.store.sql import query
from windlass.store.sqlite.rows import Parameters, transition_parameters

if TYPE_CHECKING:
    import sqlite3

    from windlass.outcome import Transition


def settle(connection: sqlite3.Connection, now: int, transition: Transition) -> State | None:
    """Write one transition: the state the job is in now, or None when the lease is not current."""
    parameters = transition_parameters(transition, now)
    if transition.verb in FINISHING:
        return target(transition.verb) if _archive(connection, "finish", parameters) else None
    if _archive(connection, "settle_cancelled", parameters):
        return State.CANCELLED
    settled = connection.execute(query("sqlite", "settle"), parameters).rowcount
    return target(transition.verb) if settled else None


def refuse_foreign(transition: Transition) -> None:
    """Only a lease's holder settles; every other verb has its own way in."""
    if transition.verb not in FINISHING | SETTLING:
        raise ValueError(f"{transition.verb.value!r} is not a verb of a lease's holder, so that settle() refuses it")


def _archive(connection: sqlite3.Connection, step: str, parameters: Parameters) -> bool:
    if not connection.execute(query("sqlite", step), parameters).rowcount:
        return False
    connection.execute(query("sqlite", "leave"), parameters)
    return True
