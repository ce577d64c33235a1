"""An idle worker is woken: it does not wait for its poll, which is an hour away in these stories."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from windlass import State, Windlass, fixed
from windlass.errors import EnqueueError, UnusableConnection
from windlass.model.outcome import Transition
from windlass.runtime.completer import MOST_WAITING
from windlass.store.parts.messages import cancel_message
from windlass.store.protocol import Finished
from windlass.store.sqlite.migrator import SqliteMigrator

from .rig import ON_POSTGRES, ON_SQLITE, PATIENCE, Database, eventually, in_state, working


@pytest.fixture
def app(database: Database) -> Windlass:
    return database.app(poll="1h")


def declare(app: Windlass) -> Any:
    @app.job
    async def work(n: int) -> int:
        return n

    return work


async def idle(app: Windlass) -> None:
    """Until the worker has committed its idle mark."""
    await eventually(app.aworkers, lambda rows: bool(rows) and rows[0].idle)


async def test_an_idle_worker_starts_a_job_without_waiting_for_its_poll(app: Windlass) -> None:
    work = declare(app)

    async with working(app):
        await idle(app)
        for n in range(20):
            assert await (await work.aenqueue(n)).aresult(timeout=PATIENCE) == n


async def test_many_jobs_and_other_queues_wake_it_too(app: Windlass) -> None:
    work = declare(app)

    async with working(app):
        await idle(app)
        jobs = await app.aenqueue_many(work.options(queue=f"q{n % 3}").call(n) for n in range(300))
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == list(range(300))


async def test_a_worker_that_waited_for_the_database_claims_as_soon_as_it_has_caught_up(app: Windlass) -> None:
    work = declare(app)
    jobs = 4 * MOST_WAITING
    written = asyncio.Event()

    async with working(app, concurrency=200) as (worker, _):
        await idle(app)
        store, finish = worker.state.store, worker.state.store.finish

        async def slow(transitions: Sequence[Transition]) -> Finished:
            await written.wait()
            return await finish(transitions)

        async def stuck() -> bool:
            return worker.parts.completer.is_overwhelmed and worker.state.pools.free == 200

        store.finish = slow  # type: ignore[method-assign]
        await app.aenqueue_many(work.call(n) for n in range(jobs))
        await eventually(stuck, bool)
        written.set()

        await eventually(app.acounts, lambda counts: counts.get(State.SUCCEEDED) == jobs)


async def test_a_delayed_job_starts_when_it_is_due_and_not_at_the_poll(app: Windlass) -> None:
    work = declare(app)
    job = await work.options(delay="600ms").aenqueue(1)

    async with working(app):
        assert await job.aresult(timeout=PATIENCE) == 1

    record = await job.arecord()
    assert record.started_at is not None
    assert record.started_at >= record.run_at


async def test_a_retry_starts_when_it_is_due_and_not_at_the_poll(app: Windlass) -> None:
    runs = []

    @app.job(retry=fixed("50ms"))
    async def flaky() -> int:
        runs.append(1)
        if len(runs) < 4:
            raise RuntimeError("again")
        return len(runs)

    async with working(app):
        await idle(app)
        assert await (await flaky.aenqueue()).aresult(timeout=PATIENCE) == 4


async def test_operators_wake_it_too(app: Windlass) -> None:
    work = declare(app)
    job = await work.aenqueue(1)
    await job.acancel()

    async with working(app):
        await idle(app)
        await job.aresume()
        assert await job.aresult(timeout=PATIENCE) == 1


async def test_a_second_process_is_heard_too(database: Database) -> None:
    app, elsewhere = database.app(poll="1h"), database.app(poll="1h")
    declare(app)
    work = declare(elsewhere)  # another app, with connections and a thread of its own

    async with working(app):
        await idle(app)
        assert await (await work.aenqueue(5)).aresult(timeout=PATIENCE) == 5


async def test_a_message_cancels_nothing_and_a_cancel_needs_no_poll(app: Windlass) -> None:
    """Given two running jobs, when any user of the database sends a message to cancel the first and an operator cancels
    the second, then only the second ends as cancelled."""
    both, done = asyncio.Barrier(3), asyncio.Event()

    @app.job
    async def hold() -> int:
        await both.wait()
        await done.wait()
        return 1

    first, second = [await hold.aenqueue() for _ in range(2)]
    async with working(app):
        await both.wait()
        await app._client.aask(lambda store: store.wake(cancel_message(first.id)))
        await second.acancel()
        await in_state(second, State.CANCELLED)
        done.set()
        assert await first.aresult(timeout=PATIENCE) == 1


# On the caller's own connection


@pytest.mark.parametrize("asynchronous", [False, True], ids=["session", "async-session"])
async def test_the_commit_of_a_sqlalchemy_session_wakes_the_worker(
    app: Windlass, database: Database, asynchronous: bool
) -> None:
    work = declare(app)
    sync, later = ("+psycopg", "+asyncpg") if database.dialect == "postgres" else ("", "+aiosqlite")
    scheme = database.url.partition(":")[0]

    async with working(app):
        await idle(app)
        if asynchronous:
            engine = create_async_engine(database.url.replace(scheme, scheme + later, 1))
            async with AsyncSession(engine) as session, session.begin():
                job = await work.options(conn=session).aenqueue(3)
                await session.execute(sa.text("INSERT INTO effects (n) VALUES (3)"))
            assert await job.aresult(timeout=PATIENCE) == 3
            await engine.dispose()
        else:

            def in_a_session() -> Any:
                engine = sa.create_engine(database.url.replace(scheme, scheme + sync, 1))
                with Session(engine) as session, session.begin():
                    job = work.options(conn=session).enqueue(3)
                    session.execute(sa.text("INSERT INTO effects (n) VALUES (3)"))
                engine.dispose()
                return job.result(timeout=PATIENCE)

            assert await asyncio.to_thread(in_a_session) == 3

    assert await database.effects() == [3]


@ON_POSTGRES
async def test_an_asyncpg_transaction_carries_the_job_and_its_rollback_takes_it_back(database: Database) -> None:
    app = database.app(poll="1h")
    work = declare(app)
    conn = await asyncpg.connect(database.url)

    async with working(app):
        await idle(app)
        async with conn.transaction():
            kept = await work.options(conn=conn).aenqueue(1)
            many = await app.aenqueue_many((work.call(n) for n in range(2, 5)), conn=conn)
        await app.awake()  # a bare connection wakes no worker after its commit
        assert [await job.aresult(timeout=PATIENCE) for job in (kept, *many)] == [1, 2, 3, 4]

        with suppress(ZeroDivisionError):
            async with conn.transaction():
                await work.options(conn=conn).aenqueue(9)
                raise ZeroDivisionError
    await conn.close()

    assert await database.jobs() == 4


@ON_SQLITE
async def test_a_sqlite3_transaction_carries_the_job_and_its_rollback_takes_it_back(database: Database) -> None:
    app = database.app(poll="1h")
    work = declare(app)
    path = database.url.removeprefix("sqlite:///")

    def in_a_thread() -> list[Any]:
        with closing(sqlite3.connect(path)) as conn:
            conn.execute("BEGIN IMMEDIATE")
            kept = work.options(conn=conn).enqueue(1)
            many = app.enqueue_many((work.call(n) for n in range(2, 5)), conn=conn)
            conn.commit()
            conn.execute("BEGIN IMMEDIATE")
            work.options(conn=conn).enqueue(9)
            conn.rollback()
        return [kept, *many]

    async with working(app):
        await idle(app)
        jobs = await asyncio.to_thread(in_a_thread)
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == [1, 2, 3, 4]

    assert await database.jobs() == 4


async def test_a_connection_that_leads_elsewhere_is_refused(app: Windlass, database: Database, tmp_path: Path) -> None:
    work = declare(app)
    other = tmp_path / "other.db"
    await SqliteMigrator(f"sqlite:///{other}").migrate()

    with closing(sqlite3.connect(other)) as conn:
        conn.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnusableConnection, match=r"(another database|sqlite connection).*[Ll]eave conn= out"):
            await work.options(conn=conn).aenqueue(1)
        conn.commit()
        assert conn.execute("SELECT count(*) FROM windlass_jobs").fetchone() == (0,)

    assert await database.jobs() == 0


async def test_calls_that_name_different_connections_are_refused(app: Windlass, tmp_path: Path) -> None:
    work = declare(app)

    with (
        closing(sqlite3.connect(tmp_path / "a.db")) as one,
        closing(sqlite3.connect(tmp_path / "b.db")) as two,
        pytest.raises(EnqueueError, match="give one to all"),
    ):
        await app.aenqueue_many([work.options(conn=one).call(1), work.options(conn=two).call(2)])


async def test_nothing_wakes_a_worker_of_other_queues(app: Windlass) -> None:
    work = declare(app)

    async with working(app, queues=["mail"]):
        await idle(app)
        other, mine = await work.aenqueue(1), await work.options(queue="mail").aenqueue(2)
        assert await mine.aresult(timeout=PATIENCE) == 2

    assert await other.astatus() is State.QUEUED


async def test_a_subscriber_that_raises_harms_nobody(app: Windlass) -> None:
    @app.job
    async def work(n: int) -> int:
        return n

    worker = app.worker()

    def raises(event: object) -> None:
        raise RuntimeError("a fault of the listener's own")

    worker.subscribe(raises)
    async with worker:
        assert await (await work.aenqueue(1)).aresult(timeout=PATIENCE) == 1
        assert await (await work.aenqueue(2)).aresult(timeout=PATIENCE) == 2
