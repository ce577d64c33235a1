"""Inline mode: an enqueue runs its job at once, where it was called, and stores it as usual."""

from __future__ import annotations

import threading

import pytest

from windlass import State, SyncContext, Windlass, unique
from windlass.testing import EndlessDrain, Harness, harness


def test_an_enqueue_runs_the_job_on_the_callers_thread_and_has_its_result(app: Windlass, bench: Harness) -> None:
    @app.job
    def add(a: int, b: int) -> list[int]:
        return [a + b, threading.get_ident()]

    @app.job
    async def add_too(a: int, b: int) -> int:
        return a + b

    with bench.inline():
        plain, coroutine = add.enqueue(1, 2), add_too.enqueue(3, 4)

    assert plain.result() == [3, threading.get_ident()]
    assert coroutine.result() == 7
    assert (plain.record().attempt, plain.status()) == (1, State.SUCCEEDED)

    later = add.enqueue(5, 6)
    assert later.status() is State.QUEUED


async def test_in_a_coroutine_too(app: Windlass, server: str | None) -> None:
    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    async with harness(app, server, inline=True):
        job = await add.aenqueue(1, 2)
        assert await job.astatus() is State.SUCCEEDED
        assert await job.aresult() == 3


def test_a_job_inside_a_job_inside_a_job(app: Windlass, bench: Harness) -> None:
    @app.job
    def plain(n: int) -> int:
        return 0 if n == 0 else plain.enqueue(n - 1).result() + 1

    @app.job
    async def coroutine(n: int) -> int:
        return 0 if n == 0 else await (await coroutine.aenqueue(n - 1)).aresult() + 1

    with bench.inline():
        assert plain.enqueue(5).result() == 5
        assert coroutine.enqueue(5).result() == 5


def test_a_job_without_end_is_stopped_and_named(app: Windlass, bench: Harness) -> None:
    @app.job
    def echo() -> None:
        echo.enqueue()

    with bench.inline(), pytest.raises(EndlessDrain, match=r"'echo' was enqueued 20 levels deep"):
        echo.enqueue()


def test_only_this_job_runs_and_only_when_it_is_due(app: Windlass, bench: Harness) -> None:
    ran: list[int] = []

    @app.job
    def work(n: int) -> None:
        ran.append(n)

    work.enqueue(0)
    with bench.inline():
        work.enqueue(1)
        work.options(delay="1m").enqueue(2)
        work.options(run_at=bench.clock.now()).enqueue(3)
        app.enqueue_many(work.call(n) for n in (4, 5, 6))
    assert ran == [1, 3, 4, 5, 6]

    bench.clock.advance("1m")
    bench.drain()
    assert ran == [1, 3, 4, 5, 6, 0, 2]


def test_inside_a_transaction_it_waits_for_the_drain(app: Windlass, bench: Harness) -> None:
    @app.job
    def parent(ctx: SyncContext) -> None:
        with ctx.transaction():
            child.enqueue()

    @app.job
    def child() -> None: ...

    with bench.inline():
        parent.enqueue()

        bench.assert_enqueued(child, count=1)
        assert [one.type for one in bench.drain()] == ["child"]


def test_an_error_is_recorded_and_raised_on_demand(app: Windlass, bench: Harness) -> None:
    @app.job
    def broken() -> None:
        raise ValueError("no")

    with bench.inline():
        assert broken.enqueue().status() is State.FAILED
    with bench.inline(raise_errors=True), pytest.raises(ValueError, match="no"):
        broken.enqueue()
    assert [job.status for job in bench.jobs(broken)] == [State.FAILED] * 2


def test_many_threads_run_their_own_jobs(app: Windlass, bench: Harness) -> None:
    results: dict[int, int] = {}

    @app.job
    def double(n: int) -> int:
        return 2 * n

    def use(n: int) -> None:
        results[n] = double.enqueue(n).result()

    with bench.inline():
        threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert results == {n: 2 * n for n in range(8)}


def test_a_refused_enqueue_runs_nothing_and_has_the_result_of_the_first(app: Windlass, bench: Harness) -> None:
    runs: list[int] = []

    @app.job(unique="n")
    def work(n: int) -> int:
        runs.append(n)
        return len(runs)

    with bench.inline():
        first, second = work.enqueue(1), work.enqueue(1)
        both = app.enqueue_many([work.call(2), work.call(1), work.call(2)])

    assert (first.existing, second.existing, second.result()) == (False, True, 1)
    assert [job.existing for job in both] == [False, True, True]
    assert runs == [1, 2]


def test_the_window_of_a_key_counts_on_the_harness_clock(app: Windlass, bench: Harness) -> None:
    @app.job(unique=unique(window="1h"))
    def work() -> None: ...

    work.enqueue()
    bench.clock.advance("59m")
    assert work.enqueue().existing
    bench.clock.advance("2m")
    assert not work.enqueue().existing
    bench.assert_enqueued(work, count=2)
