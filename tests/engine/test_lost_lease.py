"""A worker that was declared dead, or cannot beat, drops everything it holds and registers again."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from windlass import Context, State, SyncContext, Windlass
from windlass.clock import Clock
from windlass.config import Settings
from windlass.errors import SchemaTooNew, StoreUnavailable
from windlass.model.outcome import Ending
from windlass.observe.events import AttemptStarted, JobChanged, LeasesLost
from windlass.store import make_store
from windlass.store.migrate import newest

from .rig import PATIENCE, Database, attempts, come, ended, eventually, stores_of, working

QUICK: dict[str, Any] = {"lease": "5s", "beat": "100ms", "margin": "200ms", "sweep": "50ms", "poll": "50ms"}
"""A death that a story declares is seen by the next beat. The lease is long, so that a busy machine declares none."""


async def declare_dead(database: Database) -> None:
    dead = "1" if database.dialect == "sqlite" else "true"
    await database.run(f"UPDATE {{}}workers SET dead = {dead}")


async def test_a_worker_declared_dead_stops_its_handlers_and_does_the_job_anew(database: Database) -> None:
    app = database.app(**QUICK)
    stopped, seen = asyncio.Event(), []

    @app.job
    async def work(ctx: Context) -> str:
        seen.append((ctx.job.worker, ctx.fence))
        if len(seen) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return "done by the second"

    async with working(app) as (worker, events):
        first = worker.state.worker
        job = await work.aenqueue()
        await events.until(AttemptStarted)
        await declare_dead(database)

        await come(stopped)
        lost = await events.until(LeasesLost)
        assert await job.aresult(timeout=PATIENCE) == "done by the second"
        second = worker.state.worker
        assert [row.id for row in await app.aworkers() if not row.dead] == [second]

    assert (lost.worker, lost.jobs) == (first, 1)
    assert seen == [(first, 1), (second, 2)]
    record = await job.arecord()
    assert (record.status, record.attempt, record.crashes) == (State.SUCCEEDED, 1, 1)
    assert attempts(record)[0].outcome == "crashed"


async def test_a_thread_of_the_old_incarnation_changes_nothing(
    database: Database, whatever_happens: threading.Event
) -> None:
    app = database.app(**QUICK)
    runs: list[UUID | None] = []
    loop, ended_late = asyncio.get_running_loop(), asyncio.Event()

    @app.job
    def work(ctx: SyncContext) -> str:
        runs.append(ctx.job.worker)
        if len(runs) > 1:
            return "new"
        whatever_happens.wait(PATIENCE)
        loop.call_soon_threadsafe(ended_late.set)
        return "old"

    async with working(app) as (_, events):
        job = await work.aenqueue()
        await events.until(AttemptStarted)
        await declare_dead(database)
        assert await job.aresult(timeout=PATIENCE) == "new"
        whatever_happens.set()
        await come(ended_late)

    assert (await job.arecord()).output == '"new"'
    assert len(set(runs)) == len(runs) == 2


async def test_a_worker_that_comes_back_after_two_upgrades_ends_with_a_word(database: Database) -> None:
    """No migration waits for a worker that is cut off: its own program has to notice that it is two versions behind."""
    app = database.app(**QUICK)

    @app.job
    async def work() -> None: ...

    async with working(app) as (worker, _):
        later = newest(database.dialect) + 2
        await database.run(f"INSERT INTO {{}}migrations (number, name) VALUES ({later}, 'later')")
        await declare_dead(database)
        with pytest.raises(SchemaTooNew, match=r"2 versions behind.*upgrade Windlass"):
            async with asyncio.timeout(PATIENCE):
                await worker.finished()

    assert await database.run("SELECT name FROM {}workers WHERE NOT dead") == []


class Deaf:
    """A heartbeat that does not reach the database."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def beat(self, worker: UUID, lease: float, held: int, pools: str | None, *, within: float) -> bool:
        raise StoreUnavailable("cut off")

    async def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "no-answer"])
