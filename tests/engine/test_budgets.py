"""What attempts cost, and budgets that stop when it is spent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from windlass import Context, Dead, JobHandle, JobType, Retry, Snooze, State, Windlass, fixed, phase
from windlass.model.admission import BudgetRow
from windlass.model.outcome import Ending
from windlass.observe.events import AttemptStarted

from .programs import admitted
from .rig import PATIENCE, Database, come, eventually, in_state, stores_of, working
from .stopped_clock import StoppedClock, claim_ahead

STEP = 20.0  # seconds in which time passes where a story waits for something
INSERT = "INSERT INTO effects (n) VALUES ($1)"


async def adds_up(database: Database) -> int:
    """The ledger's rows of each job add up to the cost in its row; returns the sum of all."""
    jobs = await database.run("SELECT id, cost_cents FROM {0}jobs UNION ALL SELECT id, cost_cents FROM {0}history")
    ledger = await database.run("SELECT job, sum(cents) FROM {}ledger GROUP BY job")
    costs = {str(job): int(cents) for job, cents in jobs if cents}
    assert {str(job): int(cents) for job, cents in ledger} == costs
    return sum(costs.values())


async def entries(database: Database, job: JobHandle[Any]) -> list[tuple[int, int]]:
    """The fences and cents of a job's ledger."""
    rows = await database.run("SELECT job, fence, cents FROM {}ledger ORDER BY fence, cents")
    return [(fence, cents) for owner, fence, cents in rows if str(owner) == str(job.id)]


async def budget_of(app: Windlass, name: str) -> BudgetRow:
    (row,) = [row for row in await app._client.aask(lambda store: store.budgets()) if row.name == name]
    return row


# What counts


ENDINGS: dict[str, tuple[Ending, State]] = {
    "succeeds": (Ending.SUCCEEDED, State.SUCCEEDED),
    "commits": (Ending.SUCCEEDED, State.SUCCEEDED),
    "raises": (Ending.RAISED, State.FAILED),
    "retries": (Ending.RETRY, State.FAILED),
    "dies": (Ending.DEAD, State.DEAD),
    "snoozes": (Ending.SNOOZED, State.QUEUED),
    "waits": (Ending.WAITING, State.WAITING),
    "overruns": (Ending.TIMED_OUT, State.FAILED),
    "is cancelled": (Ending.CANCELLED, State.CANCELLED),
    "is released": (Ending.RELEASED, State.QUEUED),
}


@pytest.mark.parametrize("how", ENDINGS)
async def test_the_cost_of_an_attempt_counts_however_it_ends(database: Database, how: str) -> None:
    app = database.app(grace="0s")
    ending, state = ENDINGS[how]
    begun = asyncio.Event()

    @app.job(timeout="150ms" if how == "overruns" else "1h", retry=fixed(3600))
    async def work(ctx: Context) -> None:
        ctx.cost(7)
        begun.set()
        await end(ctx, how)

    await app.aset_budget(tenant="acme", cents=100, per="month")
    async with working(app) as (_, events):
        job = await work.options(tenant="acme").aenqueue()
        if how == "is cancelled":
            await come(begun)
            await job.acancel()
        if how != "is released":
            await events.ended(job, ending)
            await in_state(job, state)
        await come(begun)

    record = await in_state(job, state)
    assert record.cost_cents == 7
    assert await entries(database, job) == [(1, 7)]
    assert (await adds_up(database), (await budget_of(app, "acme")).spent) == (7, 7)


async def test_a_budget_is_overspent_by_what_was_running_at_most(database: Database) -> None:
    """Jobs that take no time, and more of them in memory than the budget pays for."""
    app, begun = database.app(), 0

    @app.job
    async def warm() -> None: ...

    @app.job
    async def dear(ctx: Context) -> None:
        nonlocal begun
        begun += 1
        ctx.cost(10)

    async with working(app, concurrency=2) as (worker, _):
        await app.aenqueue_many(warm.call() for _ in range(1_000))
        await eventually(app.acounts, lambda counts: counts.get(State.SUCCEEDED) == 1_000)
        await app.aset_budget(tenant="acme", cents=50, per="month")
        await eventually(lambda: asyncio.sleep(0, worker.state.closures.knows_budgets), bool)
        await app.aenqueue_many(dear.options(tenant="acme").call() for _ in range(200))
        await eventually(lambda: budget_of(app, "acme"), lambda row: row.spent >= row.cents)
        await eventually(app.acounts, lambda counts: counts.get(State.RUNNING, 0) == 0)

    assert 5 <= begun <= 5 + 2
    assert (await budget_of(app, "acme")).spent == 10 * begun


