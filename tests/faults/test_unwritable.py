"""One odd row, written by hand or refused by a trigger: its own end may be odd, and no other job's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from engine.rig import Database, come, in_state, opened, working
from windlass import State
from windlass.model.job import Job, NewJob, attempts_in, new_id
from windlass.store.protocol import Claim, NewWorker, Store

from .rig import FaultLab

TYPE = "mail.send"

TRIGGERS = {
    "postgres": """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE{column} ON {{}}jobs FOR EACH ROW WHEN (OLD.id = '{job}')
        EXECUTE FUNCTION refuse()
    """,
    "sqlite": """
        CREATE TRIGGER refuse BEFORE UPDATE{column} ON {{}}jobs WHEN OLD.id = '{job}'
        BEGIN SELECT RAISE(ABORT, 'not this one'); END
    """,
}


@pytest.fixture
async def database(lab: FaultLab) -> AsyncIterator[Database]:
    database = Database(url=lab.url, dialect="sqlite" if lab.url.startswith("sqlite") else "postgres")
    yield database
    await database.close()


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    store: Store = await opened(database.app())
    yield store
    await store.close()


async def orphans(store: Store, lab: FaultLab, count: int, **options: str) -> list[Job]:
    """Jobs of a worker that died."""
    worker = NewWorker(id=uuid4(), name="dead", lease=60.0, queues=None, types=(TYPE,), concurrency=count)
    await store.register(worker)
    await store.enqueue([NewJob(id=new_id(), type=TYPE, input="{}", **options) for _ in range(count)])  # type: ignore[arg-type]
    claimed = await store.claim(Claim(worker=worker.id, room=count, types=(TYPE,), rescan=True))
    assert len(claimed.jobs) == count
    lab.sql("UPDATE {}workers SET dead = true")
    return claimed.jobs


async def states(store: Store, jobs: list[Job]) -> list[State]:
    found = await store.find_many([job.id for job in jobs])
    return [found[job.id].status for job in jobs]


def refuse(lab: FaultLab, job: UUID, *, column: str = "") -> None:
    dialect = "sqlite" if lab.url.startswith("sqlite") else "postgres"
    lab.sql(TRIGGERS[dialect].format(job=job, column=column))


def relent(lab: FaultLab) -> None:
    lab.sql("DROP TRIGGER refuse" + ("" if lab.url.startswith("sqlite") else " ON {}jobs"))


@pytest.mark.parametrize("odd", ['{"n": 1}', '"once"', "null", "[1, null]"])
async def test_a_rescue_reads_attempts_of_any_shape(lab: FaultLab, store: Store, odd: str) -> None:
    jobs = await orphans(store, lab, 3)
    lab.sql(f"UPDATE {{}}jobs SET attempts = '{odd}' WHERE id = '{jobs[1].id}'")

    swept = await store.sweep(max_crashes=3)

    assert swept.rescued == 3
    record = await store.find(jobs[1].id)
    assert record is not None
    assert [attempt.outcome for attempt in attempts_in(record.attempts)] == ["crashed"]


@pytest.mark.parametrize("odd", ["[]", '"later"', '{"dead": {"type": 7}, "never": 1}'])
async def test_a_rescue_reads_consequences_of_any_shape(lab: FaultLab, store: Store, odd: str) -> None:
    follow_up = '{"dead":{"type":"mourn","names":[],"queue":"default","priority":0,"max_attempts":1}}'
    jobs = await orphans(store, lab, 3, follow_ups=follow_up)
    lab.sql(f"UPDATE {{}}jobs SET follow_ups = '{odd}' WHERE id = '{jobs[1].id}'")

    swept = await store.sweep(max_crashes=1)

    assert swept.dead_after_crashes == 3
    assert lab.sql("SELECT count(*) FROM {}jobs WHERE type = 'mourn'") == [(2,)]


async def test_a_row_that_no_rescue_may_touch_keeps_no_other(lab: FaultLab, store: Store) -> None:
    jobs = await orphans(store, lab, 5)
    refuse(lab, jobs[2].id)

    swept = await store.sweep(max_crashes=3, page=2)

    assert swept.rescued == 4
    others = [State.QUEUED] * 2
    assert await states(store, jobs) == [*others, State.RUNNING, *others]

    relent(lab)
    assert (await store.sweep(max_crashes=3)).rescued == 1
    assert await states(store, jobs) == [State.QUEUED] * 5


async def test_a_row_that_refuses_its_attempts_is_given_back_without_them(lab: FaultLab, store: Store) -> None:
    jobs = await orphans(store, lab, 3)
    refuse(lab, jobs[0].id, column=" OF attempts")

    assert (await store.sweep(max_crashes=3)).rescued == 3

    record = await store.find(jobs[0].id)
    assert record is not None
    assert (record.status, record.crashes, record.attempt, record.attempts) == (State.QUEUED, 1, 0, None)


async def test_a_running_job_whose_row_was_edited_ends_as_others_do(lab: FaultLab, database: Database) -> None:
    app = database.app()
    started, go = asyncio.Event(), asyncio.Event()

    @app.job(max_attempts=1)
    async def odd() -> None:
        started.set()
        await go.wait()
        raise OSError("the other side is down")

    @app.job
    async def plain(n: int) -> int:
        return n

    async with working(app, concurrency=4):
        job = await odd.aenqueue()
        await come(started)
        shape = {"sqlite": "1", "postgres": "true"}[database.dialect]
        lab.sql(f"UPDATE {{}}jobs SET attempts = '1', follow_ups = '7', followed = {shape} WHERE id = '{job.id}'")
        go.set()
        handles = await app.aenqueue_many(plain.call(n) for n in range(5))
        assert [await handle.aresult(timeout=30) for handle in handles] == list(range(5))
        record = await in_state(job, State.DEAD)

    assert record.reason == "exhausted"
    assert [attempt.outcome for attempt in attempts_in(record.attempts)] == ["raised"]
