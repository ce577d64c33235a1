"""The audit's words: one row per final transition and per operator's action, none per enqueue."""

from __future__ import annotations

from windlass.state import Verb

SUCCEEDED = "JOB_SUCCEEDED"
EXHAUSTED = "JOB_EXHAUSTED_RETRIES"
DEAD = "JOB_DEAD"
CANCELLED = "JOB_CANCELLED"

SIGNALLED = "JOB_SIGNALLED"

OPERATIONS = {
    Verb.CANCEL: "JOB_CANCEL_REQUESTED",  # of a running job; one that is cancelled at once has JOB_CANCELLED
    Verb.RETRY: "JOB_RETRIED",
    Verb.REPLAY: "JOB_REPLAYED",
    Verb.RESUME: "JOB_RESUMED",
    Verb.DISCARD: "JOB_DISCARDED",
}
"""What an operator did."""


def action(verb: Verb, *, exhausted: bool = False, success: str | None = SUCCEEDED) -> str | None:
    """The word for a final transition; None for any other, and for a success whose type turned its rows off."""
    if verb is Verb.SUCCEED:
        return success
    if verb in (Verb.BURY, Verb.CONDEMN, Verb.ABANDON):
        return EXHAUSTED if exhausted else DEAD
    return CANCELLED if verb is Verb.STOP else None
