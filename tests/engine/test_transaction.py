"""`ctx.transaction()`: what is written through it happens with the success of its attempt, or not at all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from windlass import Context, Dead, Retry, Snooze, State, SyncContext, Windlass, failpoints, fixed
from windlass.errors import StoreUnavailable
from windlass.model.job import Job
from windlass.model.outcome import Ending

from .rig import ON_POSTGRES, ON_SQLITE, PATIENCE, Database, come, ended, failure, in_state, stores_of, working

INSERT = "INSERT INTO effects (n) VALUES ($1)"
SHORT: dict[str, Any] = {"lease": "3s", "beat": "1s", "margin": "500ms"}  # a transaction is capped at one second


@pytest.fixture
def app(database: Database) -> Windlass:
    return database.app(**SHORT)


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_its_writes_are_there_when_the_attempt_succeeded(app: Windlass, database: Database, kind: str) -> None:
    if kind == "coroutine":

        @app.job
        async def writes(ctx: Context, n: int) -> list[Any]:
            async with ctx.transaction() as tx:
                status = await tx.execute(INSERT, n)
                rows = await tx.fetch("SELECT n FROM effects WHERE n = $1", n)
            assert await database.effects() == []  # not yet: it commits with the finish
            return [status.split()[0], rows]
    else:

        @app.job
        def writes(ctx: SyncContext, n: int) -> list[Any]:
            with ctx.transaction() as tx:
                status = tx.execute(INSERT, n)
                rows = tx.fetch("SELECT n FROM effects WHERE n = $1", n)
            assert asyncio.run(database.effects()) == []
            return [status.split()[0], rows]

    async with working(app):
        job = await writes.aenqueue(7)
        assert await job.aresult(timeout=PATIENCE) == ["INSERT", [{"n": 7}]]

    assert await database.effects() == [7]
    assert (await job.arecord()).attempt == 1


ENDINGS = {
    "raise": (RuntimeError("no"), State.FAILED),
    "retry": (Retry(after="1h"), State.FAILED),
    "snooze": (Snooze("1h"), State.QUEUED),
    "dead": (Dead("enough"), State.DEAD),
}


@pytest.mark.parametrize("how", ENDINGS)
async def test_any_other_outcome_rolls_it_back(app: Windlass, database: Database, how: str) -> None:
    word, state = ENDINGS[how]

    @app.job(retry=fixed("1h"))
    async def writes(ctx: Context, inside: bool) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
            await writes.aenqueue(inside)
            if inside:
                raise word
        raise word

    @app.job(retry=fixed("1h"))
    def plainly(ctx: SyncContext, inside: bool) -> None:
        with ctx.transaction() as tx:
            tx.execute(INSERT, 2)
            plainly.enqueue(inside)
            if inside:
                raise word
        raise word

    async with working(app) as (_, events):
        for kind in (writes, plainly):
            for inside in (True, False):
                job = await kind.aenqueue(inside)
                await events.ended(job)
                await in_state(job, state)

    assert await database.effects() == []
    assert await database.jobs() == 4


@pytest.mark.parametrize("why", ["timeout", "cancel", "shutdown"])
async def test_a_stopped_attempt_rolls_it_back(app: Windlass, database: Database, why: str) -> None:
    app = database.app(**SHORT, grace=0)
    written = asyncio.Event()

    @app.job(retry=fixed("1h"), timeout="300ms" if why == "timeout" else None)
    async def writes(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
            written.set()
            await asyncio.Event().wait()

    async with working(app):
        job = await writes.aenqueue()
        await come(written)
        if why == "cancel":
            await job.acancel()  # on SQLite it waits for the file, which the transaction holds until it is capped
            await in_state(job, State.CANCELLED, State.FAILED)
        elif why == "timeout":
            await in_state(job, State.FAILED)

    assert await database.effects() == []
    expected = {"timeout": {State.FAILED}, "cancel": {State.CANCELLED}, "shutdown": {State.QUEUED}}
    assert await job.astatus() in expected[why]


async def test_an_enqueue_inside_it_exists_only_if_the_attempt_succeeds(app: Windlass, database: Database) -> None:
    seen: list[int] = []

    @app.job
    async def child(n: int) -> int:
        return n

    @app.job(retry=fixed(0), max_attempts=3)
    async def parent(ctx: Context) -> str:
        seen.append(await database.jobs())
        async with ctx.transaction():
            job = await child.aenqueue(ctx.attempt)
            await app.aenqueue_many([child.call(10), child.call(11)])
        if ctx.attempt < 3:
            raise RuntimeError("not this time")
        return str(job.id)

    async with working(app):
        job = await parent.aenqueue()
        survivor = await app.afind(await job.aresult(timeout=PATIENCE))
        assert await survivor.aresult(timeout=PATIENCE) == 3

    assert seen == [1, 1, 1]
    assert await database.jobs() == 4


async def test_a_second_block_is_a_savepoint_in_the_first(app: Windlass, database: Database) -> None:
    @app.job
    async def twice(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
            async with ctx.transaction() as inner:
                await inner.execute(INSERT, 2)
        with suppress(ZeroDivisionError):
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 3)
                raise ZeroDivisionError
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 4)
        return "ok"

    @app.job
    def plainly(ctx: SyncContext) -> str:
        with ctx.transaction() as tx:
            tx.execute(INSERT, 11)
        with suppress(ZeroDivisionError), ctx.transaction() as tx:
            tx.execute(INSERT, 13)
            raise ZeroDivisionError
        return "ok"

    async with working(app):
        for kind in (twice, plainly):
            assert await (await kind.aenqueue()).aresult(timeout=PATIENCE) == "ok"

    assert await database.effects() == [1, 2, 4, 11]


async def test_a_first_block_that_raised_and_was_caught_leaves_nothing_and_the_job_succeeds(
    app: Windlass, database: Database
) -> None:
    @app.job
    async def forgiving(ctx: Context) -> str:
        with suppress(ZeroDivisionError):
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 1)
                raise ZeroDivisionError
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 2)
        return "ok"

    async with working(app):
        assert await (await forgiving.aenqueue()).aresult(timeout=PATIENCE) == "ok"

    assert await database.effects() == [2]


async def test_a_statement_that_fails_inside_it_fails_the_attempt_and_no_other(
    app: Windlass, database: Database
) -> None:
    @app.job(max_attempts=1)
    async def wrong(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
            await tx.execute("INSERT INTO no_such_table VALUES (1)")

    @app.job
    async def right(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 2)

    async with working(app):
        dead = await ended(await wrong.aenqueue())
        await (await right.aenqueue()).aresult(timeout=PATIENCE)

    assert "no_such_table" in failure(dead).message
    assert await database.effects() == [2]


async def test_a_lost_lease_takes_everything_back(app: Windlass, database: Database) -> None:
    stranger = str(uuid4())

    @app.job
    async def writes(ctx: Context) -> str:
        sql = (
            "UPDATE {}jobs SET token = ?" if database.dialect == "sqlite" else "UPDATE {}jobs SET token = ?::text::uuid"
        )
        await database.run(sql, stranger)
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
            await writes.aenqueue()
        return "done"

    async with working(app) as (_, events):
        job = await writes.aenqueue()
        await events.ended(job, Ending.LOST)

        record = await job.arecord()
        assert (record.status, str(record.token), record.output) == (State.RUNNING, stranger, None)

    assert await database.effects() == []
    assert await database.jobs() == 1


async def test_a_commit_whose_answer_was_lost_is_not_run_again(app: Windlass, database: Database) -> None:
    runs, asked = [], []

    @app.job
    async def writes(ctx: Context) -> str:
        runs.append(ctx.fence)
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
        return "done"

    def lose_the_answer() -> None:
        raise ConnectionResetError("the answer is lost")

    failpoints.arm("transaction.committed", lose_the_answer)
    async with working(app) as (worker, events):
        finished_by = stores_of(worker).finished_by

        async def away_at_first(lease: Any) -> bool:
            asked.append(lease)
            if len(asked) < 3:
                raise StoreUnavailable("not now")
            return bool(await finished_by(lease))

        stores_of(worker).finished_by = away_at_first
        job = await writes.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == "done"
        await events.ended(job, Ending.SUCCEEDED)

    assert (runs, len(asked), await database.effects()) == ([1], 3, [1])
    assert (await job.arecord()).attempts is None


async def test_a_commit_that_failed_is_tried_again_and_happens_once(app: Windlass, database: Database) -> None:
    runs = []

    @app.job(retry=fixed(0))
    async def writes(ctx: Context) -> str:
        runs.append(ctx.fence)
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
        return "done"

    def cut_off() -> None:
        if len(runs) == 1:
            raise ConnectionResetError("before the commit")

    failpoints.arm("transaction.before_commit", cut_off)
    async with working(app):
        assert await (await writes.aenqueue()).aresult(timeout=PATIENCE) == "done"

    assert (runs, await database.effects()) == ([1, 2], [1])


async def outlive_the_cap(database: Database) -> Job:
    """A slow handler that put its transaction first; and after it one that is quick."""
    app = database.app(**SHORT)

    @app.job(max_attempts=1)
    async def slow(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
        await asyncio.sleep(1.5)

    @app.job
    async def quick(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 2)

    async with working(app):
        dead = await ended(await slow.aenqueue())
        await (await quick.aenqueue()).aresult(timeout=PATIENCE)
    return dead


async def test_it_is_capped_at_a_third_of_the_lease(database: Database) -> None:
    dead = await outlive_the_cap(database)

    assert (dead.status, await database.effects()) == (State.DEAD, [2])


@ON_SQLITE
async def test_the_error_of_a_capped_one_says_so(database: Database) -> None:
    assert "a third of the lease" in failure(await outlive_the_cap(database)).message


@ON_POSTGRES
async def test_the_error_of_a_capped_one_says_so_on_postgres(database: Database) -> None:
    assert "a third of the lease" in failure(await outlive_the_cap(database)).message


async def test_blocks_of_several_tasks_take_turns_and_lose_nothing(app: Windlass, database: Database) -> None:
    @app.job
    async def work(ctx: Context) -> None:
        async def write(n: int) -> None:
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, n)

        await asyncio.gather(*[write(n) for n in range(5)])

    async with working(app):
        await (await work.aenqueue()).aresult(timeout=PATIENCE)

    assert sorted(await database.effects()) == [0, 1, 2, 3, 4]


@ON_POSTGRES
async def test_what_a_handler_sets_for_its_session_ends_with_its_transaction(database: Database) -> None:
    app = database.app(connections=1, **SHORT)

    @app.job
    async def sets(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            before = (await tx.fetch("SHOW search_path"))[0]["search_path"]
            await tx.execute("SET search_path = elsewhere")
        return str(before)

    async with working(app):
        seen = [await (await sets.aenqueue()).aresult(timeout=PATIENCE) for _ in range(5)]

    assert "elsewhere" not in seen
