"""Handlers that take their process along, beside healthy ones."""

from __future__ import annotations

import pytest

from windlass import State

from .rig import FaultLab


@pytest.mark.parametrize(("store", "culprit"), [("sqlite", "leave"), ("postgres", "segfault")])
def test_a_job_that_kills_its_worker_is_found_and_its_neighbours_succeed(
    request: pytest.FixtureRequest, store: str, culprit: str
) -> None:
    lab: FaultLab = request.getfixturevalue(f"{store}_lab")
    healthy = lab.enqueue("healthy", 50, max_attempts=2, seconds=0.05)
    (guilty,) = lab.enqueue(culprit, max_attempts=2)
    healthy += lab.enqueue("healthy", 50, max_attempts=2, seconds=0.05)
    supervisor = lab.start("--processes", "2", "--concurrency", "10")

    lab.until_final([*healthy, guilty])

    dead = lab.sql("select type, reason, error from {}jobs where status = 'dead'")
    assert lab.counts() == {State.SUCCEEDED: 100, State.DEAD: 1}, dead[:3]
    found = lab.find(guilty)
    assert (found.status, found.reason, found.crashes, found.attempt) == (State.DEAD, "crashed", 3, 0)
    assert supervisor.ended() is None
    lab.check_fences()
    (after,) = lab.enqueue("healthy")
    lab.until(lambda: lab.find(after).status is State.SUCCEEDED, "the workers go on")
