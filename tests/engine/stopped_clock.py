"""An app on a clock that the test moves: its leases outlast every jump, and time passes when the test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from windlass.runtime.worker import Worker
from windlass.store.protocol import Claim
from windlass.testing.clock import ManualClock

from .rig import PATIENCE, Database, EventRecorder, eventually, stores_of, working

T = TypeVar("T")

OUTLASTING: dict[str, Any] = {"lease": "3000d", "beat": "1000d", "history": "9000d", "audit": "9000d"}


class StoppedClock:
    """An app on a database with a clock that stands still."""

    def __init__(self, database: Database, **settings: Any) -> None:
        self.clock = ManualClock()
        self.database = database
        self.app = database.app(clock=self.clock, **(OUTLASTING | settings))

    @property
    def now(self) -> float:
        """Seconds since the story began."""
        return self.clock.monotonic()

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[tuple[Worker, EventRecorder]]:
        async with working(self.app, **options) as (worker, events):
            try:
                yield worker, events
            finally:
                worker.kill()  # the grace time would not pass on this clock

    async def moves(self, seconds: float) -> None:
        """The database is ahead of the workers for a moment: what they do may seem to be early by one step."""
        if self.database.dialect == "postgres":  # the database's time first: a worker that wakes reads it
            await self.database.run("UPDATE {}test_clock SET now = now + make_interval(secs => ?)", seconds)
        self.clock.advance(seconds)

    async def looked(self, worker: Worker) -> None:
        """Until the worker has claimed once more, at the time that it is now."""

        async def claimed_at() -> float:
            return worker.parts.discovery.last_success or 0.0

        await self.now_that(worker, claimed_at, lambda at: at >= self.now)

    async def now_that(self, worker: Worker, look: Callable[[], Awaitable[T]], fits: Callable[[T], bool]) -> T:
        """The first result of `look` that fits, while no time passes: the worker is nudged to claim instead."""

        async def nudged() -> T:
            worker.parts.discovery.nudge()
            return await look()

        return await eventually(nudged, fits)

    async def until(
        self, look: Callable[[], Awaitable[T]], fits: Callable[[T], bool] = bool, *, step: float = 0.05
    ) -> T:
        """The first result of `look` that fits; time passes meanwhile, a little at a time."""
        async with asyncio.timeout(PATIENCE):
            while not fits(seen := await look()):
                await self.moves(step)
                await asyncio.sleep(0.005)
        return seen


async def claim_ahead(worker: Worker, *types: str, room: int = 10) -> int:
    """Into the worker's memory, in front of processors that are taken, as a busy worker claims; returns how many."""
    claim = Claim(worker=worker.state.worker, room=room, types=types, rescan=True)
    began = worker.state.clock.monotonic()
    jobs = (await stores_of(worker).claim(claim)).jobs
    worker.parts.discovery.take(jobs, began, worker.state.clock.monotonic())
    return len(jobs)
