"""An enqueue on the caller's own connection commits with the caller's rows, and rolls back with them."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from servers import administer, named
from windlass.connection.borrowed import translate
from windlass.connection.location import alocation, check_identity, location
from windlass.connection.recognise import borrow
from windlass.errors import IdempotencyConflict, UnusableConnection
from windlass.model.job import Key, NewJob, new_id
from windlass.store.migrate import migrations
from windlass.store.parts.encoding import encode_jobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.postgres

psycopg2: Any = None
try:
    psycopg2 = importlib.import_module("psycopg2")
except ImportError:  # it may be missing
    pass


class Db:
    """A fresh database with the engine's tables; reads its jobs on connections of its own."""

    def __init__(self, dialect: str, url: str) -> None:
        self.dialect = dialect
        self.url = url

    def alchemy(self, driver: str) -> str:
        if self.dialect == "sqlite":
            return f"sqlite{driver}:///{self.url}"
        return self.url.replace("postgresql://", f"postgresql{driver}://", 1)

    def jobs(self) -> set[UUID]:
        table = "windlass_jobs" if self.dialect == "sqlite" else "windlass.jobs"
        return {UUID(row[0]) for row in self.rows(f"SELECT CAST(id AS text) FROM {table}")}

    def location(self) -> str:
        if self.dialect == "sqlite":
            return f"sqlite:{os.path.realpath(self.url)}"
        return f"postgres:{self.rows('SELECT id FROM windlass.installation')[0][0]}"

    def rows(self, sql: str) -> list[Any]:
        conn: Any = sqlite3.connect(self.url) if self.dialect == "sqlite" else psycopg.connect(self.url)
        with closing(conn):
            found: list[Any] = conn.execute(sql).fetchall()
        return found


def make_postgres(with_schema: bool = True) -> tuple[Db, str]:
    name = f"wl_conn_{uuid4().hex[:12]}"
    administer(f"CREATE DATABASE {name}")
    url = named(name)
    if with_schema:
        with psycopg.connect(url) as conn:
            conn.execute("CREATE SCHEMA windlass")
            for migration in migrations("postgres"):
                conn.execute(migration.sql.encode())
    return Db("postgres", url), name


def drop_postgres(name: str) -> None:
    administer(f"DROP DATABASE {name} WITH (FORCE)")


def make_sqlite(path: Path) -> Db:
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA journal_mode = wal")
        for migration in migrations("sqlite"):
            conn.executescript(migration.sql)
    conn.close()
    return Db("sqlite", str(path))


@pytest.fixture(scope="module")
def pg() -> Iterator[Db]:
    db, name = make_postgres()
    yield db
    drop_postgres(name)


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Db:
    return make_sqlite(tmp_path_factory.mktemp("connection") / "app.db")


def new_job(**options: Any) -> NewJob:
    return NewJob(id=new_id(), type="greet", input='{"name":"Ada: 100 % \'sure\' :b $1"}', **options)


# One opener per kind: a block around an open connection, which commits at its end, or rolls back with commit=False.


@asynccontextmanager
async def open_psycopg(db: Db, commit: bool) -> AsyncIterator[Any]:
    with psycopg.connect(db.url, row_factory=dict_row) as conn:
        yield conn
        conn.commit() if commit else conn.rollback()


@asynccontextmanager
async def open_psycopg_autocommit_in_block(db: Db, commit: bool) -> AsyncIterator[Any]:
    with psycopg.connect(db.url, autocommit=True) as conn, conn.transaction(force_rollback=not commit):
        yield conn


@asynccontextmanager
async def open_async_psycopg(db: Db, commit: bool) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(db.url, row_factory=dict_row) as conn:
        yield conn
        await (conn.commit() if commit else conn.rollback())


@asynccontextmanager
async def open_psycopg2(db: Db, commit: bool) -> AsyncIterator[Any]:
    extras = importlib.import_module("psycopg2.extras")
    conn = psycopg2.connect(db.url, cursor_factory=extras.RealDictCursor)
    yield conn
    conn.commit() if commit else conn.rollback()
    conn.close()


