"""The harness itself: what it borrows and gives back, and where it can be used."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import windlass.testing
from servers import url_of
from windlass import State, Windlass
from windlass.errors import BlockingCall, ResultTimeout, StoreError, UnusableConnection
from windlass.store.sqlite.connections.file import locate
from windlass.testing import Harness, HarnessError, harness, harnesses

from .conftest import NOWHERE


def test_the_app_is_given_back_as_it_was_and_the_jobs_are_gone(app: Windlass, server: str | None) -> None:
    @app.job
    def work() -> None: ...

    before = app.settings, app.clock, app._client
    with harness(app, server) as bench:
        work.enqueue()
        url = bench.url
        assert app.settings.url == url != NOWHERE

    assert (app.settings, app.clock, app._client) == before
    with pytest.raises(StoreError):
        work.enqueue()
    if server is None:
        assert not locate(url).parent.exists()
    else:
        left = Windlass(url)
        assert not any(left.counts().values())
        left.close()


def test_it_is_given_back_also_when_the_block_fails(app: Windlass, server: str | None) -> None:
    before = app._client
    with pytest.raises(ZeroDivisionError), harness(app, server):
        _ = 1 / 0

    assert app._client is before


def test_a_database_that_cannot_be_made_leaves_the_app_alone(app: Windlass) -> None:
    before = app._client
    with pytest.raises(StoreError, match="does not answer"), harness(app, "postgresql://nobody@127.0.0.1:9/none"):
        pass

    assert app._client is before


def test_harnesses_follow_each_other_and_share_nothing(app: Windlass, server: str | None) -> None:
    @app.job
    def work() -> None: ...

    for _ in range(2):
        with harness(app, server) as bench:
            assert bench.jobs() == []
            work.enqueue()
            bench.drain()


def test_no_thread_is_left_behind(app: Windlass, server: str | None) -> None:
    @app.job
    def work() -> None: ...

    with harness(app, server):
        pass  # a process has one thread for all its databases on a server
    before = set(threading.enumerate())
    with harness(app, server) as bench:
        work.enqueue()
        bench.drain()

    assert set(threading.enumerate()) <= before


async def test_in_a_coroutine_handlers_run_on_the_tests_own_loop(app: Windlass, server: str | None) -> None:
    loops: list[object] = []

    @app.job
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    @app.job
    def plain() -> int:
        where.enqueue()
        return threading.get_ident()

    async with harness(app, server) as bench:
        await where.aenqueue()
        job = await plain.aenqueue()
        bench.assert_enqueued(plain, count=1)

        ran = await bench.adrain()

        assert [one.type for one in ran] == ["where", "plain", "where"]
        assert loops == [asyncio.get_running_loop()] * 2
        assert await job.aresult() != threading.get_ident()
        await where.aenqueue()
        assert (await bench.arun_one(where)).state is State.SUCCEEDED


async def test_a_blocking_drain_on_a_loop_names_its_twin(app: Windlass) -> None:
    @app.job
    def work() -> None: ...

    with harness(app) as bench:
        with pytest.raises(BlockingCall, match=r"drain\(\) would block .* await windlass\.adrain"):
            bench.drain()
        with pytest.raises(BlockingCall, match=r"run_one\(\) would block .* await windlass\.arun_one"):
            bench.run_one()


async def test_a_coroutine_moves_the_clock_while_a_handler_runs(app: Windlass, server: str | None) -> None:
    began = asyncio.Event()

    @app.job(timeout="1h", max_attempts=1)
    async def slow() -> None:
        began.set()
        await asyncio.Event().wait()

    async with harness(app, server) as bench:
        job = await slow.aenqueue()
        draining = asyncio.create_task(bench.adrain())
        await began.wait()

        bench.clock.advance("1h")

        assert [str(one.error).endswith("the time limit of 1h has passed") for one in await draining] == [True]
        assert await job.astatus() is State.DEAD


async def test_a_worker_of_the_programs_own_works_beside_it(app: Windlass, server: str | None) -> None:
    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    async with harness(app, server), app.worker():
        job = await add.aenqueue(2, 3)
        assert await job.aresult(timeout="20s") == 5


def test_the_clock_begins_now_or_where_it_is_told_to(app: Windlass, server: str | None) -> None:
    @app.job
    def work() -> None: ...

    assert abs(harness(app).clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
    start = datetime(2031, 5, 17, 9, tzinfo=UTC)
    with harness(app, server, start=start) as bench:
        job = work.enqueue()
        assert job.record().created_at == bench.clock.now() == start + timedelta(microseconds=1)

        bench.clock.advance("1d")
        bench.drain()
        assert job.record().finished_at == bench.clock.now()


def test_jobs_are_told_in_their_order_and_by_type_and_state(
    app: Windlass, bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job
    def work(n: int) -> None: ...

    @app.job
    def rest() -> None: ...

    monkeypatch.setattr(harnesses, "PAGE", 2)
    for n in range(5):
        work.enqueue(n)
    rest.enqueue()
    bench.run_one(rest)

    assert [job.type for job in bench.jobs()] == ["work"] * 5 + ["rest"]
    assert [job.arguments()["n"] for job in bench.jobs(work)] == [0, 1, 2, 3, 4]
    assert [job.type for job in bench.jobs(status="succeeded")] == ["rest"]
    assert bench.jobs("rest", status=State.QUEUED) == []


def test_a_transaction_of_the_tests_own_carries_an_enqueue_and_the_clocks_time(
    app: Windlass, server: str | None
) -> None:
    @app.job
    def work() -> None: ...

    start = datetime(2020, 5, 17, 9, tzinfo=UTC)
    with harness(app, server, start=start, inline=True) as bench, closing(connected(bench.url)) as connection:
        connection.execute("BEGIN")
        now = work.options(conn=connection).enqueue()
        later = work.options(conn=connection, delay="10s").enqueue()
        appointed = work.options(conn=connection, run_at=start + timedelta(hours=1)).enqueue()
        bench.assert_not_enqueued(work)
        connection.commit()

        bench.assert_enqueued(work, count=3)
        assert [one.id for one in bench.drain()] == [now.id]
        bench.clock.advance("10s")
        assert [one.id for one in bench.drain()] == [later.id]
        bench.clock.advance("1h")
        assert [one.id for one in bench.drain()] == [appointed.id]


async def test_an_asynchronous_connection_too(app: Windlass) -> None:
    import aiosqlite

    @app.job
    async def work() -> None: ...

    async with harness(app) as bench, aiosqlite.connect(locate(bench.url), isolation_level=None) as connection:
        await connection.execute("BEGIN")
        await work.options(conn=connection).aenqueue()
        await connection.commit()

        assert len(await bench.adrain()) == 1


def test_a_connection_to_another_database_is_refused(app: Windlass) -> None:
    @app.job
    def work() -> None: ...

    with harness(app), closing(sqlite3.connect(":memory:")) as other, pytest.raises(UnusableConnection):
        work.options(conn=other).enqueue()


def connected(url: str) -> Any:
    return sqlite3.connect(locate(url), isolation_level=None) if url.startswith("sqlite") else psycopg.connect(url)


def test_mistakes_are_told_apart(app: Windlass) -> None:
    with pytest.raises(HarnessError, match=r"not str"):
        harness("shop:app")  # type: ignore[arg-type]
    with pytest.raises(HarnessError, match="would be used up"):
        harness(app, "sqlite:///dev.db")
    with pytest.raises(HarnessError, match="not open"):
        harness(app).jobs()
    with pytest.raises(HarnessError, match="not open"):
        harness(app).drain()
    with harness(app) as bench, pytest.raises(HarnessError, match="open already"):
        bench.__enter__()


def test_everything_public_is_there_and_imported_only_when_it_is_used() -> None:
    assert all(getattr(windlass.testing, name) is not None for name in windlass.testing.__all__)
    code = (
        "import sys, windlass.testing, windlass.testing.plugin;"
        "print([name for name in sys.modules if name.startswith(('windlass.runtime', 'windlass.testing.harnesses'))])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.postgres
def test_a_crashed_run_is_the_only_way_to_leave_a_database() -> None:
    """The name says whose it is, so that it can be found."""
    with harness(Windlass(NOWHERE), url_of("postgres")) as bench:
        assert "/windlass_test_" in bench.url


def test_a_result_before_the_drain_says_what_to_call(app: Windlass) -> None:
    """Given a job that no drain has run, when the test asks for its result, then it is answered and does not hang."""

    @app.job
    def work() -> int:
        return 7

    with harness(app) as bench:
        job = work.enqueue()
        with pytest.raises(ResultTimeout, match=r"has not been run .*in a test, run it before .*windlass\.drain\(\)"):
            job.result()
        bench.drain()
        assert job.result() == 7
