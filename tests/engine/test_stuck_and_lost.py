"""What gets stuck or lost in the seeds, and how it comes back.

Seed 001: a processor that is busy for more than five minutes (test_steady_timetable.py, test_time_limits.py), a job
that waits in memory for as long, a job in progress under a worker that is gone. Seed 002: a queued row without a
wake-up, or one that lay there for an hour; a message that kills its worker (test_crashes.py).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from uuid import uuid4

import asyncpg

from windlass import Context, State, phase
from windlass.model.processors import ProcessorState
from windlass.observe.events import JobsRescued
from windlass.store.protocol import Claim, NewWorker

from .rig import PATIENCE, Database, attempts, come, eventually, opened, working
from .test_steady_timetable import FIRST, SECOND, THIRD, found
from .timetable import Site


async def at_once(phase: str, ctx: Context, n: int) -> None:
    """A handler that takes no time."""


async def test_what_waits_in_memory_for_five_minutes_goes_back_in_its_phase_without_a_retry(
    still_database: Database,
) -> None:
    async def work(phase: str, ctx: Context, n: int) -> None:
        if phase == SECOND and n == 0:
            await asyncio.Event().wait()

    site = Site(still_database, work, processors=1, limit="1h")
    _, waiting = await site.creates(2)
    async with site.working():
        await site.until(130)
        assert (site.starts[-1], found(site, SECOND)) == ((125, f"{SECOND}-processor-1", 0), {120: [0, 1]})
        before = await waiting.arecord()
        assert (before.status, before.phase, before.attempt) == (State.RUNNING, SECOND, 1)

        await site.until(420)
        assert (await waiting.arecord()).status is State.RUNNING
        await site.until(450)  # five minutes have passed at 420, and the health check comes every half minute
        after = await waiting.arecord()

    assert (after.status, after.phase, after.attempt, after.output) == (State.QUEUED, SECOND, 0, '"info 1"')
    assert [each.outcome for each in attempts(after)] == ["succeeded"]


async def test_the_job_of_a_worker_that_is_gone_comes_back_with_the_sweep_and_stays_in_its_phase(
    still_database: Database,
) -> None:
    site = Site(still_database, at_once)
    (job,) = await site.creates(1)
    async with site.working():
        await site.until(100)
        gone = await opened(site.app)
        worker = NewWorker(id=uuid4(), name="gone", lease=30.0, queues=None, types=("form",), concurrency=1)
        await gone.register(worker)
        claimed = await gone.claim(Claim(worker=worker.id, room=1, types=("form",), rescan=True))
        await gone.close()  # and never a beat
        assert [each.id for each in claimed.jobs] == [job.id]

        await site.until(265)
        assert (await job.arecord()).worker == worker.id  # swept every five minutes, a tenth earlier at most
        await site.until(300)
        assert [event for event in site.recorded if isinstance(event, JobsRescued)] == [JobsRescued(1, 1, 0)]
        rescued = await job.arecord()
        assert (rescued.phase, rescued.attempt, rescued.output) == (SECOND, 0, '"info 0"')

        await site.until(500)
        assert await job.alabel() == "completed"

    assert [name.rpartition("-processor-")[0] for _, name, _ in site.starts] == [FIRST, SECOND, THIRD]
    assert site.starts[1][0] in (305, 365)  # the first scan after it has rested for thirty seconds


async def test_rows_that_lay_there_for_hours_are_found_by_the_next_scan(still_database: Database) -> None:
    site = Site(still_database, at_once)
    (job,) = await site.creates(1)
    await site.moves(3 * 3600)
    async with site.working():
        await site.until(3 * 3600 + 200)
        assert await job.alabel() == "completed"


async def test_a_row_that_nobody_was_told_of_is_found_by_the_poll(database: Database) -> None:
    app = database.app(poll="50ms")

    @app.job
    async def one(n: int) -> int:
        return n

    @app.job
    async def two(ctx: Context) -> int:
        return int(ctx.previous) + 1

    line = app.pipeline("line", one, two)
    async with working(app):
        if database.dialect == "sqlite":
            with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as connection, connection:
                job = await line.options(conn=connection).aenqueue(1)
        else:
            borrowed = await asyncpg.connect(database.url)
            async with borrowed.transaction():
                job = await line.options(conn=borrowed).aenqueue(1)
            await borrowed.close()
        assert await job.aresult(timeout=PATIENCE) == 2


async def test_a_stuck_processor_leaves_the_rest_of_its_small_pool_at_work(
    database: Database, whatever_happens: threading.Event
) -> None:
    app = database.app(health="50ms", poll="50ms")
    loop, reached = asyncio.get_running_loop(), asyncio.Event()

    @app.job(timeout="2s", max_attempts=1)  # long enough for the others on a busy machine
    def one(n: int) -> int:
        if n == 0:
            loop.call_soon_threadsafe(reached.set)
            whatever_happens.wait(PATIENCE)
        return n

    @app.job
    async def two(ctx: Context) -> int:
        return int(ctx.previous)

    line = app.pipeline("line", phase(one, processors=2), phase(two, processors=1))
    async with working(app, concurrency=6) as (worker, _):
        stuck = await line.aenqueue(0)
        await come(reached)
        await eventually(stuck.astatus, lambda state: state is State.DEAD)
        others = await app.aenqueue_many(line.call(n) for n in range(1, 20))
        assert [await job.aresult(timeout=PATIENCE) for job in others] == list(range(1, 20))
        (bad,) = [each for each in worker.state.pools if each.state is ProcessorState.ERROR]
        assert (bad.phase, worker.state.pools.free_in("one")) == ("one", 1)

        whatever_happens.set()
        await eventually(lambda: asyncio.sleep(0, worker.state.pools.free_in("one")), lambda free: free == 2)