async def end(ctx: Context, how: str) -> None:
    match how:
        case "commits":
            async with ctx.transaction() as tx:
                await tx.execute(INSERT, 1)
        case "raises":
            raise RuntimeError("it cost something all the same")
        case "retries":
            raise Retry
        case "dies":
            raise Dead("too dear")
        case "snoozes":
            raise Snooze("1h")
        case "waits":
            await ctx.sleep("nap", "1h")
        case "overruns" | "is cancelled" | "is released":
            await asyncio.Event().wait()


async def test_attempts_phases_and_a_replay_add_up(database: Database) -> None:
    app = database.app()

    @app.job(retry=fixed(0), max_attempts=2)
    async def first(ctx: Context) -> None:
        ctx.cost(ctx.attempt)
        if ctx.attempt == 1:
            raise RuntimeError("once more")

    @app.job(retry=fixed(0), max_attempts=2)
    async def second(ctx: Context) -> None:
        ctx.cost(10)
        if ctx.fence < 5:
            raise RuntimeError("until it is replayed")

    line = app.pipeline("line", phase(first), phase(second))
    async with working(app):
        job = await line.aenqueue()
        dead = await in_state(job, State.DEAD)
        assert dead.cost_cents == 1 + 2 + 10 + 10
        await job.areplay()
        await job.aresult(timeout=PATIENCE)

    assert await entries(database, job) == [(1, 1), (2, 2), (3, 10), (4, 10), (5, 10)]
    assert await adds_up(database) == 33


async def test_an_attempt_that_costs_nothing_leaves_no_trace(database: Database) -> None:
    app = database.app()

    @app.job
    async def work(ctx: Context) -> int:
        ctx.cost(0)
        ctx.cost(Decimal("0.00"))
        return ctx.spent

    async with working(app):
        job = await work.aenqueue()
        assert await job.aresult(timeout=PATIENCE) == 0

    assert (await entries(database, job), await adds_up(database)) == ([], 0)


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("kind", "cents"),
    [
        (admitted.costs_in_coroutine, 4),
        (admitted.costs_in_thread, 4),
        (admitted.costs_in_process, 4),
        (admitted.costs_in_process_transaction, 4),
        (admitted.costs_and_crashes, 6),
    ],
)
async def test_every_isolation_costs(database: Database, kind: JobType[[], int], cents: int) -> None:
    async with working(admitted.app):
        job = await kind.aenqueue()
        spent = await job.aresult(timeout=PATIENCE)
        record = await job.arecord()

    assert (spent, record.cost_cents) == (cents / (record.crashes + 1), cents)
    assert await adds_up(database) == cents


async def test_the_cost_of_a_worker_that_is_killed_counts(database: Database) -> None:
    app = database.app(lease="5s", beat="100ms", margin="200ms", sweep="50ms", poll="50ms")

    @app.job
    async def work(ctx: Context) -> None:
        ctx.cost(5 if ctx.fence == 1 else 3)
        if ctx.fence == 1:
            await asyncio.Event().wait()

    async with working(app):
        job = await work.aenqueue()
        await eventually(job.arecord, lambda record: record.cost_cents == 5)  # recorded while it runs
        dead = "1" if database.dialect == "sqlite" else "true"
        await database.run(f"UPDATE {{}}workers SET dead = {dead}")
        await job.aresult(timeout=PATIENCE)

    assert (await job.arecord()).cost_cents == 8
    assert await entries(database, job) == [(1, 5), (2, 3)]
    assert await adds_up(database) == 8


@pytest.mark.parametrize(
    "wrong", [-1, -0.5, float("nan"), float("inf"), Decimal("NaN"), Decimal("-1"), True, "3", None]
)
async def test_a_cost_that_is_none_is_refused(app: Windlass, wrong: Any) -> None:
    @app.job
    async def work(ctx: Context) -> int:
        ctx.cost(2)
        with pytest.raises(ValueError, match=r"ctx\.cost\("):
            ctx.cost(wrong)
        return ctx.spent

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == 2


# Budgets


