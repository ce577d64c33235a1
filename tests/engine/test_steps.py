"""`ctx.step`: a function that runs once, is remembered across attempts, and commits with what it wrote."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, cast
from uuid import uuid4

import pytest

from windlass import Context, Dead, State, SyncContext, Windlass, failpoints, fixed
from windlass.errors import BlockingCall, FlowError, StoreUnavailable
from windlass.handler.waits import Suspended, Waits
from windlass.model.flow import Flow, Memory
from windlass.model.outcome import Ending

from .rig import PATIENCE, Database, ended, in_state, stores_of, working

INSERT = "INSERT INTO effects (n) VALUES ($1)"


@dataclass
class Receipt:
    number: int
    at: datetime


@pytest.fixture
def calls() -> list[str]:
    """What the story's steps did, in order."""
    return []


async def test_a_step_runs_once_and_its_result_is_there_for_every_later_run(app: Windlass, calls: list[str]) -> None:
    def charge(order: str, *, cents: int) -> str:
        calls.append(f"{order} {cents}")
        return f"receipt of {order}"

    @app.job(retry=fixed(0))
    async def shop(ctx: Context) -> list[Any]:
        receipt = await ctx.step("charge", charge, "o1", cents=250)
        await ctx.sleep("nap", 0.01)
        if ctx.attempt < 3:
            raise RuntimeError("not this time")
        return [receipt, ctx.attempt, ctx.fence]

    async with working(app):
        job = await shop.aenqueue()
        receipt, attempt, runs = await job.aresult(timeout=PATIENCE)
        # Four runs at least: a job that a slow claim wakes a moment early sleeps, and runs, once more.
        assert (receipt, attempt, runs >= 4) == ("receipt of o1", 3, True)

    assert calls == ["o1 250"]


@pytest.mark.parametrize(("left", "again"), [(0.0, False), (0.05, False), (1.0, True)])
async def test_a_job_that_is_woken_a_moment_early_waits_for_the_rest_of_its_sleep(left: float, again: bool) -> None:
    """The process that remembered the time and the one that reads it know the database's only as well as it answers."""

    class Remembered:
        take = staticmethod(lambda name, kind: f"{kind} {name}")
        seconds_until = staticmethod(lambda until: left)

        async def deadline(self, key: str, delay: float) -> tuple[datetime, tuple[()]]:
            return datetime(2026, 1, 1, tzinfo=UTC), ()

    class Suspending(Waits):
        async def _suspend(self, *_: object, **__: object) -> NoReturn:
            raise Suspended(Flow())

    sleeping = Suspending(cast(Any, Remembered()), cast(Any, None)).sleep("nap", 60)

    if again:
        with pytest.raises(Suspended):
            await sleeping
    else:
        await sleeping


async def test_a_value_is_the_same_on_the_first_run_and_on_later_ones(app: Windlass) -> None:
    async def receipt() -> Receipt:
        return Receipt(7, datetime(2026, 1, 1, tzinfo=UTC))

    def by_number() -> dict[int, str]:
        return {1: "one"}

    def unhinted():  # type: ignore[no-untyped-def]
        return (1, {"two": {3}})

    def wrongly() -> int:
        return "text"  # type: ignore[return-value]

    def unknown() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return [1]

    seen: list[list[Any]] = []

    @app.job(retry=fixed(0))
    async def work(ctx: Context) -> None:
        seen.append(
            [
                await ctx.step("receipt", receipt),
                await ctx.step("by number", by_number),
                await ctx.step("unhinted", unhinted),
                await ctx.step("wrongly", wrongly),
                await ctx.step("unknown", unknown),
                await ctx.step("partial", functools.partial(receipt)),
                await ctx.step("lambda", lambda: receipt()),
                await ctx.step("nothing", lambda: None),
            ]
        )
        if len(seen) == 1:
            raise RuntimeError("once more")

    async with working(app):
        await (await work.aenqueue()).aresult(timeout=PATIENCE)

    made = Receipt(7, datetime(2026, 1, 1, tzinfo=UTC))
    assert seen[0][:7] == [made, {1: "one"}, [1, {"two": [3]}], "text", [1], made, seen[1][6]]
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("value", "said"),
    [({"a": [object()]}, "builtins.object"), ({"a": [float("nan")]}, r"\$\.a\[0\]"), ("x" * 300_000, "300,002 bytes")],
)
async def test_a_value_that_json_cannot_keep_is_named(app: Windlass, value: Any, said: str) -> None:
    @app.job(max_attempts=1)
    async def work(ctx: Context) -> None:
        with pytest.raises(FlowError, match=f"step 'odd'.*{said}"):
            await ctx.step("odd", lambda: value)
        raise Dead("named")

    async with working(app):
        assert (await ended(await work.aenqueue())).reason == "named"


