"""Batches: many jobs, one callback, and counters that add up whatever happens to the jobs."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from typing import Any

import asyncpg
import pytest

from windlass import Context, Dead, State, Windlass
from windlass.errors import FlowError, InvalidInput, JobCancelled, JobDead, TransitionRefused
from windlass.handles.batch import Batch, BatchProgress

from .rig import ON_POSTGRES, ON_SQLITE, PATIENCE, Database, come, ended, eventually, in_state, working


class Works:
    """A program with jobs that double their number, die on it or wait for it, and a callback that reports."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.reported: list[tuple[int | None, int, int]] = []
        self.mended = False
        self.started = asyncio.Event()
        self.gate = asyncio.Event()

        @app.job
        async def double(n: int) -> int:
            if n < 0 and not self.mended:
                raise Dead("it is negative")
            return 2 * n

        @app.job
        async def held(n: int) -> int:
            self.started.set()
            await come(self.gate)
            return n

        @app.job
        async def tell(ctx: Context) -> str:
            self.reported.append((ctx.job.total, ctx.job.processed, ctx.job.failed))
            return "reported"

        self.double, self.held, self.tell = double, held, tell


@pytest.fixture
def works(app: Windlass) -> Works:
    return Works(app)


async def states(batch: Batch[Any, Any]) -> list[State]:
    return [(await job.arecord()).status for job in batch.jobs]


def counters(total: int, processed: int, failed: int) -> BatchProgress:
    return BatchProgress(total=total, processed=processed, failed=failed)


async def test_the_callback_runs_when_all_have_ended(app: Windlass, works: Works) -> None:
    batch = await app.abatch((works.double.call(n) for n in range(5)), then=works.tell.call())
    assert await batch.callback.astatus() is State.WAITING
    assert await batch.aprogress() == counters(5, 0, 0)

    async with working(app):
        assert await batch.aresult(timeout=PATIENCE) == "reported"

    assert works.reported == [(5, 5, 0)]
    assert await batch.aprogress() == counters(5, 5, 0)
    assert [await job.aresult() for job in batch.jobs] == [0, 2, 4, 6, 8]
    assert (await batch.callback.arecord()).attempt == 1


async def test_bad_ends_are_counted_and_the_callback_runs_all_the_same(app: Windlass, works: Works) -> None:
    calls = [works.double.call(n) for n in (1, -1, 2, -2, 3)]
    batch = await app.abatch([*calls, works.held.call(9)], then=works.tell.call())

    async with working(app):
        await batch.jobs[-1].acancel()
        assert await batch.aresult(timeout=PATIENCE) == "reported"

    assert works.reported == [(6, 3, 3)]
    assert await batch.aprogress() == counters(6, 3, 3)


async def test_the_callback_finds_the_results_in_the_order_of_the_calls(app: Windlass, works: Works) -> None:
    @app.job
    async def collect(ctx: Context) -> list[Any]:
        found = await ctx.dependencies()
        assert list(found) == [str(n) for n in range(len(found))]
        return list(found.values())

    async with working(app):
        batch = await app.abatch([works.double.call(n) for n in (*range(11), -1)], then=collect.call())
        assert await batch.aresult(timeout=PATIENCE) == [*range(0, 22, 2), None]


async def test_progress_while_it_runs(app: Windlass, works: Works) -> None:
    calls = [works.double.call(1), works.double.call(-1), works.held.call(2), works.held.call(3)]
    batch = await app.abatch(calls, then=works.tell.call())

    async with working(app):
        await eventually(batch.aprogress, lambda seen: seen == counters(4, 1, 1))
        assert await batch.callback.astatus() is State.WAITING
        assert works.reported == []
        elsewhere = await app.afind(batch.id)  # as from another process
        assert (await elsewhere.arecord()).total == 4
        works.gate.set()
        await batch.aresult(timeout=PATIENCE)

    assert await batch.aprogress() == counters(4, 3, 1)


async def test_blocking_callers_have_the_same_batch(app: Windlass, works: Works) -> None:
    def blocking() -> tuple[str, BatchProgress]:
        batch = app.batch([works.double.call(1), works.double.call(2)], then=works.tell.call())
        return batch.result(timeout=PATIENCE), batch.progress()

    async with working(app):
        assert await asyncio.to_thread(blocking) == ("reported", counters(2, 2, 0))

    stopped = await asyncio.to_thread(app.batch, [works.double.call(1)], then=works.tell.call())
    assert await asyncio.to_thread(stopped.cancel) is State.CANCELLED


