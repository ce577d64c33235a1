"""How a worker ends: nothing is lost, no attempt is burned, and no row of it stays behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from windlass import State, Windlass
from windlass.errors import ConfigError, SchemaMissing, StoreUnavailable
from windlass.model.outcome import Ending
from windlass.observe.events import WorkerStarted, WorkerStopped
from windlass.store import make_store
from windlass.store.protocol import Claim

from .rig import ON_SQLITE, PATIENCE, Database, come, eventually, stores_of, working


async def test_running_jobs_are_waited_for_and_unstarted_ones_given_back(database: Database) -> None:
    app = database.app()
    started, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def work(n: int) -> int:
        if n == 0:
            started.set()
            await go.wait()
        return n

    first = await work.options(priority=9).aenqueue(0)
    worker = await app.worker(concurrency=1).__aenter__()
    await come(started)
    others = await app.aenqueue_many(work.call(n) for n in range(1, 6))
    before = {job.id: (await job.arecord()).run_at for job in others}
    # Ahead of the processors, as a busy worker claims.
    claim = Claim(worker=worker.state.worker, room=3, types=("work",), rescan=True)
    worker.parts.discovery.take((await stores_of(worker).claim(claim)).jobs, 0.0, 0.0)
    assert len(worker.state.local_queue) == 3

    leaving = asyncio.create_task(worker.__aexit__(None, None, None))
    await eventually(lambda: asyncio.sleep(0, len(worker.state.local_queue)), lambda waiting: waiting == 0)
    assert not leaving.done()
    go.set()
    await leaving

    assert await first.astatus() is State.SUCCEEDED
    for job in others:
        record = await job.arecord()
        assert (record.status, record.attempt, record.run_at) == (State.QUEUED, 0, before[job.id])
        assert (record.worker, record.attempts) == (None, None)
    assert await app.aworkers() == []


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_after_the_grace_what_still_runs_is_released(
    database: Database, kind: str, whatever_happens: threading.Event
) -> None:
    app = database.app(grace="100ms")
    started, loop = asyncio.Event(), asyncio.get_running_loop()

    @app.job(max_attempts=1)
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    @app.job(max_attempts=1)
    def stuck() -> str:
        loop.call_soon_threadsafe(started.set)
        whatever_happens.wait(PATIENCE)
        return "too late"

    async with working(app) as (_, events):
        job = await (endless if kind == "coroutine" else stuck).aenqueue()
        await come(started)

    record = await job.arecord()
    assert (await events.ended(job)).ending is Ending.RELEASED
    assert (record.status, record.attempt, record.worker) == (State.QUEUED, 0, None)
    assert await app.aworkers() == []
    whatever_happens.set()
    assert (await job.arecord()).output is None


async def test_an_impatient_stop_does_not_wait_the_grace(database: Database) -> None:
    app = database.app(grace="1h")
    started = asyncio.Event()

    @app.job
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    worker = app.worker()
    async with asyncio.timeout(PATIENCE):
        async with worker:
            job = await endless.aenqueue()
            await come(started)
            worker.kill()
            await worker.finished()

    assert await job.astatus() is State.QUEUED


async def test_a_worker_says_hello_and_goodbye(app: Windlass) -> None:
    @app.job
    async def work() -> None: ...

    async with working(app, concurrency=7) as (worker, events):
        hello = await events.until(WorkerStarted)
        (row,) = await app.aworkers()
        assert (row.id, row.name, row.concurrency, row.types, row.dead) == (
            worker.state.worker, worker.name, 7, ("work",), False,
        )  # fmt: skip

    assert (await events.until(WorkerStopped)).worker == hello.worker
    assert await app.aworkers() == []


async def test_a_stop_ends_also_while_the_database_is_down(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.runtime.worker.LAST_WRITES", 0.2)

    @app.job
    async def work() -> str:
        return "done"

    async with asyncio.timeout(PATIENCE):
        async with working(app) as (worker, events):
            store = stores_of(worker)

            async def away(*args: object, **kwargs: object) -> None:
                raise StoreUnavailable("the database is down")

            for name in ("finish", "deregister", "sweep", "set_idle"):
                setattr(store, name, away)
            job = await work.aenqueue()
            await events.ended(job, Ending.SUCCEEDED)

    assert await job.astatus() is State.RUNNING  # until the lease of the dead worker ends


async def test_a_worker_waits_for_a_database_that_is_not_there_yet(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job
    async def work() -> str:
        return "done"

    worker = app.worker()
    store = type(make_store(app.settings, app.clock))
    opened = store.open
    tries = []

    async def away_at_first(store: object) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("not yet")
        await opened(store)  # type: ignore[arg-type]

    job = await work.aenqueue()
    monkeypatch.setattr(store, "open", away_at_first)
    async with worker:
        assert await job.aresult(timeout=PATIENCE) == "done"
    assert len(tries) == 3


@ON_SQLITE
async def test_a_worker_without_a_schema_says_what_to_run(database: Database, tmp_path: object) -> None:
    app = database.app()
    app.settings = app.settings.with_(url=f"sqlite:///{tmp_path}/other.db")

    @app.job
    async def work() -> None: ...

    with pytest.raises(SchemaMissing, match="windlass migrate"):
        async with app.worker():
            pass


async def test_a_worker_without_job_types_is_refused(app: Windlass) -> None:
    with pytest.raises(ConfigError, match=r"no job types; decorate a function with @app\.job"):
        app.worker()


async def test_a_worker_can_be_started_again_and_again_in_one_program(app: Windlass) -> None:
    @app.job
    async def work(n: int) -> int:
        return n

    for n in range(3):
        async with app.worker():
            assert await (await work.aenqueue(n)).aresult(timeout=PATIENCE) == n

    assert await app.aworkers() == []
    assert not [thread for thread in threading.enumerate() if thread.name == "windlass-beat"]
