"""Whatever leaves a handler ends its attempt: the job reaches a final state, and its processor takes the next one."""

from __future__ import annotations

import msgspec
import pytest

from windlass import State
from windlass.model.job import Failure

from .rig import FaultLab

RETURNS = ("cancel", "cancel inside", "mute result")
"""The handler came to its end: a request to cancel that came too late for it undoes nothing."""
RAISES = {
    "cancel and wait": "CancelledError",
    "generator": "GeneratorExit",
    "mute": "Mute",
}
PROCESSORS = 2


@pytest.mark.parametrize("type", ["ends", "ends_apart"])
def test_whatever_leaves_a_handler_ends_its_attempt(lab: FaultLab, type: str) -> None:
    good = [job for how in RETURNS for job in lab.enqueue(type, PROCESSORS, max_attempts=1, how=how)]
    bad = {job: how for how in RAISES for job in lab.enqueue(type, PROCESSORS, max_attempts=1, how=how)}
    worker = lab.ready("--concurrency", str(PROCESSORS))

    lab.until_final([*good, *bad], within=30)

    assert lab.counts() == {State.SUCCEEDED: len(good), State.DEAD: len(bad)}
    for job, how in bad.items():
        error = msgspec.json.decode(lab.find(job).error or "", type=Failure)
        assert error.type.rpartition(".")[2] == RAISES[how]
    lab.check_effects(good)
    assert all(len(lab.begins(job)) == 1 for job in [*good, *bad])
    # Each way used every processor once: one that was lost would be missed now.
    lab.open_gate()
    after = lab.enqueue("gated", 4 * PROCESSORS)
    lab.until(lambda: all(lab.find(job).status is State.SUCCEEDED for job in after), "the processors go on")
    assert worker.ended() is None
