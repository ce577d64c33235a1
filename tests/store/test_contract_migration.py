"""The schema: made once, checked at every start, never touched by an older program."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio

from windlass.address import plain_url
from windlass.errors import SchemaMissing, SchemaOutdated, SchemaTooNew, StoreBusy, StoreError, WorkersOutdated
from windlass.model.delivery import PUBLISHED_BY_ENQUEUE, DeliveryMode
from windlass.model.state import State, Verb
from windlass.store.migrate import Migration, migrations, newest
from windlass.store.parts.statements import uuid_of
from windlass.store.postgres.migrator import PostgresMigrator

from .conftest import postgres_rig
from .rig import Rig, new_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def test_a_second_migration_finds_nothing_to_do(rig: Rig) -> None:
    assert await rig.migrator.migrate() == []
    assert await rig.migrator.current() == newest(rig.dialect)


async def test_migrators_at_once_are_one_migration(rig: Rig) -> None:
    results = await asyncio.gather(*[rig.migrator.migrate() for _ in range(4)])

    assert results == [[], [], [], []]


async def test_a_newer_schema_is_refused_and_left_alone(rig: Rig) -> None:
    await rig.store.close()
    await rig.run("INSERT INTO {}migrations (number, name) VALUES (9999, 'future')")

    with pytest.raises(SchemaTooNew, match="9999"):
        await rig.store.open()
    with pytest.raises(SchemaTooNew, match="9999"):
        await rig.migrator.migrate()

    assert await rig.migrator.current() == 9999


async def test_a_database_without_a_schema_says_how_to_make_one(rig: Rig) -> None:
    await rig.store.close()
    await rig.run("DELETE FROM {}migrations")

    with pytest.raises((SchemaMissing, SchemaOutdated), match="windlass migrate"):
        await rig.store.open()


# Upgrades: the schema may be one number ahead of a program


async def test_a_program_works_with_the_next_schema_and_leaves_it_alone(rig: Rig) -> None:
    await rig.run(f"INSERT INTO {{}}migrations (number, name) VALUES ({newest(rig.dialect) + 1}, 'next')")

    async with rig.stores(2) as (_, second):
        await second.enqueue([new_job()])
    assert len(await rig.claim(room=1)) == 1
    assert await rig.migrator.migrate() == []


async def test_a_migration_that_leaves_live_workers_behind_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.run("DELETE FROM {}workers")
    await rig.register(lease=1e9)  # a file's migrator goes by the system's clock, and not by that of the rig
    release(monkeypatch, rig.dialect, "SELECT 1;", "SELECT 2;")  # two numbers ahead of the worker

    assert await rig.migrator.outdated_workers() == [f"host:1 (knows {KNOWN})"]
    with pytest.raises(WorkersOutdated, match=r"host:1.*nothing was changed.*run: windlass migrate"):
        await rig.migrator.migrate()
    assert await rig.migrator.current() == KNOWN

    await rig.run("UPDATE {}workers SET dead = true")
    assert [step.number for step in await rig.migrator.migrate()] == [KNOWN + 1, KNOWN + 2]


@pytest.mark.postgres
async def test_a_lock_that_is_held_keeps_no_job_from_its_end(
    postgres_rig_only: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a backup that holds its locks, then jobs go on while a migrator tries, and it says what to do."""
    rig, migrator = postgres_rig_only, migrator_of(postgres_rig_only)
    release(monkeypatch, "postgres", "ALTER TABLE windlass.jobs ADD COLUMN IF NOT EXISTS news integer;")
    backup = await session(migrator.url)
    await backup.execute("SET application_name = 'pg_dump'; BEGIN; LOCK TABLE windlass.jobs IN ACCESS SHARE MODE")

    migrator.patience = 3600.0
    migrating = asyncio.create_task(migrator.migrate())
    tries = await waits_of(migrator.url, 2, migrating)
    for _ in range(20):
        job = await rig.held()
        assert await rig.finish(job, Verb.SUCCEED) is State.SUCCEEDED
    assert not migrating.done()
    migrating.cancel()
    await asyncio.wait([migrating])
    migrator.patience = 0.0
    with pytest.raises(StoreBusy, match=r"pg_dump \(pid \d+.*Then run windlass migrate again"):
        await migrator.migrate()
    assert (await migrator.current(), tries) == (KNOWN, 2)

    await backup.execute("COMMIT")
    await backup.close()
    assert len(await migrator.migrate()) == 1


