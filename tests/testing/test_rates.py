"""Rates in a harness: a handler does not wait for a moment that no test lets pass."""

from __future__ import annotations

from windlass import Context, State, Windlass
from windlass.testing import harness


def test_a_token_of_the_next_seconds_is_there_at_once_and_a_later_one_snoozes() -> None:
    app = Windlass("sqlite:///nowhere.db")
    app.rate("wiki", 1, every="1s")
    calls: list[int] = []

    @app.job
    async def call(ctx: Context, n: int) -> None:
        await ctx.acquire("wiki")
        calls.append(n)
        ctx.cost(2)

    with harness(app) as windlass:
        for n in range(10):
            call.enqueue(n)
        windlass.drain()
        waiting = [job for job in windlass.jobs(call, status=State.QUEUED) if job.attempt == 0]
        assert (len(calls), len(waiting)) == (6, 4)

        windlass.clock.advance("20s")
        windlass.drain()
        assert sorted(calls) == list(range(10))
        assert {job.cost_cents for job in windlass.jobs(call)} == {2}
