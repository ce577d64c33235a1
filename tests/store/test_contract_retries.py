"""`retries` of a record in every state: what the seeds count as `retryCount`, 0 to 3 with four attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from servers import url_of
from windlass import Context, Dead, JobHandle, Retry, Snooze, State, Windlass, fixed
from windlass.model.job import Job
from windlass.model.state import Verb
from windlass.testing import Harness, harness

from .rig import Rig

ATTEMPTS = 4


class Script:
    """A job that does at each run what its script says, and writes down its retries while it runs."""

    def __init__(self, app: Windlass) -> None:
        self.steps: list[str] = []
        self.seen: list[int] = []

        @app.job(max_attempts=ATTEMPTS, retry=fixed("1s"), permanent=[KeyError])
        async def work(ctx: Context) -> None:
            self.seen.append(ctx.job.retries)
            match self.steps.pop(0):
                case "fail":
                    raise ValueError("no")
                case "permanent":
                    raise KeyError("never")
                case "retry":
                    raise Retry(after="1s")
                case "dead":
                    raise Dead("no use")
                case "snooze":
                    raise Snooze("1s")
                case "sleep":
                    await ctx.sleep("nap", "1s")
                case "signal":
                    await ctx.wait_signal("go")

        self.work = work


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db")


@pytest.fixture
def script(app: Windlass) -> Script:
    return Script(app)


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, script: Script) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


@pytest.mark.parametrize(
    ("steps", "running", "after", "end"),
    [
        # what each run does; the retries while it runs; the retries after it; the last state
        ("ok", [0], [0], State.SUCCEEDED),
        ("fail ok", [0, 1], [1, 1], State.SUCCEEDED),
        ("fail fail fail ok", [0, 1, 2, 3], [1, 2, 3, 3], State.SUCCEEDED),
        ("fail fail fail fail", [0, 1, 2, 3], [1, 2, 3, 3], State.DEAD),
        ("retry retry retry retry", [0, 1, 2, 3], [1, 2, 3, 3], State.DEAD),
        ("permanent", [0], [0], State.DEAD),
        ("dead", [0], [0], State.DEAD),
        ("fail permanent", [0, 1], [1, 1], State.DEAD),
        ("fail fail dead", [0, 1, 2], [1, 2, 2], State.DEAD),
        ("snooze fail", [0, 0], [0, 1], State.FAILED),
        ("fail snooze snooze", [0, 1, 1], [1, 1, 1], State.QUEUED),
        ("signal", [0], [0], State.WAITING),
        ("fail signal", [0, 1], [1, 1], State.WAITING),
    ],
)
def test_retries_grow_with_each_failure_and_with_nothing_else(
    bench: Harness, script: Script, steps: str, running: list[int], after: list[int], end: State
) -> None:
    script.steps += steps.split()
    job = script.work.enqueue()

    seen = []
    for _ in steps.split():
        bench.run_one(job)
        seen.append(job.record().retries)
        bench.clock.advance("2s")

    assert (script.seen, seen) == (running, after)
    assert job.status() is end


@pytest.mark.parametrize(
    ("steps", "retries"), [("", 0), ("fail", 1), ("snooze", 0), ("fail signal", 1), ("signal", 0), ("fail fail", 2)]
)
def test_a_cancel_and_a_resume_leave_the_retries_as_they_are(
    bench: Harness, script: Script, steps: str, retries: int
) -> None:
    job = ran(bench, script, steps)

    assert job.cancel() is State.CANCELLED
    assert job.record().retries == retries
    job.resume()
    assert (job.status(), job.record().retries) == (State.QUEUED, retries)


def test_an_operators_retry_counts_nothing_and_a_replay_counts_from_zero(bench: Harness, script: Script) -> None:
    failed = ran(bench, script, "fail")
    failed.retry()
    assert (failed.status(), failed.record().retries) == (State.QUEUED, 1)

    dead = ran(bench, script, "fail dead")
    dead.replay()
    assert (dead.status(), dead.record().retries) == (State.QUEUED, 0)


def ran(bench: Harness, script: Script, steps: str) -> JobHandle[Any]:
    script.steps += steps.split()
    job = script.work.enqueue()
    for _ in steps.split():
        bench.run_one(job)
        bench.clock.advance("2s")
    return job


# What only a store does: a dead worker, a row that cannot be read, a release


async def second_run(rig: Rig) -> Job:
    """A job that failed once and runs again."""
    first = await rig.held()
    await rig.write(first.lease, Verb.FAIL, attempt=1, delay=0.0)
    return await rig.take(first.id)


async def test_a_release_in_the_second_run_is_no_retry(rig: Rig) -> None:
    job = await second_run(rig)

    await rig.write(job.lease, Verb.RELEASE, attempt=1)

    assert ((await rig.find(job.id)).status, (await rig.find(job.id)).retries) == (State.QUEUED, 1)


@pytest.mark.parametrize(
    ("crash_counts", "max_crashes", "state", "retries"),
    [(False, 3, State.QUEUED, 1), (True, 3, State.QUEUED, 2), (False, 1, State.DEAD, 1), (True, 1, State.DEAD, 1)],
)
async def test_a_crash_is_a_retry_where_crashes_count(
    rig: Rig, crash_counts: bool, max_crashes: int, state: State, retries: int
) -> None:
    job = await second_run(rig)
    await rig.die(rig.worker)

    await rig.store.sweep(max_crashes=max_crashes, crash_counts=crash_counts)

    found = await rig.find(job.id)
    assert (found.status, found.retries) == (state, retries)


async def test_a_job_that_could_not_be_written_keeps_its_retries(rig: Rig) -> None:
    job = await second_run(rig)

    assert await rig.store.bury_unreadable(job.lease, "could not be read")

    found = await rig.find(job.id)
    assert (found.status, found.retries) == (State.DEAD, 1)


async def test_a_node_whose_dependency_died_had_no_retry(rig: Rig) -> None:
    from windlass.model.job import Edge, Policy, Wait

    first = await rig.held()
    node = await rig.enqueue(wait=Wait(edges=(Edge(first.id, Policy.FAIL),), need=1))
    await rig.write(first.lease, Verb.BURY, attempt=1, reason="permanent", followed=True)

    found = await rig.find(node)
    assert (found.status, found.retries) == (State.DEAD, 0)
