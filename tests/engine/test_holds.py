"""Holding a bucket back: `ctx.hold_back` and `Retry(bucket=…)`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass import Context, JobType, Retry, State, Windlass, fixed, limit, rate
from windlass.errors import FlowError
from windlass.model.outcome import Ending
from windlass.observe.events import AttemptStarted

from .programs import admitted
from .rig import ended, failure, in_state, working
from .stopped_clock import StoppedClock, claim_ahead
from .tokens import EXACT, STEP, granted, grown, held

# Holding back


async def test_nobody_calls_while_everybody_holds_back(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("wiki", 1, every="2s")
    calls: list[float] = []

    @stopped_clock.app.job
    async def call(ctx: Context) -> None:
        await ctx.acquire("wiki")
        calls.append(stopped_clock.now)

    @stopped_clock.app.job
    async def refused(ctx: Context) -> None:
        await ctx.hold_back("wiki", "2m")  # "Retry-After: 120"

    async with (
        stopped_clock.working(queues=("here",)) as (here, events),
        stopped_clock.working(queues=("there",)) as (there, events_there),
    ):
        waits, waits_there = granted(here), granted(there)
        await events.ended(await call.options(queue="here").aenqueue(), Ending.SUCCEEDED)
        # Two handlers, one in each worker, sleep with tokens for later when the bucket is held back.
        one = await call.options(queue="here").aenqueue()
        await grown(waits, 2)
        two = await call.options(queue="there").aenqueue()
        await grown(waits_there, 1)
        assert [*waits, *waits_there] == pytest.approx([0, 2, 4], abs=EXACT)
        await events.ended(await refused.options(queue="here").aenqueue(), Ending.SUCCEEDED)
        began = stopped_clock.now

        await stopped_clock.moves(2)
        await events.ended(one, Ending.SNOOZED)
        await stopped_clock.moves(2)
        await events_there.ended(two, Ending.SNOOZED)
        three = await call.options(queue="there").aenqueue()
        await events_there.ended(three, Ending.SNOOZED)
        jobs = [await in_state(job, State.QUEUED) for job in (one, two, three)]
        assert [job.attempt for job in jobs] == [0, 0, 0]

        await stopped_clock.moves(115)
        for job in (one, two, three):
            await stopped_clock.until(job.arecord, lambda record: record.status is State.SUCCEEDED, step=STEP)

    assert len(calls) == 4
    for nth, at in enumerate(calls[1:]):
        assert at - began >= 120 + 2 * nth - STEP - EXACT


async def test_a_short_hold_is_waited_for_and_then_the_rate_holds_again(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("wiki", 1, every="1s")
    calls: list[float] = []

    @stopped_clock.app.job
    async def call(ctx: Context) -> None:
        await ctx.acquire("wiki")
        calls.append(stopped_clock.now)

    async with stopped_clock.working() as (worker, _):
        waits = granted(worker)
        jobs = []
        for n in range(3):
            jobs.append(await call.aenqueue())
            await grown(waits, n + 1)
        await stopped_clock.app._client.aask(lambda store: store.hold_back("wiki", 2.5))
        for n in (4, 5):  # each wakes when its time comes, and takes another token: those of 1 s and 2 s are lost
            await stopped_clock.moves(1)
            await grown(waits, n)
        for n in (2, 3):
            await stopped_clock.moves(1)
            await grown(calls, n)
        records = [await in_state(job, State.SUCCEEDED) for job in jobs]

    assert calls == pytest.approx([0, 3, 4], abs=EXACT)
    assert [(record.attempt, record.fence) for record in records] == [(1, 1)] * 3, "nobody was snoozed"


@pytest.mark.parametrize("how", ["held", "failed"])
async def test_jobs_in_memory_do_not_start_while_everybody_holds_back(stopped_clock: StoppedClock, how: str) -> None:
    go = asyncio.Event()
    calls: list[float] = []

    @stopped_clock.app.job
    async def block() -> None:
        await go.wait()

    @stopped_clock.app.job(limits=[rate("wiki", 1, every="2s", burst=3)])
    async def call() -> None:
        calls.append(stopped_clock.now)

    @stopped_clock.app.job(queue="there", max_attempts=1)
    async def refused(ctx: Context) -> None:
        if how == "failed":
            raise Retry(after="2m", bucket="wiki")
        await ctx.hold_back("wiki", "2m")

    here, there = stopped_clock.working(concurrency=1, queues=("default",)), stopped_clock.working(queues=("there",))
    async with here as (worker, events), there as (_, events_there):
        blocking = await block.aenqueue()
        await events.until(AttemptStarted)
        jobs = [await call.aenqueue() for _ in range(2)]
        assert await claim_ahead(worker, "call") == 2
        began = stopped_clock.now
        await events_there.ended(await refused.aenqueue())
        for job in jobs:
            record = await in_state(job, State.QUEUED)  # while no time passes: the worker was woken
            assert (record.attempt, record.attempts) == (0, None)
        go.set()
        await events.ended(blocking, Ending.SUCCEEDED)
        await stopped_clock.moves(115)
        for job in jobs:
            await stopped_clock.until(job.arecord, lambda record: record.status is State.SUCCEEDED, step=STEP)

    assert len(calls) == 2
    for nth, at in enumerate(calls):
        assert at - began >= 120 + 2 * nth - STEP - EXACT


async def test_when_a_hold_is_ended_workers_look_at_once(stopped_clock: StoppedClock) -> None:
    @stopped_clock.app.job(limits=[limit("gpu", 1)])
    async def call() -> None: ...

    async with stopped_clock.working() as (_, events):
        await stopped_clock.app._client.aask(lambda store: store.hold_back("gpu", 3600))
        job = await call.aenqueue()
        await stopped_clock.until(job.arecord, lambda record: record.parked_on == "gpu")
        assert await stopped_clock.app._client.aask(lambda store: store.end_hold("gpu"))
        await events.ended(job, Ending.SUCCEEDED)  # while no time passes


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    "kind",
    [admitted.holds_in_coroutine, admitted.holds_in_thread, admitted.holds_in_process, admitted.retries_in_process],
)
async def test_every_isolation_can_hold_back(kind: JobType[[], None]) -> None:
    async with working(admitted.app):
        await ended(await kind.aenqueue())

    assert 500 < await held(admitted.app, f"wiki:{kind._definition.type}") <= 600
    assert await held(admitted.app, "wiki") == 0


# Retry(bucket=…)


@pytest.mark.parametrize(
    ("after", "attempts", "state", "seconds"),
    [("2m", 4, State.FAILED, 120), (None, 4, State.FAILED, 90), ("2m", 1, State.DEAD, 120), (None, 1, State.DEAD, 90)],
)
async def test_a_retry_with_a_bucket_holds_everybody_back(
    stopped_clock: StoppedClock, after: str | None, attempts: int, state: State, seconds: int
) -> None:
    stopped_clock.app.rate("wiki", 5, every="1s")

    @stopped_clock.app.job(max_attempts=attempts, retry=fixed(90))
    async def refused() -> None:
        raise Retry("429", after=after, bucket="wiki")

    async with stopped_clock.working() as (_, events):
        job = await refused.aenqueue()
        await events.ended(job, Ending.RETRY)
        record = await in_state(job, state)  # what is seen with the failure was written with it
        assert await held(stopped_clock.app, "wiki") == pytest.approx(seconds, abs=EXACT)

    if state is State.FAILED:
        assert (record.run_at - stopped_clock.clock.now()).total_seconds() == pytest.approx(seconds, abs=EXACT)


async def test_a_retry_with_a_key_holds_back_that_key_only(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("domain", 5, every="1s")

    @stopped_clock.app.job
    async def refused() -> None:
        raise Retry("429", after="2m", bucket="domain:a.org")

    async with stopped_clock.working() as (_, events):
        job = await refused.aenqueue()
        await events.ended(job, Ending.RETRY)
        await in_state(job, State.FAILED)

    held_back = [await held(stopped_clock.app, bucket) for bucket in ("domain:a.org", "domain:b.org", "domain")]
    assert held_back == pytest.approx([120, 0, 0], abs=EXACT)


async def test_a_retry_with_an_unknown_bucket_is_written_all_the_same(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(max_attempts=1)
    async def refused() -> None:
        raise Retry("429", after="2m", bucket="wikki")

    async with working(app):
        record = await ended(await refused.aenqueue())

    assert (record.status, record.reason, failure(record).message) == (State.DEAD, "exhausted", "429")
    (line,) = [line for line in caplog.messages if "wikki" in line]
    assert "holds nothing back" in line
    assert "app.rate(" in line


async def test_a_retry_without_the_key_is_told_and_holds_back_nobody(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(max_attempts=1, limits=[rate("site", 5, every="1s", key="host")])
    async def refused(host: str) -> None:
        raise Retry("429", after="2m", bucket="site")

    async with working(app):
        record = await ended(await refused.aenqueue("a.org"))

    assert (record.status, failure(record).message) == (State.DEAD, "429")
    assert await held(app, "site") == 0
    (line,) = [line for line in caplog.messages if "bucket='site'" in line]
    assert "it has a key per value; name one, as in bucket='site:example.org'" in line


async def test_nobody_holds_back_for_longer_than_a_day(stopped_clock: StoppedClock) -> None:
    stopped_clock.app.rate("wiki", 5, every="1s")

    @stopped_clock.app.job
    async def refused() -> None:
        raise Retry("429", after="40d", bucket="wiki")

    @stopped_clock.app.job(max_attempts=1)
    async def holds(ctx: Context) -> None:
        await ctx.hold_back("wiki", "25h")

    async with stopped_clock.working() as (_, events):
        wrong = await holds.aenqueue()
        await events.ended(wrong)
        error = failure(await in_state(wrong, State.DEAD))
        assert await held(stopped_clock.app, "wiki") == 0
        job = await refused.aenqueue()
        await events.ended(job, Ending.RETRY)
        record = await in_state(job, State.FAILED)
        assert await held(stopped_clock.app, "wiki") == pytest.approx(86_400, abs=EXACT)

    assert error.message == (
        "ctx.hold_back('wiki'): 1d1h is longer than 1d, the longest hold; pause it: await app.apause(…)"
    )
    assert (record.run_at - stopped_clock.clock.now()).total_seconds() == pytest.approx(40 * 86_400, abs=EXACT)


@pytest.mark.parametrize("word", ["acquire", "hold_back"])
async def test_a_bare_name_is_refused_where_there_is_a_key_per_value(app: Windlass, word: str) -> None:
    app.rate("site", 5, every="1s", key="host")
    app.rate("tenant", 5, every="1s")
    said = []

    @app.job
    async def calls(ctx: Context) -> None:
        more = () if word == "acquire" else ("1ms",)
        for name in ("site", "tenant"):
            with pytest.raises(FlowError) as refused:
                await getattr(ctx, word)(name, *more)
            said.append(str(refused.value))
        await getattr(ctx, word)("site", *more, key="a.org")

    async with working(app):
        assert (await ended(await calls.aenqueue())).status is State.SUCCEEDED

    assert said == [
        f"ctx.{word}('site'): it has a key per value; say which: key=…",
        f"ctx.{word}('tenant'): it has a key per value; say which: key=ctx.job.tenant",
    ]


@pytest.mark.parametrize("bucket", ["", 5, b"wiki"])
def test_a_bucket_has_a_name(bucket: Any) -> None:
    with pytest.raises(ValueError, match=r"Retry\(bucket="):
        Retry(bucket=bucket)
