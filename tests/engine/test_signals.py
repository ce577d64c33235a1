"""`ctx.wait_signal` and `ctx.sleep`: the processor is free meanwhile, and time is the database's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from servers import url_of
from windlass import Context, JobHandle, State, SyncContext, Windlass, fixed
from windlass.errors import FlowError, JobNotFound, ResultTimeout, SignalTimeout, TransitionRefused
from windlass.model.job import new_id
from windlass.model.outcome import Ending
from windlass.testing import Harness, NothingDue, harness

from .rig import PATIENCE, Database, ended, in_state, working


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Where a story moves the time."""
    app = Windlass("sqlite:////nowhere/jobs.db")
    with harness(app, None if request.param == "sqlite" else url_of("postgres"), patience="20s") as bench:
        yield bench


# Signals


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_signal_that_comes_during_the_wait_wakes_the_job(app: Windlass, kind: str) -> None:
    runs: list[int] = []

    @app.job
    async def coroutine(ctx: Context) -> Any:
        runs.append(ctx.attempt)
        return await ctx.wait_signal("approved")

    @app.job
    def thread(ctx: SyncContext) -> Any:
        runs.append(ctx.attempt)
        return ctx.wait_signal("approved")

    @app.job
    async def other() -> str:
        return "on the same processor"

    async with working(app, concurrency=1):
        job = await (coroutine if kind == "coroutine" else thread).aenqueue()
        await in_state(job, State.WAITING)
        assert await (await other.aenqueue()).aresult(timeout=PATIENCE) == "on the same processor"
        assert await job.asignal("approved", {"by": "ada"}) is True
        assert await job.aresult(timeout=PATIENCE) == {"by": "ada"}

    assert (runs, (await job.arecord()).attempt) == ([1, 1], 1)


async def test_a_signal_that_was_sent_before_anybody_waits_is_kept(app: Windlass) -> None:
    runs: list[int] = []

    @app.job(retry=fixed(0))
    async def work(ctx: Context) -> list[Any]:
        runs.append(ctx.attempt)
        said = await ctx.wait_signal("approved", timeout="1h")
        if ctx.attempt == 1:
            raise RuntimeError("after it was read")
        return [said, await ctx.wait_signal("silent")]

    job = await work.aenqueue()
    assert await job.asignal("approved", [1, "first"]) is True
    assert await job.asignal("approved", "second") is False
    assert await job.asignal("silent") is True
    async with working(app):
        assert await job.aresult(timeout=PATIENCE) == [[1, "first"], None]

    assert runs == [1, 2]


async def test_a_signal_that_comes_while_the_handler_runs_is_found(app: Windlass) -> None:
    @app.job
    async def work(ctx: Context) -> list[Any]:
        first = await ctx.wait_signal("first")
        await job.asignal("second", 2)
        return [first, await ctx.wait_signal("second"), ctx.fence]

    job = await work.aenqueue()
    await job.asignal("first", 1)
    async with working(app):
        assert await job.aresult(timeout=PATIENCE) == [1, 2, 1]


async def test_a_signal_that_nobody_can_hear_or_hold_is_refused(app: Windlass) -> None:
    @app.job
    async def quick() -> None: ...

    async with working(app):
        job = await quick.aenqueue()
        await ended(job)
    with pytest.raises(TransitionRefused, match="succeeded"):
        await job.asignal("late")
    with pytest.raises(JobNotFound):
        await JobHandle(app._client, new_id()).asignal("nobody")
    with pytest.raises(FlowError, match="name of a signal is empty"):
        await job.asignal("")
    with pytest.raises(FlowError, match=r"signal 'odd'.*builtins\.object"):
        await job.asignal("odd", object())


def test_a_blocking_program_sends_signals_too(bench: Harness) -> None:
    @bench.app.job
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("approved")

    job = work.enqueue()
    assert [ran.ending for ran in bench.drain()] == [Ending.WAITING]
    assert (job.signal("approved", 7), job.signal("approved", 8)) == (True, False)
    bench.drain()
    assert job.result() == 7


def test_a_signal_that_does_not_come_in_time_is_a_timeout_for_good(bench: Harness) -> None:
    recorded: list[str] = []

    @bench.app.job
    async def work(ctx: Context) -> str:
        try:
            await ctx.wait_signal("approved", timeout="1h")
            recorded.append("approved")
        except SignalTimeout:
            recorded.append("timeout")
        await ctx.wait_signal("on")
        return recorded[-1]

    job = work.enqueue()
    bench.drain()
    assert (job.status(), recorded) == (State.WAITING, [])
    bench.clock.advance("59m")
    assert bench.drain() == []
    bench.clock.advance("1m")
    assert [ran.ending for ran in bench.drain()] == [Ending.WAITING]
    assert job.signal("approved") is True  # too late: the handler has gone another way
    assert job.signal("on") is True
    bench.drain()

    assert (job.result(), recorded, job.record().attempt) == ("timeout", ["timeout", "timeout"], 1)