async def test_a_plain_function_runs_on_a_thread_and_does_not_stop_the_loop(
    app: Windlass, whatever_happens: threading.Event
) -> None:
    @app.job
    async def work(ctx: Context) -> list[Any]:
        def wait() -> bool:
            return whatever_happens.wait(PATIENCE) and threading.current_thread() is not threading.main_thread()

        step = asyncio.create_task(ctx.step("wait", wait))
        await asyncio.sleep(0)
        whatever_happens.set()
        return [await step, await ctx.step("async", asyncio.sleep, 0, "slept")]

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == [True, "slept"]


# With a transaction


@pytest.mark.parametrize("kind", ["coroutine", "thread", "plain step"])
async def test_a_steps_effect_and_its_memory_are_one_commit_at_its_end(
    app: Windlass, database: Database, kind: str
) -> None:
    seen: list[list[int]] = []

    @app.job(retry=fixed(0), type="async")
    async def coroutine(ctx: Context) -> str:
        async def charge() -> str:
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 1)
            return "charged"

        def plainly() -> str:
            with ctx.transaction() as tx:
                tx.execute(INSERT, 1)
            return "charged"

        word = await (ctx.step("charge", charge) if kind == "coroutine" else ctx.step("charge", plainly))
        seen.append(await database.effects())
        if ctx.attempt == 1:
            raise RuntimeError("after the charge")
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 2)
        return word

    @app.job(retry=fixed(0))
    def thread(ctx: SyncContext) -> str:
        def charge() -> str:
            with ctx.transaction() as tx:
                tx.execute(INSERT, 1)
            return "charged"

        word = ctx.step("charge", charge)
        seen.append(asyncio.run(database.effects()))
        if ctx.attempt == 1:
            raise RuntimeError("after the charge")
        with ctx.transaction() as tx:
            tx.execute(INSERT, 2)
        return word

    async with working(app):
        job = await (thread if kind == "thread" else coroutine).aenqueue()
        assert await job.aresult(timeout=PATIENCE) == "charged"

    assert (seen, await database.effects()) == ([[1], [1]], [1, 2])


async def test_a_step_that_fails_takes_its_writes_back_and_may_be_tried_again(
    app: Windlass, database: Database, calls: list[str]
) -> None:
    @app.job
    async def work(ctx: Context) -> str:
        async def charge() -> str:
            calls.append("charge")
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, len(calls))
            if len(calls) == 1:
                raise ConnectionError("the bank is away")
            return "charged"

        with pytest.raises(ConnectionError):
            await ctx.step("charge", charge)
        return await ctx.step("charge", charge)

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == "charged"

    assert (calls, await database.effects()) == (["charge", "charge"], [2])


@pytest.mark.parametrize(("where", "charges"), [("step.before_commit", 2), ("step.committed", 1)])
async def test_an_attempt_that_ends_around_the_commit_has_both_or_neither(
    app: Windlass, database: Database, calls: list[str], where: str, charges: int
) -> None:
    @app.job(retry=fixed(0))
    async def work(ctx: Context) -> str:
        async def charge() -> str:
            calls.append("charge")
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 1)
            return "charged"

        return await ctx.step("charge", charge)

    def once() -> None:
        failpoints.disarm()
        raise RuntimeError("here it ends")

    failpoints.arm(where, once)
    async with working(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == "charged"

    assert (len(calls), await database.effects(), (await job.arecord()).attempt) == (charges, [1], 2)


async def test_a_commit_whose_answer_was_lost_is_asked_for(app: Windlass, database: Database) -> None:
    @app.job(max_attempts=1)
    async def work(ctx: Context) -> str:
        async def charge() -> str:
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 1)
                commit = tx.commit

                async def lose_the_answer() -> None:
                    await commit()
                    raise StoreUnavailable("the answer is lost")

                tx.commit = lose_the_answer  # type: ignore[method-assign]
            return "charged"

        return await ctx.step("charge", charge)

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == "charged"

    assert await database.effects() == [1]


