"""The app's client under a harness: the clock ticks with every enqueue, and inline mode runs what was enqueued."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from windlass.client import Client
from windlass.config import Settings
from windlass.connection import borrow
from windlass.context import Joined, current_transaction
from windlass.job import NewJob
from windlass.store import dialect_of
from windlass.store.protocol import Store
from windlass.store.sqlite.rows import array, micros
from windlass.testing.clock import ManualClock
from windlass.testing.errors import HandlerStuck
from windlass.testing.recorder import attempting

T = TypeVar("T")

TICK = timedelta(microseconds=1)
"""Between two enqueues: while the clock stands, jobs still run in the order in which they came."""

RESTAMP = """
UPDATE windlass_jobs
   SET created_at = ?2, updated_at = ?2,
       run_at = CASE WHEN id IN (SELECT value FROM json_each(?3)) THEN run_at ELSE run_at - created_at + ?2 END
 WHERE id IN (SELECT value FROM json_each(?1))
"""
"""An enqueue on the caller's own SQLite connection takes the machine's time; under a harness it has the harness's."""


class HarnessClient(Client):
    """Enqueues as the client does. `run` and `arun` are called with jobs that were enqueued outside a transaction."""

    def __init__(
        self,
        settings: Settings,
        clock: ManualClock,
        *,
        patience: float,
        run: Callable[[Sequence[NewJob]], None],
        arun: Callable[[Sequence[NewJob]], Awaitable[None]],
    ) -> None:
        super().__init__(settings, clock)
        self._manual = clock
        self._patience = patience
        self._run = run
        self._arun = arun

    def enqueue(self, jobs: Sequence[NewJob], conn: Any, *, twin: str) -> None:
        __tracebackhide__ = True
        self._manual.advance(TICK)
        super().enqueue(jobs, conn, twin=twin)
        if self._needs_stamp(conn):
            borrow(conn).run(RESTAMP, *self._stamps(jobs))
        if conn is None and current_transaction.get() is None:
            self._run(jobs)

    async def aenqueue(self, jobs: Sequence[NewJob], conn: Any) -> None:
        __tracebackhide__ = True
        self._manual.advance(TICK)
        await super().aenqueue(jobs, conn)
        if self._needs_stamp(conn):
            await borrow(conn).arun(RESTAMP, *self._stamps(jobs))
        if conn is None and current_transaction.get() is None:
            await self._arun(jobs)

    def _needs_stamp(self, conn: object) -> bool:
        ours = isinstance(conn, Joined) or hasattr(conn, "windlass_dialect")  # ctx.transaction() has our time already
        return conn is not None and not ours and dialect_of(self.settings.url) == "sqlite"

    def _stamps(self, jobs: Sequence[NewJob]) -> tuple[object, ...]:
        appointed = array(job.id for job in jobs if job.run_at is not None)
        return array(job.id for job in jobs), micros(self._manual.now()), appointed

    def ask(self, question: Callable[[Store], Awaitable[T]], *, twin: str) -> T:
        """As the client does. A handler that waits for a job which runs only after itself is told so, before its own
        time is up."""

        async def bounded(store: Store) -> T:
            try:
                async with asyncio.timeout(self._patience / 2) as limit:
                    return await question(store)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise HandlerStuck(
                    "a handler waits for another job, and drain() runs one at a time; let the enqueue run it at once: "
                    "with windlass.inline()"
                ) from None

        return super().ask(question if attempting.get() is None else bounded, twin=twin)
