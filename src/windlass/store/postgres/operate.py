"""Operating on one job: cancel, retry, replay, resume, discard."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.model import audit
from windlass.model.job import NewJob
from windlass.model.state import State, Verb, sources, target
from windlass.store.parts.consequences import after_operation, copy_job, record_job_action
from windlass.store.postgres import rows
from windlass.store.postgres.runner import PostgresRunner
from windlass.store.sql import query


class NotAllowed(Exception):
    """The job's state does not allow this operation: the transaction is rolled back."""


async def operate(runner: PostgresRunner, connection: Any, verb: Verb, job: UUID, actor: str | None) -> State | None:
    """Change the job if its state allows it, with what follows; the state it is in now, None when it is deleted."""
    if verb is Verb.DISCARD:
        await runner.execute(record_job_action(audit.OPERATIONS[verb], actor, job))
    state = await _change(connection, verb, job)
    await runner.execute(after_operation(verb, job, state, actor))
    return state


async def rerun(
    runner: PostgresRunner, connection: Any, new: NewJob, old: UUID, *, discard: bool, actor: str | None
) -> None:
    """Write a copy of the job `old`, which is discarded before if it is still dead.

    The race: two operators discard, or one replays the job meanwhile. The discard waits for the row's lock and finds
    the job gone or not dead, and then this transaction is rolled back with the copy.
    """
    await runner.execute(record_job_action(audit.RERUN, actor, old))  # first: the statement copies from the job's row
    if discard:
        await operate(runner, connection, Verb.DISCARD, old, actor)
    await runner.execute(copy_job(new, old))


async def _change(connection: Any, verb: Verb, job: UUID) -> State | None:
    found = await connection.fetchval(query("postgres", verb.value), job, sorted(sources(verb)))
    if found is None:
        raise NotAllowed
    if verb is not Verb.CANCEL:
        return target(verb)
    state = rows.STATES[found]
    if state is not State.RUNNING and state not in sources(verb):
        raise NotAllowed
    return State.RUNNING if state is State.RUNNING else State.CANCELLED
