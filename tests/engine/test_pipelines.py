"""One job that moves through phases: what each phase has of its own, and what happens between two of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass import Context, FlowError, JobHandle, Pipeline, State, SyncContext, Windlass, fixed, phase
from windlass.model.job import NewJob, new_id
from windlass.model.outcome import Ending

from .rig import PATIENCE, Database, attempts, come, ended, eventually, failure, in_state, opened, working
from .test_lost_lease import QUICK, declare_dead

INSERT = "INSERT INTO effects (n) VALUES ($1)"


class Gate:
    """Where handlers stand until the story lets them go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def passes(self) -> None:
        self.reached.set()
        await self.open.wait()


async def test_one_job_moves_through_three_phases(app: Windlass) -> None:
    seen: list[tuple[Any, ...]] = []

    def see(ctx: Context | SyncContext, given: object) -> None:
        job = ctx.job
        seen.append((job.id, job.type, job.pipeline, job.phase, job.phase_rank, job.queue, ctx.attempt, given))

    @app.job
    async def analyse(ctx: Context, url: str, depth: int = 1) -> dict[str, str]:
        see(ctx, (url, depth, ctx.previous))
        return {"title": "Example"}

    @app.job(queue="models")
    def form(ctx: SyncContext, depth: int = 7) -> list[str]:
        see(ctx, (depth, ctx.previous))
        return ["who?", "why?"]

    @app.job
    async def ask(ctx: Context, *, url: str) -> int:
        see(ctx, (url, ctx.previous))
        assert await ctx.output_of("analysis") == {"title": "Example"}
        return len(ctx.previous)

    site = app.pipeline("site", phase(analyse, name="analysis"), form, ask)
    async with working(app):
        job = await site.aenqueue("https://example.org")
        assert await job.aresult(timeout=PATIENCE) == 2

    assert seen == [
        (job.id, "analyse", "site", "analysis", 0, "default", 1, ("https://example.org", 1, None)),
        (job.id, "form", "site", "form", 1, "models", 1, (7, {"title": "Example"})),
        (job.id, "ask", "site", "ask", 2, "default", 1, ("https://example.org", ["who?", "why?"])),
    ]
    record = await job.arecord()
    assert (record.status, record.type, record.phase, record.output) == (State.SUCCEEDED, "ask", "ask", "2")
    assert (record.attempt, record.fence, record.created_at <= record.updated_at) == (1, 3, True)


async def test_outputs_stay_readable_to_the_end_whatever_the_end(app: Windlass) -> None:
    @app.job
    async def first(n: int) -> dict[str, int]:
        return {"n": n}

    @app.job
    def second() -> None: ...

    @app.job(max_attempts=1)
    def third(ctx: SyncContext, n: int) -> int:
        assert [ctx.output_of("first"), ctx.output_of("second")] == [{"n": n}, None]
        assert n > 1, ctx.output_of("third")
        return n

    @app.job
    def plain() -> None: ...

    site = app.pipeline("site", first, second, third)
    async with working(app):
        bad, good = await site.aenqueue(1), await site.aenqueue(2)
        assert await good.aresult(timeout=PATIENCE) == 2
        await in_state(bad, State.DEAD)
        other = await plain.aenqueue()

    assert "no phase 'third' of this job has ended; there are: first, second" in failure(await bad.arecord()).message
    assert await bad.aoutputs() == {"first": {"n": 1}, "second": None}
    assert list((await good.aoutputs()).items()) == [("first", {"n": 2}), ("second", None), ("third", 2)]
    assert await (await app.afind(good.id)).aoutputs() == await good.aoutputs()
    assert (await good.adetails()).steps == []
    with pytest.raises(FlowError, match=r"has no phases; its result is job\.result\(\)"):
        await other.aoutputs()


async def test_each_phase_has_its_own_retries_and_time_limit(app: Windlass) -> None:
    tries: list[tuple[str, int]] = []

    @app.job(max_attempts=2, retry=fixed(0))
    async def first(ctx: Context) -> None:
        tries.append(("first", ctx.attempt))
        if ctx.attempt == 1:
            raise RuntimeError("not yet")

    @app.job(max_attempts=3, retry=fixed(0), timeout="50ms")
    async def second(ctx: Context) -> None:
        tries.append(("second", ctx.attempt))
        if ctx.attempt < 3:
            await asyncio.Event().wait()

    @app.job(max_attempts=1)
    async def third(ctx: Context) -> None:
        tries.append(("third", ctx.attempt))
        await asyncio.sleep(0.1)  # longer than the second may take
        raise ValueError("no")

    line = app.pipeline("line", first, second, third)
    async with working(app):
        record = await ended(await line.aenqueue())

    assert tries == [("first", 1), ("first", 2), ("second", 1), ("second", 2), ("second", 3), ("third", 1)]
    assert (record.status, record.reason, record.phase) == (State.DEAD, "exhausted", "third")
    assert (record.attempt, record.max_attempts, failure(record).type) == (1, 1, "ValueError")
    entries = [(each.phase, each.attempt, each.outcome) for each in attempts(record)]
    assert entries == [
        ("first", 1, "raised"),
        ("first", 2, "succeeded"),
        ("second", 1, "timeout"),
        ("second", 2, "timeout"),
        ("second", 3, "succeeded"),
        ("third", 1, "raised"),
    ]


