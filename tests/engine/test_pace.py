"""The three paces against the design's table, on a clock that the story moves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from windlass import Context, State, Windlass
from windlass.model.outcome import Ending
from windlass.model.processors import ProcessorState
from windlass.observe.events import AttemptEnded, AttemptStarted
from windlass.runtime.worker import Worker
from windlass.testing.clock import ManualClock

from .rig import PATIENCE, Database, EventRecorder, eventually, stores_of, working

STEP = 5.0  # seconds: an assignment
STRIDE = 10.0  # seconds: a beat, the most that may pass at once


class Steady:
    """A steady app on a still clock; `passes` lets time go by and every loop have its turn."""

    def __init__(self, database: Database) -> None:
        self.clock = ManualClock()
        self.database = database
        self.app = database.app(clock=self.clock, pace="steady", poll=None, grace=None, cancel_grace=None)
        self.scans: list[tuple[float, str, int]] = []
        self.worker: Worker
        self.events: EventRecorder

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with working(self.app) as (self.worker, self.events):
            store = stores_of(self.worker)
            claim = store.claim

            async def spy(request: Any) -> Any:
                claimed = await claim(request)
                assert request.by_creation
                self.scans.append((self.clock.monotonic(), request.queues[0], len(claimed.jobs)))
                return claimed

            store.claim = spy
            await self.quiet()  # the scan at the start, and a second one when the listener is there
            self.scans.clear()
            yield

    async def passes(self, seconds: float, step: float = STEP) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)
            await self.database.move(self.clock)
            await self.quiet()

    async def quiet(self) -> None:
        """Until the beat came through, nothing waits to be written, and every service sleeps again."""
        parts, beat = self.worker.parts, self.worker._beat
        assert beat is not None

        async def is_quiet() -> bool:
            before = (len(self.events.recorded), len(self.scans))
            for _ in range(10):
                await asyncio.sleep(0.001)
            asleep = all(each.is_waiting for each in parts.services.values() if each.name != "listener")
            fresh = self.clock.monotonic() - beat.renewed < 2 * self.app.settings.beat
            return (
                asleep
                and fresh
                and not parts.completer.backlog
                and before == (len(self.events.recorded), len(self.scans))
            )

        await eventually(is_quiet, lambda quiet: quiet)

    def started(self, phase: str) -> int:
        return sum(isinstance(event, AttemptStarted) and event.job.phase == phase for event in self.events.recorded)


async def test_steady_scans_once_a_minute_ten_per_phase_and_leaves_fresh_rows_alone(still_database: Database) -> None:
    steady = Steady(still_database)

    @steady.app.job(queue="crawl")
    async def crawl(n: int) -> int:
        return n

    @steady.app.job(queue="parse")
    async def parse(n: int) -> int:
        return n

    async with steady.working():
        await steady.passes(35)
        await steady.app.aenqueue_many(crawl.call(n) for n in range(25))  # 25 s old at the first scan: too fresh
        await steady.passes(25)
        await steady.app.aenqueue_many(parse.call(n) for n in range(3))
        await steady.passes(60)
        assert steady.scans == [(60.0, "crawl", 0), (60.0, "parse", 0), (120.0, "crawl", 10), (120.0, "parse", 3)]

        await steady.passes(120, STRIDE)

    assert steady.scans[4:] == [(180.0, "crawl", 10), (180.0, "parse", 0), (240.0, "crawl", 5), (240.0, "parse", 0)]


async def test_steady_starts_the_first_created_first_at_most_three_per_phase_every_five_seconds(
    still_database: Database,
) -> None:
    steady = Steady(still_database)
    go = asyncio.Event()

    @steady.app.job(queue="crawl")
    async def crawl(n: int) -> int:
        await go.wait()
        return n

    @steady.app.job(queue="parse")
    async def parse(n: int) -> int:
        await go.wait()
        return n

    for n in range(25):
        await crawl.options(delay=None if n % 2 else "20s").aenqueue(n)  # run_at has another order
        steady.clock.advance(0.001)
        await still_database.move(steady.clock)
    await steady.app.aenqueue_many(parse.call(n) for n in range(4))

    async with steady.working():
        await steady.passes(55)
        assert steady.started("crawl") == 0
        running = []
        for _ in range(5):
            await steady.passes(5)
            running.append((steady.started("crawl"), steady.started("parse")))
        await steady.passes(60)  # ten more in memory, and ten processors at work
        assert (steady.started("crawl"), len(steady.worker.state.local_queue)) == (10, 10)
        go.set()
        await steady.quiet()
        order = [event.job.arguments()["n"] for event in steady.events.recorded if isinstance(event, AttemptStarted)]
        names = {event.processor for event in steady.events.recorded if isinstance(event, AttemptStarted)}

    # Scan and assignment fall on the same second: which comes first is not promised.
    assert running in ([(3, 3), (6, 4), (9, 4), (10, 4), (10, 4)], [(0, 0), (3, 3), (6, 4), (9, 4), (10, 4)])
    assert [n for n in order if n >= 4] == list(range(4, 10))
    assert names == {f"crawl-processor-{n}" for n in range(1, 11)} | {f"parse-processor-{n}" for n in range(1, 5)}


async def test_steady_has_a_time_limit_of_five_minutes_and_resets_processors_at_the_health_check(
    still_database: Database,
) -> None:
    steady = Steady(still_database)

    @steady.app.job
    async def endless(ctx: Context) -> None:
        await asyncio.Event().wait()

    await endless.aenqueue()
    async with steady.working():
        await steady.passes(65)
        started = await steady.events.until(AttemptStarted)
        began = steady.clock.monotonic()
        await steady.passes(290)
        assert not [event for event in steady.events.recorded if isinstance(event, AttemptEnded)]

        await steady.passes(15)
        ended = await steady.events.until(AttemptEnded)
        assert (ended.ending, ended.delay) == (Ending.TIMED_OUT, 10.0)
        assert 295 <= steady.clock.monotonic() - began <= 310
        (processor,) = steady.worker.state.pools
        in_error = processor.state
        await steady.passes(30)
        assert (started.processor, in_error, processor.state) == (
            "default-processor-1", ProcessorState.ERROR, ProcessorState.IDLE,
        )  # fmt: skip


async def test_steady_gives_back_what_waited_in_memory_too_long_without_a_retry(still_database: Database) -> None:
    steady = Steady(still_database)
    steady.app.settings = steady.app.settings.with_(pool_size=1)

    @steady.app.job(timeout="1h")
    async def endless() -> None:
        await asyncio.Event().wait()

    jobs = await steady.app.aenqueue_many(endless.call() for _ in range(2))
    async with steady.working():
        await steady.passes(65)
        (busy,) = [event.job.id for event in steady.events.recorded if isinstance(event, AttemptStarted)]
        (waiting,) = [job for job in jobs if job.id != busy]
        assert (await waiting.arecord()).status is State.RUNNING

        await steady.passes(330, STRIDE)  # five minutes, and half a minute to the next health check
        record = await waiting.arecord()
        steady.worker.kill()
        await steady.worker.finished()

    assert (record.status, record.attempt, record.attempts) == (State.QUEUED, 0, None)
    assert len([event for event in steady.events.recorded if isinstance(event, AttemptStarted)]) == 1


async def test_steady_finds_a_job_in_a_queue_that_only_its_enqueue_named(still_database: Database) -> None:
    steady = Steady(still_database)

    @steady.app.job(queue="crawl")
    async def crawl(n: int) -> int:
        return n

    job = await crawl.options(queue="bulk").aenqueue(1)
    async with steady.working():
        await steady.passes(130, STRIDE)
        assert await job.astatus() is State.SUCCEEDED


def test_the_presets_are_the_tables() -> None:
    steady, polite, eager = (Windlass("sqlite:///x.db", pace=pace).settings for pace in ("steady", "polite", "eager"))

    assert (steady.poll, steady.discovery_batch, steady.untouched, steady.order) == (60.0, 10, 30.0, "created_at")
    assert (steady.assign_every, steady.assign_most, steady.pool_size, steady.local_queue) == (5.0, 3, 10, 1000)
    assert (steady.health, steady.sweep, steady.max_attempts, steady.timeout) == (30.0, 300.0, 4, 300.0)
    assert (polite.poll, polite.discovery_batch, polite.concurrency, polite.assign_most) == (1.0, 10, 10, 10)
    assert (polite.local_queue, polite.health, polite.sweep, polite.lease) == (10, 30.0, 60.0, 600.0)
    assert (polite.max_attempts, polite.timeout, polite.order, eager.order) == (2, None, "run_at", "run_at")
    assert (eager.lease, eager.beat, eager.margin, eager.sweep, eager.health) == (30.0, 10.0, 5.0, 5.0, 5.0)
    assert (eager.poll, eager.grace, eager.timeout, eager.max_attempts, eager.history) == (
        1.0,
        25.0,
        None,
        4,
        604_800.0,
    )


async def test_polite_runs_ten_at_a_time_and_waits_five_minutes_after_a_failure(database: Database) -> None:
    app = database.app(pace="polite")
    ten, go = threading.Event(), asyncio.Event()
    running: list[int] = []

    @app.job
    async def work(n: int) -> int:
        running.append(n)
        if len(running) == 10:
            ten.set()
        await go.wait()
        if n == 0:
            raise RuntimeError("no")
        return n

    jobs = await app.aenqueue_many(work.call(n) for n in range(30))
    async with working(app) as (worker, _):
        await asyncio.to_thread(ten.wait, PATIENCE)
        state = worker.state
        assert (len(running), state.pools.free) == (10, 0)
        assert len(state.local_queue) <= 10
        assert len(state.leases) <= 20
        go.set()
        assert [await job.aresult(timeout=PATIENCE) for job in jobs[1:]] == list(range(1, 30))
        failed = await jobs[0].arecord()

    assert (failed.status, failed.max_attempts) == (State.FAILED, 2)
    assert (failed.run_at - failed.updated_at).total_seconds() == 300.0
