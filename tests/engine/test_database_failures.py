"""The database goes away, again and again: the worker stays, and no job is lost."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any

from windlass import Context, State, Windlass, fixed
from windlass.errors import StoreError, StoreUnavailable, ValueRefused
from windlass.policy.fingerprint import fingerprint

from .rig import ON_POSTGRES, ON_SQLITE, PATIENCE, Database, eventually, in_state, stores_of, working

TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@ON_POSTGRES
async def test_every_connection_is_cut_several_times_while_jobs_run(database: Database) -> None:
    app = database.app()
    cuts = 0

    @app.job(retry=fixed(0), max_attempts=50)
    async def work(ctx: Context, n: int) -> int:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO effects (n) VALUES ($1)", n)
        return n

    producer = Windlass(database.url)
    database.apps.append(producer)
    await app.aenqueue_many(work.call(n) for n in range(400))

    async def finished() -> int:
        return int((await database.run("SELECT count(*) FROM {}history"))[0][0])

    async with working(app, concurrency=20) as (worker, _):
        for share in (50, 150, 250, 350):
            await eventually(finished, lambda done, share=share: done >= share)  # type: ignore[misc]
            cuts += (await database.run(TERMINATE))[0][0]
        await eventually(finished, lambda done: done == 400, timeout=3 * PATIENCE)
        assert worker._failure is None

    assert cuts >= 12
    assert await database.effects() == list(range(400))


@ON_SQLITE
async def test_another_process_holds_the_file_for_a_while(database: Database) -> None:
    app = database.app()

    @app.job
    async def work(n: int) -> int:
        return n

    path = database.url.removeprefix("sqlite:///")
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN EXCLUSIVE');"
        "print('held', flush=True); sys.stdin.read(); c.execute('COMMIT')"
    )
    async with working(app) as (worker, _):
        holder = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
        enqueues = [asyncio.create_task(work.aenqueue(n)) for n in range(5)]
        await asyncio.wait(enqueues, timeout=0.5)
        assert not any(task.done() for task in enqueues)

        await asyncio.to_thread(holder.communicate, "")
        assert [await (await task).aresult(timeout=PATIENCE) for task in enqueues] == list(range(5))
        assert worker._failure is None
        assert len(await app.aworkers()) == 1


async def test_finished_jobs_wait_for_the_database_and_are_written_once(app: Windlass) -> None:
    runs = []

    @app.job
    async def work(n: int) -> int:
        runs.append(n)
        return n

    async with working(app) as (worker, _):
        store = stores_of(worker)
        refused: list[int] = []
        finish = store.finish

        async def away(transitions: Any) -> Any:
            if len(refused) < 3:
                refused.append(len(transitions))
                raise StoreUnavailable("down")
            return await finish(transitions)

        store.finish = away
        jobs = await app.aenqueue_many(work.call(n) for n in range(10))
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == list(range(10))

    assert (len(refused), sorted(runs)) == (3, list(range(10)))


async def test_one_transition_that_cannot_be_stored_does_not_keep_its_neighbours(app: Windlass) -> None:
    @app.job
    async def work(n: int) -> int:
        return n

    async with working(app) as (worker, _):
        store = stores_of(worker)
        finish = store.finish

        async def picky(transitions: Any) -> Any:
            if any(transition.output == "3" for transition in transitions):
                raise ValueRefused("cannot store a three")
            return await finish(transitions)

        store.finish = picky
        jobs = await app.aenqueue_many(work.call(n) for n in range(6))
        for n in (0, 1, 2, 4, 5):
            assert await jobs[n].aresult(timeout=PATIENCE) == n
        record = await in_state(jobs[3], State.DEAD)

    failure = record.failure()
    assert failure is not None
    assert record.reason == "succeeded, could not be stored"
    assert record.fingerprint == fingerprint(failure.type, failure.message)


async def test_a_fault_of_the_store_that_nobody_thought_of_does_not_end_the_completer(app: Windlass) -> None:
    @app.job
    async def work(n: int) -> int:
        return n

    async with working(app) as (worker, _):
        store = stores_of(worker)
        raised: list[int] = []
        finish = store.finish

        async def surprising(transitions: Any) -> Any:
            if not raised:
                raised.append(1)
                raise ZeroDivisionError("a bug in the store")
            return await finish(transitions)

        store.finish = surprising
        assert await (await work.aenqueue(1)).aresult(timeout=PATIENCE) == 1
        assert await (await work.aenqueue(2)).aresult(timeout=PATIENCE) == 2


async def test_services_live_on_after_every_kind_of_error(app: Windlass) -> None:
    @app.job
    async def work(n: int) -> int:
        return n

    async with working(app) as (worker, _):
        store, errors = stores_of(worker), [StoreUnavailable("down"), ValueError("a bug"), StoreError("refused")]
        claim = store.claim

        async def moody(request: Any) -> Any:
            if errors:
                raise errors.pop()
            return await claim(request)

        store.claim = moody
        assert await (await work.aenqueue(1)).aresult(timeout=PATIENCE) == 1
        assert not errors


@ON_SQLITE
async def test_the_file_is_sound_afterwards(database: Database) -> None:
    app = database.app()

    @app.job
    async def work(n: int) -> int:
        return n

    async with working(app):
        jobs = await app.aenqueue_many(work.call(n) for n in range(50))
        for job in jobs:
            await job.aresult(timeout=PATIENCE)

    with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
