"""Gates, as a worker keeps them: what has not started goes back, what runs finishes, and an open gate lets go on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from windlass import Context, JobHandle, State, Windlass, phase, rate
from windlass.errors import StoreError, StoreRefused, StoreUnavailable
from windlass.model.admission import Gate, GateKind, GateState
from windlass.model.outcome import Ending
from windlass.observe.events import AttemptStarted
from windlass.runtime.worker import Worker
from windlass.store.protocol import Claim, Claimed

from .rig import PATIENCE, Database, come, eventually, in_state, stores_of, working
from .stopped_clock import claim_ahead

TARGETS: list[dict[str, Any]] = [{"all": True}, {"queue": "mail"}, {"type": "work"}, {"tenant": "acme"}]
PACES: list[dict[str, Any]] = [
    {},
    {"pace": "steady", "assign_every": "50ms", "untouched": "0s", "concurrency": 5},
]


def name_of(options: dict[str, Any]) -> str:
    return next(iter(options), "eager")


async def knows(worker: Worker, closed: bool) -> None:
    """Until the worker has recorded of it."""
    await eventually(lambda: asyncio.sleep(0, worker.state.closures.anything_closed), lambda known: known is closed)


async def shut(app: Windlass, state: str, target: dict[str, Any]) -> None:
    assert await app.apause(**target, claimed="return" if state == "paused" else "finish")


# Closing and opening


@pytest.mark.parametrize("state", ["paused", "draining"])
@pytest.mark.parametrize("target", TARGETS, ids=name_of)
async def test_nothing_starts_behind_a_closed_gate_until_it_opens(
    app: Windlass, target: dict[str, Any], state: str
) -> None:
    ran: list[str] = []

    @app.job(queue="mail")
    async def work() -> None:
        ran.append("behind")

    @app.job
    async def other() -> None:
        ran.append("beside")

    async with working(app):
        await shut(app, state, target)
        behind = await work.options(tenant="acme").aenqueue()
        beside = await other.aenqueue()
        if "all" not in target:
            await beside.aresult(timeout=PATIENCE)
        after = await other.options(
            priority=-5
        ).aenqueue()  # every job that could be claimed was, once this one is done
        if "all" not in target:
            await after.aresult(timeout=PATIENCE)
        assert (await behind.arecord()).attempt == 0
        assert "behind" not in ran

        await app.aresume(**target)
        for job in (behind, beside, after):
            await job.aresult(timeout=PATIENCE)

    assert sorted(ran) == ["behind", "beside", "beside"]


async def test_a_gate_says_who_closed_it_when_and_why_and_the_audit_keeps_it(database: Database) -> None:
    app = database.app(actor="ann")
    began = datetime.now(UTC)

    await app.apause(queue="mail", reason="the provider is down")
    (gate,) = await app._client.aask(lambda store: store.gates())
    await app.aresume(queue="mail")
    await app.apause(all=True, claimed="finish")
    rows = await app._client.aask(lambda store: store.audit())

    assert gate == Gate(
        kind=GateKind.QUEUE,
        name="mail",
        state=GateState.PAUSED,
        reason="the provider is down",
        actor="ann",
        since=gate.since,
    )
    assert abs((gate.since - began).total_seconds()) < PATIENCE
    recorded = sorted((row.action, row.actor, row.subject, row.reason) for row in rows)
    assert recorded == [
        ("GATE_DRAINED", "ann", "all", None),
        ("GATE_PAUSED", "ann", "queue:mail", "the provider is down"),
        ("GATE_RESUMED", "ann", "queue:mail", None),
    ]


async def test_a_worker_says_once_what_closes_and_opens(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "windlass")

    @app.job
    async def work() -> None: ...

    async with working(app) as (worker, _):
        await app.apause(queue="mail")
        await knows(worker, True)
        await app.apause(tenant="acme")  # the first once more
        await said(caplog, "the gate of tenant 'acme' is paused")
        await app.apause(queue="mail", claimed="finish")
        await said(caplog, "the gate of queue 'mail' is draining")
        await app.aresume(tenant="acme")
        await said(caplog, "the gate of tenant 'acme' is open again")
        await app.aresume(queue="mail")
        await said(caplog, "the gate of queue 'mail' is open again")

    assert [line for line in caplog.messages if line.startswith("the gate of")] == [
        "the gate of queue 'mail' is paused",
        "the gate of tenant 'acme' is paused",
        "the gate of queue 'mail' is draining",
        "the gate of tenant 'acme' is open again",
        "the gate of queue 'mail' is open again",
    ]


async def said(caplog: pytest.LogCaptureFixture, line: str) -> None:
    await eventually(lambda: asyncio.sleep(0, caplog.messages), lambda lines: line in lines)


# What a worker has claimed already


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
async def test_closing_gives_back_what_has_not_started_and_what_runs_finishes(
    app: Windlass, target: dict[str, Any]
) -> None:
    go = asyncio.Event()

    @app.job(queue="mail")
    async def work(n: int) -> int:
        if n == 0:
            await go.wait()
        return n

    @app.job
    async def other() -> None: ...

    acme = work.options(tenant="acme")
    running = await acme.aenqueue(0)
    async with working(app, concurrency=1) as (worker, events):
        await events.until(AttemptStarted)
        unstarted = [await acme.aenqueue(n) for n in (1, 2)]
        beside = await other.aenqueue()
        before = [(await job.arecord()).run_at for job in unstarted]
        assert await claim_ahead(worker, "work", "other") == 3

        await app.apause(**target)
        records = [await in_state(job, State.QUEUED) for job in unstarted]
        await eventually(lambda: asyncio.sleep(0, len(worker.state.local_queue)), lambda left: left < 2)
        assert len(worker.state.local_queue) == (0 if "all" in target else 1)
        assert [(record.attempt, record.attempts, record.worker) for record in records] == [(0, None, None)] * 2
        assert [record.run_at for record in records] == before, "they keep their place"
        go.set()
        assert await running.aresult(timeout=PATIENCE) == 0
        if "all" not in target:
            await beside.aresult(timeout=PATIENCE)

        await app.aresume(**target)
        assert [await job.aresult(timeout=PATIENCE) for job in unstarted] == [1, 2]
        assert [(await job.arecord()).attempt for job in unstarted] == [1, 1]


async def test_what_drains_runs_as_far_as_it_was_claimed(app: Windlass) -> None:
    go = asyncio.Event()

    @app.job
    async def work(n: int) -> int:
        if n == 0:
            await go.wait()
        return n

    await work.aenqueue(0)
    async with working(app, concurrency=1) as (worker, events):
        await events.until(AttemptStarted)
        claimed = await work.aenqueue(1)
        assert await claim_ahead(worker, "work") == 1
        await app.apause(type="work", claimed="finish")
        late = await work.aenqueue(2)
        await recorded(worker)
        go.set()
        assert await claimed.aresult(timeout=PATIENCE) == 1
        assert (await late.arecord()).fence == 0
        await app.aresume(type="work")
        assert await late.aresult(timeout=PATIENCE) == 2


async def recorded(worker: Worker) -> None:
    """Until the worker has read the gates once more, from the beginning of a read to its end."""
    looks, store = 0, stores_of(worker)
    closures = store.closures

    async def counted() -> Any:
        nonlocal looks
        found = await closures()
        looks += 1
        return found

    store.closures = counted
    await eventually(lambda: asyncio.sleep(0, looks), lambda count: count >= 2)
    store.closures = closures


@pytest.mark.parametrize("settings", PACES, ids=name_of)
async def test_a_gate_that_closes_during_a_claim_holds_for_it(database: Database, settings: dict[str, Any]) -> None:
    # The race: the claim is committed, the gate closes, the worker reads that, and only then the claim's answer comes.
    app = database.app(**settings)
    starts: list[int] = []
    raced = asyncio.Event()

    @app.job
    async def work(ctx: Context) -> None:
        starts.append(ctx.attempt)

    async with working(app) as (worker, events):
        store = stores_of(worker)
        claim = store.claim

        async def slow(request: Claim) -> Claimed:
            claimed: Claimed = await claim(request)
            if claimed.jobs and not raced.is_set():
                await app.apause(queue="default")
                await knows(worker, True)
                raced.set()
            return claimed

        store.claim = slow
        job = await work.aenqueue()
        await come(raced)
        record = await in_state(job, State.QUEUED)
        assert (record.attempt, record.fence, starts) == (0, 1, [])
        assert not any(isinstance(event, AttemptStarted) for event in events.recorded)

        await app.aresume(queue="default")
        await job.aresult(timeout=PATIENCE)

    assert starts == [1]


async def test_a_claim_knows_better_than_a_worker_that_has_not_heard_of_the_opening(app: Windlass) -> None:
    # The race: the gate opens, and a claim is faster than the read of the gates. To give the job back because of what
    # was read before would be a loop at the database's speed.
    asked = asyncio.Event()

    @app.job
    async def work() -> None: ...

    async def never_answers() -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with working(app) as (worker, _):
        await app.apause(all=True)
        job = await work.aenqueue()
        await knows(worker, True)
        stores_of(worker).closures = never_answers
        await come(asked)
        await app.aresume(all=True)
        await job.aresult(timeout=PATIENCE)

        assert worker.state.closures.anything_closed
        assert (await job.arecord()).fence == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (StoreUnavailable, "the database is away: cut off; trying again until it answers"),
        (StoreRefused, "the gates can't be asked (cut off); what was known of them holds"),
    ],
)
async def test_a_store_that_cannot_be_asked_leaves_what_was_known(
    app: Windlass, caplog: pytest.LogCaptureFixture, error: type[StoreError], line: str
) -> None:
    failed = 0

    @app.job
    async def work() -> None: ...

    async def away() -> Any:
        nonlocal failed
        failed += 1
        raise error("cut off")

    async with working(app, queues=("elsewhere",)) as (worker, events):
        job = await work.aenqueue()
        claim = Claim(worker=worker.state.worker, room=1, types=("work",), rescan=True)
        claimed = await stores_of(worker).claim(claim)
        await app.apause(queue="default")
        await knows(worker, True)
        closures, stores_of(worker).closures = stores_of(worker).closures, away
        await app.aresume(queue="default")
        await eventually(lambda: asyncio.sleep(0, failed), lambda count: count >= 5)

        worker.parts.discovery.take(claimed.jobs, 0.0, 0.0)  # a claim of before
        record = await in_state(job, State.QUEUED)
        assert (record.attempt, len(worker.state.leases.executions)) == (0, 0)
        assert worker.state.closures.anything_closed

        stores_of(worker).closures = closures
        await knows(worker, False)
        worker.parts.discovery.take((await stores_of(worker).claim(claim)).jobs, 0.0, 0.0)
        await events.ended(job, Ending.SUCCEEDED)

    assert caplog.messages.count(line) == 1


async def test_an_opened_gate_lets_start_within_a_second_where_no_wake_up_comes(database: Database) -> None:
    app = database.app(poll="1h")  # the worker reads the gates more often than it claims

    @app.job
    async def work() -> None: ...

    await app.apause(all=True)
    job = await work.aenqueue()
    async with working(app) as (worker, _):
        await knows(worker, True)
        await eventually(lambda: rests(worker), bool)
        await database.run("UPDATE {}gates SET state = 'open'")  # past the store: no worker is woken
        await job.aresult(timeout=PATIENCE)


async def rests(worker: Worker) -> bool:
    """Whether nothing makes the worker claim any more."""
    rested = []
    for _ in range(20):
        rested.append(worker.parts.discovery.is_waiting and worker.parts.discovery.idle_mark.is_set)
        await asyncio.sleep(0.005)
    return all(rested)


# Types and queues change along a pipeline


async def test_a_gate_in_the_middle_of_a_pipeline_keeps_jobs_between_two_phases(app: Windlass) -> None:
    @app.job
    async def fetch(n: int) -> int:
        return n

    @app.job(queue="slow")
    async def analyse(ctx: Context) -> int:
        return int(ctx.previous) + 1

    line = app.pipeline("line", phase(fetch), phase(analyse))
    async with working(app):
        await app.apause(queue="slow")
        job = await line.aenqueue(1)
        record = await eventually(job.arecord, lambda record: record.phase == "analyse")
        await app.apause(type="analyse")
        await app.aresume(queue="slow")
        assert record.status is State.QUEUED
        await app.aresume(type="analyse")
        assert await job.aresult(timeout=PATIENCE) == 2


# Held rates are closed as well


async def test_a_held_rate_is_told_and_gives_back_only_what_counts_against_it(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "windlass")
    go = asyncio.Event()

    @app.job
    async def block() -> None:
        await go.wait()

    @app.job(limits=[rate("domain", 100, every="1s", key="domain")])
    async def crawl(domain: str) -> str:
        return domain

    await block.aenqueue()
    async with working(app, concurrency=1) as (worker, events):
        await events.until(AttemptStarted)
        jobs: list[JobHandle[str]] = [await crawl.aenqueue(domain) for domain in ("a.org", "b.org")]
        assert await claim_ahead(worker, "crawl") == 2
        await app._client.aask(lambda store: store.hold_back("domain:a.org", 3600))
        await said(caplog, "all workers hold back at 'domain:a.org'")
        await in_state(jobs[0], State.QUEUED)
        go.set()
        assert await jobs[1].aresult(timeout=PATIENCE) == "b.org"
        assert (await jobs[0].arecord()).attempt == 0
