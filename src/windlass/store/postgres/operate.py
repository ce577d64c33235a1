"""Operating on one job: cancel, retry, replay, resume, discard."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.model import audit
from windlass.model.state import State, Verb, sources, target
from windlass.store.parts.consequences import after_operation, record_job_action
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
