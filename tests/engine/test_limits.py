"""Limits of a program at work: never more at a time than a key allows, and a slot comes back however its job ends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from windlass import Context, Dead, JobHandle, Snooze, State, Windlass, fixed, limit, rate
from windlass.model.job import Job
from windlass.observe.events import LeasesLost
from windlass.runtime.worker import Worker

from .rig import PATIENCE, Database, come, ended, eventually, failure, in_state, working
from .test_lost_lease import QUICK, declare_dead


class Crowd:
    """Where handlers wait until the test releases them, one by one; it counts how many are inside at a time."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self._exits = asyncio.Semaphore(0)
        self._changed = asyncio.Event()

    async def enter(self, *keys: str) -> None:
        self.inside.update(keys)
        self.peak |= self.inside
        self._changed.set()
        try:
            await self._exits.acquire()
            self.left.update(keys)
        finally:
            self.inside.subtract(keys)
            self._changed.set()

    def let_out(self, count: int = 1) -> None:
        for _ in range(count):
            self._exits.release()

    async def until(self, **counts: int) -> None:
        """Until so many are inside."""
        await self._come_true(lambda: all(self.inside[key] == count for key, count in counts.items()))

    async def empty(self, most: int, **jobs: int) -> None:
        """Let out one after another until all of these have left; each time the places are taken again."""
        for number in range(sum(jobs.values())):
            self.let_out()
            await self._come_true(lambda: sum(self.left[key] for key in jobs) > number)  # noqa: B023
            await self.until(**{key: min(most, count - self.left[key]) for key, count in jobs.items()})

    async def _come_true(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


def domain_of(url: str) -> str:
    return urlsplit(url).netloc


async def used(app: Windlass) -> dict[str, int]:
    """The slots that are taken, by key."""
    rows = await app._client.aask(lambda store: store.limits())
    return {row.key: row.used for row in rows if row.used}


async def parked(job: JobHandle[Any]) -> str:
    """The key at which the job was found to have no room."""
    record = await eventually(job.arecord, lambda record: record.parked_on is not None)
    assert record.parked_on is not None
    assert record.status in (State.QUEUED, State.FAILED)
    return record.parked_on


@asynccontextmanager
async def two_workers(app: Windlass, **options: Any) -> AsyncIterator[list[Worker]]:
    async with working(app, **options) as (first, _), working(app, **options) as (second, _):
        yield [first, second]


# Never above


async def test_two_workers_run_two_of_each_domain_at_a_time_and_no_more(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 2, key=domain_of), limit("tenant", 20)])
    async def fetch(url: str) -> str:
        await crowd.enter(domain_of(url))
        return url

    urls = [f"https://{domain}/{n}" for n in range(5) for domain in "abc"]
    jobs = await app.aenqueue_many(fetch.call(url) for url in urls)
    assert (await jobs[0].arecord()).limits == ["domain:a", "tenant:default"]

    async with two_workers(app, concurrency=20):
        await crowd.until(a=2, b=2, c=2)
        assert await used(app) == {"domain:a": 2, "domain:b": 2, "domain:c": 2, "tenant:default": 6}
        await crowd.empty(2, a=5, b=5, c=5)
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == urls

    assert crowd.peak == {"a": 2, "b": 2, "c": 2}
    assert await used(app) == {}


async def test_of_several_limits_on_one_job_the_narrowest_holds_and_hides_nobody_else(
    app: Windlass, crowd: Crowd
) -> None:
    @app.job(limits=[limit("domain", 2, key=domain_of), limit("tenant", 3)])
    async def fetch(ctx: Context, url: str) -> None:
        await crowd.enter(domain_of(url), ctx.job.tenant)

    for n in range(3):
        for domain in "abc":
            await fetch.options(tenant="acme").aenqueue(f"https://{domain}/{n}")
    async with two_workers(app, concurrency=20):
        await crowd.until(acme=3)
        other = await fetch.options(tenant="other").aenqueue("https://d/1")
        await crowd.until(acme=3, other=1, d=1)
        await crowd.empty(3, acme=9, other=1)
        await other.aresult(timeout=PATIENCE)
        await eventually(lambda: used(app), lambda taken: not taken)

    assert (crowd.left["acme"], crowd.peak["acme"]) == (9, 3)
    assert max(crowd.peak[domain] for domain in "abc") <= 2