async def test_two_thousand_jobs_add_up(app: Windlass, works: Works) -> None:
    calls = [works.double.call(n if n % 10 else -1) for n in range(2_000)]

    async with working(app, concurrency=50):
        batch = await app.abatch(calls, then=works.tell.call())
        await batch.aresult(timeout=5 * PATIENCE)

    assert works.reported == [(2_000, 1_800, 200)]


# Coming back


async def test_a_dead_member_that_is_replayed_counts_once(app: Windlass, works: Works) -> None:
    batch = await app.abatch([works.double.call(-4), works.held.call(1)], then=works.tell.call())

    async with working(app):
        await eventually(batch.aprogress, lambda seen: seen == counters(2, 0, 1))
        works.mended = True
        await batch.jobs[0].areplay()
        assert await batch.jobs[0].aresult(timeout=PATIENCE) == -8
        assert await batch.aprogress() == counters(2, 1, 0)
        works.gate.set()
        await batch.aresult(timeout=PATIENCE)

    assert works.reported == [(2, 2, 0)]


async def test_a_replayed_member_is_waited_for_again(app: Windlass, works: Works) -> None:
    batch = await app.abatch([works.double.call(-4), works.held.call(1)], then=works.tell.call())
    async with working(app, types=["double"]):
        await eventually(batch.aprogress, lambda seen: seen == counters(2, 0, 1))
    await batch.jobs[0].areplay()
    assert await batch.aprogress() == counters(2, 0, 0)

    works.gate.set()
    async with working(app, types=["held"]):
        await eventually(batch.aprogress, lambda seen: seen == counters(2, 1, 0))
    assert await batch.callback.astatus() is State.WAITING

    async with working(app):
        await batch.aresult(timeout=PATIENCE)
    assert works.reported == [(2, 1, 1)]  # it died once more


async def test_a_member_that_is_replayed_after_the_end_changes_nothing(app: Windlass, works: Works) -> None:
    async with working(app):
        batch = await app.abatch([works.double.call(-4)], then=works.tell.call())
        await batch.aresult(timeout=PATIENCE)
        works.mended = True
        await batch.jobs[0].areplay()
        assert await batch.jobs[0].aresult(timeout=PATIENCE) == -8

    assert works.reported == [(1, 0, 1)]
    assert await batch.aprogress() == counters(1, 0, 1)


# Policies


async def test_fail_buries_the_callback_and_lets_the_rest_go_on(app: Windlass, works: Works) -> None:
    batch = await app.abatch([works.double.call(-1), works.held.call(1)], then=works.tell.call(), policy="fail")

    async with working(app):
        with pytest.raises(JobDead, match=str(batch.jobs[0].id)):
            await batch.aresult(timeout=PATIENCE)
        works.gate.set()
        assert await batch.jobs[1].aresult(timeout=PATIENCE) == 1

    assert works.reported == []
    with pytest.raises(TransitionRefused):  # nothing is left of it to cancel
        await batch.acancel()


async def test_the_rest_of_a_failed_batch_can_be_cancelled(app: Windlass, works: Works) -> None:
    held = works.held.options(key="before")
    before = await held.aenqueue(0)
    calls = [works.double.call(-1), works.held.call(1), held.call(0)]
    batch = await app.abatch(calls, then=works.tell.call(), policy="fail")

    async with working(app, types=["double"]):
        await in_state(batch.callback, State.DEAD)
    assert await batch.acancel() is State.DEAD

    assert await states(batch) == [State.DEAD, State.CANCELLED, State.QUEUED]
    assert batch.jobs[2] == before


async def test_skip_cancels_the_callback_and_the_rest(app: Windlass, works: Works) -> None:
    calls = [works.double.call(1), works.double.call(-1), works.held.call(1)]
    batch = await app.abatch(calls, then=works.tell.call(), policy="skip")

    async with working(app):
        with pytest.raises(JobCancelled):
            await batch.aresult(timeout=PATIENCE)
        await in_state(batch.jobs[2], State.CANCELLED)

    assert (await states(batch))[1:] == [State.DEAD, State.CANCELLED]
    assert works.reported == []


# Keys


