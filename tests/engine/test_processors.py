"""What workers report of their processors: by name and state as in seeds 000 and 001, and per phase in `app.phases`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from windlass import Context, ProcessorState, Windlass, WorkerRow, phase
from windlass.observe.events import AttemptStarted
from windlass.testing.clock import START

from .rig import PATIENCE, Database, EventRecorder, come, eventually, working
from .stopped_clock import StoppedClock, claim_ahead
from .test_pipelines import Gate
from .timetable import Site

FIRST, SECOND, THIRD = "website-analysis", "prompt-forming", "model-analysis"
IDLE, BUSY, ERROR = ProcessorState.IDLE, ProcessorState.BUSY, ProcessorState.ERROR
QUICK: dict[str, Any] = {"lease": "3s", "beat": "500ms"}


async def reported(app: Windlass, fits: Callable[[WorkerRow], bool]) -> WorkerRow:
    """The row of the only worker, once a beat has brought what fits."""

    async def look() -> WorkerRow:
        (row,) = await app.aworkers()
        return row

    return await eventually(look, fits)


async def passing(site: Site, fits: Callable[[WorkerRow], bool]) -> WorkerRow:
    """The same, while time passes: a late beat may mix the times of two steps, and the next one mends it."""
    async with asyncio.timeout(PATIENCE):
        while not fits(row := (await site.app.aworkers())[0]):
            await site.until(site.second + 5)
    return row


def states(row: WorkerRow) -> dict[str, Counter[ProcessorState]]:
    found: dict[str, Counter[ProcessorState]] = {}
    for each in row.processors:
        found.setdefault(each.phase, Counter())[each.state] += 1
    return found


def second(moment: datetime | None) -> int | None:
    """Of the story."""
    return None if moment is None else round((moment - START).total_seconds())


async def test_ten_processors_per_phase_those_never_used_idle(still_database: Database) -> None:
    async def work(phase: str, ctx: Context, n: int) -> None:
        await asyncio.Event().wait()

    site = Site(still_database, work, timeout="1h", version="4f2c1a9")
    jobs = await site.creates(13)
    async with site.working():
        fresh = await reported(site.app, lambda row: row.reported_at is not None)
        await site.until(140)  # ten since 80; three more were claimed at 120, and wait in memory
        row = await passing(site, lambda row: bool(row.in_memory) and second(row.processors[0].since) == 65)
        phases = await site.app.aphases()

    assert states(fresh) == {FIRST: {IDLE: 10}, SECOND: {IDLE: 10}, THIRD: {IDLE: 10}}
    assert {each.since for each in fresh.processors} == {None}
    assert fresh.in_memory == {}

    assert [each.name for each in row.processors] == [
        f"{phase}-processor-{n}" for phase in (FIRST, SECOND, THIRD) for n in range(1, 11)
    ]
    assert states(row) == {FIRST: {BUSY: 10}, SECOND: {IDLE: 10}, THIRD: {IDLE: 10}}
    assert [(each.job, each.type, second(each.since)) for each in row.processors[:4]] == [
        (jobs[0].id, "analyse", 65), (jobs[1].id, "analyse", 65), (jobs[2].id, "analyse", 65),
        (jobs[3].id, "analyse", 70),
    ]  # fmt: skip
    assert (row.in_memory, row.unlisted, row.version) == ({FIRST: 3}, 0, "4f2c1a9")
    assert [(each.pipeline, each.phase, each.running, each.in_memory, each.busy, each.idle) for each in phases] == [
        ("site", FIRST, 13, 3, 10, 0), ("site", SECOND, 0, 0, 0, 10), ("site", THIRD, 0, 0, 0, 10),
    ]  # fmt: skip


async def test_a_processor_is_in_error_from_the_time_limit_to_the_health_check(still_database: Database) -> None:
    async def work(phase: str, ctx: Context, n: int) -> None:
        if phase == FIRST:
            await asyncio.Event().wait()

    site = Site(still_database, work, health="3m")
    (job,) = await site.creates(1)
    async with site.working():
        await site.until(370)  # the attempt began at 65, and may run for five minutes
        failed = await passing(site, lambda row: second(row.processors[0].since) == 365)
        phases = await site.app.aphases(since="1h")
        await site.until(540)
        reset = await passing(site, lambda row: second(row.processors[0].since) == 540)

    processor = failed.processors[0]
    assert (processor.name, processor.state, processor.job) == (f"{FIRST}-processor-1", ERROR, job.id)
    assert second(processor.since) == 365
    assert (phases[0].error, phases[0].idle, phases[0].retries, phases[0].failure_rate) == (1, 9, 1, 1.0)
    assert (phases[0].error_rate, phases[0].run_p50) == (None, 500.0)  # no job left the phase
    processor = reset.processors[0]
    assert (processor.state, processor.job, second(processor.since)) == (IDLE, None, 540)


async def test_an_attempt_that_fails_leaves_its_processor_idle(still_database: Database) -> None:
    stopped = StoppedClock(still_database, lease="1h", beat="10s", max_attempts=1)

    @stopped.app.job(queue="mail")
    async def work() -> None:
        raise RuntimeError("no")

    async with stopped.working(concurrency=3) as (_, events):
        await events.ended(await work.aenqueue())
        await stopped.moves(10)
        row = await reported(
            stopped.app, lambda row: second(row.reported_at) == 10 and second(row.processors[0].since) == 0
        )

    assert [(each.name, each.state, second(each.since)) for each in row.processors] == [
        ("mail-processor-1", IDLE, 0), ("mail-processor-2", IDLE, None), ("mail-processor-3", IDLE, None),
    ]  # fmt: skip


async def test_a_handler_that_blocks_the_event_loop_is_named(
    database: Database, whatever_happens: threading.Event
) -> None:
    """The job beside it was assigned and cannot begin: it is not busy since its processor's last job ended."""
    app = database.app(**QUICK)
    gate = Gate()
    seen: list[WorkerRow] = []

    def watch() -> None:
        end = time.monotonic() + PATIENCE
        while not whatever_happens.is_set() and time.monotonic() < end:
            rows = [row for row in app.workers() if [each.type for each in row.processors] == ["block"] * 2]
            if rows:
                seen.append(rows[0])
                whatever_happens.set()

    @app.job
    async def warm_up(n: int) -> None:
        await gate.passes()

    @app.job
    async def block(n: int) -> None:
        whatever_happens.wait()

    watching = threading.Thread(target=watch)
    async with working(app, concurrency=2) as (_, events):
        first = await app.aenqueue_many([warm_up.call(1), warm_up.call(2)])
        await eventually(lambda: asyncio.sleep(0, len(started(events))), lambda count: count == 2)
        gate.open.set()
        for job in first:
            await job.aresult(timeout=PATIENCE)
        watching.start()  # before the jobs: afterwards this loop is blocked
        jobs = await app.aenqueue_many([block.call(1), block.call(2)])
        for job in jobs:
            await job.aresult(timeout=PATIENCE)
    watching.join()

    assert {each.name: each.state for each in seen[0].processors} == {
        "default-processor-1": BUSY, "default-processor-2": BUSY,
    }  # fmt: skip
    assert {each.job for each in seen[0].processors} == {job.id for job in jobs}
    created_at = (await jobs[0].arecord()).created_at
    assert all(each.since is not None and each.since >= created_at for each in seen[0].processors)


