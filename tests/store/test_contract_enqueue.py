"""The way in: all or none, and nothing is changed on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import msgspec
import pytest

from windlass.errors import StoreError
from windlass.model.job import new_id
from windlass.model.state import State

from .rig import new_job

if TYPE_CHECKING:
    from .rig import Rig

MANY = 1_200  # more than one page of SQLite's insert, and enough for PostgreSQL's COPY


async def test_a_new_job_is_queued_and_due_now(rig: Rig) -> None:
    job = await rig.find(await rig.enqueue(queue="mail"))

    assert job.status is State.QUEUED
    assert job.run_at == job.created_at == job.updated_at == rig.clock.now()
    assert (job.queue, job.phase, job.tenant) == ("mail", "mail", "default")
    assert (job.attempt, job.fence, job.crashes, job.cancel_requested) == (0, 0, 0, False)
    assert {job.token, job.worker, job.output, job.error, job.attempts} == {None}


async def test_every_option_comes_back_as_it_went_in(rig: Rig) -> None:
    parent, origin = new_id(), new_id()

    job = await rig.find(
        await rig.enqueue(
            tenant="acme",
            queue="pages",
            priority=-7,
            max_attempts=2,
            key="one",
            parent=parent,
            pipeline="site",
            phase="crawl",
            phase_rank=3,
            trace="00-abc-def-01",
            copied_from=origin,
        )
    )

    assert (job.tenant, job.queue, job.priority, job.max_attempts, job.key) == ("acme", "pages", -7, 2, "one")
    assert (job.pipeline, job.phase, job.phase_rank, job.trace) == ("site", "crawl", 3, "00-abc-def-01")
    assert (job.parent, job.copied_from) == (parent, origin)


async def test_an_input_keeps_its_json_to_the_last_digit(rig: Rig) -> None:
    text = '{"big":18446744073709551616,"float":1.0,"text":"é\\n\\u0041\\"","list":[null,true,{"a":{}}],"":""}'

    job = await rig.find(await rig.enqueue(input=text))

    assert msgspec.json.decode(job.input) == msgspec.json.decode(text)
    assert "18446744073709551616" in job.input
    assert "1.0" in job.input


async def test_a_delay_counts_from_the_stores_time(rig: Rig) -> None:
    job = await rig.enqueue(delay=90.25)

    assert (await rig.find(job)).run_at == rig.clock.now() + timedelta(seconds=90.25)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 3, 4, 5, 6, 7, 999_999, tzinfo=UTC),
        datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
        datetime(2026, 3, 4, 5, 6, 7, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ],
)
async def test_a_time_keeps_its_microseconds_and_loses_only_its_zone(rig: Rig, moment: datetime) -> None:
    job = await rig.enqueue(run_at=moment)

    assert (await rig.find(job)).run_at == moment


async def test_many_jobs_arrive_together(rig: Rig) -> None:
    await rig.enqueue_many(MANY)

    assert (await rig.store.counts())[State.QUEUED] == MANY


@pytest.mark.parametrize("count", [3, MANY])
async def test_a_bad_job_in_the_middle_keeps_all_of_them_out(rig: Rig, count: int) -> None:
    taken = await rig.enqueue()
    jobs = [new_job() for _ in range(count)]
    jobs[count // 2] = new_job(id=taken)

    with pytest.raises(StoreError):
        await rig.store.enqueue(jobs)

    assert (await rig.store.counts())[State.QUEUED] == 1
    assert await rig.store.find(jobs[0].id) is None


async def test_no_job_is_no_work(rig: Rig) -> None:
    await rig.store.enqueue([])

    assert sum((await rig.store.counts()).values()) == 0


async def test_a_job_that_never_was_is_not_found(rig: Rig) -> None:
    assert await rig.store.find(new_id()) is None