async def test_a_worker_lost_in_the_middle_leaves_every_phases_effect_exactly_once(database: Database) -> None:
    app = database.app(**QUICK)
    runs: list[int] = []
    reached = asyncio.Event()

    async def effect(ctx: Context, n: int) -> int:
        runs.append(n)
        lost = runs == [1, 2]
        if lost and database.dialect == "sqlite":  # inside of a transaction no sweep could declare it dead
            reached.set()
            await asyncio.Event().wait()
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, n)
            if lost:
                reached.set()
                await asyncio.Event().wait()
        return n

    @app.job
    async def one(ctx: Context) -> int:
        return await effect(ctx, 1)

    @app.job
    async def two(ctx: Context) -> int:
        assert ctx.previous == 1
        return await effect(ctx, 2)

    @app.job
    async def three(ctx: Context) -> int:
        assert ctx.previous == 2
        return await effect(ctx, 3)

    line = app.pipeline("line", one, two, three)
    async with working(app):
        job = await line.aenqueue()
        await come(reached)
        await declare_dead(database)
        assert await job.aresult(timeout=PATIENCE) == 3

    assert runs == [1, 2, 2, 3]
    assert await database.effects() == [1, 2, 3]
    record = await job.arecord()
    assert record.status is State.SUCCEEDED
    assert [each.outcome for each in attempts(record)] == ["succeeded", "crashed", "succeeded"]


async def test_the_next_phase_is_taken_by_another_worker_when_the_first_is_gone(database: Database) -> None:
    app = database.app()

    @app.job
    async def one(ctx: Context) -> int:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
        return 1

    @app.job
    async def two(ctx: Context) -> int:
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 2)
        return int(ctx.previous) + 1

    line = app.pipeline("line", one, two)
    job = await line.aenqueue()
    async with working(app, types=["one"]):
        moved = await eventually(job.arecord, lambda record: record.phase == "two")
    assert (moved.status, moved.type, moved.output, moved.attempt) == (State.QUEUED, "two", "1", 0)

    async with working(app, types=["two"]):
        assert await job.aresult(timeout=PATIENCE) == 2
    assert await database.effects() == [1, 2]


async def test_a_cancel_between_two_phases_ends_it_and_a_resume_goes_on_there(app: Windlass) -> None:
    runs: list[str] = []

    @app.job
    async def one() -> str:
        runs.append("one")
        return "of one"

    @app.job
    async def two(ctx: Context) -> str:
        runs.append("two")
        return f"two {ctx.previous}"

    line = app.pipeline("line", one, two)
    job = await line.aenqueue()
    async with working(app, types=["one"]):
        await eventually(job.arecord, lambda record: record.phase == "two")
    assert await job.acancel() is State.CANCELLED

    async with working(app):
        other = await line.aenqueue()
        assert await other.aresult(timeout=PATIENCE) == "two of one"
        cancelled = await job.arecord()
        assert (cancelled.status, cancelled.phase, runs) == (State.CANCELLED, "two", ["one", "one", "two"])

        await job.aresume()
        assert await job.aresult(timeout=PATIENCE) == "two of one"
    assert runs == ["one", "one", "two", "two"]


async def test_a_cancel_that_comes_while_a_phase_runs_lets_no_other_begin(app: Windlass) -> None:
    gate, runs = Gate(), []

    @app.job
    def one(ctx: SyncContext) -> None:
        asyncio.run_coroutine_threadsafe(gate.passes(), loop).result(PATIENCE)  # it does not heed the request

    @app.job
    async def two() -> None:
        runs.append("two")

    loop = asyncio.get_running_loop()
    line = app.pipeline("line", one, two)
    async with working(app) as (_, events):
        job = await line.aenqueue()
        await come(gate.reached)
        assert await job.acancel() is State.RUNNING
        gate.open.set()
        await events.ended(job)
        record = await in_state(job, State.CANCELLED)

    assert (record.phase, runs) == ("one", [])