def started(events: EventRecorder) -> list[AttemptStarted]:
    return [event for event in events.recorded if isinstance(event, AttemptStarted)]


async def test_phases_without_a_size_share_the_workers_processors(database: Database) -> None:
    app = database.app(**QUICK)
    go_on = asyncio.Event()

    @app.job(queue="mail")
    async def send(n: int) -> None:
        await go_on.wait()

    @app.job(queue="report")
    async def write() -> None: ...

    await app.aenqueue_many(send.call(n) for n in range(2))
    async with working(app, concurrency=3):
        row = await reported(app, lambda row: states(row).get("mail", Counter())[BUSY] == 2)
        go_on.set()

    assert states(row) == {"mail": {BUSY: 2, IDLE: 1}, "report": {IDLE: 1}}


async def test_jobs_in_memory_are_counted_by_phase(still_database: Database) -> None:
    stopped = StoppedClock(still_database, lease="1h", beat="10s")
    app, begun = stopped.app, asyncio.Event()

    @app.job
    async def ask(n: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.job(queue="mail")
    async def send() -> None: ...

    line = app.pipeline("line", phase(ask, processors=1))
    async with stopped.working() as (worker, _):
        await app.aenqueue_many([line.call(1), line.call(2), line.call(3)])
        worker.parts.discovery.nudge()
        await come(begun)
        assert await claim_ahead(worker, "ask") == 2  # in front of the only processor
        await stopped.moves(10)
        row = await reported(app, lambda row: row.in_memory == {"ask": 2})
        first, *_ = await app.aphases()

    assert [(each.name, each.state) for each in row.processors if each.phase == "ask"] == [("ask-processor-1", BUSY)]
    assert (first.pipeline, first.phase, first.in_memory, first.running, first.busy) == ("line", "ask", 2, 3, 1)


async def test_a_worker_that_cannot_report_keeps_its_lease(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = database.app(**QUICK)

    @app.job
    async def work() -> None: ...

    def fail(pools: object) -> str:
        raise RuntimeError("no report")

    monkeypatch.setattr("windlass.runtime.duties.report.encode_pools", fail)
    with caplog.at_level(logging.ERROR, "windlass"):
        async with working(app) as (worker, _):
            first = await reported(app, lambda row: row.reported_at is not None)
            later = await reported(app, lambda row: row.reported_at != first.reported_at)

    assert (later.id, later.processors) == (worker.state.worker, ())
    assert later.alive_until > first.alive_until
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "the processors of this worker cannot be reported"
    ]
