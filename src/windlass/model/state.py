"""The states of a job and the one table of what may follow what.

    queued ──claim──▶ running ──▶ succeeded
                        ├──▶ failed ──(run_at passes: claimable again)──▶ running
                        ├──▶ dead        attempts used up, permanent error, or crash quarantine
                        ├──▶ waiting     for children, a signal or a timer ──▶ queued
                        └──▶ cancelled

`failed` means "the last attempt failed, the next one is due at run_at". `dead` is the dead-letter queue.
`succeeded` has no way out. Stores take the states a verb may start from out of this table and put them into
their WHERE clauses, so that what is not in the table cannot be written.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    WAITING = "waiting"
    CANCELLED = "cancelled"


class Verb(StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"
    BURY = "bury"
    WAIT = "wait"
    STOP = "stop"  # a running job whose handler stopped, or was fenced out, after a cancel
    RELEASE = "release"  # given back unstarted, or at shutdown: no attempt burned
    SNOOZE = "snooze"  # the handler asked for later: no attempt burned
    ADVANCE = "advance"  # to the next phase of its pipeline
    RESCUE = "rescue"  # its worker died
    CONDEMN = "condemn"  # its worker died once too often
    WAKE = "wake"  # what it waited for is there
    ABANDON = "abandon"  # what it waited for cannot come any more
    CANCEL = "cancel"  # a job that is not running, at once
    RETRY = "retry"  # an operator makes a failed job due now
    REPLAY = "replay"
    RESUME = "resume"
    DISCARD = "discard"


CLAIMABLE = frozenset({State.QUEUED, State.FAILED})
FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
ARCHIVED = frozenset({State.SUCCEEDED, State.CANCELLED})
"""States whose rows live in the history; `dead` stays in the jobs table until it is replayed or discarded."""

TRANSITIONS: dict[Verb, tuple[frozenset[State], State | None]] = {
    Verb.CLAIM: (CLAIMABLE, State.RUNNING),
    Verb.SUCCEED: (frozenset({State.RUNNING}), State.SUCCEEDED),
    Verb.FAIL: (frozenset({State.RUNNING}), State.FAILED),
    Verb.BURY: (frozenset({State.RUNNING}), State.DEAD),
    Verb.WAIT: (frozenset({State.RUNNING}), State.WAITING),
    Verb.STOP: (frozenset({State.RUNNING}), State.CANCELLED),
    Verb.RELEASE: (frozenset({State.RUNNING}), State.QUEUED),
    Verb.SNOOZE: (frozenset({State.RUNNING}), State.QUEUED),
    Verb.ADVANCE: (frozenset({State.RUNNING}), State.QUEUED),
    Verb.RESCUE: (frozenset({State.RUNNING}), State.QUEUED),
    Verb.CONDEMN: (frozenset({State.RUNNING}), State.DEAD),
    Verb.WAKE: (frozenset({State.WAITING}), State.QUEUED),
    Verb.ABANDON: (frozenset({State.WAITING}), State.DEAD),
    Verb.CANCEL: (frozenset({State.QUEUED, State.FAILED, State.WAITING}), State.CANCELLED),
    Verb.RETRY: (frozenset({State.FAILED}), State.QUEUED),
    Verb.REPLAY: (frozenset({State.DEAD}), State.QUEUED),
    Verb.RESUME: (frozenset({State.CANCELLED}), State.QUEUED),
    Verb.DISCARD: (frozenset({State.DEAD}), None),
}

FINISHING = frozenset({Verb.SUCCEED, Verb.STOP})
"""Verbs of a lease's holder that move the row to the history."""

SETTLING = frozenset({Verb.FAIL, Verb.BURY, Verb.WAIT, Verb.RELEASE, Verb.SNOOZE, Verb.ADVANCE})
"""Verbs of a lease's holder after which the row stays in the jobs table."""


def sources(verb: Verb) -> frozenset[State]:
    """The states from which `verb` is allowed."""
    return TRANSITIONS[verb][0]


def target(verb: Verb) -> State | None:
    """The state `verb` leads to; None when the job is gone afterwards."""
    return TRANSITIONS[verb][1]


def allows(verb: Verb, state: State) -> bool:
    """Whether `verb` may happen to a job in `state`."""
    return state in TRANSITIONS[verb][0]
