"""The actions that the audit records: one row per final transition and per operation, none per enqueue."""

from __future__ import annotations

from windlass.model.admission import GateState
from windlass.model.state import Verb

SUCCEEDED = "JOB_SUCCEEDED"
EXHAUSTED = "JOB_EXHAUSTED_RETRIES"
DEAD = "JOB_DEAD"
CANCELLED = "JOB_CANCELLED"

SIGNALLED = "JOB_SIGNALLED"
RERUN = "JOB_RERUN"  # of the old job
REVEALED = "JOB_REVEALED"  # an admin saw the hidden values of a job

GATES = {
    GateState.OPEN: "GATE_RESUMED",
    GateState.PAUSED: "GATE_PAUSED",
    GateState.DRAINING: "GATE_DRAINED",
}
LIMIT_HELD = "LIMIT_HELD"  # by an operator; a handler's hold is logged by the handler
LIMIT_RELEASED = "LIMIT_RELEASED"
BUDGET_SET = "BUDGET_SET"
BUDGET_DROPPED = "BUDGET_DROPPED"
TENANT_WEIGHED = "TENANT_WEIGHED"
SCHEDULE_PAUSED = "SCHEDULE_PAUSED"
SCHEDULE_RESUMED = "SCHEDULE_RESUMED"
SCHEDULE_EDITED = "SCHEDULE_EDITED"
SCHEDULE_RESET = "SCHEDULE_RESET"
SCHEDULE_FIRED = "SCHEDULE_FIRED"  # by an operator; ticks have rows of their own
SCHEDULE_FORGOTTEN = "SCHEDULE_FORGOTTEN"
TOKEN_CREATED = "TOKEN_CREATED"
TOKEN_REVOKED = "TOKEN_REVOKED"
DELIVERY_SET = "DELIVERY_SET"  # with the way of delivery as its reason
DEAD_LETTER_REPLAYED = "DEAD_LETTER_REPLAYED"  # of a broker; a dead job has JOB_REPLAYED
DEAD_LETTER_DISCARDED = "DEAD_LETTER_DISCARDED"

OPERATIONS = {
    Verb.CANCEL: "JOB_CANCEL_REQUESTED",  # of a running job; a job that is cancelled at once has JOB_CANCELLED
    Verb.RETRY: "JOB_RETRIED",
    Verb.REPLAY: "JOB_REPLAYED",
    Verb.RESUME: "JOB_RESUMED",
    Verb.DISCARD: "JOB_DISCARDED",
}
"""The action of each verb of an operator."""


def action(verb: Verb, *, exhausted: bool = False, success: str | None = SUCCEEDED) -> str | None:
    """The action of a final transition; None for any other transition, and for a success of a type with audit=False."""
    if verb is Verb.SUCCEED:
        return success
    if verb in (Verb.BURY, Verb.BURY_CRASHED, Verb.BURY_UNDELIVERED, Verb.ABANDON):
        return EXHAUSTED if exhausted else DEAD
    return CANCELLED if verb is Verb.STOP else None
