"""Which job is claimed first, which is left alone, and what a floor may not hide."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

from windlass import Context, State, Windlass
from windlass.errors import UnknownType
from windlass.model.job import NewJob, new_id
from windlass.observe.events import AttemptStarted
from windlass.store.parts.encoding import encode_jobs
from windlass.store.sql import query

from .rig import ON_POSTGRES, PATIENCE, Database, come, opened, stores_of, working


async def test_higher_priority_first_then_the_earlier(database: Database) -> None:
    app = database.app(ageing=0)
    order: list[int] = []

    @app.job
    async def work(n: int) -> None:
        order.append(n)

    jobs = [await work.options(priority=priority).aenqueue(n) for n, priority in enumerate([0, 5, -5, 5, 0])]
    async with working(app, concurrency=1):
        for job in jobs:
            await job.aresult(timeout=PATIENCE)

    assert order == [1, 3, 0, 4, 2]


async def test_one_place_in_ten_goes_to_the_oldest_of_any_priority(app: Windlass) -> None:
    order: list[int] = []

    @app.job
    async def work(n: int) -> None:
        order.append(n)

    old = [await work.options(priority=-9).aenqueue(-1 - n) for n in range(3)]
    urgent = await app.aenqueue_many(work.options(priority=9).call(n) for n in range(200))
    async with working(app, concurrency=10):
        for job in (*old, *urgent):
            await job.aresult(timeout=PATIENCE)

    assert all(order.index(-1 - n) < 150 for n in range(3))
    assert order.index(-1) > 0 or order[0] == -1


async def test_a_worker_serves_only_its_queues_and_types(app: Windlass) -> None:
    @app.job(queue="mail")
    async def send(n: int) -> int:
        return n

    @app.job(queue="mail")
    async def bounce(n: int) -> int:
        return n

    @app.job
    async def other(n: int) -> int:
        return n

    async with working(app, queues=["mail"], types=["send"]):
        skipped = [await bounce.aenqueue(1), await other.aenqueue(1), await send.options(queue="bulk").aenqueue(1)]
        assert await (await send.aenqueue(2)).aresult(timeout=PATIENCE) == 2
        (row,) = await app.aworkers()
        assert (row.queues, row.types) == (("mail",), ("send",))

    for job in skipped:
        record = await job.arecord()
        assert (record.status, record.attempt, record.fence, record.worker) == (State.QUEUED, 0, 0, None)

    with pytest.raises(UnknownType, match="did you mean 'send'"):
        app.worker(types=["sendd"])


async def test_types_nobody_here_knows_are_left_untouched_and_hide_nothing(app: Windlass) -> None:
    @app.job
    async def known(n: int) -> int:
        return n

    store = await opened(app)
    strangers = [NewJob(id=new_id(), type="stranger", input="{}", priority=100) for _ in range(700)]
    await store.enqueue(strangers)

    async with working(app):
        assert await (await known.aenqueue(1)).aresult(timeout=PATIENCE) == 1

    found = await store.find(strangers[0].id)
    await store.close()
    assert (found.status, found.attempt, found.fence, found.updated_at) == (State.QUEUED, 0, 0, found.created_at)


@ON_POSTGRES
@pytest.mark.parametrize("rescans", [True, False], ids=["with-rescans", "without-rescans"])
async def test_a_job_committed_late_is_found_below_the_floor(database: Database, rescans: bool) -> None:
    app = database.app(poll="200ms")

    @app.job
    async def work(n: int) -> int:
        return n

    late = NewJob(id=new_id(), type="work", input='{"n":-1}')
    held = await asyncpg.connect(database.url)
    transaction = held.transaction()
    await transaction.start()
    await held.execute(query("postgres", "enqueue"), encode_jobs([late]))
    jobs = await app.aenqueue_many(work.call(n) for n in range(2_000))

    async with working(app) as (worker, events):
        for job in jobs:
            await job.aresult(timeout=PATIENCE)
        if not rescans:
            store = stores_of(worker)
            claim, broken = store.claim, asyncio.Event()

            async def only_above_the_floor(request: Any) -> Any:
                broken.set()
                return await claim(msgspec.structs.replace(request, rescan=False))

            store.claim = only_above_the_floor
            await come(broken)  # so that no rescan is under way
        await transaction.commit()
        await held.close()

        found = asyncio.create_task(events.until(AttemptStarted, lambda event: event.job.id == late.id))
        await asyncio.wait({found}, timeout=PATIENCE if rescans else 1.5)
        assert found.done() is rescans
        found.cancel()


# Suspects


async def suspect(database: Database, job: Any) -> None:
    await database.run("UPDATE {}jobs SET crashes = 1 WHERE queue = 'suspects'")


async def test_a_suspect_that_no_child_can_run_runs_alone(app: Windlass, database: Database) -> None:
    running: set[int] = set()
    together: list[set[int]] = []
    go = asyncio.Event()

    @app.job
    async def work(ctx: Context, n: int) -> int:  # local to this story: no other process can import it
        running.add(n)
        if ctx.job.suspect:
            await asyncio.sleep(0.1)
            together.append(set(running))
        else:
            await go.wait()
        running.discard(n)
        return n

    bad = await work.options(queue="suspects", delay="0s").aenqueue(0)
    await suspect(database, bad)
    async with working(app, concurrency=10) as (worker, events):
        assert worker.parts.discovery.isolates is False
        await events.until(AttemptStarted, lambda event: event.job.id == bad.id)
        others = await app.aenqueue_many(work.call(n) for n in range(1, 20))
        go.set()
        assert await bad.aresult(timeout=PATIENCE) == 0
        assert [await job.aresult(timeout=PATIENCE) for job in others] == list(range(1, 20))

    assert together == [{0}]
    assert (await bad.arecord()).crashes in (0, 1)


async def test_after_a_suspect_had_the_worker_for_itself_the_others_have_it(app: Windlass, database: Database) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    @app.job
    async def work(ctx: Context) -> None:
        order.append(ctx.job.queue)
        if ctx.job.suspect:
            begun.set()
            await go.wait()

    bad = [await work.options(queue="suspects").aenqueue() for _ in range(3)]
    await suspect(database, bad)
    async with working(app, concurrency=2):
        await come(begun)
        others = await app.aenqueue_many(work.call() for _ in range(40))
        go.set()
        for job in [*bad, *others]:
            await job.aresult(timeout=PATIENCE)

    assert order[:3] == ["suspects", "default", "default"]
    assert sorted(order) == [*["default"] * 40, *["suspects"] * 3]


async def test_a_suspect_waits_until_the_worker_holds_nothing_else(app: Windlass, database: Database) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    order: list[int] = []

    @app.job
    async def work(n: int) -> int:
        order.append(n)
        if n == 1:
            started.set()
            await go.wait()
        return n

    async with working(app, concurrency=10):
        first = await work.aenqueue(1)
        async with asyncio.timeout(PATIENCE):
            await started.wait()
        bad = await work.options(queue="suspects", delay="1h").aenqueue(0)
        past = "0" if database.dialect == "sqlite" else "windlass.now()"
        await database.run(f"UPDATE {{}}jobs SET crashes = 1, run_at = {past} WHERE queue = 'suspects'")
        assert await (await work.aenqueue(2)).aresult(timeout=PATIENCE) == 2
        assert await bad.astatus() is State.QUEUED
        go.set()
        assert await first.aresult(timeout=PATIENCE) == 1
        assert await bad.aresult(timeout=PATIENCE) == 0

    assert order == [1, 2, 0]
