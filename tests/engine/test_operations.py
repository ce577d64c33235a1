"""Cancel, resume, replay, retry and discard; and the error when a state does not allow them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from windlass import Context, Dead, State, SyncContext, Windlass, fixed
from windlass.errors import JobCancelled, JobNotFound, TransitionRefused
from windlass.model.outcome import Ending

from .rig import PATIENCE, Database, attempts, come, ended, in_state, working


async def test_a_queued_job_is_cancelled_at_once_and_never_runs(app: Windlass) -> None:
    runs = []

    @app.job
    async def work() -> int:
        runs.append(1)
        return len(runs)

    job, other = await work.aenqueue(), await work.aenqueue()
    assert await job.acancel() is State.CANCELLED

    async with working(app):
        await other.aresult(timeout=PATIENCE)
        with pytest.raises(JobCancelled, match=r"was cancelled; bring it back: job\.resume"):
            await job.aresult(timeout=PATIENCE)
        assert runs == [1]

        assert await job.aresume() is State.QUEUED
        assert await job.aresult(timeout=PATIENCE) == 2


async def test_a_running_coroutine_is_stopped_without_waiting_for_a_poll(database: Database) -> None:
    app = database.app(poll="60s")
    started = asyncio.Event()

    @app.job
    async def endless(ctx: Context) -> None:
        ctx.log.info("begun")
        started.set()
        await asyncio.Event().wait()

    async with working(app) as (_, events):
        job = await endless.aenqueue()
        await come(started)
        assert await job.acancel() is State.RUNNING
        await events.ended(job, Ending.CANCELLED)
        record = await ended(job)

    assert (record.status, record.attempt) == (State.CANCELLED, 0)
    assert (attempts(record)[0].outcome, attempts(record)[0].log) == ("cancelled", ["INFO begun"])


async def test_a_running_thread_is_asked(app: Windlass) -> None:
    started = threading.Event()

    @app.job
    def polite(ctx: SyncContext) -> str:
        started.set()
        while not ctx.cancelled:
            pass
        return "stopped by myself"

    async with working(app) as (_, events):
        job = await polite.aenqueue()
        await asyncio.to_thread(started.wait, PATIENCE)
        await job.acancel()
        await events.ended(job)
        record = await ended(job)

    assert record.status is State.CANCELLED


async def test_a_thread_that_does_not_heed_is_fenced_out_after_the_grace(
    app: Windlass, whatever_happens: threading.Event
) -> None:
    started, go, ends = threading.Event(), whatever_happens, []

    @app.job
    def deaf(ctx: SyncContext) -> str:
        started.set()
        go.wait(PATIENCE)
        ends.append(ctx.cancelled)
        return "too late"

    async with working(app) as (_, events):
        job = await deaf.aenqueue()
        await asyncio.to_thread(started.wait, PATIENCE)
        await job.acancel()
        await events.ended(job, Ending.CANCELLED)
        record = await ended(job)
        go.set()

    assert record.status is State.CANCELLED
    assert (await job.arecord()).output is None


async def test_a_cancelled_job_never_succeeds_later(app: Windlass) -> None:
    started = asyncio.Event()

    @app.job
    async def swallows() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "but I made it"
        return ""

    async with working(app) as (_, events):
        job = await swallows.aenqueue()
        await come(started)
        await job.acancel()
        await events.ended(job)
        assert (await ended(job)).status is State.CANCELLED


async def test_a_handler_that_fails_after_the_request_is_not_retried(app: Windlass) -> None:
    started = asyncio.Event()

    @app.job(retry=fixed(0))
    async def fails() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("while stopping") from None

    async with working(app):
        job = await fails.aenqueue()
        await come(started)
        await job.acancel()
        assert (await ended(job)).status is State.CANCELLED


async def test_a_failed_job_is_cancelled_at_once(app: Windlass) -> None:
    @app.job(retry=fixed("1h"))
    async def fails() -> None:
        raise RuntimeError("no")

    async with working(app):
        job = await fails.aenqueue()
        await in_state(job, State.FAILED)
        assert await job.acancel() is State.CANCELLED

    assert await job.aresume() is State.QUEUED
    assert (await job.arecord()).attempt == 1


async def test_a_dead_job_is_discarded_for_good(app: Windlass, database: Database) -> None:
    @app.job
    async def dies() -> None:
        raise Dead("enough")

    async with working(app):
        job = await dies.aenqueue()
        await ended(job)
        await job.adiscard()

    with pytest.raises(JobNotFound, match="discarded"):
        await job.astatus()
    assert await database.jobs() == 0


async def test_every_refusal_says_why_and_what_is_possible(app: Windlass) -> None:
    @app.job
    async def work() -> None:
        return None

    @app.job
    async def dies() -> None:
        raise Dead("enough")

    queued = await work.options(delay="1h").aenqueue()
    async with working(app):
        succeeded, dead = await work.aenqueue(), await dies.aenqueue()
        await ended(succeeded)
        await ended(dead)
    cancelled = await work.aenqueue()
    await cancelled.acancel()

    refusals: list[tuple[Any, str]] = [
        (queued.aretry, f"cannot retry job {queued.id}: it is queued, and only failed jobs can; possible now: cancel"),
        (queued.areplay, "only dead jobs can; possible now: cancel"),
        (queued.aresume, "only cancelled jobs can; possible now: cancel"),
        (queued.adiscard, "only dead jobs can"),
        (
            succeeded.acancel,
            "it is succeeded, and only failed, queued, running or waiting jobs can; enqueue it again instead",
        ),
        (succeeded.areplay, "enqueue it again instead"),
        (succeeded.aresume, "enqueue it again instead"),
        (dead.acancel, "possible now: replay, discard"),
        (dead.aretry, "possible now: replay, discard"),
        (cancelled.acancel, "possible now: resume"),
        (cancelled.adiscard, "possible now: resume"),
    ]
    for operation, words in refusals:
        with pytest.raises(TransitionRefused) as caught:
            await operation()
        assert words in str(caught.value)

    states = [await job.astatus() for job in (queued, succeeded, dead, cancelled)]
    assert states == [State.QUEUED, State.SUCCEEDED, State.DEAD, State.CANCELLED]
