"""Settling on PostgreSQL: plain jobs in one statement, the others in a transaction that looks after what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from windlass.outcome import Transition
from windlass.state import FINISHING, SETTLING, State, Verb
from windlass.store.asking import Ask, Flowing, Rows, adrive, queues_of
from windlass.store.following import after
from windlass.store.postgres import rows
from windlass.store.sql import query

T = TypeVar("T")

WITH_OTHERS = frozenset({Verb.WAIT, Verb.ADVANCE})


class Follower:
    """Drives the generators of `store/following.py` on one connection, and remembers whom to wake afterwards."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.queues: set[str] = set()

    async def drive(self, flowing: Flowing[T]) -> T:
        return await adrive(flowing, self._run)

    async def _run(self, question: Ask) -> Rows:
        answer: Rows = await self._connection.fetch(query("postgres", question.name), question.payload)
        self.queues |= queues_of(question, answer)
        return answer


def in_order(transitions: Sequence[Transition]) -> list[Transition]:
    """By job id, so that concurrent finishers lock in one order."""
    if any(transition.verb not in FINISHING | SETTLING for transition in transitions):
        raise ValueError("only the verbs of a lease's holder can be settled")
    return sorted(transitions, key=lambda transition: transition.lease.job)


async def settle_plain(connection: Any, transitions: Sequence[Transition]) -> dict[UUID, State]:
    """Transitions that change nothing beside their own job: a statement each for those that go and those that stay.

    A job that somebody began to wait for since its claim is left alone, and is missing from the answer.
    """
    plain = [t for t in transitions if t.flow is None and not t.followed and t.verb not in WITH_OTHERS]
    return await _write(connection, plain, followed=False)


async def settle_followed(follower: Follower, connection: Any, transitions: Sequence[Transition]) -> dict[UUID, State]:
    """Transitions whose job is followed, in the caller's transaction, with everything that follows them."""
    advancing = [(t, t.flow.advance) for t in transitions if t.flow is not None and t.flow.advance is not None]
    states: dict[UUID, State] = {}
    if advancing:
        states |= rows.states(await connection.fetch(query("postgres", "advance"), *rows.advance_arguments(advancing)))
        follower.queues |= {to.queue for transition, to in advancing if transition.job in states}
    # A job that somebody asked to cancel does not advance: it ends as settle.sql lets it.
    rest = [t for t in transitions if t.job not in states]
    states |= await _write(connection, rest, followed=True)
    settled = [(t, states[t.job]) for t in transitions if t.job in states]
    return {**states, **await follower.drive(after(settled))}


async def _write(connection: Any, transitions: Sequence[Transition], *, followed: bool) -> dict[UUID, State]:
    states: dict[UUID, State] = {}
    finishing = [t for t in transitions if t.verb in FINISHING]
    settling = [t for t in transitions if t.verb in SETTLING]
    if finishing:
        arguments = rows.finish_arguments(finishing, followed=followed)
        states |= rows.states(await connection.fetch(query("postgres", "finish"), *arguments))
    if settling:
        arguments = rows.settle_arguments(settling, followed=followed)
        states |= rows.states(await connection.fetch(query("postgres", "settle"), *arguments))
    return states