@asynccontextmanager
async def open_asyncpg(db: Db, commit: bool) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(db.url)
    # A codec of the caller's own would quote the jobs once more, were they sent as json.
    await conn.set_type_codec("json", schema="pg_catalog", encoder=repr, decoder=str)
    transaction = conn.transaction()
    await transaction.start()
    yield conn
    await (transaction.commit() if commit else transaction.rollback())
    await conn.close()


@asynccontextmanager
async def open_asyncpg_pool(db: Db, commit: bool) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(db.url, min_size=1, max_size=1) as pool, pool.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        yield conn
        await (transaction.commit() if commit else transaction.rollback())


@asynccontextmanager
async def open_sqlite(db: Db, commit: bool) -> AsyncIterator[Any]:
    conn = sqlite3.connect(db.url)
    conn.row_factory = sqlite3.Row
    yield conn
    conn.commit() if commit else conn.rollback()
    conn.close()


@asynccontextmanager
async def open_sqlite_begun(db: Db, commit: bool) -> AsyncIterator[Any]:
    conn = sqlite3.connect(db.url, isolation_level=None)
    conn.execute("BEGIN")
    yield conn
    conn.execute("COMMIT" if commit else "ROLLBACK")
    conn.close()


@asynccontextmanager
async def open_aiosqlite(db: Db, commit: bool) -> AsyncIterator[Any]:
    async with aiosqlite.connect(db.url) as conn:
        conn.row_factory = aiosqlite.Row
        yield conn
        await (conn.commit() if commit else conn.rollback())