async def test_hundreds_of_a_full_key_hide_nobody_behind_them(database: Database, crowd: Crowd) -> None:
    app = database.app(concurrency=4, grace="0s")

    @app.job(limits=[limit("domain", 1)])
    async def fetch(domain: str) -> None:
        await crowd.enter(domain)

    @app.job
    async def free() -> str:
        return "free"

    async with working(app):
        await app.aenqueue_many(fetch.call("a") for _ in range(500))
        await crowd.until(a=1)
        behind = await fetch.aenqueue("b")
        plain = await free.aenqueue()
        assert await plain.aresult(timeout=PATIENCE) == "free"
        await crowd.until(a=1, b=1)
        assert await behind.astatus() is State.RUNNING
        crowd.let_out(2)

    assert crowd.peak["a"] == 1


async def test_what_the_enqueue_says_counts_instead(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 1, key=domain_of)])
    async def fetch(url: str, name: str) -> None:
        await crowd.enter(name)

    async with working(app):
        await fetch.aenqueue("https://a.org", "first")
        await crowd.until(first=1)
        same = await fetch.options(limits={"domain": "a.org"}).aenqueue("https://b.org", "same")
        other = await fetch.options(limits={"domain": "c.org"}).aenqueue("https://a.org", "other")
        uncounted = await fetch.options(limits={"domain": None}).aenqueue("https://a.org", "uncounted")
        await crowd.until(first=1, other=1, uncounted=1)
        assert await parked(same) == "domain:a.org"
        assert ((await other.arecord()).limits, (await uncounted.arecord()).limits) == (["domain:c.org"], None)

        crowd.let_out(3)
        await crowd.until(same=1)
        crowd.let_out()


async def test_a_tenants_scope_counts_each_tenant_apart(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 1, scope="tenant")])
    async def fetch(ctx: Context, domain: str) -> None:
        await crowd.enter(ctx.job.tenant)

    async with working(app):
        for tenant in ("one", "two", "one", "two"):
            await fetch.options(tenant=tenant).aenqueue("a.org")
        await crowd.until(one=1, two=1)
        assert await used(app) == {"domain:one/a.org": 1, "domain:two/a.org": 1}
        await crowd.empty(1, one=2, two=2)


async def test_the_last_program_that_started_is_right_about_a_limit(database: Database, crowd: Crowd) -> None:
    def program(most: int) -> tuple[Windlass, Any]:
        app = database.app()

        @app.job(limits=[limit("export", most)])
        async def export() -> None:
            await crowd.enter("export")

        return app, export

    old, export = program(1)
    new, _ = program(3)
    async with working(old):
        for _ in range(5):
            await export.aenqueue()
        await crowd.until(export=1)
        async with working(new):
            await crowd.until(export=3)
            await crowd.empty(3, export=5)

    assert crowd.peak["export"] == 3


async def test_a_worker_that_begins_again_declares_again(database: Database) -> None:
    app = database.app(**QUICK)
    app.rate("wikidata", 5, every="1s")

    @app.job(limits=[limit("export", 1)])
    async def export() -> None: ...

    async def declared() -> set[str]:
        return {row[0] for row in await database.run("SELECT name FROM {}limits")}

    async with working(app) as (_, events):
        assert await declared() == {"wikidata", "export"}
        await database.run("DELETE FROM {}limits")
        await declare_dead(database)
        await events.until(LeasesLost)
        assert await eventually(declared, bool) == {"wikidata", "export"}


# Wherever a job comes from


