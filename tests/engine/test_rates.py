"""Calling out at a rate that all workers share."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from windlass import Context, JobType, State, SyncContext, Windlass, limit, rate
from windlass.errors import BlockingCall, ConfigError, FlowError, LeaseLost, StoreUnavailable, UnknownLimit
from windlass.model.outcome import Ending

from .programs import admitted
from .rig import PATIENCE, attempts, eventually, in_state, stores_of, working
from .stopped_clock import StoppedClock
from .tokens import EXACT, STEP, granted, grown

# Tokens


async def test_handlers_of_all_workers_call_at_one_rate(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("wiki", 5, every="1s")
    calls: list[float] = []
    go = asyncio.Event()

    @stopped_clock.app.job
    async def call(ctx: Context) -> None:
        await go.wait()
        await ctx.acquire("wiki")
        calls.append(stopped_clock.now)

    await stopped_clock.app.aenqueue_many(call.call() for _ in range(20))
    async with (
        stopped_clock.working(concurrency=10) as (first, _),
        stopped_clock.working(concurrency=10) as (second, _),
    ):
        waits = [granted(worker) for worker in (first, second)]

        async def busy() -> list[int]:
            return [len(worker.state.leases.executions) for worker in (first, second)]

        await stopped_clock.until(busy, lambda both: both == [10, 10])
        began = stopped_clock.now
        go.set()
        await eventually(lambda: asyncio.sleep(0, sum(map(len, waits))), lambda asked: asked == 20)
        for n in range(1, 20):
            await grown(calls, n)
            await stopped_clock.moves(0.2)
        await grown(calls, 20)

    assert calls == pytest.approx([began + 0.2 * n for n in range(20)], abs=EXACT)


@pytest.mark.usefixtures("program")
async def test_coroutines_threads_and_processes_take_from_one_bucket() -> None:
    kinds = (
        admitted.calls_in_coroutine,
        admitted.calls_in_thread,
        admitted.calls_in_process,
        admitted.calls_in_process_thread,
    )
    async with working(admitted.app):
        began = time.time()
        jobs = [await kind.aenqueue() for kind in kinds]
        times = sorted([at for job in jobs for at in await job.aresult(timeout=PATIENCE)])

    assert len(times) == len(kinds) * admitted.CALLS
    # A call may come late after its token, never before it: two at once, and the last one after all the tokens.
    assert times[-1] - began >= 0.05 * (len(times) - 2)


async def test_a_token_that_is_far_away_snoozes_the_job_and_burns_no_attempt(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("wiki", 1, every="1m")
    calls: list[float] = []

    @stopped_clock.app.job
    async def call(ctx: Context) -> None:
        await ctx.acquire("wiki")
        calls.append(stopped_clock.now)

    @stopped_clock.app.job
    def plain(ctx: SyncContext) -> None:
        ctx.acquire("wiki")
        calls.append(stopped_clock.now)

    kinds: list[JobType[[], None]] = [call, plain]
    async with stopped_clock.working() as (worker, events):
        await events.ended(await call.aenqueue(), Ending.SUCCEEDED)
        for kind in kinds:
            job = await kind.aenqueue()
            await events.ended(job, Ending.SNOOZED)
            record = await in_state(job, State.QUEUED)
            assert (record.attempt, [each.outcome for each in attempts(record)]) == (0, ["snoozed"])
            assert (record.run_at - stopped_clock.clock.now()).total_seconds() == pytest.approx(60, abs=EXACT)
            await stopped_clock.moves(60 - STEP)
            await stopped_clock.looked(worker)
            assert (await job.arecord()).fence == 1
            await stopped_clock.moves(STEP + EXACT)
            await stopped_clock.now_that(worker, job.arecord, lambda record: record.status is State.SUCCEEDED)
            assert calls[-1] - calls[-2] >= 60 - STEP - EXACT


async def test_several_tasks_that_are_snoozed_are_one_snooze(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("wiki", 1, every="10s")

    @stopped_clock.app.job
    async def call(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(ctx.acquire("wiki"))

    async with stopped_clock.working() as (_, events):
        job = await call.aenqueue()
        await events.ended(job, Ending.SNOOZED)
        record = await in_state(job, State.QUEUED)

    assert (record.attempt, record.error) == (0, None)


async def test_a_call_takes_from_the_bucket_of_its_key_as_a_claim_does(stopped_clock: StoppedClock) -> None:
    @stopped_clock.app.job(limits=[rate("domain", 1, every="4s", key="domain")])
    async def crawl(ctx: Context, domain: str, other: str) -> None:
        await ctx.acquire("domain", key=other)

    long = "x" * 1_000  # cut in the same way
    async with stopped_clock.working() as (worker, events):
        waits = granted(worker)
        await events.ended(await crawl.aenqueue("a.org", "b.org"), Ending.SUCCEEDED)
        assert waits == [0.0]
        job = await crawl.aenqueue(long, long)  # its start took this bucket's token
        await grown(waits, 2)
        assert waits[1] == pytest.approx(4, abs=EXACT)
        await stopped_clock.moves(4)
        await events.ended(job, Ending.SUCCEEDED)


async def test_a_token_that_comes_late_is_not_used(stopped_clock: StoppedClock) -> None:
    """Calls that are late together are above the rate. The third token is used: a slow database delays all calls."""
    stopped_clock.app.rate("wiki", 1, every="1s")
    calls: list[float] = []
    delays = [0.3, 0.0, 0.3, 0.3, 0.3, 0.3]

    @stopped_clock.app.job
    async def call(ctx: Context) -> None:
        for _ in range(3):
            await ctx.acquire("wiki")
            calls.append(stopped_clock.now)

    async with stopped_clock.working() as (worker, events):
        waits, store = granted(worker), stores_of(worker)
        look = store.held_for

        async def late(bucket: str) -> float:
            await stopped_clock.moves(delays.pop(0))
            return float(await look(bucket))

        store.held_for = late
        job = await call.aenqueue()
        for asked in range(2, 7):
            await grown(waits, asked)
            await stopped_clock.moves(waits[-1])
        await events.ended(job, Ending.SUCCEEDED)

    # The first at once. The second had a token for 1.0, which was used at 1.3 at the earliest, and then one for 2.0.
    # The third had those for 3.0 and 4.0, and used that for 5.0 at 5.3.
    assert [at - calls[0] for at in calls] == pytest.approx([0, 2.0, 5.3], abs=EXACT)


async def test_a_rate_may_count_tenants_apart(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("api", 1, every="1h", scope="tenant")

    @stopped_clock.app.job
    async def ask(ctx: Context) -> None:
        await ctx.acquire("api")

    async with stopped_clock.working() as (_, events):
        for tenant in ("one", "two"):
            await events.ended(await ask.options(tenant=tenant).aenqueue(), Ending.SUCCEEDED)
        await events.ended(await ask.options(tenant="two").aenqueue(), Ending.SNOOZED)
        rows = await stopped_clock.app._client.aask(lambda store: store.limits("api"))

    assert sorted(row.key for row in rows) == ["api:one", "api:two"]


async def test_a_database_that_is_away_for_a_moment_costs_no_attempt(app: Windlass) -> None:
    app.rate("wiki", 1, every="1s")
    failures = ["acquire", "held_for", "acquire"]

    @app.job
    async def call(ctx: Context) -> int:
        await ctx.acquire("wiki")
        await ctx.acquire("wiki")
        return ctx.attempt

    async with working(app) as (worker, _):
        store = stores_of(worker)
        for name in ("acquire", "held_for"):
            setattr(store, name, flaky(getattr(store, name), name, failures))
        assert await (await call.aenqueue()).aresult(timeout=PATIENCE) == 1

    assert failures == []


def flaky(ask: Any, name: str, failures: list[str]) -> Any:
    """Fails once for every time its name is listed."""

    async def asked(*args: Any, **kwargs: Any) -> Any:
        if name in failures:
            failures.remove(name)
            raise StoreUnavailable("away")
        return await ask(*args, **kwargs)

    return asked


# What is refused


async def test_a_call_is_refused_where_a_transaction_would_wait_for_it(app: Windlass) -> None:
    app.rate("wiki", 1, every="1s")
    last = "put the transaction last"

    @app.job
    async def coroutine(ctx: Context) -> str:
        async def step() -> None:
            await ctx.acquire("wiki", key="of a step")
            async with ctx.transaction():
                with pytest.raises(FlowError, match=last):
                    await ctx.acquire("wiki", key="of a step")

        await ctx.step("step", step)
        await ctx.acquire("wiki")
        async with ctx.transaction():
            with pytest.raises(FlowError, match=last):
                await ctx.acquire("wiki")
            with pytest.raises(FlowError, match=last):
                await ctx.hold_back("wiki", 1)
        with pytest.raises(FlowError, match=last):  # it stays open until the finish
            await ctx.acquire("wiki")
        return "through"

    @app.job
    def plain(ctx: SyncContext) -> str:
        with ctx.transaction():
            with pytest.raises(FlowError, match=last):
                ctx.acquire("wiki")
            with pytest.raises(FlowError, match=last):
                ctx.hold_back("wiki", 1)
        return "through"

    async with working(app):
        for kind in (coroutine, plain):
            assert await (await kind.aenqueue()).aresult(timeout=PATIENCE) == "through"


async def test_what_is_not_a_rate_is_refused_at_once(app: Windlass) -> None:
    @app.job(limits=[limit("tenant", 3)])
    async def coroutine(ctx: Context) -> str:
        for call in (ctx.acquire("wikki"), ctx.hold_back("wikki", 1)):
            with pytest.raises(UnknownLimit, match=r"no limit or rate is called 'wikki'.*app\.rate\("):
                await call
        with pytest.raises(FlowError, match=r"'tenant'.*is a limit, which has no tokens"):
            await ctx.acquire("tenant", key="acme")
        for name in ("", "domain:a.org", 5):
            with pytest.raises(ConfigError, match="the name of a limit"):
                await ctx.acquire(name)  # type: ignore[arg-type]
        for key in ("", b"a.org", ["a.org"]):
            with pytest.raises(ValueError, match="the key of 'domain'"):
                await ctx.acquire("domain", key=key)  # type: ignore[arg-type]
        for duration in (-1, "soon", float("nan"), True):
            with pytest.raises(ConfigError, match=r"ctx\.hold_back\(\)"):
                await ctx.hold_back("wikki", duration)
        with pytest.raises(FlowError, match=r"ctx\.acquire\(\) is awaited in the handler's own coroutine"):
            await asyncio.to_thread(ctx.acquire, "wikki")  # type: ignore[unused-coroutine]
        return "through"

    @app.job
    def plain(ctx: SyncContext) -> str:
        async def on_a_loop() -> None:
            with pytest.raises(BlockingCall, match=r"would block the running event loop.*await ctx\.acquire"):
                ctx.acquire("wikki")
            with pytest.raises(BlockingCall, match=r"would block the running event loop.*await ctx\.hold_back"):
                ctx.hold_back("wikki", 1)

        asyncio.run(on_a_loop())
        with pytest.raises(UnknownLimit):
            ctx.acquire("wikki")
        return "through"

    async with working(app):
        for kind in (coroutine, plain):
            assert await (await kind.aenqueue()).aresult(timeout=PATIENCE) == "through"


async def test_a_handler_that_was_fenced_out_gets_no_token(app: Windlass, whatever_happens: threading.Event) -> None:
    app.rate("wiki", 1, every="1s")
    late: list[BaseException] = []

    @app.job(timeout="100ms", max_attempts=1)
    def stuck(ctx: SyncContext) -> None:
        whatever_happens.wait()
        try:
            ctx.acquire("wiki")
        except BaseException as error:
            late.append(error)

    async with working(app) as (_, events):
        job = await stuck.aenqueue()
        await events.ended(job, Ending.TIMED_OUT)
        await in_state(job, State.DEAD)
        whatever_happens.set()
        await grown(late, 1)

    assert isinstance(late[0], LeaseLost)
