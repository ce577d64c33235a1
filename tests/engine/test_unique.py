"""One job per key: which enqueue is refused, which job is returned, and when the key is free again."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from windlass import Context, Dead, JobHandle, State, Windlass, fixed, unique
from windlass.declare.jobtype import ConfiguredJob
from windlass.errors import JobUnsuccessful, TransitionRefused
from windlass.testing.clock import ManualClock

from .rig import PATIENCE, Database, come, ended, in_state, opened, working

DAY = 86_400
PRODUCERS = 64


def declare(app: Windlass, **options: Any) -> ConfiguredJob[[str], str]:
    @app.job(**options)
    async def enrich(link: str) -> str:
        if link == "bad":
            raise Dead("no such page")
        return link.upper()

    return enrich


async def test_a_second_enqueue_is_answered_with_the_first_ones_job_until_it_is_lost(app: Windlass) -> None:
    enrich = declare(app, unique="link")

    first = await enrich.aenqueue("a")
    second, other = await enrich.aenqueue("a"), await enrich.aenqueue("b")
    elsewhere = await enrich.options(tenant="acme").aenqueue("a")

    assert [job.existing for job in (first, second, other, elsewhere)] == [False, True, False, False]
    assert second == first
    assert len({first.id, other.id, elsewhere.id}) == 3
    assert (await first.arecord()).key == "a"

    async with working(app):
        assert await second.aresult(timeout=PATIENCE) == "A"
    assert (await enrich.aenqueue("a")).id == first.id  # succeeded jobs refuse, too


async def test_a_running_job_refuses_and_the_answer_has_its_result(app: Windlass) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.job(unique=True)
    async def slow(n: int) -> int:
        begun.set()
        await come(go)
        return n + 1

    async with working(app):
        first = await slow.aenqueue(1)
        await come(begun)
        second = await slow.aenqueue(1)
        go.set()
        assert (second.existing, await second.aresult(timeout=PATIENCE)) == (True, 2)
        assert second == first


@pytest.mark.parametrize("options", [{"unique": "link"}, {"unique_forever": "link"}])
async def test_death_and_a_cancel_free_the_key(app: Windlass, options: dict[str, Any]) -> None:
    enrich = declare(app, **options)
    dead, cancelled = await enrich.aenqueue("bad"), await enrich.options(delay="1h").aenqueue("a")

    async with working(app):
        await in_state(dead, State.DEAD)
    await cancelled.acancel()

    again, anew = await enrich.aenqueue("bad"), await enrich.aenqueue("a")
    assert (again.existing, anew.existing) == (False, False)
    assert (await enrich.aenqueue("bad")).id == again.id


async def test_a_cancelled_running_job_frees_the_key_when_it_has_stopped(app: Windlass) -> None:
    begun = asyncio.Event()

    @app.job(unique=True)
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with working(app):
        first = await endless.aenqueue()
        await come(begun)
        assert (await endless.aenqueue()).existing
        await first.acancel()
        await in_state(first, State.CANCELLED)
        assert not (await endless.aenqueue()).existing


async def test_the_window_ends_while_the_job_still_waits(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock)
    enrich = declare(app, unique=unique(by="link", window="1h"))
    first = await enrich.aenqueue("a")

    clock.advance("59m")
    await still_database.move(clock)
    assert (await enrich.aenqueue("a")).id == first.id
    clock.advance("61s")
    await still_database.move(clock)
    second = await enrich.aenqueue("a")

    assert not second.existing
    assert (await enrich.aenqueue("a")).id == second.id
    assert await first.astatus() is await second.astatus() is State.QUEUED


async def test_only_the_states_that_were_chosen_refuse(app: Windlass) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.job(unique=unique(states=["queued"]))
    async def refresh() -> None:
        begun.set()
        await come(go)

    first = await refresh.aenqueue()
    assert (await refresh.aenqueue()).existing
    async with working(app, concurrency=1):
        await come(begun)
        second = await refresh.aenqueue()  # what changed since the first began needs another run
        assert not second.existing
        assert (await refresh.aenqueue()).id == second.id
        go.set()
        assert [(await ended(job)).status for job in (first, second)] == [State.SUCCEEDED] * 2


async def test_an_unfinished_job_refuses_and_one_that_succeeded_does_not(app: Windlass) -> None:
    @app.job(unique=unique("n", states="unfinished"), retry=fixed("1h"))
    async def approve(ctx: Context, n: int) -> Any:
        if ctx.attempt == 1:
            raise RuntimeError("not yet")
        return await ctx.wait_signal("go")

    first = await approve.aenqueue(1)
    assert (await approve.aenqueue(1)).existing
    async with working(app):
        await in_state(first, State.FAILED)
        assert (await approve.aenqueue(1)).existing
        await first.aretry()
        await in_state(first, State.WAITING)
        assert (await approve.aenqueue(1)).existing
        await first.asignal("go", 3)
        await first.aresult(timeout=PATIENCE)
        second = await approve.aenqueue(1)

    assert (second.existing, await first.astatus()) == (False, State.SUCCEEDED)


async def test_a_key_for_ever_refuses_when_the_history_of_its_job_was_dropped(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock)
    kept, let_go = declare(app, type="kept", unique_forever="link"), declare(app, type="let go", unique="link")
    first, second = await kept.aenqueue("a"), await let_go.aenqueue("a")
    async with working(app, concurrency=1):
        await first.aresult(timeout=PATIENCE)
        await second.aresult(timeout=PATIENCE)

    clock.advance(30 * DAY)
    await still_database.move(clock)
    store = await opened(app)
    try:
        await store.prune(history=7.0 * DAY, audit=90.0 * DAY)
        assert await store.find(first.id) is None
    finally:
        await store.close()

    answer = await kept.aenqueue("a")
    assert (answer.existing, answer.id) == (True, first.id)
    assert not (await let_go.aenqueue("a")).existing


async def test_a_key_in_every_state_refuses_all_tenants_whatever_became_of_its_job(still_database: Database) -> None:
    """Given a dead and a cancelled job: neither lets another job of its key in, for ever; a discard does."""
    clock = ManualClock()
    app = still_database.app(clock=clock)
    enrich = declare(app, unique=unique("link", states=State, scope="global", forever=True))
    dead = await enrich.options(tenant="a").aenqueue("bad")
    cancelled = await enrich.options(delay="1h").aenqueue("a")
    await cancelled.acancel()
    async with working(app):
        await in_state(dead, State.DEAD)

    async def refused() -> list[bool]:
        calls = [enrich.options(tenant="b").call(link) for link in ("bad", "a")]
        return [job.existing for job in await app.aenqueue_many(calls)]

    assert await refused() == [True, True]
    clock.advance(30 * DAY)
    await still_database.move(clock)
    store = await opened(app)
    try:
        await store.prune(history=7.0 * DAY, audit=90.0 * DAY)
        assert await store.find(cancelled.id) is None
    finally:
        await store.close()
    assert await refused() == [True, True]

    @app.job
    async def follow(ctx: Context) -> Any:
        (child,) = await ctx.wait([ctx.spawn("again", enrich.call("a"))], need="ended")
        return child.status

    async with working(app):
        assert await (await follow.aenqueue()).aresult(timeout=PATIENCE) is None
    await dead.adiscard()
    assert await refused() == [False, True]


async def test_a_global_key_is_shared_by_all_tenants(app: Windlass) -> None:
    enrich = declare(app, unique=unique(by="link", scope="global"))

    first = await enrich.options(tenant="a").aenqueue("x")
    second = await enrich.options(tenant="b").aenqueue("x")

    assert (second.existing, second.id) == (True, first.id)


async def test_a_dead_job_whose_key_another_took_is_not_replayed_and_the_refusal_says_which(app: Windlass) -> None:
    enrich = declare(app, unique="link")
    first = await enrich.aenqueue("bad")
    async with working(app):
        await in_state(first, State.DEAD)
    second = await enrich.aenqueue("bad")

    with pytest.raises(TransitionRefused, match=str(second.id)):
        await first.areplay()

    assert await first.astatus() is State.DEAD
    await second.acancel()
    assert await first.areplay() is State.QUEUED
    assert (await enrich.aenqueue("bad")).id == first.id
    with pytest.raises(TransitionRefused, match=str(first.id)):
        await second.aresume()


# Many at once


async def test_two_calls_with_one_key_in_one_batch_are_one_job(app: Windlass) -> None:
    enrich = declare(app, unique="link")
    held = await enrich.aenqueue("held")

    jobs = await app.aenqueue_many(enrich.call(link) for link in ("a", "held", "b", "a", "held", "a"))

    assert [job.existing for job in jobs] == [False, True, False, True, True, True]
    assert jobs[0] == jobs[3] == jobs[5]
    assert jobs[1] == jobs[4] == held
    assert sum((await app.acounts()).values()) == 3


async def test_a_large_batch_of_few_keys_makes_few_jobs(app: Windlass, database: Database) -> None:
    enrich = declare(app, unique="link")

    jobs = await app.aenqueue_many(enrich.call(str(n % 10)) for n in range(1_000))

    assert len({job.id for job in jobs}) == await database.jobs() == 10
    assert sum(not job.existing for job in jobs) == 10


async def test_only_a_job_that_was_written_wakes_a_worker(database: Database) -> None:
    app = database.app(poll="60s")
    enrich = declare(app, unique="link", queue="links")
    await enrich.options(delay="1h").aenqueue("a")
    async with working(app) as (worker, _):
        heard: list[str] = []
        store = worker.state.store
        async with store.wakeups() as wakeups:

            async def listen() -> None:
                async for message in wakeups:
                    heard.append(message)
                    if message == "the end":
                        return

            listening = asyncio.create_task(listen())
            assert (await enrich.aenqueue("a")).existing
            await store.wake("the end")
            async with asyncio.timeout(PATIENCE):
                await listening
    assert heard[-1:] == ["the end"]
    assert "links" not in heard


async def test_an_enqueue_in_a_handlers_transaction_takes_its_key_when_that_commits(app: Windlass) -> None:
    enrich = declare(app, unique="link")

    @app.job(max_attempts=1)
    async def produce(ctx: Context, fail: bool) -> list[bool]:
        async with ctx.transaction():
            answers = [(await enrich.aenqueue("in it")).existing for _ in range(2)]
        if fail:
            raise ValueError("no")
        return answers

    async with working(app, types=["produce"]):
        with pytest.raises(JobUnsuccessful):
            await (await produce.aenqueue(True)).aresult(timeout=PATIENCE)
        assert await (await produce.aenqueue(False)).aresult(timeout=PATIENCE) == [False, True]

    assert (await enrich.aenqueue("in it")).existing
    assert (await app.acounts())[State.QUEUED] == 1


# Sixty-four at once, half of them rolled back


async def test_sixty_four_producers_of_one_key_make_one_job_although_half_roll_back(database: Database) -> None:
    app = database.app()
    enrich = declare(app, unique="link")
    one = produce_on_postgres if database.dialect == "postgres" else produce_on_sqlite

    answers = await asyncio.gather(*(one(database, enrich, commits=bool(n % 2)) for n in range(PRODUCERS)))

    committed = [job for job in answers if job is not None]
    assert len(committed) == PRODUCERS // 2
    assert len({job.id for job in committed}) == 1
    assert sum(not job.existing for job in committed) == 1
    assert await database.jobs() == 1
    assert [UUID(str(row[0])) for row in await database.run("SELECT job FROM {}keys")] == [committed[0].id]


async def produce_on_postgres(
    database: Database, job: ConfiguredJob[[str], str], *, commits: bool
) -> JobHandle[str] | None:
    connection = await asyncpg.connect(database.url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        handle = await job.options(conn=connection).aenqueue("x")
        await (transaction.commit() if commits else transaction.rollback())
        return handle if commits else None
    finally:
        await connection.close()


async def produce_on_sqlite(
    database: Database, job: ConfiguredJob[[str], str], *, commits: bool
) -> JobHandle[str] | None:
    def produce() -> JobHandle[str] | None:
        with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"), timeout=PATIENCE)) as connection:
            handle = job.options(conn=connection).enqueue("x")
            connection.commit() if commits else connection.rollback()
            return handle if commits else None

    return await asyncio.to_thread(produce)
