"""The states of a job and the one table of what may follow what.

    queued ──claim──▶ running ──▶ succeeded
                        ├──▶ failed ──(run_at passes: claimable again)──▶ running
                        ├──▶ dead        attempts used up, permanent error, or crash quarantine
                        ├──▶ waiting     for children, a signal or a timer ──▶ queued
                        └──▶ cancelled

`failed` means "the last attempt failed, the next one is due at run_at". `dead` is the dead-letter queue.
No transition leaves `succeeded`. The WHERE clauses of an operator's verbs are built from this
table. Other statements name their states, and tests/store/test_every_edge.py tries every verb from every state.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a job."""

    QUEUED = "queued"  # due now, or at run_at
    RUNNING = "running"  # claimed by a worker
    SUCCEEDED = "succeeded"  # its result is stored; no transition leaves this state
    FAILED = "failed"  # the last attempt failed; the next one is due at run_at
    DEAD = "dead"  # attempts used up, an error that no retry repairs, or too many crashes; a replay starts it over
    WAITING = "waiting"  # for children, a signal or a time; no worker holds it
    CANCELLED = "cancelled"  # a resume brings it back


class Verb(StrEnum):
    """The transitions of a job."""

    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"
    BURY = "bury"
    WAIT = "wait"
    STOP = "stop"  # of a running job: its handler stopped, or was fenced out, after a cancel
    RELEASE = "release"  # the worker gives the job back, unstarted or at shutdown: no attempt is used up
    SNOOZE = "snooze"  # the handler asked to run later: no attempt is used up
    ADVANCE = "advance"  # to the next phase of its pipeline
    RESCUE = "rescue"  # its worker died
    BURY_CRASHED = "bury_crashed"  # its worker died, and it has reached max_crashes
    WAKE = "wake"  # its wait is over
    BURY_UNDELIVERED = "bury_undelivered"  # no delivery of the broker reached a worker for too long
    ABANDON = "abandon"  # what it waits for cannot happen any more
    CANCEL = "cancel"  # of a job that is not running: at once
    RETRY = "retry"  # an operator makes a failed job due now
    REPLAY = "replay"
    RESUME = "resume"
    DISCARD = "discard"


CLAIMABLE = frozenset({State.QUEUED, State.FAILED})
FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
ARCHIVED = frozenset({State.SUCCEEDED, State.CANCELLED})
"""States with rows in the history; a `dead` job stays in the jobs table until it is replayed or discarded."""

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
    Verb.BURY_CRASHED: (frozenset({State.RUNNING}), State.DEAD),
    Verb.WAKE: (frozenset({State.WAITING}), State.QUEUED),
    Verb.ABANDON: (frozenset({State.WAITING}), State.DEAD),
    Verb.BURY_UNDELIVERED: (CLAIMABLE, State.DEAD),
    Verb.CANCEL: (frozenset({State.QUEUED, State.FAILED, State.WAITING}), State.CANCELLED),
    Verb.RETRY: (frozenset({State.FAILED}), State.QUEUED),
    Verb.REPLAY: (frozenset({State.DEAD}), State.QUEUED),
    Verb.RESUME: (frozenset({State.CANCELLED}), State.QUEUED),
    Verb.DISCARD: (frozenset({State.DEAD}), None),
}

ENDING_VERBS = frozenset({Verb.SUCCEED, Verb.STOP})
"""Verbs under a lease that move the row to the history."""

STAYING_VERBS = frozenset({Verb.FAIL, Verb.BURY, Verb.WAIT, Verb.RELEASE, Verb.SNOOZE, Verb.ADVANCE})
"""Verbs under a lease after which the row stays in the jobs table."""


def sources(verb: Verb) -> frozenset[State]:
    """The states from which `verb` is allowed."""
    return TRANSITIONS[verb][0]


def target(verb: Verb) -> State | None:
    """The state `verb` leads to; None when the job is gone afterwards."""
    return TRANSITIONS[verb][1]


def allows(verb: Verb, state: State) -> bool:
    """Whether `verb` may happen to a job in `state`."""
    return state in TRANSITIONS[verb][0]
