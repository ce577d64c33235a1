"""The store on a SQLite file: every write in turn on one thread, every read beside it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import TYPE_CHECKING
from uuid import UUID

from windlass import failpoints
from windlass.errors import StoreUnavailable
from windlass.flow import Linked, Recollection, Waiting
from windlass.state import State, Verb
from windlass.store import migrate
from windlass.store.asking import ask
from windlass.store.following import enqueueing, is_simple, signalling, waking_due
from windlass.store.protocol import AuditRow, Claim, Claimed, NewWorker, QueueRow, Settled, Swept, WorkerRow
from windlass.store.refusals import unheard
from windlass.store.search import MOST_ROWS, SQLITE, where
from windlass.store.sql import LAST, auditing, query, searching
from windlass.store.sqlite import claims, operations, rows, sweeps
from windlass.store.sqlite.file import LOCKED, code, connect, immediate, locate, translated
from windlass.store.sqlite.follower import Follower
from windlass.store.sqlite.heart import SqliteHeart
from windlass.store.sqlite.migrator import current
from windlass.store.sqlite.placeholders import named, numbered
from windlass.store.sqlite.rows import enqueue_parameters, span
from windlass.store.sqlite.transaction import SqliteTransaction
from windlass.store.sqlite.transitions import refuse_foreign, remember, settle_all
from windlass.store.sqlite.wakeups import listening, tell
from windlass.store.sqlite.writer import Reader, Step, T, Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from windlass.clock import Clock
    from windlass.filter import Filter
    from windlass.flow import Memory
    from windlass.job import Job, Lease, NewJob
    from windlass.outcome import Progress, Transition

ENQUEUE_PAGE = 500  # jobs per statement: bounds the JSON text, not the transaction
HISTORY_PAGE = 1_000  # rows deleted per transaction, so that other writers get in between


class SqliteStore:
    """Implements `store.protocol.Store`."""

    def __init__(self, url: str, *, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self._path = locate(url)
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        # Handlers' transactions take turns here, not at the file, where they would use up the busy timeout.
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        if self._writer is not None:
            return
        migrate.check("sqlite", await asyncio.to_thread(current, self._path), str(self._path))
        await asyncio.to_thread(self._try_to_write)
        self._writer = Writer(self._path, self.clock)
        self._reader = Reader(self._path, self.clock)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()
        if writer is not None:
            await writer.close()

    async def location(self) -> str:
        """Which file this is, to compare with a caller's connection."""
        return f"sqlite:{self._path}"

    def _try_to_write(self) -> None:
        """SQLite opens a read-only file without a word, and even begins: only a write finds out.

        It waits for nobody: who holds the lock can write, and may be the caller of whoever opens us.
        """
        with translated(self._path), closing(connect(self._path)) as connection:
            try:
                with immediate(connection, patience=0):
                    connection.execute("DELETE FROM windlass_jobs WHERE false")
            except sqlite3.OperationalError as error:
                if code(error) not in LOCKED:
                    raise

    # The way in

    async def enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        if not jobs:
            return {}

        def insert(connection: sqlite3.Connection, now: int) -> Mapping[UUID, UUID]:
            if not all(map(is_simple, jobs)):
                return Follower(connection, now).drive(enqueueing(jobs))
            for start in range(0, len(jobs), ENQUEUE_PAGE):
                page = jobs[start : start + ENQUEUE_PAGE]
                connection.execute(numbered(query("sqlite", "enqueue")), enqueue_parameters(page, now))
            return {}

        if failpoints.armed:
            failpoints.hit("enqueue.before")
        existing = await self._write(insert)
        if failpoints.armed:
            failpoints.hit("enqueue.committed")
        self.wake_later({job.queue for job in jobs if job.id not in existing})
        return existing

    def wake_later(self, queues: Iterable[str]) -> None:
        """After a commit: wake the listeners of this process. Others see it in the file."""
        for queue in queues:
            tell(self._path, queue)

    # A worker's life

    async def register(self, worker: NewWorker) -> None:
        await self._write(
            lambda connection, now: connection.execute(query("sqlite", "register"), rows.worker_parameters(worker, now))
        )

    async def deregister(self, worker: UUID) -> None:
        await self._write(
            lambda connection, now: connection.execute(query("sqlite", "deregister"), {"id": str(worker)})
        )

    def heart(self) -> SqliteHeart:
        return SqliteHeart(self._path, self.clock)

    async def rest(self, worker: UUID, *, idle: bool) -> None:
        parameters = {"id": str(worker), "idle": int(idle)}
        await self._write(lambda connection, now: connection.execute(query("sqlite", "rest"), parameters))

    def wakeups(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        return listening(self._path)

    async def wake(self, message: str) -> None:
        tell(self._path, message)

    # A job's life

    async def claim(self, claim: Claim) -> Claimed:
        if failpoints.armed:
            failpoints.hit("claim.before")
        claimed = await self._write(lambda connection, now: claims.take(connection, now, claim))
        assert len(claimed.jobs) <= claim.room, "a claim returned more than its room"
        if failpoints.armed:
            failpoints.hit("claim.committed")
        return claimed

    async def held(self, worker: UUID) -> list[Job]:
        def look(connection: sqlite3.Connection, now: int) -> list[Job]:
            return [rows.job(row) for row in connection.execute(query("sqlite", "held"), {"worker": str(worker)})]

        return await self._read(look)

    async def settle(self, transitions: Sequence[Transition]) -> Settled:
        for transition in transitions:
            refuse_foreign(transition)

        if failpoints.armed:
            failpoints.hit("finish.before")
        states = await self._following(
            lambda follower, connection, now: settle_all(follower, connection, now, transitions)
        )
        if failpoints.armed:
            failpoints.hit("finish.committed")
        return Settled(states=states, lost=frozenset(each.job for each in transitions if each.job not in states))

    async def recall(self, job: UUID) -> Recollection:
        def look(connection: sqlite3.Connection, now: int) -> Recollection:
            found = Recollection(steps={}, signals={})
            for kind, name, value in connection.execute(query("sqlite", "recall"), {"id": str(job)}):
                (found.steps if kind == "step" else found.signals)[name] = value
            return found

        return await self._read(look)

    async def links(self, job: UUID) -> list[Linked]:
        def look(connection: sqlite3.Connection, now: int) -> list[Linked]:
            return [
                Linked(name, UUID(target), None if status is None else State(status), output, error)
                for name, target, status, output, error in connection.execute(
                    query("sqlite", "links"), {"id": str(job)}
                )
            ]

        return await self._read(look)

    async def waiting(self, job: UUID) -> Waiting | None:
        def look(connection: sqlite3.Connection, now: int) -> Waiting | None:
            row = connection.execute(query("sqlite", "waiting"), {"id": str(job)}).fetchone()
            return None if row is None else rows.waiting(row)

        return await self._read(look)

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        def look(connection: sqlite3.Connection, now: int) -> dict[UUID, Job]:
            found = map(rows.job, connection.execute(query("sqlite", "find_many"), {"ids": rows.array(jobs)}))
            return {job.id: job for job in found}

        return await self._read(look)

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        return await self._write(lambda connection, now: remember(connection, now, lease, memory))

    async def signal(self, job: UUID, name: str, payload: str, *, actor: str | None = None) -> bool:
        def send(follower: Follower, connection: sqlite3.Connection, now: int) -> bool:
            if not follower.drive(ask("lock_job", [job])):
                row = connection.execute(query("sqlite", "find"), {"id": str(job)}).fetchone()
                raise unheard(job, name, None if row is None else rows.job(row))
            return follower.drive(signalling(job, name, payload, actor))

        return await self._following(send)

    async def record(self, progress: Sequence[Progress]) -> None:
        def record_all(connection: sqlite3.Connection, now: int) -> None:
            connection.executemany(
                query("sqlite", "record"), [rows.progress_parameters(each, now) for each in progress]
            )

        await self._write(record_all)

    async def cancel_requests(self, worker: UUID) -> list[UUID]:
        def requests(connection: sqlite3.Connection, now: int) -> list[UUID]:
            found = connection.execute(query("sqlite", "cancel_requests"), {"worker": str(worker)})
            return [UUID(ident) for (ident,) in found]

        return await self._read(requests)

    async def settled_by(self, lease: Lease) -> bool:
        parameters = {"id": str(lease.job), "token": str(lease.token)}
        return await self._read(
            lambda connection, now: connection.execute(query("sqlite", "settled_by"), parameters).fetchone() is not None
        )

    @asynccontextmanager
    async def transaction(self, *, limit: float) -> AsyncIterator[SqliteTransaction]:
        async with self._turn:
            transaction = SqliteTransaction(self._path, clock=self.clock, limit=limit)
            try:
                await transaction.begin()
                yield transaction
            finally:
                await transaction.close()

    # Sweeping and housekeeping

    async def sweep(self, *, max_crashes: int, page: int = 500) -> Swept:
        deaths = await self._write(sweeps.bury_workers)
        if failpoints.armed:
            failpoints.hit("sweep.buried")
        rescued = await self._rescue(max_crashes, page)
        while (
            await self._following(
                lambda follower, connection, now: sweeps.cancel_forgotten(follower, connection, now, page)
            )
            == page
        ):
            pass
        await self._write(sweeps.prune_workers)
        if rescued[State.QUEUED]:
            tell(self._path, "*")
        return Swept(deaths=deaths, rescued=rescued[State.QUEUED], condemned=rescued[State.DEAD])

    async def _rescue(self, max_crashes: int, page: int) -> Counter[State]:
        total: Counter[State] = Counter()
        while True:
            if failpoints.armed:
                failpoints.hit("sweep.before_rescue")
            rescued = await self._following(
                lambda follower, connection, now: sweeps.rescue(follower, connection, now, max_crashes, page)
            )
            total += rescued
            if rescued.total() < page:
                return total

    async def wake_due(self, *, page: int = 500) -> int:
        return await self._following(lambda follower, connection, now: follower.drive(waking_due(page)))

    async def lead(self, name: str, worker: UUID, lease: float) -> bool:
        def take(connection: sqlite3.Connection, now: int) -> bool:
            parameters = {"name": name, "worker": str(worker), "lease": span(lease), "now": now}
            return connection.execute(query("sqlite", "lead"), parameters).rowcount > 0

        leads = await self._write(take)
        if leads and failpoints.armed:
            failpoints.hit("lead.taken")
        return leads

    async def keep_house(self, *, history: float, audit: float) -> None:
        def drop(connection: sqlite3.Connection, now: int) -> int:
            return sweeps.drop_history(connection, now, span(history), HISTORY_PAGE)

        def drop_audit(connection: sqlite3.Connection, now: int) -> int:
            return sweeps.drop_audit(connection, now, span(audit), HISTORY_PAGE)

        def prune(connection: sqlite3.Connection, now: int) -> int:
            return sweeps.prune_flow(connection, now, span(history), HISTORY_PAGE)

        for step in (drop, drop_audit, prune):
            while await self._write(step) == HISTORY_PAGE:
                pass

    # Looking and operating

    async def find(self, job: UUID) -> Job | None:
        def look(connection: sqlite3.Connection, now: int) -> Job | None:
            row = connection.execute(query("sqlite", "find"), {"id": str(job)}).fetchone()
            return None if row is None else rows.job(row)

        return await self._read(look)

    async def operate(self, verb: Verb, job: UUID, *, actor: str | None = None) -> State | None:
        state = await self._following(
            lambda follower, connection, now: operations.operate(follower, connection, now, verb, job, actor)
        )
        if state is State.RUNNING:
            tell(self._path, f"cancel:{job}")
        elif state is State.QUEUED:
            tell(self._path, "*")
        return state

    async def counts(self) -> dict[State, int]:
        def count(connection: sqlite3.Connection, now: int) -> dict[State, int]:
            counted = dict.fromkeys(State, 0)
            for status, jobs in connection.execute(query("sqlite", "counts")):
                counted[State(status)] += jobs
            return counted

        return await self._read(count)

    async def workers(self) -> list[WorkerRow]:
        return await self._read(
            lambda connection, now: [rows.worker_row(row) for row in connection.execute(query("sqlite", "workers"))]
        )

    async def search(self, filter: Filter, *, page: int = 50, below: UUID | None = None) -> list[Job]:
        condition, parameters = where(filter, SQLITE, 4)

        def look(connection: sqlite3.Connection, now: int) -> list[Job]:
            values = (now, min(page, MOST_ROWS), None if below is None else str(below), *parameters)
            return [
                rows.job(row) for row in connection.execute(numbered(searching("sqlite", condition)), named(values))
            ]

        return await self._read(look)

    async def queues(self) -> list[QueueRow]:
        def count(connection: sqlite3.Connection, now: int) -> list[QueueRow]:
            counted = connection.execute(query("sqlite", "queues"), {"now": now})
            names = [column[0] for column in counted.description]
            return [QueueRow(**dict(zip(names, row, strict=True))) for row in counted]

        return await self._read(count)

    async def audit(
        self, *, job: UUID | None = None, action: str | None = None, page: int = 50, below: int | None = None
    ) -> list[AuditRow]:
        sql, given = auditing("sqlite", job=None if job is None else str(job), action=action)
        values = (min(page, MOST_ROWS), LAST if below is None else below, *given)

        def look(connection: sqlite3.Connection, now: int) -> list[AuditRow]:
            return [rows.audit_row(row) for row in connection.execute(numbered(sql), named(values))]

        return await self._read(look)

    # One way to the file

    async def _following(self, step: Callable[[Follower, sqlite3.Connection, int], T]) -> T:
        """A write with what follows it; workers are woken after the commit."""
        queues: set[str] = set()

        def run(connection: sqlite3.Connection, now: int) -> T:
            follower = Follower(connection, now)
            answer = step(follower, connection, now)
            queues.update(follower.queues)
            return answer

        answer = await self._write(run)
        self.wake_later(queues)
        return answer

    async def _write(self, step: Step[T]) -> T:
        if self._writer is None:
            raise _not_open()
        return await self._writer.write(step)

    async def _read(self, step: Step[T]) -> T:
        if self._reader is None:
            raise _not_open()
        return await self._reader.read(step)


def _not_open() -> StoreUnavailable:
    return StoreUnavailable("the store is not open; await its open() first")