async def test_each_phase_of_a_pipeline_has_limits_of_its_own(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("fetching", 2)])
    async def fetch(url: str) -> None:
        await crowd.enter("fetch")

    @app.job(limits=[limit("domain", 1, key=domain_of)])
    async def parse(ctx: Context, url: str) -> None:
        assert ctx.job.limits == ["domain:a.org"]
        await crowd.enter("parse")
        async with ctx.transaction() as transaction:  # its finish takes another way to the database
            await transaction.execute("INSERT INTO effects (n) VALUES ($1)", 1)

    @app.job
    async def store(ctx: Context) -> list[str] | None:
        return ctx.job.limits

    site = app.pipeline("site", fetch, parse, store)
    parsing = app.pipeline("parsing", parse)
    async with two_workers(app):
        jobs = [await site.aenqueue("https://a.org") for _ in range(3)]
        await crowd.until(fetch=2)
        crowd.let_out(3)
        await crowd.until(parse=1)
        await eventually(lambda: used(app), lambda taken: taken == {"domain:a.org": 1})
        assert crowd.left["fetch"] == 3
        assert (await parked(await parsing.aenqueue("https://a.org"))) == "domain:a.org"
        crowd.let_out(4)
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == [None] * 3
        await eventually(lambda: used(app), lambda taken: not taken)

    assert crowd.peak == {"fetch": 2, "parse": 1}
    assert (await jobs[0].arecord()).limits is None


async def test_a_phase_whose_keys_cannot_be_made_is_told_before_the_work_of_the_one_before(app: Windlass) -> None:
    runs: list[str] = []

    @app.job(max_attempts=1)
    async def fetch(url: str) -> None:
        runs.append(url)

    @app.job(limits=[limit("domain", 1, key=lambda url: urlsplit(url).port)])
    async def parse(url: str) -> None:
        runs.append(url)

    site = app.pipeline("site", fetch, parse)
    async with working(app):
        record = await ended(await site.aenqueue("https://a.org:port"))

    assert (record.status, record.phase, runs) == (State.DEAD, "fetch", [])
    assert failure(record).type == "windlass.errors.FlowError"
    assert "phase 'parse': limit 'domain': key=<lambda> raised ValueError" in failure(record).message


async def test_children_count_and_a_waiting_parent_does_not(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 1)])
    async def fetch(domain: str) -> str:
        await crowd.enter(domain)
        return domain

    @app.job(limits=[limit("domain", 1)])
    async def crawl(ctx: Context, domain: str) -> list[str]:
        return await ctx.wait(ctx.spawn_many("page", [fetch.call(domain) for _ in range(3)]))

    async with two_workers(app):
        parent = await crawl.aenqueue("a")
        await crowd.until(a=1)
        assert await used(app) == {"domain:a": 1}
        await crowd.empty(1, a=3)
        assert await parent.aresult(timeout=PATIENCE) == ["a"] * 3

    assert crowd.peak["a"] == 1
    assert await used(app) == {}


async def test_batches_and_graphs_count(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 2)])
    async def fetch(domain: str) -> None:
        await crowd.enter(domain)

    @app.job(limits=[limit("notify", 1)])
    async def notify() -> str:
        return "all of them"

    batch = await app.abatch([fetch.call("a") for _ in range(4)], then=notify.call())
    graph = app.graph()
    before = [graph.add(f"page {n}", fetch.call("b")) for n in range(4)]
    graph.add("notify", notify.call(), after=before)
    handles = await graph.aenqueue()
    async with two_workers(app):
        await crowd.until(a=2, b=2)
        await crowd.empty(2, a=4, b=4)
        assert await batch.aresult(timeout=PATIENCE) == "all of them"
        assert await handles["notify"].aresult(timeout=PATIENCE) == "all of them"

    assert crowd.peak == {"a": 2, "b": 2}
    assert (await batch.callback.arecord()).limits == ["notify"]


