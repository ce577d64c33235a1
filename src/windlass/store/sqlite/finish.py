"""The finish on SQLite: the transitions of attempts, each written under its lease.

In:   transitions of runtime/completer.py, each under a lease
Out:  the jobs' rows as the transitions want them, where the lease is current; a lost lease changes nothing
Next: store/parts/consequences.py, for what they cause in the same transaction
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from windlass.model import audit
from windlass.model.state import ENDING_VERBS, FINAL, STAYING_VERBS, State, target
from windlass.store.parts.admission import charge, hold_back, release_slots
from windlass.store.parts.consequences import write_flow
from windlass.store.parts.messages import WAKE_GATES
from windlass.store.sql import query
from windlass.store.sqlite.rows import (
    Parameters,
    advance_parameters,
    array,
    decode_keys,
    keys_of,
    transition_parameters,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from windlass.model.flow import Memory
    from windlass.model.job import Lease
    from windlass.model.outcome import Transition
    from windlass.store.sqlite.session import Runner


def write_all(
    runner: Runner, connection: sqlite3.Connection, now: int, transitions: Sequence[Transition]
) -> dict[UUID, State]:
    """Write transitions and everything they cause; returns the states of the jobs with a current lease."""
    slots = _slots(connection, transitions)
    runner.execute(charge(transitions))
    written = [(each, state) for each in transitions if (state := _write_one(connection, now, each)) is not None]
    states = {each.job: state for each, state in written}
    runner.queues |= {
        each.flow.advance.queue
        for each, state in written
        if each.flow is not None and each.flow.advance is not None and state is State.QUEUED
    }
    _hold_back(runner, [each.hold for each, _ in written if each.hold is not None])
    runner.execute(release_slots(slots.get(job) for job in states))
    if any(each.flow is not None or state in FINAL for each, state in written):
        states |= runner.execute(write_flow(written))
    return states


def _slots(connection: sqlite3.Connection, transitions: Sequence[Transition]) -> dict[UUID, list[str]]:
    """The keys of jobs that hold slots, read before the jobs end or get other keys. Without limits no job is read."""
    if connection.execute(query("sqlite", "any_limit")).fetchone() is None:
        return {}
    found = connection.execute(query("sqlite", "slots_of_jobs"), {"ids": array(each.job for each in transitions)})
    return {UUID(job): decode_keys(limits) for job, limits in found}


def _hold_back(runner: Runner, holds: Sequence[tuple[str, float]]) -> None:
    if holds:
        runner.execute(hold_back(holds, strict=False))
        runner.queues.add(WAKE_GATES)


def _write_one(connection: sqlite3.Connection, now: int, transition: Transition) -> State | None:
    """Write one transition; returns the job's state now, or None when the lease is not current."""
    advance = None if transition.flow is None else transition.flow.advance
    if advance is not None:
        moved = connection.execute(query("sqlite", "advance"), advance_parameters(transition, advance, now)).rowcount
        if moved:
            return State.QUEUED
    parameters = transition_parameters(transition, now)
    state = _write(connection, transition, parameters)
    instead = state is State.CANCELLED and transition.verb not in ENDING_VERBS
    action = audit.CANCELLED if instead else transition.action
    if state in FINAL and action is not None:
        connection.execute(query("sqlite", "record_end"), parameters | {"action": action})
    return state


def _write(connection: sqlite3.Connection, transition: Transition, parameters: Parameters) -> State | None:
    if transition.verb in ENDING_VERBS:
        return target(transition.verb) if _archive(connection, "finish", parameters) else None
    if _archive(connection, "finish_cancelled", parameters):
        return State.CANCELLED
    written = connection.execute(query("sqlite", "finish_staying"), parameters).rowcount
    return target(transition.verb) if written else None


def bury_unreadable(runner: Runner, connection: sqlite3.Connection, now: int, lease: Lease, reason: str) -> bool:
    """Bury a job with the smallest possible write, and release its slots."""
    parameters = {"id": str(lease.job), "token": str(lease.token), "reason": reason, "now": now}
    found = connection.execute(query("sqlite", "bury_unreadable"), parameters).fetchall()
    runner.execute(release_slots(keys_of(limits) for (limits,) in found))
    return bool(found)


def record_step(connection: sqlite3.Connection, now: int, lease: Lease, memory: Memory) -> bool:
    """Store a step's result, if the lease is current."""
    parameters = {"id": str(lease.job), "token": str(lease.token), "name": memory.name, "value": memory.value}
    return connection.execute(query("sqlite", "record_step"), parameters | {"now": now}).rowcount > 0


def check_verb(transition: Transition) -> None:
    """Refuse the verbs that a lease's holder does not have: other functions write those."""
    if transition.verb not in ENDING_VERBS | STAYING_VERBS:
        raise ValueError(f"{transition.verb.value!r} is not a verb of a lease's holder, so that finish() refuses it")


def _archive(connection: sqlite3.Connection, step: str, parameters: Parameters) -> bool:
    if not connection.execute(query("sqlite", step), parameters).rowcount:
        return False
    connection.execute(query("sqlite", "delete_finished"), parameters)
    return True
