"""A claim was committed, and its answer never came, or could not be read: its jobs are found, however late."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from engine.rig import Database, come, eventually, opened, stores_of, working
from windlass import JobHandle
from windlass.errors import StoreUnavailable
from windlass.runtime.claims import lost_answers
from windlass.runtime.worker import Worker
from windlass.store.protocol import Claim

from .rig import FaultLab

LIMIT = 30.0  # seconds until a story gives up


@pytest.fixture
async def database(lab: FaultLab) -> AsyncIterator[Database]:
    database = Database(url=lab.url, dialect="sqlite" if lab.url.startswith("sqlite") else "postgres")
    yield database
    await database.close()


async def test_a_claim_whose_answer_is_lost_is_looked_at_until_the_database_answers(
    lab: FaultLab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_answers, "IN_DOUBT_SECONDS", 0.3)
    app = database.app(poll="50ms", lease="60s")
    runs: Counter[int] = Counter()
    prefix = "windlass_" if database.dialect == "sqlite" else ""

    @app.job
    async def work(n: int) -> int:
        runs[n] += 1
        return n

    handles = await app.aenqueue_many(work.call(n) for n in range(5))
    lost = asyncio.Event()
    async with app.worker(concurrency=5) as worker:
        store: Any = stores_of(worker)
        claim = store.claim

        async def lossy(request: Claim) -> Any:
            if not lost.is_set():
                await claim(request)
                # and no read succeeds for a while
                await asyncio.to_thread(lab.sql, f"ALTER TABLE {{}}jobs RENAME TO {prefix}away")
                lost.set()
                raise StoreUnavailable("the answer never came")
            return await claim(request)

        store.claim = lossy
        await asyncio.wait_for(lost.wait(), LIMIT)
        failed_at = worker.state.clock.monotonic()
        await eventually(lambda: clock_of(worker), lambda now: now > failed_at + 1.0, timeout=LIMIT)
        await asyncio.to_thread(lab.sql, f"ALTER TABLE {{}}away RENAME TO {prefix}jobs")

        assert [await handle.aresult(timeout=LIMIT) for handle in handles] == list(range(5))
    assert set(runs.values()) == {1}


async def clock_of(worker: Any) -> float:
    return float(worker.state.clock.monotonic())


@asynccontextmanager
async def claimed_late(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Worker, JobHandle[int]]]:
    """A worker with its only processor taken, and a job that it holds without knowing.

    As if a frozen server had woken up, and committed a claim that its worker gave up long ago.
    """
    app = database.app(poll="50ms", lease="60s")
    started, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def long() -> None:
        started.set()
        await go.wait()

    @app.job
    async def work(n: int) -> int:
        return n

    store = await opened(app)
    async with working(app, concurrency=1) as (worker, _):
        await long.aenqueue()
        await come(started)
        job = await work.aenqueue(7)
        request = Claim(worker=worker.state.worker, room=1, types=("work",), rescan=True)
        assert [each.id for each in (await store.claim(request)).jobs] == [job.id]
        try:
            yield worker, job
        finally:
            go.set()
            await store.close()


async def test_a_claim_that_commits_long_after_it_failed_is_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_answers, "ASK_EVERY_SECONDS", 0.2)
    async with claimed_late(database, monkeypatch) as (worker, job):
        await eventually(lambda: known(worker, job), bool, timeout=LIMIT)
    assert await job.aresult(timeout=LIMIT) == 7


async def known(worker: Worker, job: JobHandle[int]) -> bool:
    return job.id in worker.state.leases.known()


async def test_a_claimed_row_that_cannot_be_read_is_buried_and_says_so(
    lab: FaultLab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with claimed_late(database, monkeypatch) as (worker, job):
        await asyncio.to_thread(spoil, lab, job)
        monkeypatch.setattr(lost_answers, "ASK_EVERY_SECONDS", 0.2)
        await eventually(lambda: dead(lab), bool, timeout=LIMIT)
        assert not await known(worker, job)
    assert lab.sql("SELECT reason, token FROM {}jobs") == [("claimed, could not be read", None)]


def spoil(lab: FaultLab, job: JobHandle[int]) -> None:
    """A value that only a person can have written, past every check."""
    if lab.url.startswith("sqlite"):
        with closing(sqlite3.connect(lab.url.removeprefix("sqlite:///"), timeout=LIMIT)) as connection, connection:
            connection.execute("UPDATE windlass_jobs SET parent = 'no id' WHERE id = ?", [str(job.id)])
        return
    lab.sql("""
        DO $$ DECLARE name text; BEGIN
            FOR name IN SELECT conname FROM pg_constraint WHERE conrelid = 'windlass.jobs'::regclass AND contype = 'c'
            LOOP EXECUTE format('ALTER TABLE windlass.jobs DROP CONSTRAINT %I', name); END LOOP;
        END $$
    """)
    lab.sql(f"UPDATE {{}}jobs SET created_at = '20000-01-01' WHERE id = '{job.id}'")


async def dead(lab: FaultLab) -> bool:
    return bool(lab.sql("SELECT 1 FROM {}jobs WHERE status = 'dead'"))
