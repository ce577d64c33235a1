"""The finish on SQLite: the transitions of attempts, each written under its lease.

In:   transitions of runtime/completer.py, each under a lease
Out:  the jobs' rows as the transitions want them, where the lease is current; a lost lease changes nothing
Next: store/parts/consequences.py, for what they cause in the same transaction
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.model import audit
from windlass.model.figures import BOUNDS, READ, DepthRow, FigureRow, bucket_of
from windlass.model.state import ENDING_VERBS, FINAL, STAYING_VERBS, State, target
from windlass.store.parts.admission import charge, hold_back, release_slots
from windlass.store.parts.consequences import write_flow
from windlass.store.parts.messages import WAKE_GATES
from windlass.store.sql import query, query_parts
from windlass.store.sqlite.rows import (
    SECOND,
    Parameters,
    advance_parameters,
    array,
    decode_keys,
    keys_of,
    moment,
    span,
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
    attempts = attempts_of(connection, [each.job for each in transitions])
    runner.execute(charge(transitions))
    written = [(each, state) for each in transitions if (state := _write_one(connection, now, each)) is not None]
    states = {each.job: state for each, state in written}
    runner.queues |= {
        each.flow.advance.queue
        for each, state in written
        if each.flow is not None and each.flow.advance is not None and state is State.QUEUED
    }
    add_attempts(connection, now, attempts, written)
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
    if found:
        add_end(connection, now, lease.job, State.DEAD)
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


# Figures


COLUMNS = {State.SUCCEEDED: "succeeded", State.FAILED: "failed", State.DEAD: "dead", State.CANCELLED: "cancelled"}
"""The column of each state. A job that is queued or waiting after its attempt is not counted, unless it advanced."""


class RunningAttempt(NamedTuple):
    """What the figures need of a job before its attempt ends."""

    worker: str
    queue: str
    phase: str
    run_at: int


def attempts_of(connection: sqlite3.Connection, jobs: Sequence[UUID]) -> dict[UUID, RunningAttempt]:
    """Read before the jobs end or move to another queue."""
    found = connection.execute(query("sqlite", "attempts_of_jobs"), {"ids": array(jobs)})
    return {UUID(job): RunningAttempt(*rest) for job, *rest in found}


def add_attempts(
    connection: sqlite3.Connection,
    now: int,
    attempts: dict[UUID, RunningAttempt],
    written: Sequence[tuple[Transition, State]],
) -> None:
    """Add attempts whose ends were written: one write per worker, queue and phase. A lost lease is not among them."""
    sums: dict[tuple[str, str, str], dict[str, Any]] = defaultdict(_nothing)
    for transition, state in written:
        advanced = state is State.QUEUED and transition.flow is not None and transition.flow.advance is not None
        column = "advanced" if advanced else COLUMNS.get(state)
        attempt = attempts.get(transition.job)
        if column is None or attempt is None:
            continue
        row = sums[attempt.worker, attempt.queue, attempt.phase]
        waited = max(0.0, (now - attempt.run_at) / SECOND - transition.elapsed)
        row[column] += 1
        row["run_seconds"] += transition.elapsed
        row["wait_seconds"] += waited
        row["runs"][bucket_of(transition.elapsed)] += 1
        row["waits"][bucket_of(waited)] += 1
    for (worker, queue, phase), row in sums.items():
        histograms = {name: msgspec.json.encode(row[name]).decode() for name in ("runs", "waits")}
        place = {"now": now, "worker": worker, "queue": queue, "phase": phase}
        connection.execute(query("sqlite", "add_figures"), row | place | histograms)


def _nothing() -> dict[str, Any]:
    numbers = dict.fromkeys(("succeeded", "advanced", "failed", "dead", "cancelled"), 0)
    empty = {"runs": [0] * (len(BOUNDS) + 1), "waits": [0] * (len(BOUNDS) + 1)}
    return {**numbers, "run_seconds": 0.0, "wait_seconds": 0.0, **empty}


def add_end(connection: sqlite3.Connection, now: int, job: object, outcome: State) -> None:
    """Add the end of a job that no worker wrote."""
    connection.execute(query("sqlite", "add_end"), {"id": str(job), "outcome": outcome.value, "now": now})


def fold_figures(connection: sqlite3.Connection, now: int, *, minutes: bool) -> None:
    for part in query_parts("sqlite", "fold_figures"):
        connection.execute(part, {"now": now, "minutes": minutes})


def drop_figures(connection: sqlite3.Connection, now: int, history: int) -> None:
    for part in query_parts("sqlite", "drop_figures"):
        connection.execute(part, {"now": now, "history": history})


def read_figures(
    connection: sqlite3.Connection, now: int, since: float, step: float, queue: str | None
) -> list[FigureRow]:
    parameters = {"now": now, "since": span(since), "step": span(step), "queue": queue}
    return [
        FigureRow(
            **dict(zip(READ[:-2], (moment(at), *rest), strict=True)),
            runs=tuple(msgspec.json.decode(runs)),
            waits=tuple(msgspec.json.decode(waits)),
        )
        for at, *rest, runs, waits in connection.execute(query("sqlite", "figures"), parameters)
    ]


def read_depths(
    connection: sqlite3.Connection, now: int, since: float, queue: str | None, step: float
) -> list[DepthRow]:
    parameters = {"now": now, "since": span(since), "queue": queue, "step": span(step)}
    names = DepthRow.__struct_fields__
    found = connection.execute(query("sqlite", "depths"), parameters)
    return [DepthRow(**dict(zip(names, (moment(at), *rest), strict=True))) for at, *rest in found]
