"""The operations on one job: cancel, retry, replay, resume, discard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.model import audit
from windlass.model.state import State, Verb, sources, target
from windlass.store.parts.consequences import after_operation, copy_job, record_job_action
from windlass.store.parts.refusals import OPERATIONS, refusal
from windlass.store.sql import query
from windlass.store.sqlite import rows
from windlass.store.sqlite.finish import add_end
from windlass.store.sqlite.rows import Parameters, array

if TYPE_CHECKING:
    import sqlite3
    from uuid import UUID

    from windlass.model.job import NewJob
    from windlass.store.sqlite.session import Runner


def operate(
    runner: Runner, connection: sqlite3.Connection, now: int, verb: Verb, job: UUID, actor: str | None
) -> State | None:
    """Write an operation that the job's state allows, and what it causes; returns the state, None after a discard."""
    if verb not in OPERATIONS:
        raise ValueError(f"{verb.value!r} is not an operator's verb; there are: {', '.join(OPERATIONS)}")
    parameters = {"id": str(job), "sources": array(sources(verb)), "now": now}
    if verb is Verb.DISCARD:
        runner.execute(record_job_action(audit.OPERATIONS[verb], actor, job))
    if _change(connection, verb, parameters):
        runner.execute(after_operation(verb, job, target(verb), actor))
        return target(verb)
    if verb is Verb.CANCEL and connection.execute(query("sqlite", "request_cancel"), parameters).rowcount:
        runner.execute(after_operation(verb, job, State.RUNNING, actor))
        return State.RUNNING
    row = connection.execute(query("sqlite", "find"), parameters).fetchone()
    raise refusal(verb, job, None if row is None else rows.job(row))


def rerun(
    runner: Runner,
    connection: sqlite3.Connection,
    now: int,
    new: NewJob,
    old: UUID,
    *,
    discard: bool,
    actor: str | None,
) -> None:
    """Write a copy of the job `old`, which is discarded before if it is still dead."""
    runner.execute(record_job_action(audit.RERUN, actor, old))  # first: the statement copies from the job's row
    if discard:
        operate(runner, connection, now, Verb.DISCARD, old, actor)
    runner.execute(copy_job(new, old))


def archive_cancelled(connection: sqlite3.Connection, parameters: Parameters) -> bool:
    """Move one job to the history as cancelled; False when its state does not allow it."""
    if not connection.execute(query("sqlite", "archive_cancelled"), parameters).rowcount:
        return False
    connection.execute(query("sqlite", "delete_archived"), parameters)
    add_end(connection, parameters["now"], parameters["id"], State.CANCELLED)
    return True


def _change(connection: sqlite3.Connection, verb: Verb, parameters: Parameters) -> bool:
    if verb is Verb.CANCEL:
        return archive_cancelled(connection, parameters)
    changed = connection.execute(query("sqlite", verb.value), parameters).rowcount > 0
    if changed and verb is Verb.RESUME:
        connection.execute(query("sqlite", "delete_from_history"), parameters)
    return changed