def alchemy_connection(driver: str) -> Callable[[Db, bool], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(db: Db, commit: bool) -> AsyncIterator[Any]:
        engine = sa.create_engine(db.alchemy(driver))
        with engine.connect() as conn:
            yield conn
            conn.commit() if commit else conn.rollback()
        engine.dispose()

    return opened


def alchemy_session(driver: str, scoped: bool = False) -> Callable[[Db, bool], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(db: Db, commit: bool) -> AsyncIterator[Any]:
        engine = sa.create_engine(db.alchemy(driver))
        session: Any = scoped_session(sessionmaker(engine)) if scoped else Session(engine)
        yield session
        session.commit() if commit else session.rollback()
        session.close()
        engine.dispose()

    return opened


def async_alchemy_connection(driver: str) -> Callable[[Db, bool], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(db: Db, commit: bool) -> AsyncIterator[Any]:
        engine = create_async_engine(db.alchemy(driver))
        async with engine.connect() as conn:
            yield conn
            await (conn.commit() if commit else conn.rollback())
        await engine.dispose()

    return opened


def async_alchemy_session(driver: str, scoped: bool = False) -> Callable[[Db, bool], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(db: Db, commit: bool) -> AsyncIterator[Any]:
        engine = create_async_engine(db.alchemy(driver))
        session: Any = AsyncSession(engine)
        if scoped:
            session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        yield session
        await (session.commit() if commit else session.rollback())
        await session.close()
        await engine.dispose()

    return opened


KINDS: dict[str, tuple[str, Any]] = {
    "psycopg": ("pg", open_psycopg),
    "psycopg in a block": ("pg", open_psycopg_autocommit_in_block),
    "psycopg async": ("pg", open_async_psycopg),
    "psycopg2": ("pg", open_psycopg2),
    "asyncpg": ("pg", open_asyncpg),
    "asyncpg pool": ("pg", open_asyncpg_pool),
    "sqlite3": ("lite", open_sqlite),
    "sqlite3 begun": ("lite", open_sqlite_begun),
    "aiosqlite": ("lite", open_aiosqlite),
    "sqlalchemy connection, psycopg": ("pg", alchemy_connection("+psycopg")),
    "sqlalchemy connection, psycopg2": ("pg", alchemy_connection("+psycopg2")),
    "sqlalchemy connection, sqlite": ("lite", alchemy_connection("")),
    "sqlalchemy session, psycopg": ("pg", alchemy_session("+psycopg")),
    "sqlalchemy session, sqlite": ("lite", alchemy_session("")),
    "sqlalchemy scoped session": ("pg", alchemy_session("+psycopg", scoped=True)),
    "sqlalchemy async connection, asyncpg": ("pg", async_alchemy_connection("+asyncpg")),
    "sqlalchemy async connection, psycopg": ("pg", async_alchemy_connection("+psycopg")),
    "sqlalchemy async connection, aiosqlite": ("lite", async_alchemy_connection("+aiosqlite")),
    "sqlalchemy async session, asyncpg": ("pg", async_alchemy_session("+asyncpg")),
    "sqlalchemy async session, aiosqlite": ("lite", async_alchemy_session("+aiosqlite")),
    "sqlalchemy async scoped session": ("pg", async_alchemy_session("+asyncpg", scoped=True)),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Db, Any]:
    if "psycopg2" in request.param and psycopg2 is None:
        pytest.skip("psycopg2 is not installed")
    database, opened = KINDS[request.param]
    return request.getfixturevalue(database), opened


async def test_a_job_enqueued_first_is_there_once_the_caller_commits(kind: tuple[Db, Any]) -> None:
    db, opened = kind
    job = new_job()

    async with opened(db, commit=True) as conn:
        await borrow(conn).aenqueue([job])
        assert job.id not in db.jobs()

    assert job.id in db.jobs()


async def test_a_job_enqueued_first_is_gone_once_the_caller_rolls_back(kind: tuple[Db, Any]) -> None:
    db, opened = kind
    job = new_job()

    async with opened(db, commit=False) as conn:
        await borrow(conn).aenqueue([job])

    assert job.id not in db.jobs()


def keyed(text: str, *, fingerprint: str = "same") -> NewJob:
    """A job with both kinds of a key."""
    states = ("queued", "running", "failed", "waiting", "succeeded")
    return new_job(
        key=text,
        unique=Key(scope="unique/default/greet", key=text, states=states),
        idempotency=Key(scope="idempotency/default", key=text, window=60.0, fingerprint=fingerprint),
    )


async def test_a_key_commits_and_rolls_back_with_its_job_on_the_callers_connection(kind: tuple[Db, Any]) -> None:
    db, opened = kind
    text = f"order % :b $1 'x' {uuid4()}"
    lost, kept, second, third = (keyed(text) for _ in range(4))

    async with opened(db, commit=False) as conn:
        assert await borrow(conn).aenqueue([lost]) == {}
    async with opened(db, commit=True) as conn:
        assert await borrow(conn).aenqueue([kept]) == {}
        assert await borrow(conn).aenqueue([second]) == {second.id: kept.id}
    async with opened(db, commit=True) as conn:
        assert await borrow(conn).aenqueue([third]) == {third.id: kept.id}

    assert db.jobs() & {job.id for job in (lost, kept, second, third)} == {kept.id}


async def test_a_refused_idempotency_key_leaves_nothing_behind_though_the_caller_commits(kind: tuple[Db, Any]) -> None:
    db, opened = kind
    first, other = f"a {uuid4()}", f"b {uuid4()}"
    held, new = keyed(other), keyed(first)
    async with opened(db, commit=True) as conn:
        await borrow(conn).aenqueue([held])

    async with opened(db, commit=True) as conn:
        with pytest.raises(IdempotencyConflict, match=f"{held.id}, with another type or input; nothing was enqueued"):
            await borrow(conn).aenqueue([keyed(first, fingerprint="x"), keyed(other, fingerprint="y")])
        assert await borrow(conn).aenqueue([new]) == {}

    assert new.id in db.jobs()


async def test_a_plain_enqueue_is_one_statement(pg: Db, lite: Db) -> None:
    for db in (pg, lite):
        engine = sa.create_engine(db.alchemy("+psycopg" if db is pg else ""))
        asked: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", lambda *call, asked=asked: asked.append(call[2]))

        with engine.begin() as conn:
            borrow(conn).enqueue([new_job(follow_ups="{}"), new_job(key="shown only")])

        assert [sql for sql in asked if not sql.startswith("BEGIN")] == asked[-1:]
        assert asked[-1].startswith("INSERT INTO windlass")
        engine.dispose()


async def test_a_blocking_call_takes_a_blocking_connection_and_refuses_an_asynchronous_one(
    kind: tuple[Db, Any],
) -> None:
    db, opened = kind
    job = new_job()

    async with opened(db, commit=True) as conn:
        borrowed = borrow(conn)
        if borrowed.asynchronous:
            with pytest.raises(UnusableConnection, match=r"await job\.options\(conn=conn\)\.aenqueue\("):
                borrowed.enqueue([job])
        else:
            borrowed.enqueue([job])

    assert (job.id in db.jobs()) is not borrowed.asynchronous


async def test_the_location_of_a_database_is_the_same_for_every_driver(kind: tuple[Db, Any]) -> None:
    db, opened = kind
    expected = db.location()

    async with opened(db, commit=False) as conn:
        borrowed = borrow(conn)
        found = await alocation(borrowed)

        assert found == expected
        if not borrowed.asynchronous:
            assert location(borrowed) == expected
    check_identity(found, expected)


async def test_the_location_of_a_connection_is_read_once(pg: Db) -> None:
    asked: list[str] = []
    engine = create_async_engine(pg.alchemy("+asyncpg"))
    sa.event.listen(engine.sync_engine, "before_cursor_execute", lambda *call: asked.append(call[2]))

    for _ in range(2):
        async with AsyncSession(engine) as session:
            await alocation(borrow(session))

    assert len(asked) == 2
    await engine.dispose()


async def test_a_statement_that_sqlite3_would_not_begin_for_is_rolled_back_all_the_same(lite: Db) -> None:
    def sql(job: NewJob) -> str:
        return (
            "WITH new AS (SELECT 1) INSERT INTO windlass_jobs (id, type, input, run_at, created_at, updated_at) "
            f"SELECT '{job.id}', 'greet', '{{}}', 0, 0, 0 FROM new"
        )

    jobs = [new_job() for _ in range(3)]
    engine = sa.create_engine(lite.alchemy(""))

    async with open_sqlite(lite, commit=False) as conn:
        borrow(conn).run(sql(jobs[0]))
    async with open_aiosqlite(lite, commit=False) as conn:
        await borrow(conn).arun(sql(jobs[1]))
    with engine.connect() as conn:
        borrow(conn).run(sql(jobs[2]))

    assert not lite.jobs() & {job.id for job in jobs}
    engine.dispose()


def test_later_statements_of_the_caller_roll_back_with_the_job(lite: Db) -> None:
    conn = sqlite3.connect(lite.url)
    conn.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
    job = new_job()

    borrow(conn).enqueue([job])
    conn.execute("INSERT INTO orders VALUES (7)")
    conn.rollback()

    assert job.id not in lite.jobs()
    assert lite.rows("SELECT count(*) FROM orders WHERE id = 7") == [(0,)]
    conn.close()


async def test_a_session_inside_run_sync_enqueues_without_blocking_the_loop(pg: Db) -> None:
    engine = create_async_engine(pg.alchemy("+asyncpg"))
    job = new_job()

    async with AsyncSession(engine) as session:
        await session.run_sync(lambda inner: borrow(inner).enqueue([job]))
        await session.commit()

    assert job.id in pg.jobs()
    await engine.dispose()


@pytest.mark.parametrize("database", ["pg", "lite"])
def test_a_time_with_an_offset_is_stored_as_the_same_moment(database: str, request: pytest.FixtureRequest) -> None:
    db: Db = request.getfixturevalue(database)
    moment = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    job = new_job(run_at=moment)
    engine = sa.create_engine(db.alchemy("+psycopg" if database == "pg" else ""))

    with engine.begin() as conn:
        borrow(conn).enqueue([job])

    table = "windlass.jobs" if database == "pg" else "windlass_jobs"
    stored = db.rows(f"SELECT run_at FROM {table} WHERE id = '{job.id}'")[0][0]
    if database == "lite":
        stored = datetime.fromtimestamp(stored // 1_000_000, UTC) + timedelta(microseconds=stored % 1_000_000)
    assert stored == moment
    engine.dispose()


# After the commit


def test_a_session_calls_back_once_after_its_commit_and_not_at_a_savepoint(pg: Db) -> None:
    engine = sa.create_engine(pg.alchemy("+psycopg"))
    calls: list[set[UUID]] = []
    job = new_job()

    with Session(engine) as session:
        with session.begin_nested():
            borrowed = borrow(session)
            borrowed.enqueue([job])
            assert borrowed.after_commit(lambda: calls.append(pg.jobs()))
        assert calls == []
        session.commit()
        session.execute(sa.text("SELECT 1"))
        session.commit()

    assert len(calls) == 1
    assert job.id in calls[0]
    engine.dispose()


@pytest.mark.parametrize("ending", ["rollback", "close"])
def test_a_session_forgets_the_callback_when_it_does_not_commit(pg: Db, ending: str) -> None:
    engine = sa.create_engine(pg.alchemy("+psycopg"))
    calls: list[str] = []
    session = Session(engine)
    borrowed = borrow(session)
    borrowed.enqueue([new_job()])
    borrowed.after_commit(lambda: calls.append("too late"))

    getattr(session, ending)()
    session.execute(sa.text("SELECT 1"))
    session.commit()

    assert calls == []
    session.close()
    engine.dispose()


async def test_an_async_session_calls_back_and_a_failing_callback_leaves_the_commit_alone(pg: Db) -> None:
    engine = create_async_engine(pg.alchemy("+asyncpg"))
    calls: list[str] = []
    job = new_job()

    async with AsyncSession(engine) as session:
        borrowed = borrow(session)
        await borrowed.aenqueue([job])
        borrowed.after_commit(lambda: 1 / 0)  # type: ignore[arg-type]
        borrowed.after_commit(lambda: calls.append("called"))
        await session.commit()

    assert calls == ["called"]
    assert job.id in pg.jobs()
    await engine.dispose()


def test_a_driver_connection_has_no_callback_after_its_commit(lite: Db) -> None:
    conn = sqlite3.connect(lite.url)

    assert not borrow(conn).after_commit(lambda: None)
    conn.close()


# Refusals


def refused(conn: object, *words: str) -> None:
    with pytest.raises(UnusableConnection) as caught:
        borrow(conn).enqueue([new_job()])
    for word in words:
        assert word in str(caught.value)


async def arefused(conn: object, *words: str) -> None:
    with pytest.raises(UnusableConnection) as caught:
        await borrow(conn).aenqueue([new_job()])
    for word in words:
        assert word in str(caught.value)


async def test_a_psycopg_connection_is_refused_closed_failed_autocommitting_or_in_a_pipeline(pg: Db) -> None:
    conn = psycopg.connect(pg.url)
    with pytest.raises(psycopg.Error):
        conn.execute("SELECT 1 / 0")
    refused(conn, "failed transaction", "rollback()")
    conn.rollback()
    with conn.pipeline():
        refused(conn, "pipeline")
    conn.close()
    refused(conn, "closed")
    with psycopg.connect(pg.url, autocommit=True) as committing:
        refused(committing, "commits every statement", "with conn.transaction()")
    async with await psycopg.AsyncConnection.connect(pg.url, autocommit=True) as awaited:
        await arefused(awaited, "commits every statement", "async with conn.transaction()")
    await arefused(awaited, "closed")


@pytest.mark.skipif(psycopg2 is None, reason="psycopg2 is not installed")
def test_a_psycopg2_connection_is_refused_closed_failed_or_autocommitting(pg: Db) -> None:
    conn = psycopg2.connect(pg.url)
    with pytest.raises(psycopg2.Error):
        conn.cursor().execute("SELECT 1 / 0")
    refused(conn, "failed transaction")
    conn.rollback()
    conn.autocommit = True
    refused(conn, "commits every statement", "conn.autocommit = False")
    conn.close()
    refused(conn, "closed")


async def test_an_asyncpg_connection_is_refused_closed_failed_or_outside_a_transaction(pg: Db) -> None:
    conn = await asyncpg.connect(pg.url)
    await arefused(conn, "commits every statement", "async with conn.transaction()")
    transaction = conn.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.PostgresError):
        await conn.execute("SELECT 1 / 0")
    await arefused(conn, "failed transaction")
    await transaction.rollback()
    await conn.close()
    await arefused(conn, "closed")
    async with asyncpg.create_pool(pg.url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as proxy:
            pass
        await arefused(proxy, "closed")


async def test_a_sqlite_connection_is_refused_closed_or_autocommitting(lite: Db) -> None:
    conn = sqlite3.connect(lite.url, isolation_level=None)
    refused(conn, "commits every statement", 'conn.execute("BEGIN")')
    conn.close()
    refused(conn, "closed")
    async with aiosqlite.connect(lite.url, isolation_level=None) as awaited:
        await arefused(awaited, "commits every statement")
    await arefused(awaited, "closed")


@pytest.mark.parametrize(
    ("options", "execution"),
    [
        ({"isolation_level": "AUTOCOMMIT"}, {}),
        ({"execution_options": {"isolation_level": "AUTOCOMMIT"}}, {}),
        ({}, {"isolation_level": "AUTOCOMMIT"}),
        ({"connect_args": {"autocommit": True}}, {}),
    ],
    ids=["engine", "engine options", "connection options", "driver"],
)
async def test_sqlalchemy_is_refused_when_it_commits_by_itself(
    pg: Db, options: dict[str, Any], execution: dict[str, Any]
) -> None:
    engine = sa.create_engine(pg.alchemy("+psycopg"), **options)

    with engine.connect().execution_options(**execution) as conn:
        refused(conn, "commits every statement")
    with Session(engine) as session:
        session.connection(execution_options=execution)
        refused(session, "commits every statement")
    engine.dispose()


@pytest.mark.parametrize("driver", ["+asyncpg", "+psycopg"])
async def test_async_sqlalchemy_is_refused_when_it_commits_by_itself(pg: Db, driver: str) -> None:
    by_engine = create_async_engine(pg.alchemy(driver), isolation_level="AUTOCOMMIT")
    by_option = create_async_engine(pg.alchemy(driver))

    async with by_engine.connect() as conn:
        await arefused(conn, "commits every statement")
    async with AsyncSession(by_option) as session:
        await session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        await arefused(session, "commits every statement")
    await by_engine.dispose()
    await by_option.dispose()


@pytest.mark.parametrize("options", [{"isolation_level": "AUTOCOMMIT"}, {"connect_args": {"isolation_level": None}}])
def test_sqlalchemy_on_sqlite_is_refused_when_it_commits_by_itself(lite: Db, options: dict[str, Any]) -> None:
    engine = sa.create_engine(lite.alchemy(""), **options)

    with engine.connect() as conn:
        refused(conn, "commits every statement")
    engine.dispose()


def test_sqlalchemy_on_sqlite_is_accepted_when_a_listener_sends_begin(lite: Db) -> None:
    engine = sa.create_engine(lite.alchemy(""), connect_args={"isolation_level": None})
    sa.event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    kept, lost = new_job(), new_job()

    with engine.connect() as conn:
        borrow(conn).enqueue([lost])
        conn.rollback()
        borrow(conn).enqueue([kept])
        conn.commit()

    assert lite.jobs() & {kept.id, lost.id} == {kept.id}
    engine.dispose()


async def test_sqlalchemy_is_refused_closed_failed_unstarted_or_unbound(pg: Db) -> None:
    engine = sa.create_engine(pg.alchemy("+psycopg"))
    with engine.connect() as conn:
        with pytest.raises(sa.exc.DBAPIError):
            conn.execute(sa.text("SELECT 1 / 0"))
        refused(conn, "failed transaction")
    refused(conn, "closed")
    refused(Session(), "which of its databases")
    with Session(engine, autobegin=False) as session:
        refused(session, "begin")
    awaiting = create_async_engine(pg.alchemy("+asyncpg"))
    unstarted: AsyncConnection = awaiting.connect()
    await arefused(unstarted, "not been started", "async with")
    async with AsyncSession(awaiting) as failing:
        with pytest.raises(sa.exc.DBAPIError):
            await failing.execute(sa.text("SELECT 1 / 0"))
        await arefused(failing, "failed transaction")
    engine.dispose()
    await awaiting.dispose()


async def test_an_object_that_is_not_a_connection_is_refused_with_a_hint(pg: Db) -> None:
    engine = sa.create_engine(pg.alchemy("+psycopg"))
    refused(engine, "sqlalchemy.engine.base.Engine", "with engine.begin() as conn")
    refused(sessionmaker(engine), "with Session.begin()")
    refused(pg.url, "builtins.str", "psycopg.connect(url)")
    refused(sqlite3.connect(":memory:").cursor(), "cursor.connection")
    refused(create_async_engine(pg.alchemy("+asyncpg")), "async with engine.begin()")
    refused(engine.begin(), "has not been entered")
    refused(42, "builtins.int", "conn= takes")
    with engine.connect() as conn:
        refused(conn.begin(), "give the connection")
    pool = asyncpg.create_pool(pg.url)
    refused(pool, "pool.acquire()")
    coroutine = psycopg.AsyncConnection.connect(pg.url)
    refused(coroutine, "has not been awaited")
    coroutine.close()
    engine.dispose()


# Another database


async def test_a_database_without_the_schema_is_refused_and_the_transaction_survives(pg: Db) -> None:
    empty, name = make_postgres(with_schema=False)
    with psycopg.connect(empty.url) as conn:
        with pytest.raises(UnusableConnection, match="windlass migrate"):
            location(borrow(conn))

        assert conn.execute("SELECT 1").fetchone() == (1,)
    drop_postgres(name)


def test_another_database_and_one_in_memory_are_refused(lite: Db, tmp_path: Path) -> None:
    other = make_sqlite(tmp_path / "other.db")
    conn = sqlite3.connect(other.url)
    app = lite.location()

    found = location(borrow(conn))

    assert not conn.in_transaction
    with pytest.raises(UnusableConnection, match="another database"):
        check_identity(found, app)
    with pytest.raises(UnusableConnection, match="in memory"):
        location(borrow(sqlite3.connect(":memory:")))
    conn.close()


def test_a_path_through_a_link_has_the_same_location(lite: Db, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(lite.url)
    conn = sqlite3.connect(link)

    assert location(borrow(conn)) == lite.location()
    conn.close()


# Windlass's own transactions, and the text of statements


async def test_a_transaction_of_windlass_enqueues_by_itself() -> None:
    class Own:
        windlass_dialect = "sqlite"

        def __init__(self) -> None:
            self.jobs: list[NewJob] = []
            self.asked: list[str] = []

        async def enqueue(self, jobs: list[NewJob]) -> dict[UUID, UUID]:
            self.jobs.extend(jobs)
            return {}

        async def fetch(self, sql: str, *args: object) -> list[dict[str, Any]]:
            self.asked.append(sql)
            return [{"answer": 42}]

    own, job = Own(), new_job()

    assert await borrow(own).aenqueue([job]) == {}
    rows = await borrow(own).arun("SELECT ?1", 42)

    assert own.jobs == [job]
    assert (own.asked, rows) == (["SELECT $1"], [(42,)])


def test_placeholders_are_rewritten_and_literals_are_left_alone() -> None:
    sql = "-- $1 and 5 %\nSELECT $1::text, 'it''s 5 % :x $2 10:30:00' WHERE \"a?1\" = $2"

    assert translate(sql, "pyformat") == ("SELECT %(p1)s::text, 'it''s 5 %% :x $2 10:30:00' WHERE \"a?1\" = %(p2)s")
    compiled = sa.text(translate(sql, "text")).compile()
    assert compiled.params.keys() == {"p1", "p2"}
    assert str(compiled) == "SELECT :p1 ::text, 'it''s 5 % :x $2 10:30:00' WHERE \"a?1\" = :p2"


def test_jobs_are_encoded_with_their_input_as_json() -> None:
    job = new_job(parent=new_id(), delay=1.5)

    encoded = encode_jobs([job])

    assert f'"id":"{job.id}"' in encoded
    assert f'"input":{job.input}' in encoded
    assert '"delay":1.5' in encoded


def test_a_first_enqueue_after_the_callers_own_write_does_not_wait_for_it(tmp_path: Path) -> None:
    """The client must not ask for SQLite's write lock, which the caller's transaction holds."""
    from windlass import Windlass

    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job
    def add(a: int, b: int) -> int:
        return a + b

    app.migrate()
    app.close()
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as conn, conn:
        conn.execute("CREATE TABLE orders (id INTEGER)")
        conn.execute("INSERT INTO orders VALUES (1)")
        job = add.options(conn=conn).enqueue(1, 2)
    assert job.status() == "queued"
    app.close()
