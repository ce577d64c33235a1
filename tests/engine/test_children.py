"""`ctx.spawn` and `ctx.wait`: children commit with the wait or the finish, are found by name, and no join hangs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from windlass import Child, Context, Dead, JobHandle, State, SyncContext, Windlass, fixed
from windlass.errors import ChildrenFailed, FlowError, JobNotFound, ResultTimeout
from windlass.model.job import new_id
from windlass.model.outcome import Ending

from .rig import PATIENCE, Database, attempts, come, ended, failure, in_state, opened, stores_of, working

INSERT = "INSERT INTO effects (n) VALUES ($1)"
TOGETHER = 2_000  # children of one call


@dataclass
class Page:
    url: str
    words: int


class Endings:
    """Children that end as the test decides: each waits for `good` or `bad`."""

    def __init__(self, app: Windlass) -> None:
        self.words: dict[str, asyncio.Queue[str]] = {}
        self.begun: dict[str, asyncio.Event] = {}

        @app.job(max_attempts=1)
        async def child(name: str) -> str:
            self.begun.setdefault(name, asyncio.Event()).set()
            if await self.words.setdefault(name, asyncio.Queue()).get() == "bad":
                raise RuntimeError(f"{name} failed")
            return name.upper()

        self.child = child

    def say(self, name: str, word: str) -> None:
        self.words.setdefault(name, asyncio.Queue()).put_nowait(word)

    async def begins(self, name: str) -> None:
        await come(self.begun.setdefault(name, asyncio.Event()))


async def kids_of(app: Windlass, parent: JobHandle[Any]) -> dict[str, JobHandle[object]]:
    """The parent's children by their names."""
    store = await opened(app)
    try:
        return {link.name.strip(): await app.afind(link.id) for link in await store.links(parent.id)}
    finally:
        await store.close()


async def test_a_fan_out_joins_once_with_results_in_order_and_burns_no_attempt(
    app: Windlass, database: Database
) -> None:
    runs: list[int] = []

    @app.job
    async def double(n: int) -> int:
        return 2 * n

    @app.job
    async def parent(ctx: Context) -> list[int]:
        runs.append(ctx.attempt)
        first = ctx.spawn("first", double.call(100))
        rest = ctx.spawn_many("rest", [double.call(n) for n in range(20)])
        return await ctx.wait([first, *rest])

    async with working(app) as (_, events):
        job = await parent.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == [200, *range(0, 40, 2)]
        await events.ended(job, Ending.WAITING)

    record = await job.arecord()
    assert (runs, record.attempt, record.attempts, await database.jobs()) == ([1, 1], 1, None, 22)
    kids = await kids_of(app, job)
    assert list(kids) == ["first", *(f"rest[{n}]" for n in range(20))]
    assert (await kids["rest[7]"].arecord()).parent == job.id


async def test_thousands_are_spawned_in_one_call(app: Windlass, database: Database) -> None:
    @app.job
    async def one(n: int) -> int:
        return n

    @app.job
    async def parent(ctx: Context) -> int:
        return sum(await ctx.wait(ctx.spawn_many("one", (one.call(n) for n in range(TOGETHER)))))

    async with working(app, concurrency=100):
        job = await parent.aenqueue()
        assert await job.aresult(timeout=60) == TOGETHER * (TOGETHER - 1) // 2

    assert await database.jobs() == TOGETHER + 1


async def test_while_it_waits_it_holds_no_processor(app: Windlass) -> None:
    @app.job
    async def child() -> str:
        return "alone on the only processor"

    @app.job
    async def parent(ctx: Context) -> list[str]:
        return await ctx.wait([ctx.spawn("child", child.call())])

    async with working(app, concurrency=1):
        assert await (await parent.aenqueue()).aresult(timeout=PATIENCE) == ["alone on the only processor"]


@pytest.mark.parametrize(("need", "good"), [("any", "b"), (2, "ca")])
async def test_a_need_is_met_by_some_of_them_and_the_others_go_on(app: Windlass, need: Any, good: str) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> list[Any]:
        kids = [ctx.spawn(name, endings.child.call(name)) for name in "abc"]
        results = await ctx.wait(kids, need=need)
        return [results, [kid.result for kid in kids if kid.status is State.SUCCEEDED]]

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        for name in good:
            endings.say(name, "good")
        names = [name.upper() for name in sorted(good)]
        assert await job.aresult(timeout=PATIENCE) == [names, names]
        for name in "abc":
            endings.say(name, "good")
        for kid in (await kids_of(app, job)).values():
            await in_state(kid, State.SUCCEEDED)


