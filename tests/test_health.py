"""The health check gives back what waited in memory too long, where no time limit says how long that is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from test_local_queue import job
from windlass.model.outcome import Transition
from windlass.model.state import Verb
from windlass.observe.subscribers import Subscribers
from windlass.runtime.duties.health import HealthCheck
from windlass.runtime.local_queue import LocalQueue
from windlass.runtime.pool import PhasePools
from windlass.testing import ManualClock


@pytest.mark.parametrize(("timeout", "passed", "back"), [(None, 31, True), (None, 29, False), (300.0, 31, False)])
async def test_a_job_that_waits_in_memory_for_a_lease_goes_back(
    timeout: float | None, passed: float, back: bool
) -> None:
    given_back: list[Transition] = []
    queue, clock = LocalQueue(), ManualClock()
    state = SimpleNamespace(
        settings=SimpleNamespace(timeout=timeout, lease=30.0, health=5.0),
        clock=clock,
        local_queue=queue,
        pools=PhasePools(total=1, size=None),
        subscribers=Subscribers(),
        emit=lambda event: None,
        worker=uuid4(),
    )
    waiting = job(attempt=1, crashes=0, processed=0, failed=0, cost_cents=0)
    queue.enqueue(waiting, clock.monotonic())
    clock.advance(passed)

    await HealthCheck(cast(Any, state), cast(Any, SimpleNamespace(submit=given_back.append)), cast(Any, None)).round()

    assert [(each.job, each.verb, each.attempt) for each in given_back] == (
        [(waiting.id, Verb.RELEASE, waiting.attempt - 1)] if back else []
    )
    assert len(queue) == (0 if back else 1)
