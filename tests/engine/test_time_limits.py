"""Time limits: the worker stops what runs too long, and goes on."""

from __future__ import annotations

import asyncio
import threading

from windlass import Context, State, Windlass, fixed
from windlass.model.outcome import Ending
from windlass.model.processors import ProcessorState
from windlass.model.state import FINAL

from .rig import PATIENCE, Database, attempts, come, ended, eventually, failure, in_state, working


async def test_a_coroutine_is_cancelled_at_its_time_limit_and_retried(app: Windlass) -> None:
    cancelled = []

    @app.job(timeout="100ms", max_attempts=2, retry=fixed(0))
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async with working(app):
        record = await ended(await slow.aenqueue())

    assert (record.status, record.reason, record.attempt, len(cancelled)) == (State.DEAD, "exhausted", 2, 2)
    assert [each.outcome for each in attempts(record)] == ["timeout", "timeout"]
    assert failure(record).message == "the time limit of 100ms has passed"


async def test_the_settings_limit_every_type_that_names_none(database: Database) -> None:
    app = database.app(timeout="100ms", max_attempts=1)

    @app.job
    async def slow() -> None:
        await asyncio.Event().wait()

    @app.job(timeout="1h")
    async def patient() -> str:
        await asyncio.sleep(0.2)
        return "done"

    async with working(app):
        assert (await ended(await slow.aenqueue())).status is State.DEAD
        assert await (await patient.aenqueue()).aresult(timeout=PATIENCE) == "done"


async def test_a_thread_is_fenced_out_and_its_processor_in_error_until_it_ends(
    database: Database, whatever_happens: threading.Event
) -> None:
    app = database.app(health="50ms")
    go, runs = whatever_happens, []

    @app.job(timeout="100ms", max_attempts=1)
    def stuck() -> str:
        runs.append(1)
        go.wait(PATIENCE)
        return "too late"

    @app.job
    async def healthy() -> int:
        return 1

    async with working(app, concurrency=2) as (worker, _):
        job = await stuck.aenqueue()
        dead = await ended(job)
        (bad,) = [each for each in worker.state.pools if each.state is ProcessorState.ERROR]
        assert await (await healthy.aenqueue()).aresult(timeout=PATIENCE) == 1
        assert (bad.name, bad.stuck, worker.state.pools.free) == ("default-processor-1", True, 1)

        go.set()
        await eventually(lambda: asyncio.sleep(0, worker.state.pools.free), lambda free: free == 2)
        assert bad.state is ProcessorState.IDLE

    late = await job.arecord()
    assert (dead.status, late.status, late.output, runs) == (State.DEAD, State.DEAD, None, [1])


async def test_a_coroutine_that_swallows_its_cancellation_is_fenced_out(
    database: Database, whatever_happens: threading.Event
) -> None:
    app = database.app(health="50ms")
    go = whatever_happens

    @app.job(timeout="100ms", max_attempts=1)
    async def stubborn() -> str:
        while not go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        return "too late"

    @app.job
    async def healthy() -> int:
        return 1

    async with working(app, concurrency=2) as (worker, events):
        job = await stubborn.aenqueue()
        await events.ended(job, Ending.TIMED_OUT)
        assert (await in_state(job, *FINAL)).status is State.DEAD
        assert await (await healthy.aenqueue()).aresult(timeout=PATIENCE) == 1

        go.set()
        await eventually(lambda: asyncio.sleep(0, worker.state.pools.free), lambda free: free == 2)

    assert (await job.arecord()).output is None


async def test_a_result_that_comes_after_the_limit_is_refused(app: Windlass) -> None:
    @app.job(timeout="100ms", max_attempts=1)
    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "as if nothing had happened"

    async with working(app):
        record = await ended(await late.aenqueue())

    assert (record.status, record.output) == (State.DEAD, None)


async def test_a_time_limit_does_not_touch_the_neighbours(app: Windlass) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def neighbour(ctx: Context) -> bool:
        started.set()
        await go.wait()
        return ctx.cancelled

    @app.job(timeout="50ms", max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with working(app, concurrency=2):
        job = await neighbour.aenqueue()
        await come(started)
        await ended(await slow.aenqueue())
        go.set()
        assert await job.aresult(timeout=PATIENCE) is False


async def test_jobs_that_wait_for_processors_in_error_start_when_these_are_reset(database: Database) -> None:
    app = database.app(health="200ms")
    slow = asyncio.Event()

    @app.job(timeout="50ms", max_attempts=1)
    async def sticks() -> None:
        await slow.wait()

    @app.job
    async def quick(n: int) -> int:
        return n

    async with working(app, concurrency=2):
        stuck = await app.aenqueue_many(sticks.call() for _ in range(8))
        done = await app.aenqueue_many(quick.call(n) for n in range(30))
        assert [await job.aresult(timeout=4 * PATIENCE) for job in done] == list(range(30))
        assert {(await ended(job)).status for job in stuck} == {State.DEAD}
