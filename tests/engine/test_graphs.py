"""Graphs declared ahead: what runs after what, and what a bad end means for those behind it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import asyncpg
import pytest

from windlass import Context, Dead, JobHandle, Retry, State, Windlass
from windlass.declare.jobtype import JobType
from windlass.handles.graph import Graph

from .rig import ON_POSTGRES, ON_SQLITE, PATIENCE, Database, come, ended, in_state, working

FLOW_TABLES = ("jobs", "history", "waits", "edges", "links")


class Works:
    """Job types of a small program: one that records its runs, one that dies, one that waits for the test."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.runs: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.mended: set[str] = set()  # names that do not die (any more)

        @app.job
        async def work(ctx: Context, name: str) -> str:
            self.runs.append(name)
            return name

        @app.job
        async def dies(ctx: Context, name: str) -> str:
            if name not in self.mended:
                raise Dead("it always does")
            return name

        @app.job
        async def held(ctx: Context, name: str) -> str:
            await come(self.gates[name])
            return name

        self.work: JobType[[str], str] = work
        self.dies: JobType[[str], str] = dies
        self._held: JobType[[str], str] = held

    def held(self, name: str) -> Any:
        """A call that ends when its gate is set."""
        self.gates[name] = asyncio.Event()
        return self._held.call(name)

    async def dead(self, name: str = "broken") -> JobHandle[str]:
        """A job that is dead; a worker must run."""
        job = await self.dies.aenqueue(name)
        await in_state(job, State.DEAD)
        return job


@pytest.fixture
def works(app: Windlass) -> Works:
    return Works(app)


async def states(handles: dict[str, JobHandle[object]]) -> dict[str, State]:
    """The state of each node, once it has ended."""
    return {name: (await ended(handle)).status for name, handle in handles.items()}


# What runs after what


async def test_a_diamond_runs_in_order_and_its_end_sees_both_sides(app: Windlass) -> None:
    runs = []

    @app.job
    async def fetch(url: str) -> str:
        runs.append("fetch")
        return f"page of {url}"

    @app.job
    async def count(ctx: Context, what: str) -> int:
        runs.append(what)
        page = await ctx.dependencies()
        return len(page["fetch"])

    @app.job
    async def report(ctx: Context) -> dict[str, Any]:
        runs.append("report")
        return dict(await ctx.dependencies())

    graph = app.graph()
    top = graph.add("fetch", fetch.call("example.org"))
    left = graph.add("left", count.call("left"), after=[top])
    right = graph.add("right", count.call("right"), after=[top])
    graph.add("report", report.call(), after=[left, right])
    handles = await graph.aenqueue()
    assert [await handle.astatus() for handle in handles.values()] == [State.QUEUED, *[State.WAITING] * 3]

    async with working(app):
        assert await handles["report"].aresult(timeout=PATIENCE) == {"left": 19, "right": 19}

    assert (runs[0], sorted(runs[1:3]), runs[3:]) == ("fetch", ["left", "right"], ["report"])
    assert (await handles["report"].arecord()).attempt == 1


async def test_blocking_callers_have_the_same_graph(app: Windlass, works: Works) -> None:
    graph = app.graph()
    graph.add("b", works.work.call("b"), after=["a"])
    graph.add("a", works.work.call("a"))

    async with working(app):
        handles = await asyncio.to_thread(graph.enqueue)
        assert await asyncio.to_thread(handles["b"].result, PATIENCE) == "b"

    assert works.runs == ["a", "b"]