async def test_a_job_that_died_in_its_second_phase_is_replayed_there(app: Windlass) -> None:
    runs: list[str] = []
    broken = True

    @app.job
    async def one() -> list[int]:
        runs.append("one")
        return [1]

    @app.job(max_attempts=1)
    async def two(ctx: Context) -> list[int]:
        runs.append("two")
        if broken:
            raise RuntimeError("no")
        return [*ctx.previous, 2]

    @app.job
    async def three(ctx: Context) -> list[int]:
        runs.append("three")
        return [*ctx.previous, 3]

    line = app.pipeline("line", one, two, three)
    async with working(app):
        job = await line.aenqueue()
        dead = await ended(job)
        assert (dead.status, dead.phase, await job.alabel()) == (State.DEAD, "two", "dead")
        broken = False
        await job.areplay()
        assert await job.aresult(timeout=PATIENCE) == [1, 2, 3]

    assert runs == ["one", "two", "two", "three"]


async def test_a_job_in_a_phase_that_the_program_lost_fails_with_a_word(app: Windlass) -> None:
    runs: list[str] = []

    @app.job(max_attempts=2, retry=fixed(0))
    async def one(n: int) -> None:
        runs.append("one")

    app.pipeline("line", one)
    store = await opened(app)
    lost = NewJob(id=new_id(), type="one", input='{"n":1}', pipeline="line", phase="before", max_attempts=2)
    alien = NewJob(id=new_id(), type="one", input='{"n":1}', pipeline="other", phase="one", max_attempts=2)
    await store.enqueue([lost, alien])
    await store.close()
    async with working(app):
        records = [await ended(await app.afind(job.id)) for job in (lost, alien)]
        await (await one.aenqueue(1)).aresult(timeout=PATIENCE)

    assert [(record.status, record.attempt, failure(record).type) for record in records] == [
        (State.DEAD, 2, "windlass.errors.FlowError"),
        (State.DEAD, 2, "windlass.errors.FlowError"),
    ]
    assert "phase 'before', which pipeline 'line' of this program does not have" in failure(records[0]).message
    assert "pipeline 'other', which this program does not have" in failure(records[1]).message
    assert runs == ["one"]


async def test_a_later_phase_is_served_after_an_earlier_one(app: Windlass) -> None:
    order: list[str] = []

    @app.job
    async def one(n: int) -> None:
        order.append(f"one {n}")

    @app.job
    async def two(n: int) -> None:
        order.append(f"two {n}")

    line = app.pipeline("line", one, two)
    jobs = await app.aenqueue_many(line.call(n) for n in range(3))
    async with working(app, concurrency=1):
        for job in jobs:
            await job.aresult(timeout=PATIENCE)

    assert order == ["one 0", "one 1", "one 2", "two 0", "two 1", "two 2"]


async def test_a_pipelines_call_goes_wherever_a_call_goes(app: Windlass) -> None:
    @app.job
    async def one(n: int) -> int:
        return n

    @app.job
    async def two(ctx: Context) -> int:
        return int(ctx.previous) * 10

    @app.job
    async def total(ctx: Context) -> int:
        return sum((await ctx.dependencies()).values())

    line: Pipeline[..., Any] = app.pipeline("line", one, two, labels={"succeeded": "completed"})
    graph = app.graph()
    first = graph.add("first", line.call(1))
    second = graph.add("second", line.options(priority=5).call(2))
    graph.add("total", total.call(), after=[first, second])
    handles: dict[str, JobHandle[Any]] = {**await graph.aenqueue()}
    async with working(app):
        assert await handles["second"].aresult(timeout=PATIENCE) == 20
        assert await handles["total"].aresult(timeout=PATIENCE) == 30

    assert await handles["first"].alabel() == "completed"
    assert await (await app.afind(handles["first"].id)).alabel() == "completed"


async def test_labels_follow_the_job(app: Windlass) -> None:
    @app.job
    async def one() -> None: ...

    @app.job(max_attempts=1)
    async def two() -> None:
        raise RuntimeError("no")

    labels = {"queued": "not-started", "dead": "failed"}
    line = app.pipeline("line", phase(one, name="first"), phase(two, name="second"), labels=labels)
    job = await line.aenqueue()
    assert await job.alabel() == "not-started"
    async with working(app, types=["one"]) as (_, events):
        await events.ended(job, Ending.SUCCEEDED)
        await eventually(job.alabel, lambda label: label == "second")
    async with working(app):
        await ended(job)
    assert await job.alabel() == "failed"
