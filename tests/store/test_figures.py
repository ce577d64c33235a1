"""Figures agree with the jobs: whatever ended is counted once, in the span in which it ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.figures import BOUNDS, bucket_of, quantile
from windlass.model.state import State, Verb

if TYPE_CHECKING:
    from .rig import Rig

OUTCOMES = ("succeeded", "advanced", "failed", "dead", "cancelled")
NOTHING = dict.fromkeys(OUTCOMES, 0)

REFUSE_ATTEMPTS = {
    "postgres": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this'; END $$",
        "CREATE TRIGGER refuse BEFORE UPDATE OF attempts ON {}jobs FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "sqlite": ("CREATE TRIGGER refuse BEFORE UPDATE OF attempts ON {}jobs BEGIN SELECT RAISE(ABORT, 'not this'); END",),
}
"""Statements after which only the smallest write rescues a job."""


async def totals(rig: Rig) -> dict[str, int]:
    rows = await rig.store.figures(since=3 * 86_400.0, step=60.0)
    return {name: sum(getattr(row, name) for row in rows) for name in OUTCOMES}


async def end_some(rig: Rig) -> None:
    """Three successes, two retries, a death, a cancel by the worker, one by an operator; a lease is lost."""
    for verb, times in ((Verb.SUCCEED, 3), (Verb.FAIL, 2), (Verb.BURY, 1), (Verb.STOP, 1)):
        for _ in range(times):
            await rig.write((await rig.held()).lease, verb, elapsed=0.5, delay=3_600.0 if verb is Verb.FAIL else None)
    await rig.store.operate(Verb.CANCEL, await rig.enqueue(delay=3_600.0))
    late = await rig.held()
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=1)  # it is dead after this crash
    assert (await rig.write(late.lease, Verb.SUCCEED)).lost == {late.id}


EXPECTED = {"succeeded": 3, "advanced": 0, "failed": 2, "dead": 2, "cancelled": 2}


async def test_figures_agree_with_the_jobs(rig: Rig) -> None:
    await end_some(rig)

    counts = await rig.store.counts()

    assert await totals(rig) == EXPECTED
    assert {name: counts[State(name)] for name in OUTCOMES if name != "advanced"} == {
        name: count for name, count in EXPECTED.items() if name != "advanced"
    }
    rows = await rig.store.figures(since=86_400.0, step=60.0)
    assert sum(row.run_seconds for row in rows) == 7 * 0.5
    assert sum(map(sum, (row.runs for row in rows))) == 7  # attempts: an operator's cancel and a crash have no end


async def test_a_fold_changes_no_figure(rig: Rig) -> None:
    await end_some(rig)
    await rig.advance(10)

    await rig.store.fold_figures()
    folded = await rig.run("SELECT DISTINCT worker FROM {}figures")
    await rig.store.fold_figures(minutes=True)

    assert len(folded) == 1
    assert await totals(rig) == EXPECTED

    for age, span in ((1_900, 60), (86_400, 600)):
        await rig.advance(age)
        await rig.store.fold_figures(minutes=True)

        assert await totals(rig) == EXPECTED
        rows = await rig.store.figures(since=2 * 86_400.0, step=10.0)
        assert {row.at.timestamp() % span for row in rows} == {0}


async def test_two_leaders_count_nothing_twice(rig: Rig) -> None:
    await end_some(rig)
    await rig.advance(10)

    async with rig.stores(4) as stores:
        await asyncio.gather(*(store.fold_figures(minutes=True) for store in stores))

    assert await totals(rig) == EXPECTED


async def test_the_span_that_is_not_over_is_not_folded(rig: Rig) -> None:
    await rig.write((await rig.held()).lease, Verb.SUCCEED)

    await rig.store.fold_figures()

    (row,) = await rig.run("SELECT worker FROM {}figures")
    assert str(row[0]) == str(rig.worker)


async def test_a_worker_has_one_row_for_a_queue_and_a_span(rig: Rig) -> None:
    for _ in range(5):
        await rig.write((await rig.held()).lease, Verb.SUCCEED, elapsed=0.003)

    (found,) = await rig.run("SELECT succeeded FROM {}figures")
    assert found[0] == 5
    (row,) = await rig.store.figures(since=60.0, step=10.0)
    assert (row.runs[bucket_of(0.003)], row.run_p50, row.run_p95) == (5, 0.005, 0.005)


async def test_the_wait_is_from_due_to_start_and_never_negative(rig: Rig) -> None:
    job = await rig.held()
    await rig.write(job.lease, Verb.SUCCEED, elapsed=60.0)  # the clock was set back: it began before it was due
    await rig.enqueue()
    await rig.advance(3)
    (late,) = await rig.claim()
    await rig.write(late.lease, Verb.SUCCEED, elapsed=1.0)

    rows = await rig.store.figures(since=60.0, step=60.0)

    assert sum(row.wait_seconds for row in rows) == 2.0


async def test_figures_are_dropped_with_the_history(rig: Rig) -> None:
    await end_some(rig)
    await rig.store.sample_depths()
    await rig.advance(7_200)

    await rig.store.prune(history=3_600.0, audit=3_600.0)

    assert await totals(rig) == NOTHING
    assert await rig.store.depths(since=86_400.0) == []


async def test_depths_are_sampled_once_in_a_span(rig: Rig) -> None:
    await rig.enqueue_many(3, queue="mail")

    await rig.store.sample_depths()
    await rig.store.sample_depths()

    (sample,) = await rig.store.depths(since=60.0, queue="mail")
    assert (sample.queue, sample.queued, sample.dead) == ("mail", 3, 0)


async def test_both_dialects_have_the_same_buckets(rig: Rig) -> None:
    if rig.dialect == "sqlite":
        pytest.skip("SQLite has no buckets of its own: the store counts with bucket_of")
    for seconds in [0.0, *(edge + off for edge in BOUNDS for off in (-0.0001, 0.0)), 1e9]:
        ((counted,),) = await rig.run(f"SELECT {{}}histogram(ARRAY[{seconds!r}::float8])")
        assert list(counted) == [int(place == bucket_of(seconds)) for place in range(len(BOUNDS) + 1)], seconds


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    counts: list[Any] = [0] * (len(BOUNDS) + 1)
    assert quantile(counts, 0.5) is None
    counts[bucket_of(0.15)], counts[bucket_of(40.0)] = 90, 10
    assert (quantile(counts, 0.5), quantile(counts, 0.95)) == (0.2, 50.0)


# The smallest writes, for rows that refuse any other


async def test_a_job_that_cannot_be_read_is_counted_as_dead(rig: Rig) -> None:
    job = await rig.held(queue="mail")

    assert await rig.store.bury_unreadable(job.lease, "could not be read")
    assert not await rig.store.bury_unreadable(job.lease, "could not be read")  # the lease is used up

    assert await totals(rig) == {**NOTHING, "dead": 1}
    (row,) = await rig.store.figures(since=60.0, step=60.0, queue="mail")
    assert (row.phase, row.dead, sum(row.runs)) == ("mail", 1, 0)


@pytest.mark.parametrize(("max_crashes", "dead"), [(1, 1), (3, 0)])
async def test_a_row_that_refuses_its_rescue_is_counted_when_it_is_dead(rig: Rig, max_crashes: int, dead: int) -> None:
    job = await rig.held()
    for statement in REFUSE_ATTEMPTS[rig.dialect]:
        await rig.run(statement)
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=max_crashes)

    assert await rig.status(job.id) is (State.DEAD if dead else State.QUEUED)
    assert await totals(rig) == {**NOTHING, "dead": dead}
