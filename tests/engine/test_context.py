"""What a handler can read of its job, and record about it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from windlass import Context, Job, Snooze, State, SyncContext, Windlass
from windlass.handler.log import handler_log
from windlass.testing.clock import ManualClock

from .rig import PATIENCE, Database, attempts, ended, eventually, in_state, stores_of, working


async def test_a_handler_knows_its_job_its_lease_and_its_deadline(app: Windlass) -> None:
    seen: dict[str, Any] = {}

    @app.job(timeout="90s")
    async def curious(ctx: Context, n: int) -> None:
        seen.update(
            job=ctx.job, attempt=ctx.attempt, fence=ctx.fence, deadline=ctx.deadline, cancelled=ctx.cancelled, n=n
        )

    @app.job
    async def endless(ctx: Context) -> None:
        seen["endless"] = ctx.deadline

    async with working(app):
        job = await curious.options(tenant="acme").aenqueue(7)
        await job.aresult(timeout=PATIENCE)
        await (await endless.aenqueue()).aresult(timeout=PATIENCE)

    held = seen["job"]
    assert (held.id, held.tenant, held.status, held.arguments()) == (job.id, "acme", State.RUNNING, {"n": 7})
    assert (seen["attempt"], seen["fence"], seen["cancelled"], seen["n"]) == (1, 1, False, 7)
    assert seen["deadline"] - held.claimed_at == timedelta(seconds=90)
    assert seen["endless"] is None


async def test_the_log_of_an_attempt_is_kept_up_to_a_thousand_lines(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def chatty(ctx: Context) -> None:
        for n in range(1_500):
            ctx.log.info("line %d", n)
        raise RuntimeError("after all that")

    async with working(app):
        (entry,) = attempts(await ended(await chatty.aenqueue()))

    assert (len(entry.log), entry.log[0], entry.log[999]) == (1_001, "INFO line 0", "INFO line 999")
    assert entry.log[-1] == "… 500 more lines were dropped"


async def test_the_log_of_an_attempt_is_kept_up_to_64_kibibytes(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_log, "propagate", False)  # pytest's own handler raises on a wrong argument

    @app.job
    async def chatty(ctx: Context) -> None:
        ctx.log.error("nul \0 and %s", "no argument for that", "or that")
        ctx.log(f"half {chr(0xD800)}")
        for _ in range(100):
            ctx.log.debug("x" * 4_000)
        ctx.log.warning("y" * 1_000_000)

    async with working(app):
        (entry,) = attempts(await ended(await chatty.aenqueue()))

    assert sum(len(line.encode()) for line in entry.log) <= 65 * 1024
    assert entry.log[0].startswith("ERROR nul � and")
    assert entry.log[1] == "INFO half �"
    assert "dropped" in entry.log[-1]


async def test_progress_is_seen_while_the_job_runs_and_kept_when_it_ends(app: Windlass) -> None:
    go = asyncio.Event()

    @app.job(max_attempts=1)
    async def counting(ctx: Context) -> None:
        ctx.progress(3, total=10)
        ctx.progress(failed=1)
        await go.wait()
        ctx.progress(10)
        raise RuntimeError("at the very end")

    async with working(app):
        job = await counting.aenqueue()
        seen = await eventually(job.arecord, lambda record: record.processed > 0)
        go.set()
        kept = await ended(job)

    assert (seen.status, seen.total, seen.processed, seen.failed) == (State.RUNNING, 10, 3, 1)
    assert (kept.total, kept.processed, kept.failed) == (10, 10, 1)


async def test_progress_survives_a_snooze(app: Windlass) -> None:
    @app.job
    async def in_parts(ctx: Context) -> int:
        ctx.progress(ctx.processed + 1)
        if ctx.processed < 3:
            raise Snooze(0)
        return ctx.processed

    async with working(app):
        assert await (await in_parts.aenqueue()).aresult(timeout=PATIENCE) == 3


async def test_progress_is_written_at_most_once_a_second_and_job(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock)
    said: asyncio.Queue[int] = asyncio.Queue()
    heard: asyncio.Queue[int] = asyncio.Queue()

    @app.job
    async def counting(ctx: Context) -> None:
        while (n := await said.get()) > 0:
            for part in range(n):
                ctx.progress(part + 1)
            heard.put_nowait(n)

    async def say(n: int, *, then: float) -> None:
        said.put_nowait(n)
        await heard.get()
        clock.advance(then)
        await job.arecord()  # a round trip: a task that was woken has run

    async with working(app) as (worker, _):
        record, written = stores_of(worker).record, []

        async def spy(progress: Any) -> None:
            written.append([mark.processed for mark in progress])
            await record(progress)

        stores_of(worker).record = spy
        job = await counting.aenqueue()
        try:
            await say(1_000, then=1.0)
            await eventually(job.arecord, lambda found: found.processed == 1_000)
            for n in (2_000, 3_000):
                await say(n, then=0.5)

            async def later() -> Job:
                # The writer may have gone to sleep only after the first half second: give it the rest of its second.
                clock.advance(0.1)
                return await job.arecord()

            await eventually(later, lambda found: found.processed == 3_000)
            clock.advance(1.0)  # nothing new: nothing is written
        finally:
            said.put_nowait(0)
        await in_state(job, State.SUCCEEDED)

    assert written == [[1_000], [3_000]]


@pytest.mark.parametrize("wrong", [-1, 2**31, 1.5, True, "3"])
async def test_progress_that_is_no_count_is_refused(app: Windlass, wrong: Any) -> None:
    @app.job
    async def counting(ctx: Context) -> str:
        with pytest.raises(ValueError, match=r"progress\(total="):
            ctx.progress(1, total=wrong)
        return "still here"

    async with working(app):
        assert await (await counting.aenqueue()).aresult(timeout=PATIENCE) == "still here"


async def test_a_synchronous_handler_has_a_thread_and_the_same_context(app: Windlass) -> None:
    @app.job
    def plain(ctx: SyncContext, n: int) -> list[int]:
        ctx.log.info("from a thread")
        ctx.progress(n, total=n)
        return [n, ctx.attempt]

    async with working(app):
        job = await plain.aenqueue(4)
        assert await job.aresult(timeout=PATIENCE) == [4, 1]

    record = await job.arecord()
    assert (record.processed, record.total, attempts(record)[0].log) == (4, 4, ["INFO from a thread"])
