"""Pipelines under a harness: one attempt at a time, whatever pools the phases have."""

from __future__ import annotations

from windlass import State, SyncContext, Windlass, phase
from windlass.testing import Harness


def test_drain_takes_jobs_through_all_phases_one_after_another(app: Windlass, bench: Harness) -> None:
    order: list[tuple[str, int]] = []

    @app.job
    async def one(n: int) -> int:
        order.append(("one", n))
        return n

    @app.job
    def two(ctx: SyncContext) -> int:
        order.append(("two", ctx.previous))
        return int(ctx.previous) + 1

    line = app.pipeline("line", phase(one, processors=1), phase(two, processors=1))
    jobs = [line.enqueue(n) for n in range(3)]

    first = bench.run_one()
    rest = bench.drain()

    assert (first.state, len(rest)) == (State.QUEUED, 5)
    assert order == [("one", 0), ("one", 1), ("one", 2), ("two", 0), ("two", 1), ("two", 2)]
    assert [job.result() for job in jobs] == [1, 2, 3]
