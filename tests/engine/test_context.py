"""What a handler can read of its job, and record about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from windlass import Context, Job, Snooze, State, SyncContext, Windlass
from windlass.errors import FlowError
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


def charge(cents: int = 0) -> int:
    return cents


async def acharge(cents: int = 0) -> int:
    return cents


WRONG_CALLS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a step that was called": (
        lambda ctx: ctx.step("a", charge(3)),
        FlowError,
        "step 'a' is given int, not a function: the call was made before the step; give the function and its "
        'arguments: ctx.step("a", fn, 3)',
    ),
    "a step that is a coroutine": (lambda ctx: ctx.step("a", acharge(3)), FlowError, "step 'a' is given coroutine"),
    "a step without a name": (
        lambda ctx: ctx.step(charge),
        TypeError,
        "ctx.step() missing 1 required positional argument: 'fn'; write: ctx.step(\"charge\", charge, order)",
    ),
    "a step with its function first": (
        lambda ctx: ctx.step(charge, 3),
        FlowError,
        'the name comes first: ctx.step("charge", charge, order)',
    ),
    "a sleep without a name": (
        lambda ctx: ctx.sleep("10s"),
        TypeError,
        'ctx.sleep() missing 1 required positional argument: \'duration\'; write: ctx.sleep("nap", "3d")',
    ),
    "a child without a name": (
        lambda ctx: ctx.spawn(object()),
        TypeError,
        "ctx.spawn() missing 1 required positional argument: 'call'; write: a = ctx.spawn(\"fetch\", fetch.call(url))",
    ),
    "a child with its call first": (
        lambda ctx: ctx.spawn(object(), "fetch"),
        FlowError,
        'the name comes first: ctx.spawn("fetch", fetch.call(url))',
    ),
    "retry": (lambda ctx: ctx.retry(), AttributeError, 'ctx has no .retry; write: raise Retry(after="30s")'),
}


async def test_a_wrong_call_of_the_context_is_answered_with_the_line_to_write(app: Windlass) -> None:
    @app.job(max_attempts=1)
    def plain(ctx: SyncContext) -> str:
        for attempt, kind, message in WRONG_CALLS.values():
            with pytest.raises(kind) as caught:
                attempt(ctx)
            assert message in str(caught.value)
        return "still here"

    @app.job(max_attempts=1)
    async def awaited(ctx: Context) -> str:
        for attempt, kind, message in WRONG_CALLS.values():
            with pytest.raises(kind) as caught:
                await attempt(ctx)
            assert message.replace("write: ctx.s", "write: await ctx.s") in str(caught.value)
        return "still here"

    async with working(app):
        assert await (await plain.aenqueue()).aresult(timeout=PATIENCE) == "still here"
        assert await (await awaited.aenqueue()).aresult(timeout=PATIENCE) == "still here"


@pytest.mark.parametrize(
    ("sql", "args"),
    [("SELECT ?", (1,)), ("SELECT %s", (1,)), ("SELECT %(n)s", ({"n": 1},)), ("SELECT $1, $2", ((1, 2),))],
)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_parameters_of_another_driver_are_answered_with_ours(app: Windlass, sql: str, args: Any) -> None:
    @app.job(max_attempts=1)
    async def writing(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            for method in (tx.execute, tx.fetch):
                with pytest.raises(Exception, match=r"parameters are \$1, \$2, ….*tx\.execute\(.*, a, b\)"):
                    await method(sql, *args)
            await tx.execute("SELECT $1, $2", 1, 2)
        return "still here"

    async with working(app):
        assert await (await writing.aenqueue()).aresult(timeout=PATIENCE) == "still here"