@pytest.mark.parametrize("whose", [{"tenant": "acme"}, {"queue": "models"}], ids=["tenant", "queue"])
async def test_a_spent_budget_stops_claims_and_opens_with_its_window(
    stopped_clock: StoppedClock, whose: dict[str, str]
) -> None:
    go = asyncio.Event()
    started: list[float] = []

    @stopped_clock.app.job
    async def ask(ctx: Context) -> None:
        started.append(stopped_clock.now)
        ctx.cost(6)
        await go.wait()

    @stopped_clock.app.job
    async def beside() -> None: ...

    mine = ask.options(tenant="acme", queue="models")
    name = next(iter(whose.values()))
    await stopped_clock.app.aset_budget(**whose, cents=10, per="hour")
    jobs = [await mine.aenqueue() for _ in range(6)]
    async with stopped_clock.working(concurrency=3) as (worker, events):
        # Two would have done: what ran already may overshoot.
        await stopped_clock.until(lambda: budget_of(stopped_clock.app, name), lambda budget: budget.spent == 18)
        go.set()
        for job in jobs[:3]:
            await events.ended(job, Ending.SUCCEEDED)
        await events.ended(await beside.aenqueue(), Ending.SUCCEEDED)
        for _ in range(5):
            await stopped_clock.moves(600)
            await stopped_clock.looked(worker)
        records = [await job.arecord() for job in jobs]
        assert [record.fence for record in records] == [1, 1, 1, 0, 0, 0]
        assert (await budget_of(stopped_clock.app, name)).until == datetime(2026, 1, 1, 13, tzinfo=UTC)

        for job in jobs[3:]:
            await stopped_clock.until(job.arecord, lambda record: record.status is State.SUCCEEDED, step=STEP)
        row = await budget_of(stopped_clock.app, name)

    assert [at >= 3600 - STEP for at in started] == [False] * 3 + [True] * 3
    assert (row.spent, row.until) == (18, datetime(2026, 1, 1, 14, tzinfo=UTC))
    assert await adds_up(stopped_clock.database) == 36


async def test_a_month_is_as_long_as_it_is(stopped_clock: StoppedClock) -> None:
    ran: list[datetime] = []

    @stopped_clock.app.job
    async def ask(ctx: Context) -> None:
        ctx.cost(10)
        ran.append(stopped_clock.clock.now())

    await stopped_clock.app.aset_budget(tenant="acme", cents=10, per="month")
    mine = ask.options(tenant="acme")
    async with stopped_clock.working() as (worker, events):
        await events.ended(await mine.aenqueue(), Ending.SUCCEEDED)
        await stopped_clock.until(lambda: budget_of(stopped_clock.app, "acme"), lambda budget: budget.spent == 10)
        for month in (2, 3):
            job = await mine.aenqueue()
            opens = datetime(2026, month, 1, tzinfo=UTC)
            assert (await budget_of(stopped_clock.app, "acme")).until == opens
            await stopped_clock.moves((opens - stopped_clock.clock.now() - timedelta(minutes=5)).total_seconds())
            await stopped_clock.looked(worker)
            assert (await job.arecord()).fence == 0
            await stopped_clock.until(job.arecord, lambda record: record.status is State.SUCCEEDED, step=STEP)
            assert ran[-1] >= opens - timedelta(seconds=STEP)

    assert await adds_up(stopped_clock.database) == 30


async def test_a_spent_budget_gives_back_what_has_not_started(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "windlass")
    go = asyncio.Event()

    @app.job
    async def ask(ctx: Context, n: int) -> int:
        ctx.cost(5)
        await go.wait()
        return n

    acme = ask.options(tenant="acme")
    await app.aset_budget(tenant="acme", cents=5, per="month")
    first = await acme.aenqueue(0)
    async with working(app, concurrency=1) as (worker, events):
        await events.until(AttemptStarted)
        mine, other = await acme.aenqueue(1), await ask.options(tenant="other").aenqueue(2)
        await claim_ahead(worker, "ask")
        record = await in_state(mine, State.QUEUED)
        assert (record.attempt, record.attempts) == (0, None)
        go.set()
        assert [await job.aresult(timeout=PATIENCE) for job in (first, other)] == [0, 2]
        assert (await mine.arecord()).status is State.QUEUED

        await app.aset_budget(tenant="acme", cents=100, per="month")
        assert await mine.aresult(timeout=PATIENCE) == 1
        opened = "the budget of tenant 'acme' is open again"
        await eventually(lambda: asyncio.sleep(0, caplog.messages), lambda lines: opened in lines)

    assert "the budget of tenant 'acme' is spent: its jobs wait for the next window" in caplog.messages


async def test_a_worker_knows_at_once_what_its_own_jobs_have_spent(stopped_clock: StoppedClock) -> None:
    known = asyncio.Event()

    @stopped_clock.app.job
    async def ask(ctx: Context) -> None:
        ctx.cost(5)

    await stopped_clock.app.aset_budget(queue="default", cents=5, per="month")
    async with stopped_clock.working() as (worker, _):
        store = stores_of(worker)
        closures = store.closures

        async def spy() -> Any:
            found = await closures()
            if any(closure.state == "spent" for closure in found):
                known.set()
            return found

        store.closures = spy
        await ask.aenqueue()
        await come(known)  # on this clock no worker polls
