"""The app's client under a harness: the clock ticks with every enqueue, and inline mode runs what was enqueued."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from windlass.app import Windlass
from windlass.client import Client
from windlass.handler.transaction import current_transaction
from windlass.model.job import NewJob
from windlass.testing.clock import ManualClock
from windlass.testing.errors import HandlerStuck
from windlass.testing.recorder import attempting

T = TypeVar("T")

TICK = timedelta(microseconds=1)
"""Between two enqueues: while the clock stands, jobs still run in the order in which they came."""


class HarnessClient(Client):
    """Enqueues as the client does. `run` and `arun` are called with jobs that were enqueued outside a transaction."""

    def __init__(
        self,
        app: Windlass,
        clock: ManualClock,
        *,
        patience: float,
        run: Callable[[Sequence[NewJob]], None],
        arun: Callable[[Sequence[NewJob]], Awaitable[None]],
    ) -> None:
        super().__init__(app.settings, clock, app._registry.instruments)
        self._manual = clock
        self._patience = patience
        self._run = run
        self._arun = arun
        self.runs_by_hand = "run it before you ask for its result: windlass.drain()"

    def enqueue(self, jobs: Sequence[NewJob], conn: Any, *, async_name: str) -> Mapping[UUID, UUID]:
        __tracebackhide__ = True
        self._manual.advance(TICK)
        existing = super().enqueue(jobs, conn, async_name=async_name)
        if conn is None and current_transaction.get() is None:
            self._run(_written(jobs, existing))
        return existing

    async def aenqueue(self, jobs: Sequence[NewJob], conn: Any) -> Mapping[UUID, UUID]:
        __tracebackhide__ = True
        self._manual.advance(TICK)
        existing = await super().aenqueue(jobs, conn)
        if conn is None and current_transaction.get() is None:
            await self._arun(_written(jobs, existing))
        return existing

    def wait_for(self, coroutine: Callable[[], Coroutine[Any, Any, T]], *, async_name: str) -> T:
        """As the client does. A handler that waits for a job which runs only after itself fails with an error that
        explains it, before its own time is up."""

        async def bounded() -> T:
            try:
                async with asyncio.timeout(self._patience / 2) as limit:
                    return await coroutine()
            except TimeoutError:
                if not limit.expired():
                    raise
                raise HandlerStuck(
                    "a handler waits for another job, and drain() runs one at a time; let the enqueue run it at once: "
                    "with windlass.inline()"
                ) from None

        return super().wait_for(coroutine if attempting.get() is None else bounded, async_name=async_name)


def _written(jobs: Sequence[NewJob], existing: Mapping[UUID, UUID]) -> Sequence[NewJob]:
    return [job for job in jobs if job.id not in existing]