async def test_a_dependency_that_only_failed_is_still_to_come(app: Windlass, works: Works) -> None:
    @app.job
    async def moody(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry(after=0.05)
        return "better"

    graph = app.graph()
    graph.add("moody", moody.call())
    graph.add("then", works.work.call("then"), after=["moody"])

    async with working(app):
        handles = await graph.aenqueue()
        assert await states(handles) == {"moody": State.SUCCEEDED, "then": State.SUCCEEDED}


async def test_a_graph_may_depend_on_jobs_that_exist(app: Windlass, works: Works) -> None:
    @app.job
    async def reads(ctx: Context) -> dict[str, Any]:
        return dict(await ctx.dependencies())

    async with working(app):
        past = await works.work.aenqueue("past")
        await ended(past)
        future = (await app.aenqueue_many([works.held("future")]))[0]

        graph = app.graph()
        graph.add("reads", reads.call(), after=[past, future])
        handles = await graph.aenqueue()
        assert await handles["reads"].astatus() is State.WAITING
        works.gates["future"].set()
        result = await handles["reads"].aresult(timeout=PATIENCE)

    assert result == {str(past.id): "past", str(future.id): "future"}


async def test_a_node_whose_dependencies_all_ended_before_is_queued_at_once(app: Windlass, works: Works) -> None:
    async with working(app):
        past = await works.work.aenqueue("past")
        await ended(past)

    graph = app.graph()
    graph.add("next", works.work.call("next"), after=[past])
    handles = await graph.aenqueue()
    assert await handles["next"].astatus() is State.QUEUED


# Keys


async def test_a_node_whose_key_is_held_is_the_job_that_holds_it(app: Windlass, works: Works) -> None:
    @app.job
    async def reads(ctx: Context) -> dict[str, Any]:
        return dict(await ctx.dependencies())

    holder = await works.work.options(key="one").aenqueue("holder")
    graph = app.graph()
    graph.add("keyed", works.work.options(key="one").call("not me"))
    graph.add("again", works.work.options(key="one").call("nor me"), after=["keyed"])
    graph.add("reads", reads.call(), after=["keyed", "again"])
    handles = await graph.aenqueue()
    assert [handle.existing for handle in handles.values()] == [True, True, False]
    assert handles["keyed"] == handles["again"] == holder

    async with working(app):
        found = await handles["reads"].aresult(timeout=PATIENCE)

    assert found == {"keyed": "holder", "again": "holder"}
    assert works.runs == ["holder"]


@pytest.mark.parametrize("turned", [False, True])
async def test_two_nodes_with_one_key_are_one_job_and_never_wait_for_themselves(
    app: Windlass, works: Works, turned: bool
) -> None:
    graph = app.graph()
    nodes = {"first": [], "middle": ["first"], "last": ["middle"]}
    for name, after in reversed(nodes.items()) if turned else nodes.items():
        bound = works.work if name == "middle" else works.work.options(key="one")
        graph.add(name, bound.call(name), after=after)
    handles = await graph.aenqueue()
    assert handles["last"] == handles["first"]

    async with working(app):
        assert await states(handles) == dict.fromkeys(handles, State.SUCCEEDED)
    assert works.runs == ["first", "middle"]


# Policies


VERDICTS = {"fail": State.DEAD, "skip": State.CANCELLED, "continue": State.SUCCEEDED}


@pytest.mark.parametrize("policy", VERDICTS)
@pytest.mark.parametrize("end", ["dead", "cancelled"])
async def test_each_policy_when_a_dependency_ends_badly(app: Windlass, works: Works, policy: str, end: str) -> None:
    graph = app.graph()
    graph.add("bad", works.dies.call("bad") if end == "dead" else works.held("bad"))
    graph.add("good", works.work.call("good"))
    graph.add("node", works.work.call("node"), after={"good": "fail", "bad": policy})

    async with working(app):
        handles = await graph.aenqueue()
        if end == "cancelled":
            await handles["bad"].acancel()
        found = await states(handles)
        record = await handles["node"].arecord()

    assert found == {"bad": State(end), "good": State.SUCCEEDED, "node": VERDICTS[policy]}
    assert works.runs.count("node") == (policy == "continue")
    assert record.attempt == (policy == "continue")
    if policy != "continue":
        assert str(handles["bad"].id) in (record.reason or "")


@pytest.mark.parametrize("policy", VERDICTS)
@pytest.mark.parametrize("end", ["dead", "cancelled", "discarded"])
async def test_each_policy_when_it_had_ended_badly_before(app: Windlass, works: Works, policy: str, end: str) -> None:
    async with working(app):
        if end == "cancelled":
            (bad,) = await app.aenqueue_many([works.held("bad")])
            await bad.acancel()
            await in_state(bad, State.CANCELLED)
        else:
            bad = await works.dead()
        if end == "discarded":
            await bad.adiscard()

        graph = app.graph()
        graph.add("node", works.work.call("node"), after={bad: policy})
        graph.add("behind", works.work.call("behind"), after=["node"])
        found = await states(await graph.aenqueue())

    assert found["node"] is VERDICTS[policy]
    assert found["behind"] is (State.SUCCEEDED if policy == "continue" else State.DEAD)


async def test_a_node_that_continues_is_told_which_dependency_is_missing(app: Windlass, works: Works) -> None:
    @app.job
    async def looks(ctx: Context) -> dict[str, Any]:
        return dict(await ctx.dependencies())

    graph = app.graph()
    graph.add("bad", works.dies.call("bad"))
    graph.add("good", works.work.call("good"))
    graph.add("looks", looks.call(), after={"bad": "continue", "good": "continue"})

    async with working(app):
        handles = await graph.aenqueue()
        assert await handles["looks"].aresult(timeout=PATIENCE) == {"bad": None, "good": "good"}


async def test_a_dead_dependency_that_is_discarded_stays_counted(app: Windlass, works: Works) -> None:
    graph = app.graph()
    graph.add("bad", works.dies.call("bad"))
    graph.add("slow", works.held("slow"))
    graph.add("node", works.work.call("node"), after={"bad": "continue", "slow": "fail"})

    async with working(app):
        handles = await graph.aenqueue()
        await in_state(handles["bad"], State.DEAD)
        await handles["bad"].adiscard()
        assert await handles["node"].astatus() is State.WAITING
        works.gates["slow"].set()
        assert await handles["node"].aresult(timeout=PATIENCE) == "node"


@pytest.mark.parametrize("end", ["dead", "cancelled"])
async def test_a_dependency_that_comes_back_is_waited_for_again(app: Windlass, works: Works, end: str) -> None:
    """Replayed or resumed before the node was decided: its first end counts no more."""
    graph = app.graph()
    graph.add("back", works.dies.options(queue="later").call("back"))
    graph.add("other", works.work.call("other"))
    graph.add("node", works.work.call("node"), after={"back": "continue", "other": "fail"})
    handles = await graph.aenqueue()
    back, other, node = handles.values()

    if end == "dead":
        async with working(app, queues=["later"]):
            await in_state(back, State.DEAD)
        await back.areplay()
    else:
        await back.acancel()
        await back.aresume()
    async with working(app, queues=["default"]):
        await in_state(other, State.SUCCEEDED)
        assert await node.astatus() is State.WAITING

    works.mended.add("back")
    async with working(app):
        assert await node.aresult(timeout=PATIENCE) == "node"
    assert await back.astatus() is State.SUCCEEDED


async def test_a_node_that_died_with_its_dependency_is_replayed_after_it(app: Windlass, works: Works) -> None:
    graph = app.graph()
    graph.add("bad", works.dies.call("bad"))
    graph.add("node", works.work.call("node"), after=["bad"])

    async with working(app):
        handles = await graph.aenqueue()
        assert await states(handles) == {"bad": State.DEAD, "node": State.DEAD}
        works.mended.add("bad")
        await handles["bad"].areplay()
        assert await handles["bad"].aresult(timeout=PATIENCE) == "bad"
        assert await handles["node"].astatus() is State.DEAD  # its verdict was spoken
        await handles["node"].areplay()
        assert await handles["node"].aresult(timeout=PATIENCE) == "node"


# Cascades


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (["fail", "fail", "fail"], [State.DEAD, State.DEAD, State.DEAD]),
        (["skip", "skip", "skip"], [State.CANCELLED, State.CANCELLED, State.CANCELLED]),
        (["fail", "skip", "fail"], [State.DEAD, State.CANCELLED, State.DEAD]),
        (["skip", "continue", "fail"], [State.CANCELLED, State.SUCCEEDED, State.SUCCEEDED]),
        (["continue", "fail", "skip"], [State.SUCCEEDED, State.SUCCEEDED, State.SUCCEEDED]),
    ],
    ids=lambda value: "-".join(str(part) for part in value),
)
async def test_a_bad_end_goes_down_all_levels(
    app: Windlass, works: Works, policies: list[str], expected: list[State]
) -> None:
    graph = app.graph()
    graph.add("0", works.dies.call("0"))
    for level, policy in enumerate(policies, 1):
        graph.add(f"{level}", works.work.call(f"{level}"), after={f"{level - 1}": policy})

    async with working(app):
        assert list((await states(await graph.aenqueue())).values()) == [State.DEAD, *expected]


