"""The seeds' site analysis at the steady pace, on a clock that the story moves, with a note of whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from windlass import Context, JobHandle, Pipeline, phase
from windlass.observe.events import AttemptEnded, AttemptStarted, Event
from windlass.runtime.worker import Worker
from windlass.store.protocol import Claim, Claimed
from windlass.testing.clock import ManualClock

from .rig import Database, EventRecorder, eventually, stores_of, working

STEP = 5.0  # seconds: an assignment
LABELS = {"queued": "not-started", "succeeded": "completed", "dead": "failed", "cancelled": "canceled"}
PHASES = {"analyse": "website-analysis", "form": "prompt-forming", "ask": "model-analysis"}

Work = Callable[[str, Context, int], Awaitable[None]]
"""What a handler does: its phase, its context, and the number of its site."""


class Site:
    """The pipeline of seeds 000 and 001. `scans`, `starts` and `ends` have the second in which each happened."""

    def __init__(
        self,
        database: Database,
        work: Work,
        *,
        processors: int | None = None,
        limit: str | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.database = database
        chosen: dict[str, Any] = {"poll": None, "grace": None, "cancel_grace": None}
        # One try of a beat may take a third of the lease in real time, and the next one comes by the story's clock,
        # which stands still until this one came through. On a machine that is busy for seconds the story would wait
        # for ever.
        chosen |= {"lease": "1h", "beat": "10s"}
        self.app = database.app(clock=self.clock, pace="steady", **(chosen | settings))
        self.pipeline = self._declare(work, processors, limit)
        self.scans: list[tuple[int, str, list[int]]] = []
        self.starts: list[tuple[int, str, int]] = []
        self.ends: list[tuple[int, str, int, str]] = []
        self.worker: Worker
        self._events = EventRecorder()

    @property
    def recorded(self) -> list[Event]:
        return self._events.recorded

    def _declare(self, work: Work, processors: int | None, limit: str | None) -> Pipeline[..., object]:
        app = self.app

        @app.job(timeout=limit)
        async def analyse(ctx: Context, n: int) -> str:
            await work("website-analysis", ctx, n)
            return f"info {n}"

        @app.job(timeout=limit)
        async def form(ctx: Context, n: int) -> str:
            assert ctx.previous == f"info {n}"
            await work("prompt-forming", ctx, n)
            return f"prompts {n}"

        @app.job(timeout=limit)
        async def ask(ctx: Context, n: int) -> str:
            assert ctx.previous == f"prompts {n}"
            await work("model-analysis", ctx, n)
            return f"answer {n}"

        steps = [phase(job, name=PHASES[job._definition.type], processors=processors) for job in (analyse, form, ask)]
        return app.pipeline("site", *steps, labels=LABELS)

    async def creates(self, count: int) -> list[JobHandle[object]]:
        """Sites, a millisecond apart, every second of them due a little later: the order is that of their creation."""
        jobs = []
        for n in range(count):
            jobs.append(await self.pipeline.options(delay="20s" if n % 2 else None).aenqueue(n))
            await self.moves(0.001)
        return jobs

    @property
    def second(self) -> int:
        return round(self.clock.monotonic())

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with working(self.app) as (self.worker, self._events):
            self.worker.state.subscribers.append(self._note)
            await self.quiet()
            self._watch()
            try:
                yield
            finally:
                self.worker.kill()  # the grace time would not pass on this clock

    def _watch(self) -> None:
        store = stores_of(self.worker)
        coordinator = self.worker.parts.coordinator
        claim, assign = store.claim, coordinator.assign
        assigned_at = self.clock.monotonic()

        def noted_assign() -> None:
            nonlocal assigned_at
            assigned_at = self.clock.monotonic()
            assign()

        async def noted_claim(request: Claim) -> Claimed:
            # Scan and assignment fall on one second, and which comes first is not promised: here, the assignment.
            while assigned_at < self.clock.monotonic():  # noqa: ASYNC110
                await asyncio.sleep(0)
            claimed: Claimed = await claim(request)
            (type,) = request.types
            assert (request.by_creation, request.untouched, request.room <= 10) == (True, 30.0, True)
            self.scans.append((self.second, PHASES[type], [job.arguments()["n"] for job in claimed.jobs]))
            return claimed

        store.claim, coordinator.assign = noted_claim, noted_assign  # type: ignore[method-assign]

    def _note(self, event: Event) -> None:
        if isinstance(event, AttemptStarted):
            self.starts.append((self.second, event.processor, event.job.arguments()["n"]))
        elif isinstance(event, AttemptEnded):
            self.ends.append((self.second, event.job.phase, event.job.arguments()["n"], event.ending.value))

    async def until(self, second: int, step: float = STEP) -> None:
        """Let time pass, and every task run."""
        while self.second < second:
            await self.moves(step)
            await self.quiet()

    async def moves(self, seconds: float) -> None:
        if self.database.dialect == "postgres":  # the database's time first: a worker that wakes reads it
            await self.database.run("UPDATE {}test_clock SET now = now + make_interval(secs => ?)", seconds)
        self.clock.advance(seconds)

    async def quiet(self) -> None:
        """Until the beat came through, all that ended is written, and every service sleeps again."""
        parts, beat = self.worker.parts, self.worker._beat
        assert beat is not None

        def now() -> tuple[bool, int, int]:
            asleep = all(each.is_waiting for each in parts.services.values() if each.name != "listener")
            fresh = self.clock.monotonic() - beat.renewed < 2 * self.app.settings.beat
            return asleep and fresh and parts.completer.is_empty, len(self._events.recorded), len(self.scans)

        async def is_quiet() -> bool:
            before = now()  # twice: a task that begins to rest at this very moment does not wait yet
            for _ in range(10):
                await asyncio.sleep(0.001)
            return before[0] and before == now()

        await eventually(is_quiet, lambda quiet: quiet)
