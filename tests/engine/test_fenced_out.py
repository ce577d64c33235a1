"""`ctx.transaction()` of a handler that was fenced out: it commits nothing, and blocks no other transaction."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from windlass import Context, State, SyncContext, Windlass

from .rig import ON_POSTGRES, ON_SQLITE, PATIENCE, Database, come, ended, failure, working

INSERT = "INSERT INTO effects (n) VALUES ($1)"
SHORT: dict[str, Any] = {"lease": "3s", "beat": "1s", "margin": "500ms"}  # a transaction is capped at one second


@pytest.fixture
def app(database: Database) -> Windlass:
    return database.app(**SHORT)


@ON_POSTGRES
async def test_a_coroutine_that_was_fenced_out_commits_nothing(
    app: Windlass, database: Database, whatever_happens: threading.Event
) -> None:
    await story_of_the_stubborn(app, database, whatever_happens)


@ON_SQLITE
async def test_a_coroutine_that_was_fenced_out_keeps_nobody_waiting(
    app: Windlass, database: Database, whatever_happens: threading.Event
) -> None:
    await story_of_the_stubborn(app, database, whatever_happens)


async def story_of_the_stubborn(app: Windlass, database: Database, go: threading.Event) -> None:
    late = asyncio.Event()

    @app.job(timeout="200ms", max_attempts=1)
    async def stubborn(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
            while not go.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
            late.set()
            await tx.execute(INSERT, 2)

    @app.job
    async def healthy(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, n)

    async with working(app, concurrency=2):
        dead = await ended(await stubborn.aenqueue())
        await (await healthy.aenqueue(10)).aresult(timeout=PATIENCE)
        go.set()
        await come(late)
        for n in range(11, 16):
            await (await healthy.aenqueue(n)).aresult(timeout=PATIENCE)

    assert (dead.status, failure(dead).type) == (State.DEAD, "Timeout")
    assert await database.effects() == list(range(10, 16))


@pytest.mark.parametrize("begins", ["before", "after"])
async def test_a_thread_that_was_fenced_out_writes_nothing_and_keeps_nobody_waiting(
    database: Database, begins: str, whatever_happens: threading.Event
) -> None:
    app = database.app(**SHORT, connections=1)
    late, loop = asyncio.Event(), asyncio.get_running_loop()
    errors: list[BaseException] = []

    @app.job(timeout="200ms", max_attempts=1)
    def stuck(ctx: SyncContext) -> None:
        try:
            if begins == "after":
                whatever_happens.wait(PATIENCE)
            with ctx.transaction() as tx:
                tx.execute(INSERT, 1)
                whatever_happens.wait(PATIENCE)
                tx.execute(INSERT, 2)
        except BaseException as error:
            errors.append(error)
        finally:
            loop.call_soon_threadsafe(late.set)

    @app.job
    async def healthy(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, n)

    async with working(app, concurrency=2):
        dead = await ended(await stuck.aenqueue())
        await (await healthy.aenqueue(10)).aresult(timeout=PATIENCE)
        whatever_happens.set()
        await come(late)
        for n in range(11, 13):
            await (await healthy.aenqueue(n)).aresult(timeout=PATIENCE)

    assert (dead.status, failure(dead).type, len(errors)) == (State.DEAD, "Timeout", 1)
    assert await database.effects() == [10, 11, 12]


async def test_a_thread_that_was_fenced_out_while_it_waited_for_its_turn_gets_none(
    database: Database, whatever_happens: threading.Event
) -> None:
    app = database.app(connections=1)
    begun, late, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    @app.job
    async def first(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
            begun.set()
            await asyncio.to_thread(whatever_happens.wait, 0.6)

    @app.job(timeout="200ms", max_attempts=1)
    def waits_for_its_turn(ctx: SyncContext) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute(INSERT, 2)
        finally:
            loop.call_soon_threadsafe(late.set)

    @app.job
    async def healthy(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 3)

    # One by one, for on SQLite nothing can be claimed while a transaction is open.
    await app.aenqueue_many([first.call(), waits_for_its_turn.call()])
    async with working(app, concurrency=2):
        await come(begun)
        await come(late)
        await (await healthy.aenqueue()).aresult(timeout=PATIENCE)

    assert await database.effects() == [1, 3]
