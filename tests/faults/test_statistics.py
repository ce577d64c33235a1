"""A table that PostgreSQL believes to be empty: autovacuum analysed it in a quiet second, and then a burst came."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncpg
import pytest

from store.conftest import postgres_rig
from store.rig import Rig
from windlass.model.outcome import Progress
from windlass.model.state import State, Verb

from .rig import FaultLab, scaled

READS_PER_JOB = 30  # rows of jobs: find, lock, write; once more for each rescan and each search for lanes
LIMIT = 30.0  # seconds until a story gives up
WAITS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())"


def believe(lab: FaultLab, rows: int, pages: int) -> None:
    lab.sql("ALTER TABLE {}jobs SET (autovacuum_enabled = false)")
    lab.sql(
        f"UPDATE pg_class SET reltuples = {rows}, relpages = {pages}"
        " WHERE relnamespace = 'windlass'::regnamespace AND relname LIKE 'jobs%' AND relkind IN ('r', 'i')"
    )


def reads(lab: FaultLab) -> int:
    """Rows of jobs that were read in any way."""
    ((count,),) = lab.sql(
        "SELECT coalesce(seq_tup_read, 0) + coalesce((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes"
        " WHERE relid = 'windlass.jobs'::regclass), 0) FROM pg_stat_user_tables WHERE relid = 'windlass.jobs'::regclass"
    )
    return int(count)


@pytest.mark.parametrize(("rows", "pages"), [(1, 5_400), (0, 1)])
def test_a_burst_after_a_quiet_minute_is_worked_off_job_by_job(postgres_lab: FaultLab, rows: int, pages: int) -> None:
    lab = postgres_lab
    believe(lab, rows, pages)
    jobs = scaled(4_000, 20_000)
    lab.enqueue("plain", jobs)

    worker = lab.start("--concurrency", "100")
    # The history alone: a read of jobs would count as well.
    lab.until(lambda: lab.sql("SELECT count(*) FROM {}history") == [(jobs,)], f"{jobs} jobs have ended")
    worker.signal(signal.SIGTERM)  # its sessions report what they read when they end
    worker.wait()

    assert reads(lab) <= READS_PER_JOB * jobs
    assert lab.counts() == {State.SUCCEEDED: jobs}


# Look-ups that cannot be turned round, and a row that another transaction writes meanwhile


@pytest.fixture
def making() -> AbstractAsyncContextManager[Rig]:
    return postgres_rig()


async def written_meanwhile(rig: Rig, change: str, operation: Any) -> Any:
    """The answer of an operation that had to wait until another transaction had changed its row and committed."""
    url = rig.store.url  # type: ignore[attr-defined]
    writer, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        await writer.execute(f"BEGIN; {change}")
        waiting = asyncio.create_task(operation)
        async with asyncio.timeout(LIMIT):
            while not await watcher.fetchval(WAITS):
                await watcher.execute("SELECT pg_sleep(0.01)")
        await writer.execute("COMMIT")
        return await waiting
    finally:
        await writer.close()
        await watcher.close()


@pytest.mark.parametrize(
    ("verb", "state"),
    [(Verb.SUCCEED, State.SUCCEEDED), (Verb.FAIL, State.FAILED), (Verb.BURY, State.DEAD), (Verb.RELEASE, State.QUEUED)],
)
async def test_an_end_that_waited_for_another_writer_is_written_on_the_newer_row(
    making: AbstractAsyncContextManager[Rig], verb: Verb, state: State
) -> None:
    async with making as rig:
        rig.worker = await rig.register()
        job = await rig.running()

        finished = await written_meanwhile(
            rig,
            f"UPDATE windlass.jobs SET trace = 'newer' WHERE id = '{job.id}'",
            rig.write(job.lease, verb, delay=60.0),
        )

        assert finished.states == {job.id: state}
        assert (await rig.find(job.id)).trace == "newer"


@pytest.mark.parametrize("verb", [Verb.SUCCEED, Verb.FAIL])
async def test_an_end_that_waited_and_lost_its_lease_meanwhile_changes_nothing(
    making: AbstractAsyncContextManager[Rig], verb: Verb
) -> None:
    async with making as rig:
        rig.worker = await rig.register()
        job = await rig.running()

        finished = await written_meanwhile(
            rig,
            f"UPDATE windlass.jobs SET token = gen_random_uuid() WHERE id = '{job.id}'",
            rig.write(job.lease, verb, delay=60.0),
        )

        assert finished.lost == {job.id}
        assert await rig.status(job.id) is State.RUNNING


async def test_a_cost_that_waited_for_another_writer_is_charged_once(making: AbstractAsyncContextManager[Rig]) -> None:
    async with making as rig:
        rig.worker = await rig.register()
        job = await rig.running()

        await written_meanwhile(
            rig,
            f"UPDATE windlass.jobs SET trace = 'newer' WHERE id = '{job.id}'",
            rig.store.record([Progress(lease=job.lease, total=2, processed=1, failed=0, cost_cents=7)]),
        )

        found = await rig.find(job.id)
        assert (found.processed, found.cost_cents, found.trace) == (1, 7, "newer")