async def test_a_worker_that_is_cut_off_stops_its_handlers_before_its_lease_ends(
    app: Windlass, database: Database, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = database.app(**(QUICK | {"lease": "20s", "margin": "18s", "sweep": "1h"}))
    stopped: list[float] = []
    seen = []

    class Silent(Deaf):
        async def beat(self, worker: UUID, lease: float, held: int, pools: str | None, *, within: float) -> bool:
            await asyncio.Event().wait()
            return True

    @app.job
    async def work(ctx: Context) -> None:
        seen.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(asyncio.get_running_loop().time())

    worker = app.worker()
    made: list[Any] = []

    def deaf_at_first(settings: Settings, clock: Clock) -> Any:
        store: Any = make_store(settings, clock)
        honest = store.heartbeat

        def heartbeat() -> Any:
            made.append((Silent() if silent else Deaf()) if not made else honest())
            return made[-1]

        store.heartbeat = heartbeat
        return store

    monkeypatch.setattr("windlass.runtime.parts.make_store", deaf_at_first)
    async with worker:
        job = await work.aenqueue()
        first = worker.state.worker
        (row,) = await app.aworkers()
        before = asyncio.get_running_loop().time()
        left = (row.alive_until - app.clock.now()).total_seconds()
        await eventually(lambda: asyncio.sleep(0, len(stopped)), lambda count: count > 0)
        assert stopped[0] - before < left
        assert stopped[0] - before > left - 18.7
        await eventually(lambda: asyncio.sleep(0, worker.state.worker), lambda current: current != first)
        await eventually(lambda: asyncio.sleep(0, len(seen)), lambda count: count == 2)  # it gave it back itself
        record = await job.arecord()
        assert (record.status, record.attempt, record.fence, record.crashes) == (State.RUNNING, 1, 2, 0)
        worker.kill()
        await worker.finished()


async def test_a_handler_that_blocks_the_loop_is_not_taken_for_dead(database: Database) -> None:
    lease = timedelta(seconds=3)
    app, observer = database.app(**(QUICK | {"lease": lease})), database.app()
    runs, renewed = [], threading.Event()

    def observe() -> None:
        """Until the lease was renewed beyond the end that it had when the handler blocked the loop."""
        first = observer.workers()[0].alive_until
        while observer.workers()[0].alive_until <= first + lease:
            time.sleep(0.05)
        renewed.set()

    @app.job
    async def blocks() -> int:
        runs.append(1)
        threading.Thread(target=observe, daemon=True).start()
        assert renewed.wait(PATIENCE)  # the point of the story: no other coroutine runs here for longer than a lease
        return len(runs)

    async with working(app) as (_, events):
        job = await blocks.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == 1

    assert not [event for event in events.recorded if isinstance(event, LeasesLost)]
    record = await job.arecord()
    assert (record.crashes, record.fence) == (0, 1)


async def test_a_result_under_a_stolen_lease_is_refused_and_the_worker_goes_on(
    app: Windlass, database: Database
) -> None:
    @app.job
    async def work(steal: bool) -> str:
        if steal:
            await database.run("UPDATE {}jobs SET token = id WHERE queue = 'default'")
        return "done"

    async with working(app) as (_, events):
        robbed = await work.aenqueue(True)
        await events.ended(robbed, Ending.SUCCEEDED)
        assert await (await work.options(queue="other").aenqueue(False)).aresult(timeout=PATIENCE) == "done"
        record = await robbed.arecord()

    assert (record.status, record.output) == (State.RUNNING, None)
    assert JobChanged(robbed.id, None) in events.recorded  # what waits for the end of this attempt need not wait on


async def test_a_claim_whose_answer_was_lost_strands_nothing(app: Windlass) -> None:
    @app.job
    async def work(n: int) -> int:
        return n

    async with working(app) as (worker, _):
        store = stores_of(worker)
        lost: list[Any] = []
        claim = store.claim

        async def lose_the_answer(request: Any) -> Any:
            claimed = await claim(request)
            if claimed.jobs and not lost:
                lost.append(claimed.jobs)
                raise StoreUnavailable("the answer to the claim is lost")
            return claimed

        store.claim = lose_the_answer
        job = await work.aenqueue(1)
        assert await job.aresult(timeout=PATIENCE) == 1

    assert lost
    assert (await ended(job)).attempt == 1