async def test_the_stricter_policy_holds_when_two_dependencies_end_badly(app: Windlass, works: Works) -> None:
    graph = app.graph()
    graph.add("a", works.held("a"))
    graph.add("b", works.held("b"))
    graph.add("node", works.work.call("node"), after={"a": "continue", "b": "fail"})
    handles = await graph.aenqueue()

    await handles["a"].acancel()
    assert await handles["node"].astatus() is State.WAITING
    await handles["b"].acancel()
    assert await handles["node"].astatus() is State.DEAD


async def test_a_node_that_is_cancelled_takes_along_what_depends_on_it_and_nothing_else(
    app: Windlass, works: Works
) -> None:
    graph = app.graph()
    graph.add("before", works.work.call("before"))
    graph.add("node", works.work.call("node"), after=["before"])
    graph.add("fails", works.work.call("fails"), after=["node"])
    graph.add("skips", works.work.call("skips"), after={"node": "skip"})
    graph.add("goes on", works.work.call("goes on"), after={"node": "continue"})
    graph.add("beside", works.work.call("beside"), after=["before"])
    handles = await graph.aenqueue()

    assert await handles["node"].acancel() is State.CANCELLED
    async with working(app):
        found = await states(handles)

    assert found == {
        "before": State.SUCCEEDED,
        "node": State.CANCELLED,
        "fails": State.DEAD,
        "skips": State.CANCELLED,
        "goes on": State.SUCCEEDED,
        "beside": State.SUCCEEDED,
    }
    assert "node" not in works.runs