async def test_a_child_that_dies_is_named_with_its_error(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def forgiving(ctx: Context) -> list[Any]:
        a, b = (ctx.spawn(name, endings.child.call(name)) for name in "ab")
        with pytest.raises(ChildrenFailed, match=r"1 of 2 .* b \(dead: RuntimeError\)"):
            await ctx.wait([a, b])
        assert b.error is not None
        return [a.status, a.result, a.error, b.status, b.result, b.error.message]

    @app.job(max_attempts=1)
    async def strict(ctx: Context) -> None:
        await ctx.wait([ctx.spawn("c", endings.child.call("c"))])

    async with working(app):
        job, other = await forgiving.aenqueue(), await strict.aenqueue()
        endings.say("a", "good")
        await endings.begins("a")
        await in_state((await kids_of(app, job))["a"], State.SUCCEEDED)
        endings.say("b", "bad")
        endings.say("c", "bad")
        assert await job.aresult(timeout=PATIENCE) == ["succeeded", "A", None, "dead", None, "b failed"]
        dead = await ended(other)

    assert dead.status is State.DEAD
    assert failure(dead).type == "windlass.errors.ChildrenFailed"


async def test_as_soon_as_the_need_cannot_be_met_the_rest_is_not_waited_for(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> str:
        kids = [ctx.spawn(name, endings.child.call(name)) for name in "abc"]
        try:
            await ctx.wait(kids, need=2)
        except ChildrenFailed as error:
            return str(error)
        return "met"

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        endings.say("a", "bad")
        endings.say("c", "bad")
        assert "2 of 3 awaited jobs did not succeed, and 2 had to: a (dead" in await job.aresult(timeout=PATIENCE)
        assert await (await kids_of(app, job))["b"].astatus() is State.RUNNING
        endings.say("b", "good")


async def test_a_cancelled_child_does_not_keep_its_parent_waiting(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> list[Any]:
        a, b = (ctx.spawn(name, endings.child.call(name)) for name in "ab")
        with suppress(ChildrenFailed):
            await ctx.wait([a, b])
        return [a.status, b.status]

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        await endings.begins("a")
        await (await kids_of(app, job))["a"].acancel()
        assert await job.aresult(timeout=PATIENCE) == ["cancelled", "running"]
        endings.say("b", "good")


async def test_a_discarded_child_is_gone_and_counts_as_failed(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> str:
        kids = [ctx.spawn(name, endings.child.call(name)) for name in "ab"]
        try:
            await ctx.wait(kids, need="any")
        except ChildrenFailed as error:
            return str(error)
        return "met"

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        endings.say("a", "bad")
        kids = await kids_of(app, job)
        await in_state(kids["a"], State.DEAD)
        await kids["a"].adiscard()
        assert await job.astatus() is State.WAITING
        endings.say("b", "bad")
        assert "a (gone), b (dead" in await job.aresult(timeout=PATIENCE)


async def test_a_replayed_child_counts_again(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> list[str]:
        return await ctx.wait([ctx.spawn(name, endings.child.call(name)) for name in "ab"], need="any")

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        endings.say("a", "bad")
        kids = await kids_of(app, job)
        await in_state(kids["a"], State.DEAD)
        endings.say("a", "good")
        await kids["a"].areplay()
        assert await job.aresult(timeout=PATIENCE) == ["A"]
        assert await kids["b"].astatus() is State.RUNNING
        endings.say("b", "good")


async def test_a_job_that_was_dead_before_the_wait_counts_when_it_is_replayed(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> list[str]:
        return await ctx.wait([existing, ctx.spawn("b", endings.child.call("b"))], need="any")

    existing = await endings.child.aenqueue("a")
    async with working(app):
        endings.say("a", "bad")
        await in_state(existing, State.DEAD)
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        await endings.begins("b")
        endings.say("a", "good")
        await existing.areplay()
        assert await job.aresult(timeout=PATIENCE) == ["A"]
        endings.say("b", "good")


async def test_a_replay_between_the_wake_and_the_run_makes_the_parent_wait_again(app: Windlass) -> None:
    endings = Endings(app)
    runs: list[str] = []

    @app.job(queue="parents")
    async def parent(ctx: Context) -> list[str]:
        runs.append("run")
        return await ctx.wait([ctx.spawn("a", endings.child.options(queue="children").call("a"))])

    async with working(app, queues=["parents"]):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
    async with working(app, queues=["children"]):
        endings.say("a", "bad")
        await in_state(job, State.QUEUED)
        kid = (await kids_of(app, job))["a"]
        await kid.areplay()
        await endings.begins("a")
        async with working(app, queues=["parents"]):
            await in_state(job, State.WAITING)
            endings.say("a", "good")
            assert await job.aresult(timeout=PATIENCE) == ["A"]

    assert len(runs) == 3


# Until all have ended


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_wait_for_the_end_of_all_returns_each_child_with_its_end(app: Windlass, kind: str) -> None:
    endings, runs = Endings(app), []

    def ends_of(kids: list[Child[str]]) -> list[Any]:
        return [[kid.name, kid.status, kid.result, kid.error and kid.error.message] for kid in kids]

    if kind == "coroutine":

        @app.job
        async def parent(ctx: Context) -> list[Any]:
            runs.append(ctx.attempt)
            kids = [ctx.spawn(name, endings.child.call(name)) for name in "abc"]
            return ends_of(await ctx.wait(kids, need="ended"))
    else:

        @app.job
        def parent(ctx: SyncContext) -> list[Any]:
            runs.append(ctx.attempt)
            kids = [ctx.spawn(name, endings.child.call(name)) for name in "abc"]
            return ends_of(ctx.wait(kids, need="ended"))

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        kids = await kids_of(app, job)
        endings.say("c", "bad")
        await in_state(kids["c"], State.DEAD)
        await endings.begins("b")
        await kids["b"].acancel()
        await in_state(kids["b"], State.CANCELLED)
        assert await job.astatus() is State.WAITING  # a wake commits together with the end that decides it
        endings.say("a", "good")
        assert await job.aresult(timeout=PATIENCE) == [
            ["a", "succeeded", "A", None],
            ["b", "cancelled", None, None],
            ["c", "dead", None, "c failed"],
        ]

    assert (runs, (await job.arecord()).attempt) == ([1, 1], 1)


async def test_a_child_that_is_replayed_while_its_parent_waits_has_not_ended(app: Windlass) -> None:
    endings, runs = Endings(app), []

    @app.job
    async def parent(ctx: Context) -> list[str | None]:
        runs.append(ctx.attempt)
        kids = [ctx.spawn(name, endings.child.call(name)) for name in "ab"]
        return [kid.result for kid in await ctx.wait(kids, need="ended")]

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        kids = await kids_of(app, job)
        endings.say("a", "bad")
        await in_state(kids["a"], State.DEAD)
        await kids["a"].areplay()
        endings.say("b", "good")
        await in_state(kids["b"], State.SUCCEEDED)
        assert await job.astatus() is State.WAITING
        endings.say("a", "good")
        assert await job.aresult(timeout=PATIENCE) == ["A", "B"]

    assert runs == [1, 1]


async def test_a_child_that_is_replayed_before_its_parent_runs_again_is_waited_for_again(app: Windlass) -> None:
    endings, runs = Endings(app), []

    @app.job(queue="parents")
    async def parent(ctx: Context) -> list[str | None]:
        runs.append(ctx.attempt)
        kid = ctx.spawn("a", endings.child.options(queue="children").call("a"))
        return [kid.result for kid in await ctx.wait([kid], need="ended")]

    async with working(app, queues=["parents"]):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
    async with working(app, queues=["children"]):
        endings.say("a", "bad")
        await in_state(job, State.QUEUED)
        await (await kids_of(app, job))["a"].areplay()
        async with working(app, queues=["parents"]):
            await in_state(job, State.WAITING)
            endings.say("a", "good")
            assert await job.aresult(timeout=PATIENCE) == ["A"]

    assert len(runs) == 3


@pytest.mark.parametrize("word", ["good", "bad"])
async def test_a_child_that_ends_while_the_wait_for_its_end_is_written_wakes_its_parent(
    app: Windlass, word: str
) -> None:
    endings, held = Endings(app), asyncio.Event()

    @app.job(queue="parents")
    async def parent(ctx: Context) -> list[Any]:
        return [kid.status for kid in await ctx.wait([existing], need="ended")]

    existing = await endings.child.options(queue="children").aenqueue("a")
    async with working(app, queues=["children"]), working(app, queues=["parents"]) as (worker, _):
        await endings.begins("a")
        store = stores_of(worker)
        finish = store.finish

        async def end_the_child_first(transitions: Any) -> Any:
            """The handler has read the child as running, and its wait is not written yet."""
            if not held.is_set():
                held.set()
                endings.say("a", word)
                await in_state(existing, State.SUCCEEDED, State.DEAD)
            return await finish(transitions)

        store.finish = end_the_child_first
        job = await parent.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == ["succeeded" if word == "good" else "dead"]

    assert held.is_set()


async def test_jobs_that_ended_before_the_wait_are_returned_at_once(app: Windlass) -> None:
    endings, runs = Endings(app), []

    @app.job
    async def parent(ctx: Context, ids: list[str]) -> list[Any]:
        runs.append(ctx.attempt)
        assert await ctx.wait([], need="ended") == []
        ended = await ctx.wait([dead, *ids], need="ended")
        kid = ctx.spawn("c", endings.child.call("c"))
        ended += await ctx.wait([kid], need="ended")
        return [[child.status, child.gone, child.ended] for child in ended]

    dead, good = await endings.child.aenqueue("a"), await endings.child.aenqueue("b")
    async with working(app):
        endings.say("a", "bad")
        endings.say("b", "good")
        await in_state(dead, State.DEAD)
        await in_state(good, State.SUCCEEDED)
        job = await parent.aenqueue([str(good.id)])
        await in_state(job, State.WAITING)
        endings.say("c", "bad")
        ends = [["dead", False, True], ["succeeded", False, True], ["dead", False, True]]
        assert await job.aresult(timeout=PATIENCE) == ends

    assert runs == [1, 1]


async def test_a_child_that_is_discarded_while_its_parent_waits_has_ended_and_is_gone(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> list[Any]:
        kids = [ctx.spawn(name, endings.child.call(name)) for name in "ab"]
        return [[kid.status, kid.gone] for kid in await ctx.wait(kids, need="ended")]

    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        kids = await kids_of(app, job)
        endings.say("a", "bad")
        await in_state(kids["a"], State.DEAD)
        await kids["a"].adiscard()
        endings.say("b", "bad")
        assert await job.aresult(timeout=PATIENCE) == [[None, True], ["dead", False]]


async def test_children_with_one_key_are_one_job_that_ends_once(app: Windlass) -> None:
    endings = Endings(app)

    @app.job(unique=True, max_attempts=1)
    async def fetch(url: str) -> str:
        raise RuntimeError("no route")

    @app.job
    async def parent(ctx: Context) -> list[Any]:
        pages = ctx.spawn_many("page", [fetch.call("a"), fetch.call("a")])
        other = ctx.spawn("other", endings.child.call("other"))
        return [child.status for child in await ctx.wait([*pages, other], need="ended")]

    async with working(app):
        job = await parent.aenqueue()
        endings.say("other", "good")
        assert await job.aresult(timeout=PATIENCE) == ["dead", "dead", "succeeded"]


async def test_a_wait_for_the_end_of_all_has_a_timeout(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> str:
        kids = [ctx.spawn(name, endings.child.call(name)) for name in "ab"]
        try:
            await ctx.wait(kids, need="ended", timeout="10ms")
        except ResultTimeout as error:
            return str(error)
        return "ended"

    async with working(app):
        job = await parent.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == "0 of 2 awaited jobs ended within 10ms; the others go on"
        for name in "ab":
            endings.say(name, "good")


# Jobs that existed, and what is refused


async def test_a_join_may_include_jobs_that_existed(app: Windlass) -> None:
    @app.job
    async def fetch(url: str) -> Page:
        return Page(url, len(url))

    @app.job
    async def parent(ctx: Context, ids: list[str]) -> list[Any]:
        own = ctx.spawn("own", fetch.call("own"))
        pages = await ctx.wait([known, ids[0], own, await app.afind(ids[1])])
        assert all(isinstance(page, Page) for page in pages[:3])
        handles: list[Page] = await ctx.wait([known])
        return [handles[0].words, pages]

    known = await fetch.aenqueue("handle")
    others = [await fetch.aenqueue("id"), await fetch.aenqueue("unknown definition")]
    job = await parent.aenqueue([str(other.id) for other in others])
    async with working(app):
        words, pages = await job.aresult(timeout=PATIENCE)

    assert (words, [page["url"] for page in pages]) == (6, ["handle", "id", "own", "unknown definition"])


async def test_an_existing_job_that_is_discarded_meanwhile_is_gone_and_not_unknown(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> str:
        try:
            await ctx.wait([existing, ctx.spawn("b", endings.child.call("b"))], need="any")
        except ChildrenFailed as error:
            return str(error)
        return "met"

    existing = await endings.child.aenqueue("a")
    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        endings.say("a", "bad")
        await in_state(existing, State.DEAD)
        await existing.adiscard()
        endings.say("b", "bad")
        assert f"{existing.id} (gone), b (dead" in await job.aresult(timeout=PATIENCE)


async def test_cancelling_a_parent_that_waits_cancels_only_what_it_created(app: Windlass) -> None:
    endings = Endings(app)

    @app.job
    async def parent(ctx: Context) -> None:
        await ctx.wait([ctx.spawn("own", endings.child.call("own")), existing])

    existing = await endings.child.aenqueue("existing")
    async with working(app):
        job = await parent.aenqueue()
        await in_state(job, State.WAITING)
        await endings.begins("own")
        assert await job.acancel() is State.CANCELLED
        await in_state((await kids_of(app, job))["own"], State.CANCELLED)
        endings.say("existing", "good")
        assert await existing.aresult(timeout=PATIENCE) == "EXISTING"

    assert await job.astatus() is State.CANCELLED


async def test_spawns_commit_with_the_finish_and_are_dropped_with_a_failure(app: Windlass, database: Database) -> None:
    seen: list[int] = []

    @app.job
    async def child(n: int) -> int:
        return n

    @app.job(retry=fixed(0))
    async def parent(ctx: Context) -> None:
        seen.append(await database.jobs())
        ctx.spawn("child", child.call(ctx.attempt))
        if ctx.attempt < 3:
            raise RuntimeError("not this time")

    async with working(app):
        job = await parent.aenqueue()
        await job.aresult(timeout=PATIENCE)
        (kid,) = (await kids_of(app, job)).values()
        assert await kid.aresult(timeout=PATIENCE) == 3

    assert (seen, await database.jobs()) == ([1, 1, 1], 2)


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_spawns_commit_with_the_finish_in_the_handlers_own_transaction(
    app: Windlass, database: Database, kind: str
) -> None:
    @app.job
    async def child() -> str:
        return "spawned"

    if kind == "coroutine":

        @app.job
        async def parent(ctx: Context) -> None:
            ctx.spawn("before", child.call())
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 1)
                ctx.spawn("inside", child.call())
    else:

        @app.job
        def parent(ctx: SyncContext) -> None:
            ctx.spawn("before", child.call())
            with ctx.transaction() as tx:
                tx.execute(INSERT, 1)
                ctx.spawn("inside", child.call())

    async with working(app):
        job = await parent.aenqueue()
        await job.aresult(timeout=PATIENCE)
        for kid in (await kids_of(app, job)).values():
            assert await kid.aresult(timeout=PATIENCE) == "spawned"

    assert (await database.effects(), await database.jobs()) == ([1], 3)


async def test_a_child_that_nobody_waited_for_is_not_made_twice(app: Windlass, database: Database) -> None:
    @app.job
    async def child(n: int) -> int:
        return n

    @app.job
    async def parent(ctx: Context) -> None:
        awaited = ctx.spawn("awaited", child.call(0))
        ctx.spawn("early", child.call(1))
        await ctx.sleep("nap", 0.01)
        await ctx.wait([awaited])
        ctx.spawn("late", child.call(2))
        await ctx.sleep("another", 0.01)

    async with working(app):
        job = await parent.aenqueue()
        await job.aresult(timeout=PATIENCE)
        results = {name: await kid.aresult(timeout=PATIENCE) for name, kid in (await kids_of(app, job)).items()}

    assert (results, await database.jobs()) == ({"awaited": 0, "early": 1, "late": 2}, 4)


async def test_a_unique_child_may_be_a_job_that_is_there_already(app: Windlass, database: Database) -> None:
    @app.job(unique=True)
    async def fetch(url: str) -> str:
        return url.upper()

    @app.job
    async def parent(ctx: Context) -> list[str]:
        kids = ctx.spawn_many("page", [fetch.call("a"), fetch.call("b"), fetch.call("a")])
        return await ctx.wait(kids)

    there = await fetch.aenqueue("b")
    async with working(app):
        jobs = [await parent.aenqueue() for _ in range(3)]
        for job in jobs:
            assert await job.aresult(timeout=PATIENCE) == ["A", "B", "A"]
            assert (await kids_of(app, job))["page[1]"].id == there.id

    assert await database.jobs() == 5


async def test_a_child_has_its_parents_tenant_and_trace_unless_it_names_its_own(app: Windlass) -> None:
    @app.job
    async def child() -> None: ...

    @app.job
    async def parent(ctx: Context) -> None:
        ctx.spawn("same", child.call())
        ctx.spawn("other", child.options(tenant="other").call())

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    store = await opened(app)
    call = parent.options(tenant="acme").call()
    new = msgspec.structs.replace(call.new_job(app.settings), trace=trace)
    await store.enqueue([new])
    await store.close()
    async with working(app):
        job = await app.afind(new.id)
        await job.aresult(timeout=PATIENCE)
        kids = {name: await kid.arecord() for name, kid in (await kids_of(app, job)).items()}

    assert (kids["same"].tenant, kids["other"].tenant) == ("acme", "other")
    assert kids["same"].trace == kids["other"].trace == trace


async def test_a_synchronous_handler_waits_too(app: Windlass) -> None:
    runs: list[int] = []

    @app.job
    def double(n: int) -> int:
        return 2 * n

    @app.job
    def parent(ctx: SyncContext) -> list[int]:
        runs.append(ctx.attempt)
        kids = ctx.spawn_many("kid", [double.call(n) for n in range(3)])
        return ctx.wait(kids)

    async with working(app):
        job = await parent.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == [0, 2, 4]

    assert (runs, (await job.arecord()).attempt) == ([1, 1], 1)


async def test_a_handler_that_catches_exceptions_does_not_catch_the_wait(app: Windlass) -> None:
    @app.job
    async def child() -> int:
        return 1

    @app.job
    async def parent(ctx: Context) -> list[int]:
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(ctx.wait([ctx.spawn("child", child.call())]))
        except Exception:
            return []
        return task.result()

    async with working(app):
        assert await (await parent.aenqueue()).aresult(timeout=PATIENCE) == [1]


async def test_a_handler_that_swallows_the_wait_is_told(app: Windlass) -> None:
    @app.job
    async def child() -> int:
        return 1

    @app.job(max_attempts=1)
    async def parent(ctx: Context) -> None:
        await asyncio.gather(ctx.wait([ctx.spawn("child", child.call())]), return_exceptions=True)

    async with working(app):
        dead = await ended(await parent.aenqueue())

    assert "return_exceptions=True" in failure(dead).message


async def test_what_a_run_logged_before_it_waited_is_kept(app: Windlass) -> None:
    @app.job
    async def parent(ctx: Context) -> None:
        ctx.log.info("run %d", ctx.fence)
        ctx.progress(ctx.fence)
        await ctx.sleep("nap", 0.01)

    async with working(app):
        job = await parent.aenqueue()
        await job.aresult(timeout=PATIENCE)

    record = await job.arecord()
    entries = attempts(record)  # a run that is woken a moment early sleeps on, and that is one more
    assert [entry.outcome for entry in entries] == ["waiting"] * (len(entries) - 1) + ["succeeded"]
    assert [entry.log for entry in entries] == [[f"INFO run {run}"] for run in range(1, len(entries) + 1)]
    assert record.processed == len(entries) > 1


BAD_WAITS: dict[str, tuple[dict[str, Any], str]] = {
    "no jobs": ({"jobs": [], "need": "any"}, "no jobs"),
    "no list": ({"jobs": "abc"}, "takes a list"),
    "a number": ({"jobs": [7]}, "not int"),
    "a need of none": ({"need": 0}, "from 1 to 2"),
    "a need above the number": ({"need": 3}, "from 1 to 2"),
    "a need of some": ({"need": "some"}, '"all", "any", "ended" or a number$'),
    "a misspelt need": ({"need": "end"}, "did you mean 'ended'?"),
    "a true need": ({"need": True}, '"all", "any", "ended" or a number$'),
    "a time that is none": ({"timeout": "soon"}, "not a duration"),
}


@pytest.mark.parametrize("what", BAD_WAITS)
async def test_a_wait_that_cannot_be_is_refused_at_the_call(app: Windlass, what: str) -> None:
    wrong, said = BAD_WAITS[what]

    @app.job
    async def parent(ctx: Context) -> str:
        kids = [ctx.spawn(name, parent.call()) for name in "ab"]
        with pytest.raises(ValueError, match=said):
            await ctx.wait(**({"jobs": kids} | wrong))
        raise Dead("refused")

    async with working(app):
        assert (await ended(await parent.aenqueue())).reason == "refused"


async def test_all_of_no_jobs_are_there_at_once(app: Windlass) -> None:
    @app.job
    async def parent(ctx: Context) -> int:
        return len(await ctx.wait(ctx.spawn_many("page", [])))

    async with working(app):
        assert await (await parent.aenqueue()).aresult(timeout=PATIENCE) == 0


async def test_a_forgotten_await_is_no_success(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def parent(ctx: Context) -> Any:
        return ctx.wait([ctx.spawn("kid", kid.call())])

    @app.job
    async def kid() -> None: ...

    async with working(app):
        dead = await ended(await parent.aenqueue())

    assert dead.status is State.DEAD
    assert "without awaiting it" in (dead.error or "")


async def test_waiting_for_oneself_for_nobody_or_twice_is_refused(app: Windlass) -> None:
    kept: list[Any] = []

    @app.job(unique=True)
    async def parent(ctx: Context) -> str:
        kid = ctx.spawn("kid", other.call())
        with pytest.raises(FlowError, match="itself"):
            await ctx.wait([ctx.job.id, kid])
        with pytest.raises(FlowError, match="itself"):
            await ctx.wait([ctx.spawn("myself", parent.call())])
        with pytest.raises(FlowError, match="twice"):
            await ctx.wait([kid, kid])
        with pytest.raises(JobNotFound, match="there is no job"):
            await ctx.wait([new_id()])
        with pytest.raises(JobNotFound, match="not a job id"):
            await ctx.wait(["kid"])
        with pytest.raises(FlowError, match="another run"):
            await ctx.wait(kept)
        raise Dead("refused")

    @app.job
    async def other(ctx: Context) -> None:
        kept.append(ctx.spawn("kid", other.call()))
        raise Dead("enough")

    async with working(app):
        await ended(await other.aenqueue())
        assert (await ended(await parent.aenqueue())).reason == "refused"


async def test_a_spawn_that_cannot_be_is_refused_at_the_call(app: Windlass, database: Database) -> None:
    @app.job
    async def parent(ctx: Context) -> str:
        ctx.spawn("page[0]", parent.call())
        for name, call, said in (
            ("page[0]", parent.call(), "already"),
            ("", parent.call(), "is empty"),
            ("x", parent, "not a call"),
            ("x", parent.options(conn=object()).call(), "conn="),
            ("x", parent.options(idempotency_key="k").call(), "idempotency_key"),
        ):
            with pytest.raises(FlowError, match=said):
                ctx.spawn(name, call)  # type: ignore[arg-type]
        with pytest.raises(FlowError, match="already"):
            ctx.spawn_many("page", [parent.call()])
        assert ctx.spawn_many("none", []) == []
        raise Dead("refused")

    async with working(app):
        assert (await ended(await parent.aenqueue())).reason == "refused"

    assert await database.jobs() == 1


async def test_a_node_of_a_graph_reads_its_dependencies_and_has_children_of_the_same_names(app: Windlass) -> None:
    @app.job
    async def fetch(url: str) -> Page:
        return Page(url, len(url))

    @app.job
    async def report(ctx: Context) -> list[Any]:
        (own,) = await ctx.wait([ctx.spawn("a", fetch.call("own"))])
        before = await ctx.dependencies()
        assert isinstance(before["a"], Page)
        return [own.url, {name: page.url for name, page in before.items()}]

    @app.job
    def plainly(ctx: SyncContext) -> list[str]:
        return sorted(ctx.dependencies())

    graph = app.graph()
    nodes = [graph.add(name, fetch.call(name * 2)) for name in "ab"]
    graph.add("report", report.call(), after=nodes)
    graph.add("plainly", plainly.call(), after=nodes)
    async with working(app):
        handles = await graph.aenqueue()
        assert await handles["report"].aresult(timeout=PATIENCE) == ["own", {"a": "aa", "b": "bb"}]
        assert await handles["plainly"].aresult(timeout=PATIENCE) == ["a", "b"]