async def test_a_database_that_is_away_is_asked_again_for_the_function_has_run(app: Windlass, calls: list[str]) -> None:
    asked: list[Memory] = []

    @app.job(max_attempts=1)
    async def work(ctx: Context) -> str:
        def charge() -> str:
            calls.append("charge")
            return "charged"

        return await ctx.step("charge", charge)

    async with working(app) as (worker, _):
        remember = stores_of(worker).remember

        async def away_at_first(lease: Any, memory: Memory) -> bool:
            asked.append(memory)
            if len(asked) < 3:
                raise StoreUnavailable("not now")
            return bool(await remember(lease, memory))

        stores_of(worker).remember = away_at_first
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == "charged"

    assert (calls, asked) == (["charge"], [Memory("charge", '"charged"')] * 3)


@pytest.mark.parametrize("transaction", [True, False])
async def test_under_a_lost_lease_nothing_is_remembered_or_written(
    app: Windlass, database: Database, transaction: bool
) -> None:
    stranger = str(uuid4())

    @app.job
    async def work(ctx: Context) -> None:
        uuid = "?" if database.dialect == "sqlite" else "?::text::uuid"
        await database.run(f"UPDATE {{}}jobs SET token = {uuid}", stranger)

        async def charge() -> None:
            if transaction:
                async with ctx.transaction() as tx:
                    await tx.execute(INSERT, 1)

        await ctx.step("charge", charge)

    async with working(app) as (_, events):
        job = await work.aenqueue()
        await events.ended(job, Ending.LOST)

    assert await database.effects() == []
    assert await database.run("SELECT count(*) FROM {}steps") == [(0,)]


@pytest.mark.parametrize("kind", ["coroutine", "thread", "plain step"])
async def test_inside_a_block_a_step_joins_it_and_commits_with_the_finish(
    app: Windlass, database: Database, calls: list[str], kind: str
) -> None:
    @app.job(retry=fixed(0), type="async")
    async def coroutine(ctx: Context) -> str:
        async def charge() -> str:
            calls.append("charge")
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, ctx.attempt)
            return "charged"

        def plainly() -> str:
            calls.append("charge")
            with ctx.transaction() as tx:
                tx.execute(INSERT, ctx.attempt)
            return "charged"

        async with ctx.transaction():
            words = await asyncio.gather(
                ctx.step("charge", charge if kind == "coroutine" else plainly), ctx.step("other", lambda: "other")
            )
        assert await database.effects() == []
        if ctx.attempt == 1:
            raise RuntimeError("all of it goes")
        return " ".join(words)

    @app.job(retry=fixed(0))
    def thread(ctx: SyncContext) -> str:
        def charge() -> str:
            calls.append("charge")
            with ctx.transaction() as tx:
                tx.execute(INSERT, ctx.attempt)
            return "charged other"

        with ctx.transaction():
            word = ctx.step("charge", charge)
        if ctx.attempt == 1:
            raise RuntimeError("all of it goes")
        return word

    async with working(app):
        job = await (thread if kind == "thread" else coroutine).aenqueue()
        assert await job.aresult(timeout=PATIENCE) == "charged other"

    assert (calls, await database.effects()) == (["charge", "charge"], [2])


async def test_after_a_block_a_step_is_refused_because_the_transaction_is_open_until_the_finish(app: Windlass) -> None:
    @app.job
    async def work(ctx: Context) -> str:
        async with ctx.transaction():
            pass
        with pytest.raises(FlowError, match="before the block, or into it"):
            await ctx.step("late", lambda: None)
        return "refused"

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == "refused"


async def test_steps_side_by_side_have_transactions_of_their_own(app: Windlass, database: Database) -> None:
    @app.job(retry=fixed(0))
    async def work(ctx: Context) -> list[int]:
        async def write(n: int) -> int:
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, n)
                if n == 3 and ctx.attempt == 1:
                    raise RuntimeError("not this one")
            return n

        return await asyncio.gather(*[ctx.step(f"write {n}", write, n) for n in range(5)])

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == [0, 1, 2, 3, 4]

    assert await database.effects() == [0, 1, 2, 3, 4]


async def test_an_enqueue_inside_a_steps_transaction_is_part_of_it(app: Windlass, database: Database) -> None:
    @app.job
    async def notify() -> str:
        return "notify"

    @app.job(retry=fixed(0))
    async def work(ctx: Context) -> str:
        async def tell() -> str:
            async with ctx.transaction():
                return str((await notify.aenqueue()).id)

        id = await ctx.step("tell", tell)
        if ctx.attempt == 1:
            raise RuntimeError("after the notification")
        return id

    async with working(app):
        job = await work.aenqueue()
        other = await app.afind(await job.aresult(timeout=PATIENCE))
        assert await other.aresult(timeout=PATIENCE) == "notify"

    assert await database.jobs() == 2


# Names, and what is refused


