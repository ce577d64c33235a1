"""A worker's parts: complete when they are made, connected by signals, and stepped by hand where a test wants that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import State, Windlass
from windlass.observe.events import AttemptStarted, Event
from windlass.runtime.claims.steady_discovery import SteadyDiscovery
from windlass.runtime.parts import Stepping
from windlass.runtime.signals import Signal
from windlass.runtime.worker import Worker
from windlass.testing.databases import write_migrated_file


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[Callable[..., Windlass]]:
    """Apps on one SQLite file, closed at the end."""
    write_migrated_file(tmp_path / "jobs.db")
    made: list[Windlass] = []

    def make(**settings: Any) -> Windlass:
        made.append(Windlass(f"sqlite:///{tmp_path}/jobs.db", **settings))
        return made[-1]

    yield make
    for app in made:
        app.close()


def stepped(app: Windlass) -> Worker:
    return Worker(app.settings, app._registry, clock=app.clock, stepping=Stepping(lease=60.0))


def test_a_signal_calls_its_subscribers_in_the_order_in_which_they_came() -> None:
    heard: list[tuple[str, float]] = []
    signal: Signal[float] = Signal()
    signal(1.0)  # without a subscriber: nothing happens
    signal.subscribe(lambda seconds: heard.append(("first", seconds)))
    signal.subscribe(lambda seconds: heard.append(("second", seconds)))

    signal(2.0)

    assert heard == [("first", 2.0), ("second", 2.0)]


async def test_a_stepped_worker_does_nothing_until_it_is_stepped(make_app: Callable[..., Windlass]) -> None:
    app = make_app(poll="10ms")

    @app.job
    async def work() -> str:
        return "done"

    async with stepped(app) as worker:
        job = await work.aenqueue()
        await asyncio.sleep(0.05)  # five polls of a worker that runs by itself
        assert await job.astatus() is State.QUEUED

        await worker.step("discovery")
        await asyncio.gather(*(each.task for each in worker.state.leases.executions.values() if each.task))
        await worker.parts.completer.drained()

        assert await job.astatus() is State.SUCCEEDED
        assert [row.concurrency for row in await app.aworkers()] == [1]
    assert await app.aworkers() == []


@pytest.mark.parametrize(("pace", "nudged", "resumed"), [("eager", True, True), ("steady", False, True)])
async def test_only_the_steady_pace_ignores_that_jobs_may_be_due(
    make_app: Callable[..., Windlass], pace: str, nudged: bool, resumed: bool
) -> None:
    app = make_app(pace=pace)

    @app.job
    async def work() -> None: ...

    async with stepped(app) as worker:
        discovery, signals = worker.parts.discovery, worker.state.signals
        assert isinstance(discovery, SteadyDiscovery) is (pace == "steady")

        discovery._nudge.clear()
        signals.jobs_may_be_due()
        signals.processors_reset()
        signals.jobs_due_in(0.0)
        await asyncio.sleep(0.01)
        assert discovery._nudge.is_set() is nudged

        discovery._nudge.clear()
        signals.store_relieved()
        assert discovery._nudge.is_set() is resumed


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["due first", "created first"]),
        ({"order": "created_at"}, ["created first", "due first"]),
        ({"pace": "steady", "untouched": 0}, ["created first", "due first"]),
        ({"pace": "steady", "untouched": 0, "order": "run_at"}, ["due first", "created first"]),
    ],
)
async def test_the_order_of_a_claim_is_a_setting_that_the_pace_presets(
    make_app: Callable[..., Windlass], settings: dict[str, Any], expected: list[str]
) -> None:
    app = make_app(**settings)

    @app.job
    async def work(name: str) -> None: ...

    now = app.clock.now()
    for name, seconds in (("created first", 1), ("due first", 2)):
        await work.options(run_at=now - timedelta(seconds=seconds)).aenqueue(name)

    started: list[str] = []
    worker = stepped(app)

    def record(event: Event) -> None:
        if isinstance(event, AttemptStarted):
            started.append(event.job.arguments()["name"])

    worker.subscribe(record)
    async with worker:
        await worker.step(*(name for name in ("discovery", "coordinator") if name in worker.parts.services))
        await asyncio.gather(*(each.task for each in worker.state.leases.executions.values() if each.task))

    assert started == expected
