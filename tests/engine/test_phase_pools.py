"""Pools of a phase's own size: no phase starves behind a small pool, and nothing piles up in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass import Context, Windlass, phase
from windlass.observe.events import AttemptStarted
from windlass.store.protocol import Claim

from .rig import PATIENCE, Database, come, eventually, stores_of, working
from .test_pipelines import Gate


async def test_a_small_pool_in_the_first_phase_does_not_starve_the_second(database: Database) -> None:
    app = database.app(poll="50ms")
    gate, names = Gate(), set[str]()
    held: list[int] = []

    @app.job
    async def crawl(n: int) -> int:
        if n >= 3:
            await gate.passes()
        return n

    @app.job
    async def parse(ctx: Context, n: int) -> int:
        held.append(n)
        await go_on.wait()
        return n

    @app.job
    async def plain(n: int) -> int:
        return n

    go_on = asyncio.Event()
    line = app.pipeline("line", phase(crawl, processors=2), phase(parse, processors=3))
    jobs = await app.aenqueue_many(line.call(n) for n in range(60))
    async with working(app, concurrency=8) as (worker, events):
        await eventually(lambda: asyncio.sleep(0, len(held)), lambda count: count == 3)
        await come(gate.reached)
        state = worker.state
        others = [await (await plain.aenqueue(n)).aresult(timeout=PATIENCE) for n in range(5)]

        # Two crawl, three parse; what else was claimed is no more than a little ahead of each.
        assert (sorted(held), others, state.pools.busy) == ([0, 1, 2], [0, 1, 2, 3, 4], 5)
        assert (state.local_queue.waiting("crawl"), state.local_queue.waiting("parse")) < (10, 10)
        assert state.local_queue.waiting("crawl") + state.local_queue.waiting("parse") < 10
        gate.open.set()
        go_on.set()
        for job in jobs:
            await job.aresult(timeout=PATIENCE)
        names = {event.processor for event in events.recorded if isinstance(event, AttemptStarted)}

    assert {name for name in names if name.startswith("crawl")} == {"crawl-processor-1", "crawl-processor-2"}
    assert {name for name in names if name.startswith("parse")} == {f"parse-processor-{n}" for n in (1, 2, 3)}


async def test_plain_jobs_of_a_phases_type_do_not_pile_up_in_memory(database: Database) -> None:
    app = database.app(poll="50ms", pool_size=2)
    gate = Gate()

    @app.job
    async def crawl(n: int) -> int:
        await gate.passes()
        return n

    app.pipeline("line", crawl)
    jobs = await app.aenqueue_many(crawl.call(n) for n in range(100))
    async with working(app, concurrency=4) as (worker, _):
        await come(gate.reached)
        for _ in range(10):  # the phase's own pool stays empty, and would ask for two more each time
            worker.parts.discovery.nudge()
            await asyncio.sleep(0)
            await eventually(lambda: asyncio.sleep(0, worker.parts.discovery.is_waiting), lambda resting: resting)
        assert (worker.state.pools.busy, worker.state.pools.free_in("crawl")) == (2, 2)
        assert len(worker.state.leases) <= 4
        gate.open.set()
        for job in jobs:
            await job.aresult(timeout=PATIENCE)


@pytest.mark.parametrize("sized", [False, True])
async def test_only_phases_with_a_pool_of_their_own_cost_a_claim_of_their_own(app: Windlass, sized: bool) -> None:
    @app.job
    async def one() -> None: ...

    @app.job
    async def two() -> None: ...

    @app.job
    async def plain() -> None: ...

    app.pipeline("line", one, phase(two, processors=2 if sized else None))
    requests: list[Claim] = []
    async with working(app) as (worker, _):
        store = stores_of(worker)
        claim = store.claim

        async def spy(request: Claim) -> Any:
            requests.append(request)
            return await claim(request)

        store.claim = spy
        await (await plain.aenqueue()).aresult(timeout=PATIENCE)

    expected = {("two",), ("one", "plain")} if sized else {("one", "two", "plain")}
    assert {request.types for request in requests} == expected