async def test_a_name_is_used_once_in_a_run(app: Windlass) -> None:
    @app.job
    async def work(ctx: Context) -> str:
        await ctx.step("one", lambda: 1)
        for again in (
            lambda: ctx.step("one", lambda: 2),
            lambda: ctx.sleep("one", "1s"),
            lambda: ctx.wait_signal("one"),
        ):
            with pytest.raises(FlowError, match="has a step of that name already"):
                await again()
        with pytest.raises(FlowError, match="white space"):
            await ctx.step(" one", lambda: 3)
        await ctx.sleep("nap", 0)
        with pytest.raises(FlowError, match="has a sleep of that name already"):
            await ctx.step("nap", lambda: 4)
        return "refused"

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == "refused"


async def test_what_belongs_to_the_run_is_refused_inside_a_step(app: Windlass) -> None:
    @app.job
    async def work(ctx: Context) -> str:
        async def inside() -> None:
            for call in (
                lambda: ctx.spawn("kid", work.call()),
                lambda: ctx.spawn_many("kid", [work.call()]),
                lambda: ctx.step("inner", lambda: None),
                lambda: ctx.wait([ctx.job.id]),
                lambda: ctx.sleep("nap", "1s"),
                lambda: ctx.wait_signal("go"),
            ):
                with pytest.raises(FlowError, match="inside step 'outer'"):
                    call()

        await ctx.step("outer", inside)
        return "refused"

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == "refused"


async def test_a_synchronous_handler_runs_its_steps_right_there(app: Windlass, calls: list[str]) -> None:
    @app.job(retry=fixed(0))
    def work(ctx: SyncContext) -> list[Any]:
        def here(n: int) -> bool:
            calls.append(f"here {n}")
            return threading.current_thread() is mine

        async def there() -> str:
            return "on the worker's loop"

        mine = threading.current_thread()
        found = [ctx.step("here", here, 1), ctx.step("there", there)]
        asyncio.run(on_a_loop(ctx))
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        return found

    @app.job
    async def coroutine(ctx: Context) -> str:
        for name, call in calls_of(ctx).items():
            with pytest.raises(FlowError, match=rf"ctx\.{name}\(\) is awaited in the handler's own coroutine"):
                await asyncio.to_thread(call)
        return "refused"

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == [True, "on the worker's loop"]
        assert await (await coroutine.aenqueue()).aresult(timeout=PATIENCE) == "refused"

    assert calls == ["here 1"]


def calls_of(ctx: Context | SyncContext) -> dict[str, Callable[[], object]]:
    """A call of each method that takes time, by its name."""
    return {
        "step": lambda: ctx.step("x", lambda: None),
        "wait": lambda: ctx.wait([ctx.job.id]),
        "sleep": lambda: ctx.sleep("x", "1s"),
        "wait_signal": lambda: ctx.wait_signal("x"),
        "dependencies": lambda: ctx.dependencies(),
    }


async def on_a_loop(ctx: SyncContext) -> None:
    """A plain handler may run a loop of its own; a call that blocks would stop it."""
    for name, call in calls_of(ctx).items():
        with pytest.raises(BlockingCall, match=rf"would block the running event loop.*await ctx\.{name}\("):
            call()


async def test_the_phases_of_a_pipeline_do_not_share_names(app: Windlass, calls: list[str]) -> None:
    @app.job
    async def child(n: int) -> int:
        return n

    @app.job
    async def first(ctx: Context) -> int:
        (one,) = await ctx.wait([ctx.spawn("kid", child.call(1))])
        return await ctx.step("note", lambda: one)

    @app.job
    async def second(ctx: Context) -> list[Any]:
        (two,) = await ctx.wait([ctx.spawn("kid", child.call(2))])
        return [ctx.previous, await ctx.step("note", lambda: two)]

    line = app.pipeline("line", first, second)
    async with working(app):
        assert await (await line.aenqueue()).aresult(timeout=PATIENCE) == [1, 2]


async def test_a_fenced_out_coroutine_remembers_nothing_late(app: Windlass, database: Database) -> None:
    go = asyncio.Event()
    over = asyncio.Event()

    @app.job
    async def stubborn(ctx: Context) -> None:
        async def late() -> None:
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 1)

        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go.wait()
            try:
                await ctx.step("late", late)
            finally:
                over.set()

    async with working(app):
        job = await stubborn.aenqueue()
        await in_state(job, State.RUNNING)
        await job.acancel()
        await in_state(job, State.CANCELLED)
        go.set()
        async with asyncio.timeout(PATIENCE):
            await over.wait()

    assert await database.effects() == []
    assert await database.run("SELECT count(*) FROM {}steps") == [(0,)]
