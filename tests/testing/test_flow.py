"""Under a harness: jobs that wait, their children and their timers, by `drain()`, `run_one()` and inline."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import Context, State, SyncContext, Windlass
from windlass.errors import ChildrenFailed
from windlass.model.outcome import Ending
from windlass.testing import EndlessDrain, Harness, harness


def family(app: Windlass) -> Any:
    @app.job
    def leaf(n: int) -> int:
        return n

    @app.job
    async def branch(ctx: Context, n: int) -> int:
        return sum(await ctx.wait(ctx.spawn_many("leaf", [leaf.call(n), leaf.call(n + 1)])))

    @app.job
    def tree(ctx: SyncContext) -> int:
        return sum(ctx.wait([ctx.spawn(f"branch {n}", branch.call(n)) for n in (10, 20)]))

    return tree


def test_drain_runs_children_and_whom_they_wake(app: Windlass, bench: Harness) -> None:
    job = family(app).enqueue()

    ran = bench.drain(raise_errors=True)

    assert job.result() == 62
    assert [one.type for one in ran].count("leaf") == 4
    assert [one.ending for one in ran if one.type == "tree"] == [Ending.WAITING, Ending.SUCCEEDED]
    assert (ran[0].state, ran[0].error, ran[0].failed) == (State.WAITING, None, False)


def test_run_one_runs_a_child_by_its_type(app: Windlass, bench: Harness) -> None:
    job = family(app).enqueue()

    assert bench.run_one().state is State.WAITING
    assert bench.run_one("branch").state is State.WAITING
    assert [bench.run_one("leaf").output, bench.run_one("leaf").output] == [10, 11]
    assert bench.run_one("branch").type == "branch"
    bench.drain()
    assert job.result() == 62


def test_inline_sees_a_whole_family_through(app: Windlass, bench: Harness) -> None:
    tree = family(app)

    with bench.inline():
        assert tree.enqueue().result() == 62

    assert bench.drain() == []


async def test_inline_in_a_coroutine_too(app: Windlass, server: str | None) -> None:
    tree = family(app)

    async with harness(app, server, inline=True):
        assert await (await tree.aenqueue()).aresult() == 62


def test_inline_runs_what_was_spawned_and_not_waited_for(app: Windlass, bench: Harness) -> None:
    done: list[int] = []

    @app.job
    def child(n: int) -> None:
        done.append(n)

    @app.job
    def parent(ctx: SyncContext) -> None:
        ctx.spawn_many("child", [child.call(1), child.options(delay="1h").call(2)])

    with bench.inline():
        parent.enqueue()
    assert done == [1]

    bench.clock.advance("1h")
    bench.drain()
    assert done == [1, 2]


def test_inline_leaves_a_job_that_sleeps_or_waits_for_a_signal(app: Windlass, bench: Harness) -> None:
    @app.job
    def work(ctx: SyncContext) -> Any:
        ctx.sleep("nap", "3d")
        return ctx.wait_signal("go")

    with bench.inline():
        job = work.enqueue()
        assert job.status() is State.WAITING

    bench.clock.advance("3d")
    bench.drain()
    job.signal("go", 7)
    bench.drain()
    assert job.result() == 7


def test_inline_runs_a_graph_and_a_pipeline(app: Windlass, bench: Harness) -> None:
    @app.job
    def first() -> int:
        return 1

    @app.job
    async def second(ctx: Context) -> list[Any]:
        return [ctx.previous, await ctx.dependencies()]

    line, graph = app.pipeline("line", first, second), app.graph()
    graph.add("b", second.call(), after=[graph.add("a", first.call())])
    with bench.inline():
        assert line.enqueue().result() == [1, {}]
        assert graph.enqueue()["b"].result() == [None, {"a": 1}]


def test_inline_raises_a_childs_error_where_it_was_enqueued(app: Windlass, bench: Harness) -> None:
    @app.job
    def child() -> None:
        raise ZeroDivisionError("in the child")

    @app.job(max_attempts=1)
    def parent(ctx: SyncContext) -> None:
        ctx.wait([ctx.spawn("child", child.options(max_attempts=1).call())])

    with bench.inline(raise_errors=True), pytest.raises(ZeroDivisionError, match="in the child"):
        parent.enqueue()
    with pytest.raises(ChildrenFailed):
        bench.drain(raise_errors=True)


def test_a_family_without_end_is_stopped_and_named(app: Windlass, bench: Harness, monkeypatch: Any) -> None:
    monkeypatch.setattr("windlass.testing.inline.MOST_ATTEMPTS", 10)

    @app.job
    def rabbit(ctx: SyncContext) -> None:
        ctx.spawn("rabbit", rabbit.call())

    with bench.inline(), pytest.raises(EndlessDrain, match="'rabbit'"):
        rabbit.enqueue()
