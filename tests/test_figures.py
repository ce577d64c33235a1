"""`app.figures` agrees with the jobs: each end of an attempt is counted once, and nothing else is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from uuid import UUID

import pytest

from servers import url_of
from windlass import Context, Dead, Snooze, State, Windlass, fixed
from windlass.testing import Harness, harness

ENDS = ("succeeded", "advanced", "failed", "dead", "cancelled")


@pytest.fixture
def app(request: pytest.FixtureRequest) -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", max_crashes=getattr(request, "param", 3))


@pytest.fixture
def types(app: Windlass) -> SimpleNamespace:
    runs: Counter[UUID] = Counter()

    @app.job(queue="mail", max_attempts=3, retry=fixed("1s"))
    async def work(ctx: Context, steps: list[str]) -> None:
        """Each run does the next of the steps."""
        runs[ctx.job.id] += 1
        match steps[runs[ctx.job.id] - 1]:
            case "fail":
                raise ValueError("no")
            case "dead":
                raise Dead("no use")
            case "snooze":
                raise Snooze("1s")
            case "sleep":
                await ctx.sleep("nap", "1s")
            case "stop":
                await (await app.afind(ctx.job.id)).acancel()
                await asyncio.Event().wait()
            case "transaction":
                async with ctx.transaction():
                    pass

    @app.job
    def analyse(site: str) -> str:
        return site

    @app.job
    def ask(site: str) -> str:
        return site

    @app.job
    async def parent(ctx: Context) -> None:
        await ctx.wait([ctx.spawn("child", work.call(["ok"]))])

    return SimpleNamespace(work=work, site=app.pipeline("site", analyse, ask), parent=parent)


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, types: SimpleNamespace) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s", raise_errors=False) as bench:
        yield bench


def figures(app: Windlass) -> dict[str, int]:
    """How many attempts ended in each way; ends that were never counted are left out."""
    rows = app.figures(since="1d")
    return {name: total for name in ENDS if (total := sum(getattr(row, name) for row in rows))}


def run_all(bench: Harness) -> None:
    """Run what is due, and what is due after its retry, snooze or sleep."""
    for _ in range(6):
        bench.drain()
        bench.clock.advance("2s")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("ok", {"succeeded": 1}),
        ("transaction", {"succeeded": 1}),
        ("fail ok", {"succeeded": 1, "failed": 1}),
        ("fail fail transaction", {"succeeded": 1, "failed": 2}),
        ("fail fail fail", {"failed": 2, "dead": 1}),
        ("fail dead", {"failed": 1, "dead": 1}),
        ("snooze snooze ok", {"succeeded": 1}),
        ("snooze dead", {"dead": 1}),
        ("sleep sleep", {"succeeded": 1}),
        ("stop", {"cancelled": 1}),
        ("fail stop", {"failed": 1, "cancelled": 1}),
    ],
)
def test_each_attempt_is_counted_by_its_end(
    app: Windlass, types: SimpleNamespace, bench: Harness, steps: str, expected: dict[str, int]
) -> None:
    types.work.enqueue(steps.split())

    run_all(bench)

    assert figures(app) == expected


@pytest.mark.parametrize(
    ("app", "expected"), [(2, {"succeeded": 1}), (1, {"dead": 1})], indirect=["app"], ids=["rescued", "dead"]
)
def test_a_crash_is_counted_where_it_is_the_end(
    app: Windlass, types: SimpleNamespace, bench: Harness, expected: dict[str, int]
) -> None:
    job = types.work.enqueue(["ok"])
    bench.crash_one(job)
    bench.clock.advance("31s")

    bench.drain()

    assert figures(app) == expected == {job.status().value: 1}


def test_cancels_are_counted_one_by_one_and_in_bulk(app: Windlass, types: SimpleNamespace, bench: Harness) -> None:
    queued, failed, waiting, *many = (types.work.enqueue([first, ""]) for first in ("", "fail", "sleep", *"12345"))
    bench.run_one(failed)
    bench.run_one(waiting)

    for job in (queued, failed, waiting):
        assert job.cancel() is State.CANCELLED
    assert figures(app) == {"failed": 1, "cancelled": 3}

    assert app.bulk("cancel", "queue:mail").changed == len(many)
    assert figures(app) == {"failed": 1, "cancelled": 8}
    assert app.counts()[State.CANCELLED] == 8


def test_a_cancelled_parent_and_its_child_are_two(app: Windlass, types: SimpleNamespace, bench: Harness) -> None:
    parent = types.parent.enqueue()
    bench.run_one(parent)

    parent.cancel()

    assert figures(app) == {"cancelled": 2} == {"cancelled": app.counts()[State.CANCELLED]}


def test_phases_are_counted_where_they_ran(app: Windlass, types: SimpleNamespace, bench: Harness) -> None:
    for site in ("a.org", "b.org"):
        types.site.enqueue(site)
    bench.drain()

    rows = app.figures(since="1d")

    assert figures(app) == {"succeeded": 2, "advanced": 2}
    assert {row.phase: (row.advanced, row.succeeded) for row in rows} == {"analyse": (2, 0), "ask": (0, 2)}


def test_what_an_operator_does_to_a_dead_job_takes_nothing_away(
    app: Windlass, types: SimpleNamespace, bench: Harness
) -> None:
    discarded, replayed = (types.work.enqueue(["dead", "ok"]) for _ in range(2))
    run_all(bench)

    discarded.discard()
    replayed.replay()
    bench.run_one(replayed)

    assert figures(app) == {"succeeded": 1, "dead": 2}
    assert app.counts()[State.DEAD] == 0


def test_the_sums_are_the_ends_of_all_jobs(app: Windlass, types: SimpleNamespace, bench: Harness) -> None:
    """All of it in one database, compared with the jobs themselves."""
    plans = ["ok", "fail ok", "fail fail fail", "dead", "snooze ok", "sleep ok", "stop", "transaction"]
    jobs = [types.work.enqueue(plan.split()) for plan in plans * 2]
    jobs += [types.site.enqueue("a.org"), types.parent.enqueue()]
    bench.crash_one(types.work.enqueue(["ok"]))
    bench.clock.advance("31s")
    run_all(bench)
    later = [types.work.options(delay="1d").enqueue(["ok"]) for _ in range(3)]
    later[0].cancel()
    app.bulk("cancel", "state:queued")
    (discarded, *_) = [job for job in jobs if job.status() is State.DEAD]
    retries = sum(row.retries for row in app.jobs(count=100))
    ended = Counter(row.status.value for row in app.jobs(count=100))
    discarded.discard()

    assert figures(app) == {**ended, "failed": retries, "advanced": 1}
    assert set(ended) == {"succeeded", "dead", "cancelled"}
