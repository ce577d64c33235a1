"""Finishing on PostgreSQL: plain jobs in one statement, other jobs in a transaction that also writes what follows.

In:   transitions of runtime/completer.py, each under a lease
Out:  the jobs' rows as the transitions say, where the lease is current; a lost lease changes nothing
Next: store/parts/consequences.py, for what follows from them in the same transaction
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from windlass.model.outcome import Transition
from windlass.model.state import ENDING_VERBS, STAYING_VERBS, State, Verb
from windlass.store.parts.admission import charge, hold_back, release_slots
from windlass.store.parts.consequences import write_flow
from windlass.store.parts.statements import run
from windlass.store.postgres import rows
from windlass.store.postgres.runner import PostgresRunner
from windlass.store.sql import query

FOLLOWED_VERBS = frozenset({Verb.WAIT, Verb.ADVANCE})
"""Transitions that always change more than their own job."""


class Reach(IntEnum):
    """Which jobs a statement may finish; the parameter `reach` of `finish` and `finish_staying`."""

    PLAIN = 0  # jobs without limits that are not followed
    LIMITED = 1  # also jobs with limits: the caller releases their slots
    ALL = 2  # also followed jobs: the caller writes what follows them, in the same transaction


class Written(NamedTuple):
    """The result of transitions: the new states of jobs with a current lease, and limit keys."""

    states: dict[UUID, State]
    keys: list[list[str]]  # of slots to release; after `finish_with_slots`, the keys that have parked jobs

    def merged(self, other: Written) -> Written:
        return Written({**self.states, **other.states}, self.keys + other.keys)


NOTHING = Written({}, [])


def sort_by_job(transitions: Sequence[Transition]) -> list[Transition]:
    """Sort transitions by job id, so that concurrent finishes lock in one order."""
    if any(transition.verb not in ENDING_VERBS | STAYING_VERBS for transition in transitions):
        raise ValueError("only the verbs of a lease's holder can be written")
    return sorted(transitions, key=lambda transition: transition.lease.job)


def split_plain(transitions: Sequence[Transition]) -> tuple[list[Transition], list[Transition]]:
    """The transitions for `finish_plain_ending`, and those for `finish_plain_staying`."""
    plain = [t for t in transitions if not (_is_followed(t) or t.charged or t.hold is not None)]
    return (
        [t for t in plain if t.verb in ENDING_VERBS],
        [t for t in plain if t.verb in STAYING_VERBS and not t.limited],
    )


async def finish_plain_ending(connection: Any, transitions: Sequence[Transition]) -> Written:
    """Write transitions that end their job and change only the job and its slots, in one statement.

    A job that another job began to wait for since the claim is left alone, and is missing from the result.
    """
    reach = Reach.LIMITED if any(t.limited for t in transitions) else Reach.PLAIN
    return await _finish_ending(connection, transitions, reach, releases=True)


async def finish_plain_staying(connection: Any, transitions: Sequence[Transition]) -> Written:
    """Write transitions after which the job keeps its row and holds no slots, in one statement."""
    return await _finish_staying(connection, transitions, Reach.PLAIN)


async def unpark(connection: Any, keys_of_batch: Sequence[Sequence[str]]) -> set[str]:
    """Unpark jobs on keys with released slots, after the commit of that release; returns the queues of these jobs.

    A claim that parks a job holds the key's counter row, so that a job that was parked before the release is visible
    here. If this process dies first, the next rescan of any worker unparks the jobs.
    """
    runner = PostgresRunner(connection)
    await runner.execute(run("unpark", sorted(key for keys in keys_of_batch for key in keys), unparks=True))
    return runner.unparked


async def finish_in_transaction(
    runner: PostgresRunner, connection: Any, transitions: Sequence[Transition]
) -> dict[UUID, State]:
    """Write any transitions, in the caller's transaction, with everything that follows them.

    Slots come last: every claim of the same keys locks their counter rows too, and the locks last until the commit.
    """
    await runner.execute(charge(t for t in transitions if t.charged))
    written = await _finish_all(connection, [t for t in transitions if not _is_followed(t)], Reach.LIMITED)
    # A job that is missing became followed since its claim, or its lease is lost.
    rest = [t for t in transitions if t.job not in written.states]
    if rest:
        written = written.merged(await _finish_followed(runner, connection, rest))
    await runner.execute(hold_back((t.hold for t in transitions if t.hold and t.job in written.states), strict=False))
    await runner.execute(release_slots(written.keys))
    return written.states


async def _finish_followed(runner: PostgresRunner, connection: Any, transitions: Sequence[Transition]) -> Written:
    advancing = [(t, t.flow.advance) for t in transitions if t.flow is not None and t.flow.advance is not None]
    written = NOTHING
    if advancing:
        arguments = rows.advance_arguments(advancing)
        written = _written(await connection.fetch(query("postgres", "advance"), *arguments))
        runner.queues |= {to.queue for transition, to in advancing if transition.job in written.states}
    # A job with a request to cancel does not advance: `finish_staying` moves it to the history as cancelled.
    rest = [t for t in transitions if t.job not in written.states]
    written = written.merged(await _finish_all(connection, rest, Reach.ALL))
    finished = [(t, written.states[t.job]) for t in transitions if t.job in written.states]
    return written.merged(Written(dict(await runner.execute(write_flow(finished))), []))


def _is_followed(transition: Transition) -> bool:
    return transition.flow is not None or transition.followed or transition.verb in FOLLOWED_VERBS


async def _finish_all(connection: Any, transitions: Sequence[Transition], reach: Reach) -> Written:
    ending = [t for t in transitions if t.verb in ENDING_VERBS]
    staying = [t for t in transitions if t.verb in STAYING_VERBS]
    ended = await _finish_ending(connection, ending, reach, releases=False)
    return ended.merged(await _finish_staying(connection, staying, reach))


async def _finish_ending(connection: Any, ending: Sequence[Transition], reach: Reach, *, releases: bool) -> Written:
    if not ending:
        return NOTHING
    name = "finish_with_slots" if releases and reach >= Reach.LIMITED else "finish"
    return _written(await connection.fetch(query("postgres", name), *rows.finish_arguments(ending, reach=reach)))


async def _finish_staying(connection: Any, staying: Sequence[Transition], reach: Reach) -> Written:
    if not staying:
        return NOTHING
    arguments = rows.finish_staying_arguments(staying, reach=reach)
    return _written(await connection.fetch(query("postgres", "finish_staying"), *arguments))


def _written(records: Sequence[Any]) -> Written:
    return Written(
        {record[0]: rows.STATES[record[1]] for record in records},
        [record[2] for record in records if record[2] is not None],
    )