@pytest.mark.postgres
async def test_a_migration_that_was_killed_goes_on_where_it_ended(
    postgres_rig_only: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed while it builds an index, which stays behind invalid: the next run builds it anew.

    The build waits for a transaction, and a second migrator waits for the first: each names what it waits for.
    """
    rig, migrator = postgres_rig_only, migrator_of(postgres_rig_only)
    parts = "ALTER TABLE windlass.types ADD COLUMN IF NOT EXISTS news integer;", BUILD, "SELECT 1;"
    release(monkeypatch, "postgres", "\n-- then\n".join(parts))
    reader = await session(migrator.url)
    await reader.execute("BEGIN; LOCK TABLE windlass.jobs IN ROW EXCLUSIVE MODE")  # the build waits for it

    migrator.quiet = 0.05
    migrating = asyncio.create_task(migrator.migrate())
    watcher = await session(migrator.url)
    await said(caplog, f"older transactions: client backend (pid {reader.get_server_pid()}")
    second = asyncio.create_task(migrator.migrate())
    await said(caplog, "another migration has its turn: client backend (pid ")
    second.cancel()
    await asyncio.wait([second])
    async with asyncio.timeout(PATIENCE):
        while not migrating.done() and not await watcher.fetchval(KILL):  # noqa: ASYNC110 - the server has no signal
            await asyncio.sleep(0.02)
    with pytest.raises(StoreError):
        await migrating
    await reader.execute("ROLLBACK")

    assert await watcher.fetchval(VALID) is False
    assert await migrator.current() == KNOWN
    assert (await rig.held()).type == "mail.send"  # this program works on
    assert len(await migrator.migrate()) == 1
    assert await watcher.fetchval(VALID) is True
    await reader.close()
    await watcher.close()


PATIENCE = 60.0  # seconds until a test gives up
BUILD = "CREATE INDEX CONCURRENTLY IF NOT EXISTS news ON windlass.jobs (type);"
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'windlass.news'::regclass"
KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND query LIKE 'CREATE INDEX CONC%' AND wait_event_type = 'Lock'"
)
WAITING = (
    "SELECT xact_start FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'ALTER TABLE%'"
    " AND wait_event_type = 'Lock'"
)
KNOWN = newest("postgres")


def release(monkeypatch: pytest.MonkeyPatch, dialect: str, *steps: str) -> None:
    """Make this program one that has further migrations."""
    added = [Migration(number=KNOWN + n, name="next", sql=sql) for n, sql in enumerate(steps, start=1)]
    all_steps = (*migrations(dialect), *added)
    monkeypatch.setattr("windlass.store.migrate.migrations", lambda _: all_steps)


@pytest_asyncio.fixture(loop_scope="session")
async def postgres_rig_only() -> AsyncIterator[Rig]:
    async with postgres_rig() as rig:
        rig.worker = await rig.register()
        yield rig


def migrator_of(rig: Rig) -> PostgresMigrator:
    assert isinstance(rig.migrator, PostgresMigrator)
    return rig.migrator


async def said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while words not in caplog.text:  # noqa: ASYNC110 - log records have no signal
            await asyncio.sleep(0.02)


async def session(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(plain_url(url))


async def waits_of(url: str, count: int, migrating: asyncio.Task[object]) -> int:
    """Until so many tries of a migrator were seen waiting for the lock."""
    watcher = await session(url)
    seen: set[object] = set()
    while len(seen) < count and not migrating.done():
        seen |= {row[0] for row in await watcher.fetch(WAITING)}
        await asyncio.sleep(0.02)
    await watcher.close()
    return len(seen)


OLD_TRIGGER = """
CREATE TRIGGER windlass_deliver_new AFTER INSERT ON windlass_jobs WHEN NEW.run_at > NEW.created_at
BEGIN INSERT INTO windlass_outbox (job, deliver_at) VALUES (NEW.id, NEW.run_at); END
"""


async def test_a_database_with_direct_delivery_gets_the_present_trigger(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given schema 8 in the mode direct, when it is migrated, then all but marked jobs go through the outbox."""
    await rig.store.close()
    if rig.dialect == "sqlite":
        for (name,) in await rig.run("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '{}%'"):
            await rig.run(f"DROP TABLE {name}")
    else:
        await rig.run("DROP SCHEMA windlass CASCADE")
    with monkeypatch.context() as before:
        steps = [step for step in migrations(rig.dialect) if step.number <= 8]
        before.setattr("windlass.store.migrate.migrations", lambda dialect: steps)
        with suppress(StoreError):  # behind the last step: number 10 has the function that makes partitions
            await rig.migrator.migrate()
        assert await rig.migrator.current() == 8
        await rig.store.open()
        await rig.store.set_delivery(DeliveryMode.DIRECT)
        if rig.dialect == "sqlite":
            await rig.run("DROP TRIGGER windlass_deliver_new")
            await rig.run(OLD_TRIGGER)
        await rig.enqueue()
        assert await rig.run("SELECT job FROM {}outbox") == []

    assert (await rig.migrator.migrate())[0].number == 9
    for count in (1, 30):  # 30 jobs are copied on PostgreSQL
        await rig.enqueue_many(count, delay=PUBLISHED_BY_ENQUEUE)
        assert await rig.run("SELECT job FROM {}outbox") == []
    follow_ups = await rig.enqueue_many(30)

    assert {uuid_of(row[0]) for row in await rig.run("SELECT job FROM {}outbox")} == set(follow_ups)