async def test_a_follow_up_counts_by_what_is_known_ahead(app: Windlass) -> None:
    kept: asyncio.Queue[Job] = asyncio.Queue()

    @app.job(limits=[limit("tenant", 1), limit("alarms", 1)])
    async def alarm(ctx: Context, id: str) -> None:
        kept.put_nowait(ctx.job)

    @app.job(on_dead=alarm)
    async def work() -> None:
        raise Dead("no")

    async with working(app):
        await work.options(tenant="acme").aenqueue()
        async with asyncio.timeout(PATIENCE):
            record = await kept.get()

    assert (record.limits, record.tenant) == (["tenant:acme", "alarms"], "acme")


async def test_an_enqueue_on_a_connection_of_the_callers_counts(app: Windlass, database: Database) -> None:
    @app.job(limits=[limit("domain", 1)])
    def fetch(domain: str) -> None: ...

    if database.dialect == "postgres":
        connection = await asyncpg.connect(database.url)
        async with connection.transaction():
            job = await fetch.options(conn=connection).aenqueue("a")
        await connection.close()
    else:

        def produce() -> JobHandle[None]:
            connection = sqlite3.connect(database.url.removeprefix("sqlite:///"), timeout=PATIENCE)
            with connection:
                return fetch.options(conn=connection).enqueue("a")

        job = await asyncio.to_thread(produce)

    assert (await job.arecord()).limits == ["domain:a"]


async def test_a_dead_job_that_is_replayed_counts_again(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 1)], max_attempts=1)
    async def fetch(domain: str, name: str) -> None:
        await crowd.enter(name)
        if crowd.left["first"] == 1:
            raise RuntimeError("no")

    async with working(app):
        first = await fetch.aenqueue("a", "first")
        await crowd.until(first=1)
        crowd.let_out()
        await in_state(first, State.DEAD)
        assert await used(app) == {}

        other = await fetch.aenqueue("a", "other")
        await crowd.until(other=1)
        assert await first.areplay() is State.QUEUED
        assert await parked(first) == "domain:a"
        crowd.let_out()
        await crowd.until(first=1, other=0)
        assert await used(app) == {"domain:a": 1}
        crowd.let_out()
        await first.aresult(timeout=PATIENCE)
        assert (await in_state(other, State.DEAD)).limits == ["domain:a"]


# A slot comes back


async def forever() -> None:
    await asyncio.Event().wait()


async def raises(ctx: Context) -> None:
    raise RuntimeError("no")


async def dies(ctx: Context) -> None:
    raise Dead("no")


async def snoozes(ctx: Context) -> None:
    raise Snooze("1h")


async def sleeps(ctx: Context) -> None:
    await ctx.sleep("nap", "1h")


async def waits(ctx: Context) -> None:
    await ctx.wait_signal("never")


async def succeeds(ctx: Context) -> None: ...


async def commits(ctx: Context) -> None:
    async with ctx.transaction() as transaction:
        await transaction.execute("INSERT INTO effects (n) VALUES ($1)", 1)


async def lasts(ctx: Context) -> None:
    await forever()


@pytest.mark.parametrize(
    ("isolation", "state"),
    [
        (succeeds, State.SUCCEEDED),
        (commits, State.SUCCEEDED),
        (raises, State.FAILED),
        (dies, State.DEAD),
        (snoozes, State.QUEUED),
        (sleeps, State.WAITING),
        (waits, State.WAITING),
        (lasts, State.FAILED),
    ],
)
async def test_a_slot_comes_back_however_an_attempt_ends(database: Database, isolation: Any, state: State) -> None:
    app = database.app(poll="60s")  # no worker polls: the release of a slot unparks
    begun, go, second_begun = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.job(limits=[limit("domain", 1)], retry=fixed("1h"), timeout="2s" if isolation is lasts else None)
    async def first(ctx: Context, domain: str) -> None:
        begun.set()
        await come(go)
        await isolation(ctx)

    @app.job(limits=[limit("domain", 1)])
    async def second(domain: str) -> None:
        second_begun.set()

    async with working(app):
        job = await first.aenqueue("a")
        await come(begun)
        other = await second.aenqueue("a")
        if isolation is not lasts:  # with a time limit that may be up before a worker polls
            assert await parked(other) == "domain:a"
        go.set()
        await come(second_begun)
        await other.aresult(timeout=PATIENCE)
        assert await in_state(job, state)
        assert await used(app) == {}


