"""Whatever leaves a handler ends its attempt: the job reaches a final state, and its processor takes the next one."""

from __future__ import annotations

import msgspec
import pytest

from windlass import State
from windlass.job import Failure

from .rig import Yard

RETURNS = ("cancel", "cancel inside", "mute result")
"""The handler came to its end: a request to cancel that came too late for it undoes nothing."""
RAISES = {
    "cancel and wait": "CancelledError",
    "generator": "GeneratorExit",
    "mute": "Mute",
}
PROCESSORS = 2


@pytest.mark.parametrize("type", ["ends", "ends_apart"])
def test_whatever_leaves_a_handler_ends_its_attempt(yard: Yard, type: str) -> None:
    good = [job for how in RETURNS for job in yard.enqueue(type, PROCESSORS, max_attempts=1, how=how)]
    bad = {job: how for how in RAISES for job in yard.enqueue(type, PROCESSORS, max_attempts=1, how=how)}
    worker = yard.ready("--concurrency", str(PROCESSORS))

    yard.until_final([*good, *bad], within=30)

    assert yard.counts() == {State.SUCCEEDED: len(good), State.DEAD: len(bad)}
    for job, how in bad.items():
        error = msgspec.json.decode(yard.find(job).error or "", type=Failure)
        assert error.type.rpartition(".")[2] == RAISES[how]
    yard.check_effects(good)
    assert all(len(yard.begins(job)) == 1 for job in [*good, *bad])
    # Each way used every processor once: one that was lost would be missed now.
    yard.open_gate()
    after = yard.enqueue("gated", 4 * PROCESSORS)
    yard.until(lambda: all(yard.find(job).status is State.SUCCEEDED for job in after), "the processors go on")
    assert worker.ended() is None