def test_a_job_that_died_of_a_timeout_waits_anew_after_a_replay(bench: Harness) -> None:
    @bench.app.job(max_attempts=1)
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("approved", timeout="1h")

    job = work.enqueue()
    bench.drain()
    bench.clock.advance("1h")
    bench.drain()
    assert job.status() is State.DEAD

    job.replay()
    bench.drain()
    assert job.status() is State.WAITING
    job.signal("approved", 7)
    bench.drain()

    assert job.result() == 7


def test_the_time_for_a_signal_counts_from_the_first_run(bench: Harness) -> None:
    @bench.app.job(retry=fixed("50m"))
    async def work(ctx: Context) -> str:
        await ctx.sleep("first", "30m")
        try:
            await ctx.wait_signal("approved", timeout="1h")
        except SignalTimeout as error:
            return f"{error}"
        return "approved"

    job = work.enqueue()
    bench.drain()
    bench.clock.advance("30m")
    bench.drain()
    bench.clock.advance("30m")
    job.signal("another")  # wakes no job
    assert bench.drain() == []
    bench.clock.advance("30m")
    bench.drain()

    assert job.result().startswith("signal 'approved' was not sent within 1h;")


# Sleep


def test_a_sleep_of_three_days_holds_nothing_and_burns_no_attempt(bench: Harness) -> None:
    runs: list[Any] = []

    @bench.app.job(max_attempts=1)
    async def work(ctx: Context) -> str:
        runs.append(bench.clock.now())
        await ctx.sleep("nap", "3d")
        await ctx.sleep("short", timedelta(hours=1))
        return "awake"

    job = work.enqueue()
    bench.drain()
    record = job.record()
    assert (record.status, record.worker, record.token, record.attempt) == (State.WAITING, None, None, 0)
    with pytest.raises(NothingDue, match=r"waiting: let what it waits for happen"):
        bench.run_one(job)

    bench.clock.advance(timedelta(days=3) - timedelta(seconds=1))
    assert bench.drain() == []
    bench.clock.advance("1s")
    bench.drain()
    bench.clock.advance("1h")
    bench.drain()

    assert job.result() == "awake"
    assert [run - runs[0] for run in runs] == [timedelta(), timedelta(days=3), timedelta(days=3, hours=1)]
    assert (job.record().attempt, job.record().attempts) == (1, None)


def test_a_sleep_that_has_passed_is_not_slept_again_by_a_retry(bench: Harness) -> None:
    @bench.app.job(retry=fixed("1s"))
    def work(ctx: SyncContext) -> int:
        ctx.sleep("nap", "3d")
        if ctx.attempt < 3:
            raise RuntimeError("after the nap")
        return ctx.attempt

    job = work.enqueue()
    bench.drain()
    bench.clock.advance("3d")
    for _ in range(3):
        bench.drain()
        bench.clock.advance("1s")

    assert job.result() == 3


async def test_a_worker_wakes_what_sleeps(app: Windlass) -> None:
    @app.job
    async def work(ctx: Context) -> int:
        await ctx.sleep("none", 0)
        await ctx.sleep("nap", "20ms")
        return ctx.fence

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == 2


async def test_a_sleeping_job_is_cancelled_at_once(app: Windlass) -> None:
    @app.job
    async def work(ctx: Context) -> None:
        await ctx.sleep("nap", "3d")

    async with working(app):
        job = await work.aenqueue()
        await in_state(job, State.WAITING)
        assert await job.acancel() is State.CANCELLED


async def test_a_name_that_was_a_step_before_cannot_become_a_wait(app: Windlass) -> None:
    @app.job(retry=fixed(0))
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            await ctx.step("nap", lambda: "a step")
            raise RuntimeError("a new version is deployed")
        with pytest.raises(FlowError, match="was a step in an earlier run"):
            await ctx.sleep("nap", "1h")
        return "refused"

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == "refused"


# Joins with a time


def test_a_join_that_takes_too_long_is_a_timeout_for_good(bench: Harness) -> None:
    seen: list[Any] = []

    @bench.app.job
    async def slow() -> str:
        return "at last"

    @bench.app.job
    async def parent(ctx: Context) -> list[Any]:
        kid = ctx.spawn("kid", slow.options(delay="3h").call())
        try:
            seen.append(await ctx.wait([kid], timeout="1h"))
        except ResultTimeout:
            seen.append(["timeout", kid.status])
        await ctx.wait_signal("on")
        return seen

    job = parent.enqueue()
    bench.drain()
    bench.clock.advance("59m")
    assert bench.drain() == []
    bench.clock.advance("1m")
    bench.drain()
    bench.clock.advance("2h")
    assert [ran.type for ran in bench.drain()] == ["slow"]
    job.signal("on")
    bench.drain()

    assert job.result() == [["timeout", "queued"], ["timeout", "succeeded"]]


async def test_a_join_in_time_has_its_results(app: Windlass, database: Database) -> None:
    @app.job
    async def child() -> int:
        return 1

    @app.job
    async def parent(ctx: Context) -> list[int]:
        return await ctx.wait([ctx.spawn("kid", child.call())], timeout="1h")

    async with working(app):
        assert await (await parent.aenqueue()).aresult(timeout=PATIENCE) == [1]

    assert await database.run("SELECT count(*) FROM {}waits") == [(0,)]