async def test_jobs_whose_key_is_held_are_counted_once(app: Windlass, works: Works) -> None:
    keyed = works.double.options
    past, future = await keyed(key="past").aenqueue(1), await keyed(key="future", queue="later").aenqueue(2)
    async with working(app, queues=["default"]):
        await ended(past)

    calls = [keyed(key=key).call(n) for n, key in enumerate(["past", "future", "own", "own"])]
    batch = await app.abatch(calls, then=works.tell.call())
    assert [job.existing for job in batch.jobs] == [True, True, False, True]
    assert batch.jobs[2] == batch.jobs[3]
    assert await batch.aprogress() == counters(3, 1, 0)

    async with working(app):
        await batch.aresult(timeout=PATIENCE)
        assert await future.astatus() is State.SUCCEEDED
    assert works.reported == [(3, 3, 0)]


async def test_a_callback_cannot_have_a_key(app: Windlass, works: Works, database: Database) -> None:
    with pytest.raises(FlowError, match=r"the callback \(then=\) has a key"):
        await app.abatch([works.double.call(1)], then=works.tell.options(key="k").call())
    assert await rows(database) == 0


# Cancelling


async def test_cancel_leaves_alone_what_existed_before(app: Windlass, works: Works) -> None:
    before = await works.double.options(key="k").aenqueue(1)
    batch = await app.abatch([works.double.options(key="k").call(1), works.double.call(2)], then=works.tell.call())

    await batch.acancel()
    assert await before.astatus() is State.QUEUED
    assert await states(batch) == [State.QUEUED, State.CANCELLED]


async def test_cancel_takes_what_has_not_ended(app: Windlass, works: Works) -> None:
    calls = [works.double.call(1), works.held.call(2), works.held.options(queue="nobody's").call(3)]
    batch = await app.abatch(calls, then=works.tell.call())
    other = await works.double.aenqueue(5)

    async with working(app, queues=["default"]):
        await ended(batch.jobs[0])
        await come(works.started)
        assert await batch.acancel() is State.CANCELLED
        await in_state(batch.jobs[1], State.CANCELLED)
        assert await other.aresult(timeout=PATIENCE) == 10

    assert await states(batch) == [State.SUCCEEDED, State.CANCELLED, State.CANCELLED]
    assert works.reported == []
    with pytest.raises(JobCancelled):
        await batch.aresult()


async def test_a_batch_that_has_ended_cannot_be_cancelled(app: Windlass, works: Works) -> None:
    async with working(app):
        batch = await app.abatch([works.double.call(1)], then=works.tell.call())
        await batch.aresult(timeout=PATIENCE)
        with pytest.raises(TransitionRefused):
            await batch.acancel()


# One transaction


TABLES = ("jobs", "history", "waits", "edges", "links")


async def rows(database: Database) -> int:
    return sum([(await database.run(f"SELECT count(*) FROM {{}}{table}"))[0][0] for table in TABLES])


async def test_a_wrong_call_writes_nothing(app: Windlass, works: Works, database: Database) -> None:
    wrong: Any = "two"
    with pytest.raises(InvalidInput, match=r"call 1: .*; nothing was enqueued"):
        await app.abatch((works.double.call(n) for n in (1, wrong)), then=works.tell.call())
    assert await rows(database) == 0


@ON_POSTGRES
async def test_a_batch_rides_in_an_asyncpg_transaction(app: Windlass, works: Works, database: Database) -> None:
    async def enqueue(conn: Any) -> Batch[int, str]:
        return await app.abatch([works.double.call(1), works.double.call(2)], then=works.tell.call(), conn=conn)

    conn = await asyncpg.connect(database.url)
    with suppress(ZeroDivisionError):
        async with conn.transaction():
            await enqueue(conn)
            raise ZeroDivisionError
    assert await rows(database) == 0

    async with conn.transaction():
        batch = await enqueue(conn)
    await conn.close()
    async with working(app):
        assert await batch.aresult(timeout=PATIENCE) == "reported"


@ON_SQLITE
async def test_a_batch_rides_in_a_sqlite3_transaction(app: Windlass, works: Works, database: Database) -> None:
    def in_a_thread(*, commit: bool) -> Batch[int, str]:
        with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as conn:
            conn.execute("BEGIN IMMEDIATE")
            batch = app.batch([works.double.call(1), works.double.call(2)], then=works.tell.call(), conn=conn)
            conn.commit() if commit else conn.rollback()
        return batch

    await asyncio.to_thread(in_a_thread, commit=False)
    assert await rows(database) == 0

    batch = await asyncio.to_thread(in_a_thread, commit=True)
    async with working(app):
        assert await batch.aresult(timeout=PATIENCE) == "reported"
