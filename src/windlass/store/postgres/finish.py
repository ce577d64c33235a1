"""Settling on PostgreSQL: plain jobs in one statement, the others in a transaction that looks after what follows."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from windlass.model.outcome import Transition
from windlass.model.state import FINISHING, SETTLING, State, Verb
from windlass.store.parts.admission import charge, hold_back, release_slots
from windlass.store.parts.consequences import write_flow
from windlass.store.parts.statements import Rows, Statement, Statements, aexecute, run
from windlass.store.postgres import rows
from windlass.store.sql import query

T = TypeVar("T")

WITH_OTHERS = frozenset({Verb.WAIT, Verb.ADVANCE})


class Reach(IntEnum):
    """Which rows a statement may settle: the others belong to a transaction that looks after the rest."""

    PLAIN = 0  # neither limits nor anything that follows
    LIMITED = 1  # they may hold slots
    ALL = 2  # their end may change more than themselves


class Written(NamedTuple):
    """What transitions came to: the states of those whose lease was current, and keys."""

    states: dict[UUID, State]
    slots: list[list[str]]  # to be given back; or, where that was done, those at which jobs are parked

    def joined(self, other: Written) -> Written:
        return Written({**self.states, **other.states}, self.slots + other.slots)


NOTHING = Written({}, [])


class Runner:
    """Runs the generators of `store/parts/` on one connection, and remembers whom to wake afterwards."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.queues: set[str] = set()
        self.let_in: set[str] = set()  # the same, of jobs that were parked

    async def execute(self, statements: Statements[T]) -> T:
        return await aexecute(statements, self._run)

    async def _run(self, statement: Statement) -> Rows:
        values = () if statement.payload is None else (statement.payload,)
        answer: Rows = await self._connection.fetch(query("postgres", statement.name), *values)
        queues = self.let_in if statement.unparks else self.queues
        queues |= statement.queues_to_wake(answer)
        return answer


def in_order(transitions: Sequence[Transition]) -> list[Transition]:
    """By job id, so that concurrent finishers lock in one order."""
    if any(transition.verb not in FINISHING | SETTLING for transition in transitions):
        raise ValueError("only the verbs of a lease's holder can be settled")
    return sorted(transitions, key=lambda transition: transition.lease.job)


async def finish_plain(connection: Any, transitions: Sequence[Transition]) -> Written:
    """Transitions that end their job and change nothing but the job and its slots, in one statement.

    A job that somebody began to wait for since its claim is left alone, and is missing from the answer.
    """
    reach = Reach.LIMITED if any(t.limited for t in transitions) else Reach.PLAIN
    return await _finish(connection, transitions, reach, gives_back=True)


async def settle_plain(connection: Any, transitions: Sequence[Transition]) -> Written:
    """The same for those after which the job stays and holds no slots."""
    return await _settle(connection, transitions, Reach.PLAIN)


def plain(transitions: Sequence[Transition]) -> tuple[list[Transition], list[Transition]]:
    """Those that `finish_plain` may write, and those that `settle_plain` may."""
    alone = [t for t in transitions if not (_is_followed(t) or t.charged or t.hold is not None)]
    return (
        [t for t in alone if t.verb in FINISHING],
        [t for t in alone if t.verb in SETTLING and not t.limited],
    )


async def let_in(connection: Any, given_back: Sequence[Sequence[str]]) -> set[str]:
    """Slots of these keys were given back, and that is committed: let in who is parked there; returns their queues.

    A claim that parks holds the key's lock, so that whoever it parked before the slot came back is seen here. If this
    process dies first, the next rescan of any worker lets them in.
    """
    runner = Runner(connection)
    await runner.execute(run("unpark", sorted(key for keys in given_back for key in keys), unparks=True))
    return runner.let_in


async def settle_rest(runner: Runner, connection: Any, transitions: Sequence[Transition]) -> dict[UUID, State]:
    """All other transitions, in the caller's transaction, with everything that follows them.

    Slots come last: their limit_counters are locked by every claim of the same keys, and until the commit.
    """
    await runner.execute(charge(t for t in transitions if t.charged))
    written = await _write(connection, [t for t in transitions if not _is_followed(t)], Reach.LIMITED)
    # What is missing became followed since its claim, or its lease is lost.
    rest = [t for t in transitions if t.job not in written.states]
    if rest:
        written = written.joined(await _settle_followed(runner, connection, rest))
    await runner.execute(hold_back((t.hold for t in transitions if t.hold and t.job in written.states), strict=False))
    await runner.execute(release_slots(written.slots))
    return written.states


async def _settle_followed(runner: Runner, connection: Any, transitions: Sequence[Transition]) -> Written:
    advancing = [(t, t.flow.advance) for t in transitions if t.flow is not None and t.flow.advance is not None]
    written = NOTHING
    if advancing:
        arguments = rows.advance_arguments(advancing)
        written = _told(await connection.fetch(query("postgres", "advance"), *arguments))
        runner.queues |= {to.queue for transition, to in advancing if transition.job in written.states}
    # A job that somebody asked to cancel does not advance: it ends as settle.sql lets it.
    rest = [t for t in transitions if t.job not in written.states]
    written = written.joined(await _write(connection, rest, Reach.ALL))
    settled = [(t, written.states[t.job]) for t in transitions if t.job in written.states]
    return written.joined(Written(dict(await runner.execute(write_flow(settled))), []))


def _is_followed(transition: Transition) -> bool:
    return transition.flow is not None or transition.followed or transition.verb in WITH_OTHERS


async def _write(connection: Any, transitions: Sequence[Transition], reach: Reach) -> Written:
    finished = await _finish(connection, [t for t in transitions if t.verb in FINISHING], reach, gives_back=False)
    return finished.joined(await _settle(connection, [t for t in transitions if t.verb in SETTLING], reach))


async def _finish(connection: Any, ending: Sequence[Transition], reach: Reach, *, gives_back: bool) -> Written:
    if not ending:
        return NOTHING
    name = "finish_with_slots" if gives_back and reach >= Reach.LIMITED else "finish"
    return _told(await connection.fetch(query("postgres", name), *rows.finish_arguments(ending, reach=reach)))


async def _settle(connection: Any, staying: Sequence[Transition], reach: Reach) -> Written:
    if not staying:
        return NOTHING
    arguments = rows.settle_arguments(staying, reach=reach)
    return _told(await connection.fetch(query("postgres", "finish_staying"), *arguments))


def _told(records: Sequence[Any]) -> Written:
    return Written(
        {record[0]: rows.STATES[record[1]] for record in records},
        [record[2] for record in records if record[2] is not None],
    )