async def test_what_is_left_of_a_graph_is_nothing(app: Windlass, works: Works, database: Database) -> None:
    graph = app.graph()
    graph.add("bad", works.dies.call("bad"))
    graph.add("good", works.work.call("good"))
    graph.add("end", works.work.call("end"), after={"good": "fail", "bad": "continue"})
    graph.add("skipped", works.work.call("skipped"), after={"bad": "skip"})

    async with working(app):
        await states(await graph.aenqueue())

    assert await rows(database, "waits", "edges") == {"waits": 0, "edges": 0}


# Size


async def test_a_long_chain_runs_link_by_link(database: Database) -> None:
    app = database.app()
    length, runs = 300, []

    @app.job
    async def link(n: int) -> int:
        runs.append(n)
        return n

    graph = app.graph()
    for n in range(length):
        graph.add(f"{n}", link.call(n), after=[f"{n - 1}"] if n else [])
    handles = await graph.aenqueue()

    async with working(app):
        assert await handles[f"{length - 1}"].aresult(timeout=20 * PATIENCE) == length - 1

    assert runs == list(range(length))


@pytest.mark.parametrize(("policy", "length"), [("fail", 300), ("skip", 300)])
async def test_a_long_chain_ends_with_its_first(app: Windlass, works: Works, policy: str, length: int) -> None:
    graph = app.graph()
    graph.add("0", works.dies.call("0"))
    for n in range(1, length):
        graph.add(f"{n}", works.work.call(f"{n}"), after={f"{n - 1}": policy})
    handles = await graph.aenqueue()

    async with working(app):
        last = await in_state(handles[f"{length - 1}"], VERDICTS[policy], timeout=10 * PATIENCE)

    counts = await app.acounts()
    assert counts[State.DEAD] + counts[State.CANCELLED] == length
    assert counts[State.DEAD] == (length if policy == "fail" else 1)
    assert (last.attempt, works.runs) == (0, [])


