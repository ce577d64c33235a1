"""How an attempt can end, as the transition that its holder would write. It knows what it claimed, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from windlass.model.outcome import Transition
from windlass.model.state import Verb

from .truth import MAX_CRASHES

if TYPE_CHECKING:
    from windlass.model.job import Job

ENDINGS = st.sampled_from(
    ["succeed", "succeed", "fail", "fail", "crash", "snooze", "release", "release", "bury", "stop", "wait"]
)
DELAYS = st.sampled_from([0.0, 0.5, 40.0])

VERBS = {
    "succeed": Verb.SUCCEED,
    "snooze": Verb.SNOOZE,
    "release": Verb.RELEASE,
    "bury": Verb.BURY,
    "stop": Verb.STOP,
    "wait": Verb.WAIT,
}
BURNING = frozenset({"succeed", "fail", "bury"})


def ending(job: Job, how: str, delay: float) -> Transition:
    attempt = job.attempt if how in BURNING else job.attempt - 1
    crashes = job.crashes + (how == "crash")
    if how == "fail":
        verb = Verb.BURY if job.attempt >= job.max_attempts else Verb.FAIL
    elif how == "crash":
        verb = Verb.BURY if crashes >= MAX_CRASHES else Verb.FAIL
    else:
        verb = VERBS[how]
    return Transition(
        lease=job.lease,
        verb=verb,
        delay=None if how == "release" else delay,
        attempt=attempt,
        crashes=crashes,
        output='"done"' if how == "succeed" else None,
        reason=how,
        total=job.total,
        processed=job.processed,
        failed=job.failed,
    )
