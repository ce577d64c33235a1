"""What the stories of children need: a stand-in for the processor's attempt, a store with a claimed job, and pids."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from servers import postgres_database
from windlass import JobType
from windlass.clock import SystemClock
from windlass.config import Settings
from windlass.handler.context import BaseContext
from windlass.model.job import Job, NewJob, new_id
from windlass.model.outcome import Ending, Outcome
from windlass.model.state import State
from windlass.runtime.processes.process_pool import ProcessPool
from windlass.store import make_store
from windlass.store.protocol import Claim, NewWorker, Store
from windlass.testing.databases import write_migrated_file

SERIAL = Settings(lease=30.0)
EFFECTS = "CREATE TABLE effects (value int)"


class StandIn:
    """As much of `processor.Attempt` as a child needs. `spoke` is set by the handler's first word of progress."""

    def __init__(
        self, kind: JobType[..., Any], *args: Any, job: Job | None = None, crashes: int = 0, **kwargs: Any
    ) -> None:
        self.definition = kind._definition
        input = kind._definition.signature.bind(args, kwargs)
        self.job = job or running_job(kind._definition.type, input, crashes)
        self.trace: str | None = None
        self.spoke = asyncio.Event()
        self.words = 0
        self.context: BaseContext | None = None
        context: type[BaseContext] | None = kind._definition.signature.context
        if context is not None:
            self.context = context(
                self.job,
                store=make_store(Settings(), SystemClock()),
                settings=Settings(),
                clock=SystemClock(),
                loop=asyncio.get_running_loop(),
                transaction_limit=10.0,
                time_limit=None,
                on_progress=self._hear,
            )

    async def pid(self) -> int:
        """Where it runs, once it said so."""
        await asyncio.wait_for(self.spoke.wait(), 20)
        assert self.context is not None
        return self.context.processed

    def _hear(self, context: BaseContext) -> None:
        self.words += 1
        self.spoke.set()


def running_job(type: str, input: str, crashes: int = 0) -> Job:
    now = datetime.now(UTC)
    values: dict[str, Any] = {field.name: 0 if field.type is int else None for field in msgspec.structs.fields(Job)}
    values |= {
        "id": new_id(), "tenant": "default", "queue": "default", "phase": "default", "type": type, "input": input,
        "status": State.RUNNING, "attempt": 1, "max_attempts": 4, "crashes": crashes, "run_at": now,
        "token": uuid4(), "fence": 1, "worker": uuid4(), "claimed_at": now, "created_at": now, "updated_at": now,
        "cancel_requested": False, "followed": False,
    }  # fmt: skip
    return Job(**values)


async def run(children: ProcessPool, kind: Any, *args: Any, **kwargs: Any) -> Outcome:
    return await asyncio.wait_for(children.run(StandIn(kind, *args, **kwargs)), 30)


def value(outcome: Outcome) -> Any:
    assert outcome.ending is Ending.SUCCEEDED, outcome
    assert outcome.output is not None
    return msgspec.json.decode(outcome.output)


@dataclass(kw_only=True)
class Stored:
    """A database with the schema, a table `effects`, and one worker."""

    url: str
    store: Store
    run: Any

    async def attempt(self, kind: JobType[..., Any], *args: Any, **kwargs: Any) -> StandIn:
        """A stored and claimed job of this kind."""
        type, input = kind._definition.type, kind._definition.signature.bind(args, kwargs)
        worker = uuid4()
        await self.store.register(
            NewWorker(id=worker, name="host:1", lease=600.0, queues=None, types=(type,), concurrency=1)
        )
        await self.store.enqueue([NewJob(id=new_id(), type=type, input=input)])
        claimed = await self.store.claim(Claim(worker=worker, room=1, types=(type,), rescan=True))
        return StandIn(kind, *args, job=claimed.jobs[0], **kwargs)

    async def effects(self) -> list[int]:
        return [row[0] for row in await self.run("SELECT * FROM effects")]

    async def status(self, job: Job) -> State:
        found = await self.store.find(job.id)
        assert found is not None
        return found.status


@asynccontextmanager
async def stored_in_sqlite(path: Path) -> AsyncIterator[Stored]:
    async def run(sql: str) -> Any:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(sql).fetchall()

    write_migrated_file(path)
    await run(EFFECTS)
    async with opened(f"sqlite:///{path}", run) as stored:
        yield stored


@asynccontextmanager
async def stored_in_postgres() -> AsyncIterator[Stored]:
    import asyncpg

    with postgres_database(given=EFFECTS) as database:
        connection = await asyncpg.connect(database.url)
        try:
            async with opened(database.url, connection.fetch) as stored:
                yield stored
        finally:
            await connection.close()


@asynccontextmanager
async def opened(url: str, run: Any) -> AsyncIterator[Stored]:
    store = make_store(SERIAL.with_(url=url), SystemClock())
    await store.open()
    try:
        yield Stored(url=url, store=store, run=run)
    finally:
        await store.close()


def exists(pid: int) -> bool:
    """Whether the process is there, a zombie included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def ended(pid: int) -> None:
    """Until the process has ended: the kernel says when."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(fd, over.set)
    try:
        await asyncio.wait_for(over.wait(), 20)
    finally:
        loop.remove_reader(fd)
        os.close(fd)