async def test_a_fan_of_two_thousand_opens_and_closes_once(app: Windlass) -> None:
    runs: dict[str, int] = {}

    @app.job
    async def leaf(name: str) -> int:
        runs[name] = runs.get(name, 0) + 1
        return 1

    @app.job
    async def total(ctx: Context) -> int:
        runs["total"] = runs.get("total", 0) + 1
        return sum((await ctx.dependencies()).values())

    graph = app.graph()
    graph.add("root", leaf.call("root"))
    for n in range(2_000):
        graph.add(f"{n}", leaf.call(f"{n}"), after=["root"])
    graph.add("total", total.call(), after=[f"{n}" for n in range(2_000)])

    async with working(app, concurrency=50):
        handles = await graph.aenqueue()
        assert await handles["total"].aresult(timeout=5 * PATIENCE) == 2_000

    assert len(runs) == 2_002
    assert set(runs.values()) == {1}


# One transaction


async def rows(database: Database, *tables: str) -> dict[str, int]:
    return {table: (await database.run(f"SELECT count(*) FROM {{}}{table}"))[0][0] for table in tables}


def pair(app: Windlass, works: Works) -> Graph:
    graph = app.graph()
    graph.add("a", works.work.call("a"))
    graph.add("b", works.work.call("b"), after=["a"])
    return graph


@ON_POSTGRES
async def test_a_graph_rides_in_an_asyncpg_transaction(app: Windlass, works: Works, database: Database) -> None:
    conn = await asyncpg.connect(database.url)
    with suppress(ZeroDivisionError):
        async with conn.transaction():
            await pair(app, works).aenqueue(conn=conn)
            raise ZeroDivisionError
    assert await rows(database, *FLOW_TABLES) == dict.fromkeys(FLOW_TABLES, 0)

    async with conn.transaction():
        handles = await pair(app, works).aenqueue(conn=conn)
    await conn.close()
    async with working(app):
        assert await handles["b"].aresult(timeout=PATIENCE) == "b"


@ON_SQLITE
async def test_a_graph_rides_in_a_sqlite3_transaction(app: Windlass, works: Works, database: Database) -> None:
    def in_a_thread(finish: Callable[[sqlite3.Connection], None]) -> dict[str, JobHandle[object]]:
        with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as conn:
            conn.execute("BEGIN IMMEDIATE")
            handles = pair(app, works).enqueue(conn=conn)
            finish(conn)
        return handles

    await asyncio.to_thread(in_a_thread, sqlite3.Connection.rollback)
    assert await rows(database, *FLOW_TABLES) == dict.fromkeys(FLOW_TABLES, 0)

    handles = await asyncio.to_thread(in_a_thread, sqlite3.Connection.commit)
    async with working(app):
        assert await handles["b"].aresult(timeout=PATIENCE) == "b"


async def test_a_graph_in_a_handlers_transaction_commits_with_its_success(
    app: Windlass, works: Works, database: Database
) -> None:
    @app.job(max_attempts=1)
    async def plans(ctx: Context, good: bool) -> str:
        async with ctx.transaction():
            handles = await pair(app, works).aenqueue()
        if not good:
            raise ValueError("not today")
        return str(handles["b"].id)

    async with working(app):
        await ended(await plans.aenqueue(False))
        assert await database.jobs() == 1
        job = await plans.aenqueue(True)
        last = await app.afind(await job.aresult(timeout=PATIENCE))
        assert await last.aresult(timeout=PATIENCE) == "b"
