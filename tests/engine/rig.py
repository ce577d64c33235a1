"""What the tests of a worker need: a throw-away database, apps on it, and a recorder of a worker's events."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import asyncpg
import msgspec
import pytest

import evidence
from windlass import JobHandle, Windlass
from windlass.clock import Clock
from windlass.errors import JobUnsuccessful
from windlass.model.job import Attempt, Failure, Job
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.events import AttemptEnded, Event
from windlass.runtime.worker import Worker
from windlass.store import make_store
from windlass.testing.clock import ManualClock
from windlass.testing.databases import PostgresDatabase

T = TypeVar("T")
E = TypeVar("E", bound=Event)

ON_POSTGRES = pytest.mark.parametrize("place", ["postgres"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
PATIENCE = 60.0  # seconds until a story gives up; nothing here waits that long when it works


@dataclass(kw_only=True)
class Database:
    """A migrated database. In `run`, `{}` stands before a table's name of the engine."""

    url: str
    dialect: str
    lent: PostgresDatabase | None = None
    apps: list[Windlass] = field(default_factory=list)

    def app(self, *, clock: Clock | None = None, **settings: Any) -> Windlass:
        """An app that polls often and stops fast, unless the test sets it otherwise."""
        defaults: dict[str, Any] = {"poll": "100ms", "grace": "5s", "cancel_grace": "200ms"}
        app = Windlass(self.url, clock=clock, **(defaults | settings))
        self.apps.append(app)
        return app

    async def run(self, sql: str, *args: Any) -> list[Any]:
        """Past the store, on another connection."""
        if self.dialect == "sqlite":
            path = self.url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection, connection:
                return connection.execute(sql.format("windlass_"), args).fetchall()
        numbered = sql.format("windlass.")
        for number in range(1, len(args) + 1):
            numbered = numbered.replace("?", f"${number}", 1)
        if self.lent is not None:
            return [tuple(row) for row in await self.lent.fetch(numbered, *args)]
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await connection.fetch(numbered, *args)]
        finally:
            await connection.close()

    async def close(self) -> None:
        for app in self.apps:
            await app.aclose()

    async def effects(self) -> list[int]:
        return [row[0] for row in await self.run("SELECT n FROM effects ORDER BY n")]

    async def jobs(self) -> int:
        """All there are, in whichever state."""
        return int((await self.run("SELECT (SELECT count(*) FROM {0}jobs) + (SELECT count(*) FROM {0}history)"))[0][0])

    async def move(self, clock: ManualClock) -> None:
        """Let PostgreSQL's own time follow the clock; SQLite's does by itself."""
        if self.dialect == "postgres":
            await self.run("UPDATE {}test_clock SET now = ?", clock.now())


class EventRecorder:
    """Records a worker's events and waits for one that fits."""

    def __init__(self) -> None:
        self.recorded: list[Event] = []
        self._more = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.recorded.append(event)
        self._more.set()

    async def until(self, kind: type[E], fits: Callable[[E], bool] = lambda event: True) -> E:
        """The first event of that kind that fits, past or to come."""

        def found() -> E | None:
            return next((event for event in self.recorded if isinstance(event, kind) and fits(event)), None)

        async with asyncio.timeout(PATIENCE):
            while (event := found()) is None:
                self._more.clear()
                await self._more.wait()
        return event

    async def ended(self, job: JobHandle[Any], ending: Ending | None = None) -> AttemptEnded:
        """The end of an attempt of that job."""
        return await self.until(AttemptEnded, lambda event: event.job.id == job.id and ending in (None, event.ending))


@asynccontextmanager
async def working(app: Windlass, **options: Any) -> AsyncIterator[tuple[Worker, EventRecorder]]:
    """A worker that runs, and the recorder of its events."""
    worker, events = app.worker(**options), EventRecorder()
    worker.subscribe(events)
    evidence.event_sources.append(lambda: events.recorded)
    async with worker:
        yield worker, events


async def come(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()


async def in_state(job: JobHandle[Any], *states: State, timeout: float = PATIENCE) -> Job:
    """The job's record, once it is in one of the states."""
    return await eventually(job.arecord, lambda record: record.status in states, timeout=timeout)


async def eventually(look: Callable[[], Awaitable[T]], fits: Callable[[T], bool], *, timeout: float = PATIENCE) -> T:
    """The first result of `look` that fits: for changes without an event, read again and again."""
    async with asyncio.timeout(timeout):
        while not fits(seen := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return seen


async def ended(job: JobHandle[Any]) -> Job:
    """The record of a job that has come to an end, whichever."""
    with suppress(JobUnsuccessful):
        await job.aresult(timeout=PATIENCE)
    return await job.arecord()


def attempts(job: Job) -> list[Attempt]:
    return [] if job.attempts is None else msgspec.json.decode(job.attempts, type=list[Attempt])


def failure(job: Job) -> Failure:
    assert job.error is not None
    return msgspec.json.decode(job.error, type=Failure)


def stores_of(worker: Worker) -> Any:
    """The worker's own store, to be spied on or broken."""
    return worker.state.store


async def opened(app: Windlass) -> Any:
    """A store beside the app's own."""
    store = make_store(app.settings, app.clock)
    await store.open()
    return store
