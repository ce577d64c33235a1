"""Where a machine runs: one database for all its examples, one event loop, and two processes' worth of stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from windlass.model.job import COLUMNS
from windlass.store.postgres import rows as postgres_rows
from windlass.store.sqlite import rows as sqlite_rows
from windlass.testing.clock import ManualClock

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from store.rig import Rig
    from windlass.clock import Clock
    from windlass.model.job import Job
    from windlass.store.protocol import Heartbeat, Store

T = TypeVar("T")

PROCESSES = 2
"""Stores on the one database. A claim floor belongs to a process, so that one alone would see too little."""

TABLES = ("jobs", "history", "workers", "leaders", "gates")
ROW = ", ".join(COLUMNS)


@dataclass(kw_only=True)
class Seen:
    """The tables as they are."""

    jobs: list[Job]
    history: list[Job]
    effects: Counter[UUID]
    workers: dict[UUID, bool]  # whether it is marked dead


class Bench:
    """Opened once per test; `begin` and `end` go around every example."""

    def __init__(self, making: AbstractAsyncContextManager[Rig], make_store: Callable[[str, Clock], Store]) -> None:
        # A loop of its own and not the current one: pytest-asyncio keeps its own beside.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._making = making
        self._make_store = make_store
        self.rig = self.do(making.__aenter__())
        self.do(self.rig.run("CREATE TABLE effects (job text, fence bigint)"))
        self.clock = ManualClock()
        self.stores: list[Store] = []
        self.heartbeat: Heartbeat = self.rig.store.heartbeat()

    def close(self) -> None:
        self.do(self._making.__aexit__(None, None, None))
        self._runner.close()

    @property
    def dialect(self) -> str:
        return self.rig.dialect

    def do(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return self._runner.run(run())

    # Around an example

    def begin(self) -> None:
        """An empty database, a new clock, and stores that remember no floor."""
        self.clock = ManualClock()
        self.do(self._begin())

    async def _begin(self) -> None:
        for table in TABLES:
            await self.rig.run(f"DELETE FROM {{}}{table}")
        await self.rig.run("DELETE FROM effects")
        await self._set_time()
        url = self.rig.store.url  # type: ignore[attr-defined]
        self.stores = [self._make_store(url, self.clock) for _ in range(PROCESSES)]
        for store in self.stores:
            await store.open()
        self.heartbeat = self.stores[0].heartbeat()

    def end(self) -> None:
        async def close() -> None:
            await self.heartbeat.close()
            for store in self.stores:
                await store.close()

        self.do(close())

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.do(self._set_time())

    async def _set_time(self) -> None:
        if self.dialect == "postgres":
            await self.rig.run(f"UPDATE windlass.test_clock SET now = '{self.clock.now().isoformat()}'")

    # Looking past the store

    def look(self) -> Seen:
        return self.do(self._look())

    async def _look(self) -> Seen:
        convert: Callable[[Any], Job] = postgres_rows.job if self.dialect == "postgres" else sqlite_rows.job
        run: Callable[[str], Coroutine[Any, Any, Any]] = self.rig.run  # type: ignore[assignment]
        effects = await run("SELECT job FROM effects")
        workers = await run("SELECT id, dead FROM {}workers")
        return Seen(
            jobs=[convert(row) for row in await run(f"SELECT {ROW} FROM {{}}jobs")],
            history=[convert(row) for row in await run(f"SELECT {ROW} FROM {{}}history")],
            effects=Counter(UUID(job) for (job,) in effects),
            workers={UUID(str(worker)): bool(dead) for worker, dead in workers},
        )
