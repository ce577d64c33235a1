"""Limits and rates under a harness: they hold where jobs are run by hand, and not in inline mode."""

from __future__ import annotations

import pytest

from windlass import Context, State, Windlass, limit, rate
from windlass.testing import Harness
from windlass.testing.errors import NothingDue


def test_a_drain_runs_the_jobs_of_a_full_key_one_after_another(app: Windlass, bench: Harness) -> None:
    @app.job(limits=[limit("domain", 1), limit("tenant", 2)])
    def fetch(domain: str) -> str:
        return domain

    jobs = [fetch.enqueue(domain) for domain in "aabab"]

    assert [ran.output for ran in bench.drain()] == ["a", "a", "b", "a", "b"]
    assert jobs[0].record().limits == ["domain:a", "tenant:default"]


def test_a_rate_lets_the_next_one_start_when_the_clock_has_moved_on(app: Windlass, bench: Harness) -> None:
    @app.job(limits=[rate("api", 2, every="1h", burst=1)])
    def call(n: int) -> int:
        return n

    for n in range(3):
        call.enqueue(n)

    assert [ran.output for ran in bench.drain()] == [0]
    bench.clock.advance("29m59s")
    assert bench.drain() == []
    with pytest.raises(NothingDue, match="'api' has no room: let the ones before it end, or move the clock"):
        bench.run_one()
    bench.clock.advance("1s")
    assert bench.run_one().output == 1
    bench.clock.advance("1h")
    assert [ran.output for ran in bench.drain()] == [2]


def test_a_rate_that_no_job_type_names_is_declared(app: Windlass, bench: Harness) -> None:
    app.rate("wikidata", 1, every="1h")

    @app.job
    async def ask(ctx: Context) -> str:
        await ctx.acquire("wikidata")
        return "asked"

    ask.enqueue()
    ask.enqueue()

    assert [ran.state for ran in bench.drain(raise_errors=True)] == [State.SUCCEEDED, State.QUEUED]
    bench.clock.advance("1h")
    assert [ran.output for ran in bench.drain()] == ["asked"]


def test_a_worker_that_died_holds_its_slot_until_its_lease_ends(app: Windlass, bench: Harness) -> None:
    @app.job(limits=[limit("domain", 1)])
    def fetch(domain: str, n: int) -> int:
        return n

    first, second = fetch.enqueue("a", 1), fetch.enqueue("a", 2)
    assert bench.crash_one(first).id == first.id
    with pytest.raises(NothingDue, match="'domain:a' has no room"):
        bench.crash_one(second)

    assert bench.drain() == []
    with pytest.raises(NothingDue, match="'domain:a' has no room"):
        bench.run_one(second)
    bench.clock.advance("31s")
    assert sorted(ran.output for ran in bench.drain()) == [1, 2]


def test_inline_mode_runs_without_limits(app: Windlass, bench: Harness) -> None:
    @app.job(limits=[limit("domain", 1), rate("api", 1, every="1h")])
    async def fetch(domain: str, depth: int) -> int:
        return depth + (await (await fetch.aenqueue(domain, depth - 1)).aresult() if depth else 0)

    @app.job(limits=[rate("api", 1, every="1h")])
    async def store(ctx: Context) -> str:
        return "stored"

    @app.job(limits=[rate("api", 1, every="1h")])
    async def crawl(ctx: Context) -> list[int]:
        return await ctx.wait(ctx.spawn_many("page", [fetch.call("a", 0) for _ in range(3)]))

    line = app.pipeline("line", crawl, store)
    with bench.inline(raise_errors=True):
        nested, through = fetch.enqueue("a", 3), line.enqueue()
        assert (nested.status(), through.status()) == (State.SUCCEEDED, State.SUCCEEDED)
        assert (nested.result(), through.result()) == (6, "stored")

    waiting = fetch.enqueue("a", 0)
    assert waiting.record().limits == ["domain:a", "api"]
    assert waiting.status() is State.QUEUED