async def test_a_cancel_gives_the_slot_back_when_the_handler_has_stopped(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 1)])
    async def fetch(domain: str, name: str) -> None:
        await crowd.enter(name)

    async with working(app):
        running = await fetch.aenqueue("a", "running")
        await crowd.until(running=1)
        queued, third = await fetch.aenqueue("a", "queued"), await fetch.aenqueue("a", "third")
        assert {await parked(queued), await parked(third)} == {"domain:a"}
        assert await queued.acancel() is State.CANCELLED  # it has no slot to give back
        assert await used(app) == {"domain:a": 1}
        await running.acancel()
        await crowd.until(running=0, third=1)
        assert (await in_state(running, State.CANCELLED)).limits == ["domain:a"]
        assert await used(app) == {"domain:a": 1}
        crowd.let_out()
        await third.aresult(timeout=PATIENCE)

    assert crowd.peak["queued"] == 0
    assert await used(app) == {}


async def test_a_worker_that_stops_gives_its_slots_back(database: Database, crowd: Crowd) -> None:
    app = database.app(grace="0s")

    @app.job(limits=[limit("domain", 2)])
    async def fetch(domain: str) -> None:
        await crowd.enter(domain)

    jobs = await app.aenqueue_many(fetch.call("a") for _ in range(4))
    async with working(app):
        await crowd.until(a=2)
    assert await used(app) == {}

    async with working(app):
        await crowd.until(a=2)
        await crowd.empty(2, a=4)
        for job in jobs:
            await job.aresult(timeout=PATIENCE)
    assert await used(app) == {}


async def test_the_slots_of_a_lost_worker_come_back(database: Database, crowd: Crowd) -> None:
    app = database.app(**QUICK)

    @app.job(limits=[limit("domain", 1)])
    async def fetch(domain: str) -> str:
        await crowd.enter(domain)
        return domain

    async with working(app):
        job = await fetch.aenqueue("a")
        await crowd.until(a=1)
        await declare_dead(database)
        await crowd.until(a=0)
        await crowd.until(a=1)
        assert await used(app) == {"domain:a": 1}
        crowd.let_out()
        assert await job.aresult(timeout=PATIENCE) == "a"

    assert (crowd.peak["a"], await used(app)) == (1, {})


async def test_a_snoozed_job_takes_its_turn_again_when_it_is_due(app: Windlass, crowd: Crowd) -> None:
    @app.job(limits=[limit("domain", 1)])
    async def fetch(ctx: Context, domain: str) -> int:
        await crowd.enter(domain)
        if ctx.job.fence == 1:
            raise Snooze(0)
        return ctx.job.fence

    async with two_workers(app):
        jobs = [await fetch.aenqueue("a") for _ in range(2)]
        await crowd.until(a=1)
        await crowd.empty(1, a=4)
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == [2, 2]

    assert crowd.peak["a"] == 1


# Rates at the claim


async def test_a_rate_lets_as_many_start_as_it_has_tokens(app: Windlass) -> None:
    started: list[int] = []
    first = asyncio.Event()

    @app.job(limits=[rate("api", 1, every="1h")])
    async def call(n: int) -> None:
        started.append(n)
        first.set()

    async with two_workers(app):
        jobs = [await call.aenqueue(n) for n in range(3)]
        await come(first)
        waiting = [job for job in jobs if job.id != jobs[started[0]].id]
        assert [await parked(job) for job in waiting] == ["api", "api"]

    assert len(started) == 1
