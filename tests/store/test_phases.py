"""Phases: their due and running jobs are counted apart, and a worker's report lies in its row."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import msgspec
import pytest

from windlass.model.processors import LISTED, PoolReport, ProcessorState, UsedProcessor, encode_pools
from windlass.model.rows import COUNTED
from windlass.model.state import Verb
from windlass.store.protocol import NewWorker

from .rig import LEASE, TYPE
from .test_counts import add

if TYPE_CHECKING:
    from windlass.model.rows import WorkerRow

    from .rig import Rig

IDLE, BUSY, ERROR = ProcessorState.IDLE, ProcessorState.BUSY, ProcessorState.ERROR


MOMENTS = {"sqlite": ("1", "2"), "postgres": ("'2020-01-01 00:00+00'", "'2020-01-02 00:00+00'")}
"""Two times in the past, as each store writes them."""


async def counted(rig: Rig) -> dict[tuple[str | None, str], tuple[int, int, int]]:
    """Rank, due and running by pipeline and phase."""
    return {(row.pipeline, row.phase): (row.rank, row.due, row.running) for row in await rig.store.phases()}


# Jobs in the database


async def test_jobs_of_one_queue_are_counted_by_phase(rig: Rig) -> None:
    first, second = (
        {"pipeline": "site", "phase": name, "phase_rank": rank} for rank, name in enumerate(("get", "ask"))
    )
    await rig.enqueue_many(2, **first)
    await rig.enqueue_many(3, **first, tenant="acme", priority=5)
    await rig.enqueue_many(4, **second)
    await rig.enqueue_many(6)
    await rig.enqueue_many(7, queue="mail")
    await rig.enqueue_many(20, **second, delay=60.0)  # not due
    await rig.enqueue_many(20, delay=60.0)

    assert await counted(rig) == {
        ("site", "get"): (0, 5, 0),
        ("site", "ask"): (1, 4, 0),
        (None, "default"): (0, 6, 0),
        (None, "mail"): (0, 7, 0),
    }


async def test_running_jobs_are_counted_by_phase(rig: Rig) -> None:
    await rig.enqueue_many(2, pipeline="site", phase="ask", phase_rank=1)
    await rig.enqueue_many(3)
    await rig.claim()

    assert await counted(rig) == {("site", "ask"): (1, 0, 2), (None, "default"): (0, 0, 3)}


async def test_a_failed_job_is_due_when_its_retry_is(rig: Rig) -> None:
    job = await rig.held(pipeline="site", phase="ask", phase_rank=1)
    await rig.write(job.lease, Verb.FAIL, delay=60.0)

    assert await counted(rig) == {("site", "ask"): (1, 0, 0)}
    await rig.advance(60)
    assert await counted(rig) == {("site", "ask"): (1, 1, 0)}


@pytest.mark.parametrize("pipeline", [None, "site"])
async def test_parked_jobs_are_due(rig: Rig, pipeline: str | None) -> None:
    limits = "ARRAY['domain:a']" if rig.dialect == "postgres" else """'["domain:a"]'"""
    staged = {} if pipeline is None else {"pipeline": f"'{pipeline}'", "phase": "'ask'"}
    await add(rig, 4, queue="'mail'", limits=limits, parked_on="'domain:a'", **({"phase": "'mail'"} | staged))

    due = {place: numbers[1] for place, numbers in (await counted(rig)).items() if numbers[1]}

    assert due == {(pipeline, "mail" if pipeline is None else "ask"): 4}


async def test_beyond_the_bound_a_phase_says_more(rig: Rig) -> None:
    await add(rig, COUNTED + 500, queue="'mail'", pipeline="'site'", phase="'ask'", phase_rank="1")

    (row,) = await rig.store.phases()

    assert (row.pipeline, row.phase, row.due, row.counted) == ("site", "ask", row.counted + 1, COUNTED // 2)


async def test_jobs_in_no_pipeline_are_found_behind_those_of_a_first_phase(rig: Rig) -> None:
    await add(rig, 3_000, queue="'mail'", pipeline="'site'", phase="'get'", run_at=MOMENTS[rig.dialect][0])
    await add(rig, 700, queue="'mail'", phase="'mail'", run_at=MOMENTS[rig.dialect][1])

    assert await counted(rig) == {("site", "get"): (0, 3_000, 0), (None, "mail"): (0, 700, 0)}


async def test_a_phase_that_moved_in_its_pipeline_is_counted_once(rig: Rig) -> None:
    await rig.enqueue_many(2, pipeline="site", phase="ask", phase_rank=1)
    await rig.enqueue_many(3, pipeline="site", phase="ask", phase_rank=2)  # by a program with a phase more

    assert await counted(rig) == {("site", "ask"): (1, 5, 0)}


# What a worker reports


async def beat(rig: Rig, *pools: PoolReport) -> WorkerRow:
    heartbeat = rig.store.heartbeat()
    try:
        assert await heartbeat.beat(rig.worker, LEASE, 0, encode_pools(pools))
    finally:
        await heartbeat.close()
    (row,) = await rig.store.workers(processors=True)
    return row


async def test_processors_that_were_never_used_are_idle(rig: Rig) -> None:
    job = uuid4()
    row = await beat(
        rig,
        PoolReport(phase="get", idle=3, busy=1, waiting=2, used=(UsedProcessor(2, BUSY, 12.5, job, TYPE),)),
        PoolReport(phase="ask", idle=1, error=1, used=(UsedProcessor(1, ERROR, 3.0, job, TYPE),)),
    )

    shown = {each.name: (each.phase, each.state, each.job, each.type) for each in row.processors}
    assert shown == {
        "get-processor-1": ("get", IDLE, None, None),
        "get-processor-2": ("get", BUSY, job, TYPE),
        "get-processor-3": ("get", IDLE, None, None),
        "get-processor-4": ("get", IDLE, None, None),
        "ask-processor-1": ("ask", ERROR, job, TYPE),
        "ask-processor-2": ("ask", IDLE, None, None),
    }
    assert row.reported_at == row.now
    assert [each.since for each in row.processors[:2]] == [None, row.now - timedelta(seconds=12.5)]
    assert (row.in_memory, row.unlisted) == ({"get": 2}, 0)


async def test_the_time_of_a_state_is_the_stores_time(rig: Rig) -> None:
    row = await beat(rig, PoolReport(phase="get", idle=1, used=(UsedProcessor(1, IDLE, 5.0),)))
    await rig.advance(7)

    (later,) = await rig.store.workers(processors=True)

    assert later.processors == row.processors
    assert (later.now - (later.processors[0].since or later.now)).total_seconds() == 12.0


async def test_the_row_of_a_worker_with_many_processors_stays_small(rig: Rig) -> None:
    ids = [UUID(int=number) for number in range(1_000)]
    busy = tuple(UsedProcessor(number + 1, BUSY, float(number), id, TYPE) for number, id in enumerate(ids))
    idle = tuple(UsedProcessor(number + 1, IDLE, 9e9) for number in range(500))
    row = await beat(rig, PoolReport(phase="get", busy=1_000, used=busy), PoolReport(phase="ask", idle=700, used=idle))

    ((size,),) = await rig.run("SELECT length(pools) FROM {}workers")
    assert size < 20_000
    assert len(row.processors) == LISTED
    assert {each.job for each in row.processors} == set(ids[-LISTED:])  # those that run for longest
    assert row.unlisted == 1_700 - LISTED
    assert [(pool.phase, pool.idle, pool.busy) for pool in row.pools] == [("get", 0, 1_000), ("ask", 700, 0)]


async def test_idle_processors_are_listed_up_to_the_bound(rig: Rig) -> None:
    row = await beat(rig, PoolReport(phase="get", idle=150), PoolReport(phase="ask", idle=10**9))

    assert (len(row.processors), row.unlisted) == (LISTED, 150 + 10**9 - LISTED)
    assert row.processors[-1].name == "ask-processor-50"


@pytest.mark.parametrize("report", ["'not JSON'", "'[1, 2]'", '\'[{{"phase": "get", "busy": "many"}}]\'', "NULL"])
async def test_a_report_that_cannot_be_read_is_no_report(rig: Rig, report: str) -> None:
    await rig.run(f"UPDATE {{}}workers SET pools = {report}")

    (row,) = await rig.store.workers(processors=True)

    assert (row.pools, row.processors, row.in_memory, row.unlisted) == ((), (), {}, 0)


async def test_only_a_list_of_processors_reads_the_reports(rig: Rig) -> None:
    await beat(rig, PoolReport(phase="get", idle=3))

    (row,) = await rig.store.workers()

    assert (row.pools, row.processors) == ((), ())


async def test_a_dead_worker_reports_nothing(rig: Rig) -> None:
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    heartbeat = rig.store.heartbeat()

    assert not await heartbeat.beat(rig.worker, LEASE, 0, encode_pools([PoolReport(phase="get", idle=3)]))

    await heartbeat.close()
    (row,) = await rig.store.workers(processors=True)
    assert (row.dead, row.pools) == (True, ())


async def test_a_worker_announces_the_version_of_its_program(rig: Rig) -> None:
    started = {"id": uuid4(), "name": "host:2", "lease": LEASE, "queues": None, "types": (), "concurrency": 1}
    new = msgspec.convert({**started, "version": "4f2c1a9", "windlass": "0.1.0"}, NewWorker)
    await rig.store.register(new)

    rows = {row.id: (row.version, row.windlass) for row in await rig.store.workers()}

    assert rows == {rig.worker: (None, None), new.id: ("4f2c1a9", "0.1.0")}
