"""The store on a SQLite file: everything that changes jobs, in one transaction per call.

In:   a NewJob, in `enqueue`
Out:  its row, and a wake-up for the workers that are idle
Next: runtime/discovery.py, which claims for them
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from windlass import failpoints
from windlass.model.state import State, Verb
from windlass.store.delivery.sqlite import SqliteDelivery
from windlass.store.parts.admission import charge
from windlass.store.parts.consequences import enqueue_jobs, is_simple, send_signal, wake_due_jobs
from windlass.store.parts.messages import cancel_message
from windlass.store.parts.refusals import signal_refusal
from windlass.store.parts.rescue import CrashRules, RescuePart
from windlass.store.parts.statements import run
from windlass.store.protocol import Claim, Claimed, Finished, NewWorker, Swept
from windlass.store.read_limit import READ_TIMEOUT
from windlass.store.sql import query
from windlass.store.sqlite import bulk, operate, rows, sweep
from windlass.store.sqlite.claim import Claimer
from windlass.store.sqlite.connections.heartbeat import SqliteHeartbeat
from windlass.store.sqlite.connections.wakeups import listen, notify
from windlass.store.sqlite.finish import bury_unreadable, check_verb, drop_figures, record_step, write_all
from windlass.store.sqlite.rows import span
from windlass.store.sqlite.session import Runner
from windlass.store.sqlite.transaction import SqliteTransaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence
    from uuid import UUID

    from windlass.clock import Clock
    from windlass.model.flow import Memory
    from windlass.model.job import Lease, NewJob
    from windlass.model.outcome import Progress, Transition

HOLD = 10.0  # seconds for which an enqueue may lock the file: a third of the default lease
HISTORY_PAGE = 1_000  # rows deleted per transaction, so that other writers get a turn in between


class SqliteStore(SqliteDelivery, RescuePart):
    """Implements `store.protocol.Store`."""

    def __init__(self, url: str, *, clock: Clock, hold: float = HOLD, read_timeout: float = READ_TIMEOUT) -> None:
        super().__init__(url, clock=clock)
        self._hold = hold
        self.read_timeout = read_timeout
        self._claimer = Claimer(clock)
        # Handlers' transactions take turns here. At the file's lock they would use up the busy timeout.
        self._turn = asyncio.Lock()

    async def location(self) -> str:
        """The file, to compare with a caller's connection."""
        return f"sqlite:{self._path}"

    # Enqueue

    async def enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        if not jobs:
            return {}

        def enqueue_all(connection: sqlite3.Connection, now: int) -> Mapping[UUID, UUID]:
            with bulk.bounded(connection, self._path, len(jobs), self._hold):
                return Runner(connection, now).execute(enqueue_jobs(jobs))

        if failpoints.armed:
            failpoints.hit("enqueue.before")
        existing: Mapping[UUID, UUID] = {}
        if not all(map(is_simple, jobs)):
            existing = await self._write(enqueue_all)
        elif len(jobs) >= bulk.STAGE_FROM:
            await bulk.enqueue_staged(self._path, self.clock, jobs, self._hold)
        else:
            texts = bulk.pages(jobs)
            await self._write(lambda connection, now: bulk.insert(connection, texts, now))
        if failpoints.armed:
            failpoints.hit("enqueue.committed")
        self.wake_later({job.queue for job in jobs if job.id not in existing})
        return existing

    # Workers

    async def register(self, worker: NewWorker) -> None:
        await self._check_schema()
        await self._write(
            lambda connection, now: connection.execute(query("sqlite", "register"), rows.worker_parameters(worker, now))
        )

    async def deregister(self, worker: UUID) -> None:
        await self._write(
            lambda connection, now: connection.execute(query("sqlite", "deregister"), {"id": str(worker)})
        )

    def heartbeat(self) -> SqliteHeartbeat:
        return SqliteHeartbeat(self._path, self.clock)

    async def set_idle(self, worker: UUID, *, idle: bool) -> None:
        parameters = {"id": str(worker), "idle": int(idle)}
        await self._write(lambda connection, now: connection.execute(query("sqlite", "set_idle"), parameters))

    def wakeups(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        return listen(self._path)

    # One job, from claim to finish

    async def claim(self, claim: Claim) -> Claimed:
        if failpoints.armed:
            failpoints.hit("claim.before")
        claimed = await self._write(lambda connection, now: self._claimer.take(connection, now, claim))
        assert len(claimed.jobs) <= claim.room, "a claim returned more than its room"
        if failpoints.armed:
            failpoints.hit("claim.committed")
        return claimed

    async def finish(self, transitions: Sequence[Transition]) -> Finished:
        for transition in transitions:
            check_verb(transition)

        if failpoints.armed:
            failpoints.hit("finish.before")
        states = await self._transact(lambda runner, connection, now: write_all(runner, connection, now, transitions))
        if failpoints.armed:
            failpoints.hit("finish.committed")
        return Finished(states=states, lost=frozenset(each.job for each in transitions if each.job not in states))

    async def bury_unreadable(self, lease: Lease, reason: str) -> bool:
        return await self._transact(
            lambda runner, connection, now: bury_unreadable(runner, connection, now, lease, reason)
        )

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        return await self._write(lambda connection, now: record_step(connection, now, lease, memory))

    async def signal(self, job: UUID, name: str, payload: str, *, actor: str | None = None) -> bool:
        def send(runner: Runner, connection: sqlite3.Connection, now: int) -> bool:
            if not runner.execute(run("lock_job", [job])):
                row = connection.execute(query("sqlite", "find"), {"id": str(job)}).fetchone()
                raise signal_refusal(job, name, None if row is None else rows.job(row))
            return runner.execute(send_signal(job, name, payload, actor))

        return await self._transact(send)

    async def record(self, progress: Sequence[Progress]) -> None:
        def record_all(runner: Runner, connection: sqlite3.Connection, now: int) -> None:
            connection.executemany(
                query("sqlite", "record_progress"), [rows.progress_parameters(each, now) for each in progress]
            )
            runner.execute(charge(progress))

        await self._transact(record_all)

    @asynccontextmanager
    async def transaction(self, *, limit: float) -> AsyncIterator[SqliteTransaction]:
        async with self._turn:
            transaction = SqliteTransaction(self._path, clock=self.clock, limit=limit)
            try:
                await transaction.begin()
                yield transaction
            finally:
                await transaction.close()

    # Sweeps and pruning

    async def sweep(
        self,
        *,
        max_crashes: int,
        crash_counts: bool = False,
        blames: bool = True,
        patience: float | None = None,
        page: int = 500,
    ) -> Swept:
        began = self.clock.monotonic()
        deaths = await self._write(sweep.mark_workers_dead)
        if patience is not None and self.clock.monotonic() - began > patience:
            return Swept(deaths=deaths, late=True)
        if failpoints.armed:
            failpoints.hit("sweep.buried")
        rescued = await self._rescue_all(CrashRules(max_crashes, crash_counts, blames), page)
        while (
            await self._transact(lambda runner, connection, now: sweep.cancel_forgotten(runner, connection, now, page))
            == page
        ):
            pass
        await self._write(sweep.prune_workers)
        if rescued[State.QUEUED]:
            notify(self._path, "*")
        return Swept(deaths=deaths, rescued=rescued[State.QUEUED], dead_after_crashes=rescued[State.DEAD])

    async def _rescue(self, rules: CrashRules, page: int, jobs: Collection[UUID], *, only: bool) -> list[State]:
        return await self._transact(
            lambda runner, connection, now: sweep.rescue(runner, connection, now, rules, page, jobs, only=only)
        )

    async def _orphans(self, page: int, but: Collection[UUID]) -> list[UUID]:
        return await self._read(lambda connection, now: sweep.orphans(connection, page, but))

    async def _rescue_bare(self, rules: CrashRules, job: UUID) -> list[State]:
        return await self._transact(
            lambda runner, connection, now: sweep.rescue_bare(runner, connection, now, rules, job)
        )

    async def wake_due(self, *, page: int = 500) -> int:
        return await self._transact(lambda runner, connection, now: runner.execute(wake_due_jobs(page)))

    async def lead(self, name: str, worker: UUID, lease: float) -> bool:
        def take(connection: sqlite3.Connection, now: int) -> bool:
            parameters = {"name": name, "worker": str(worker), "lease": span(lease), "now": now}
            return connection.execute(query("sqlite", "lead"), parameters).rowcount > 0

        leads = await self._write(take)
        if leads and failpoints.armed:
            failpoints.hit("lead.taken")
        return leads

    async def prune(self, *, history: float, audit: float) -> None:
        def drop(connection: sqlite3.Connection, now: int) -> int:
            return sweep.drop_history(connection, now, span(history), HISTORY_PAGE)

        def drop_audit(connection: sqlite3.Connection, now: int) -> int:
            return sweep.drop_audit(connection, now, span(audit), HISTORY_PAGE)

        def prune(connection: sqlite3.Connection, now: int) -> int:
            return sweep.prune_flow(connection, now, span(history), HISTORY_PAGE)

        def prune_admission(connection: sqlite3.Connection, now: int) -> int:
            return sweep.prune_admission(connection, now, span(history), HISTORY_PAGE)

        def prune_types(connection: sqlite3.Connection, now: int) -> int:
            return sweep.prune_types(connection, now, span(history), HISTORY_PAGE)

        await self.fold_figures(minutes=True)
        await self._write(lambda connection, now: drop_figures(connection, now, span(history)))
        for step in (drop, drop_audit, prune, prune_admission, prune_types):
            while await self._write(step) == HISTORY_PAGE:
                pass

    # Operations

    async def operate(self, verb: Verb, job: UUID, *, actor: str | None = None) -> State | None:
        state = await self._transact(
            lambda runner, connection, now: operate.operate(runner, connection, now, verb, job, actor)
        )
        if state is State.RUNNING:
            notify(self._path, cancel_message(job))
        elif state is State.QUEUED:
            notify(self._path, "*")
        return state

    async def rerun(self, job: NewJob, *, discard: bool = False, actor: str | None = None) -> None:
        assert job.copied_from is not None
        old = job.copied_from
        await self._transact(
            lambda runner, connection, now: operate.rerun(
                runner, connection, now, job, old, discard=discard, actor=actor
            )
        )
