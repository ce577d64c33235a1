"""The store on PostgreSQL, through asyncpg: one round trip per batch, and no lock waits on the hot path.

In:   a NewJob, in `enqueue`
Out:  its row, and a wake-up for the workers that are idle
Next: runtime/discovery.py, which claims for them
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from windlass import failpoints
from windlass.clock import Clock
from windlass.errors import JobNotFound, StoreError, TransitionRefused
from windlass.model.delivery import PUBLISHED_BY_ENQUEUE
from windlass.model.flow import Memory
from windlass.model.job import Lease, NewJob
from windlass.model.outcome import Progress, Transition
from windlass.model.state import State, Verb
from windlass.store import masked
from windlass.store.contact import Contact
from windlass.store.delivery.postgres import PostgresDelivery
from windlass.store.migrate import check, newest
from windlass.store.parts.admission import charge, release_slots
from windlass.store.parts.consequences import enqueue_jobs, is_simple, send_signal, wake_due_jobs
from windlass.store.parts.encoding import encode_jobs
from windlass.store.parts.refusals import OPERATIONS, refusal, signal_refusal
from windlass.store.parts.rescue import CrashRules, RescuePart
from windlass.store.parts.statements import Statements, run
from windlass.store.postgres import operate, partitions, rows, sweep
from windlass.store.postgres.connections.heartbeat import PostgresHeartbeat
from windlass.store.postgres.connections.pool import POOLER, ConnectionPool, reports_read_only
from windlass.store.postgres.connections.wakeups import CHANNEL, listen, listen_to_nothing
from windlass.store.postgres.finish import (
    finish_in_transaction,
    finish_plain_ending,
    finish_plain_staying,
    sort_by_job,
    split_plain,
    unpark,
)
from windlass.store.postgres.migrator import current
from windlass.store.postgres.runner import PostgresRunner
from windlass.store.postgres.transaction import PostgresTransaction
from windlass.store.protocol import Finished, Held, NewWorker, Swept
from windlass.store.read_limit import READ_TIMEOUT
from windlass.store.sql import query

T = TypeVar("T")

log = logging.getLogger("windlass")

PRUNE_PAGE = 5_000  # rows of each table per statement
COPY_FROM = 20  # jobs: from here on COPY costs less than the INSERT
UNKNOWN_EVERY = 12  # sweeps: jobs name an unknown worker only after a restored backup or a stray DELETE
ENGINE_CONNECTIONS = 3  # one to claim, one to finish, one for the rest: handlers' transactions never take these


class PostgresStore(PostgresDelivery, RescuePart):
    """Implements `store.protocol.Store`."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        connections: int = 4,
        direct_url: str | None = None,
        pooler: str | None = None,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self.url = url
        self.direct_url = direct_url or (None if pooler else url)
        self.pooler = pooler is not None
        size = connections + ENGINE_CONNECTIONS
        super().__init__(ConnectionPool(url, size=size, pooler=self.pooler, contact=Contact(clock)), clock)
        self._for_handlers = asyncio.Semaphore(connections)
        self._sweeps = 0
        self.read_timeout = read_timeout

    async def open(self) -> None:
        await self._pool.open()
        try:
            if not self.pooler and await self._pool.is_pooled():
                await self._use_pooler()
            await self._check_schema()
        except BaseException:
            await self._pool.close()
            raise

    async def _check_schema(self) -> None:
        check("postgres", await self._pool.run(current), masked(self.url))

    async def _use_pooler(self) -> None:
        """Work as with a declared pooler. If it pools transactions, sessions would mix up their named statements."""
        log.warning(
            "a pooler is in front of %s and was not declared; working as with WINDLASS_POOLER=transaction, "
            "and finding jobs by polling; %s",
            masked(self.url),
            POOLER,
        )
        self.pooler = self._pool.pooler = True
        self.direct_url = None if self.direct_url == self.url else self.direct_url
        await self._pool.expire()

    async def close(self) -> None:
        if self._waking is not None:
            with suppress(Exception):
                async with asyncio.timeout(1):
                    await self._waking
        await self._pool.close()

    async def location(self) -> str:
        """The installation's id, to compare with a caller's connection."""
        return f"postgres:{await self._value(query('postgres', 'installation'))}"

    # Enqueue

    async def enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        if not jobs:
            return {}
        existing: Mapping[UUID, UUID] = {}
        if failpoints.armed:
            failpoints.hit("enqueue.before")
        if len(jobs) >= COPY_FROM and all(map(rows.is_plain, jobs)):
            published = all(job.delay == PUBLISHED_BY_ENQUEUE for job in jobs)
            perform = self._pool.transact if published else self._pool.run
            await perform(lambda connection: rows.copy(connection, jobs, published=published))
        elif all(map(is_simple, jobs)):
            await self._execute(query("postgres", "enqueue"), encode_jobs(jobs))
        else:
            existing = await self._run_in_transaction(lambda: enqueue_jobs(jobs))
        if failpoints.armed:
            failpoints.hit("enqueue.committed")
        fresh = (job for job in jobs if job.id not in existing)
        self.wake_later({job.queue for job in fresh if job.is_due_at_once})
        return existing

    # Workers

    async def register(self, worker: NewWorker) -> None:
        await self._check_schema()
        await self._execute(
            query("postgres", "register"),
            worker.id,
            worker.name,
            worker.lease,
            worker.concurrency,
            worker.queues,
            worker.types,
            worker.isolates,
            worker.version,
            worker.windlass,
            newest("postgres"),
        )

    async def deregister(self, worker: UUID) -> None:
        await self._execute(query("postgres", "deregister"), worker)

    def heartbeat(self) -> PostgresHeartbeat:
        return PostgresHeartbeat(self.direct_url or self.url, pooler=self.pooler and self.direct_url is None)

    async def set_idle(self, worker: UUID, *, idle: bool) -> None:
        await self._execute(query("postgres", "set_idle"), worker, idle)

    def wakeups(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        return listen_to_nothing() if self.direct_url is None else listen(self.direct_url, self._pool.on_expired)

    async def wake(self, message: str) -> None:
        await self._execute("SELECT pg_notify($1, $2)", CHANNEL, message)

    # Running jobs

    async def held(self, worker: UUID, known: Collection[UUID] = ()) -> Held:
        try:
            records = await self._fetch(query("postgres", "jobs_of_worker"), worker, list(known))
            return Held(jobs=[rows.job(record) for record in records])
        except Exception as error:
            if not _is_unreadable(error):
                raise
            return await self._held_one_by_one(worker, known)  # one row that cannot be read makes the whole fetch fail

    async def _held_one_by_one(self, worker: UUID, known: Collection[UUID]) -> Held:
        held = Held(jobs=[], unreadable=[])
        for record in await self._fetch(query("postgres", "leases_of_worker"), worker, list(known)):
            lease = Lease(*record)
            try:
                job = await self.find(lease.job)
            except Exception as error:
                if not _is_unreadable(error):
                    raise
                held.unreadable.append(lease)
            else:
                held.jobs.extend([job] if job is not None and job.token == lease.token else [])
        return held

    async def finish(self, transitions: Sequence[Transition]) -> Finished:
        if failpoints.armed:
            failpoints.hit("finish.before")
        ordered = sort_by_job(transitions)
        states: dict[UUID, State] = {}
        queues: set[str] = set()
        left: frozenset[UUID] = frozenset()
        try:
            await self._finish_plain(ordered, states, queues)
            # A job that is missing is followed, perhaps since its claim, or its lease is lost: the transaction decides.
            rest = [transition for transition in ordered if transition.job not in states]
            if rest:
                states |= await self._transact(partial(self._finish_rest, rest, queues))
        except Exception:  # a retry of the rest alone meets the same error, and then nothing was written
            if not states:
                raise
            left = frozenset(transition.job for transition in ordered if transition.job not in states)
        if failpoints.armed:
            failpoints.hit("finish.committed")
        lost = frozenset(t.job for t in ordered if t.job not in states) - left
        return Finished(states=states, lost=lost, left=left, unparked_queues=frozenset(queues))

    async def _finish_plain(self, ordered: Sequence[Transition], states: dict[UUID, State], queues: set[str]) -> None:
        """One statement and commit for jobs that end, and one for jobs that stay. Each adds what it wrote."""
        ending, staying = split_plain(ordered)
        if ending:
            written, parked_keys = await self._pool.run(lambda connection: finish_plain_ending(connection, ending))
            states.update(written)
            if parked_keys:
                with suppress(StoreError):  # the slots are released: the next rescan unparks the jobs
                    queues |= await self._pool.run(lambda connection: unpark(connection, parked_keys))
        if staying:
            states.update((await self._pool.run(lambda connection: finish_plain_staying(connection, staying))).states)

    async def _finish_rest(
        self, rest: Sequence[Transition], queues: set[str], runner: PostgresRunner, connection: Any
    ) -> dict[UUID, State]:
        states = await finish_in_transaction(runner, connection, rest)
        # The caller gets these queues and may claim the jobs itself: to wake every worker for every slot would be a
        # stampede.
        queues |= runner.unparked
        runner.unparked.clear()
        return states

    async def bury_unreadable(self, lease: Lease, reason: str) -> bool:
        async def bury(runner: PostgresRunner, connection: Any) -> bool:
            records = await connection.fetch(query("postgres", "bury_unreadable"), lease.job, lease.token, reason)
            await runner.execute(release_slots(record["limits"] for record in records))
            return bool(records)

        return await self._transact(bury)

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        values = (lease.job, lease.token, memory.name, memory.value)
        return bool(await self._fetch(query("postgres", "record_step"), *values))

    async def signal(self, job: UUID, name: str, payload: str, *, actor: str | None = None) -> bool:
        def send() -> Statements[bool]:
            if not (yield from run("lock_job", [job])):
                raise operate.NotAllowed
            return (yield from send_signal(job, name, payload, actor))

        try:
            return await self._run_in_transaction(send)
        except operate.NotAllowed:
            raise signal_refusal(job, name, await self.find(job)) from None

    async def record(self, progress: Sequence[Progress]) -> None:
        ordered = sorted(progress, key=lambda mark: mark.lease.job)
        await self._execute(
            query("postgres", "record_progress"),
            [mark.lease.job for mark in ordered],
            [mark.lease.token for mark in ordered],
            [mark.total for mark in ordered],
            [mark.processed for mark in ordered],
            [mark.failed for mark in ordered],
        )
        costs = [mark for mark in ordered if mark.cost_cents]
        if costs:
            await self._run_in_transaction(lambda: charge(costs))

    async def cancel_requests(self, worker: UUID) -> list[UUID]:
        records = await self._fetch(query("postgres", "cancel_requests"), worker)
        return [record[0] for record in records]

    async def finished_by(self, lease: Lease) -> bool:
        return bool(await self._value(query("postgres", "finished_by_lease"), lease.job, lease.token))

    @asynccontextmanager
    async def transaction(self, *, limit: float) -> AsyncIterator[PostgresTransaction]:
        async with self._for_handlers, self._pool.acquire() as connection:
            transaction = PostgresTransaction(connection, clock=self.clock, limit=limit, pooler=self.pooler)
            await transaction.begin()
            try:
                yield transaction
            finally:
                if not transaction.committed and reports_read_only(connection):
                    await self._pool.expire()  # here, because a handler may swallow the error
                if not transaction.ended:
                    await transaction.give_up()
                if transaction.committed:
                    self.wake_later(transaction.queues)
                if transaction.spoilt:
                    with suppress(asyncpg.InterfaceError):  # the server ended it, and the pool has taken it back
                        connection.terminate()

    # Sweep and prune

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
        if self._sweeps % UNKNOWN_EVERY == 0:
            await self._execute(query("postgres", "add_unknown_workers"))
        self._sweeps += 1
        deaths = len(await self._fetch(query("postgres", "mark_workers_dead")))
        if patience is not None and self.clock.monotonic() - began > patience:
            return Swept(deaths=deaths, late=True)
        if failpoints.armed:
            failpoints.hit("sweep.buried")
        rescued = await self._rescue_all(CrashRules(max_crashes, crash_counts, blames), page)
        for record in await self._fetch(query("postgres", "forgotten_cancels")):
            with suppress(JobNotFound, TransitionRefused):  # another sweeper was faster
                await self.operate(Verb.CANCEL, record[0])
        await self._execute(query("postgres", "prune_workers"))
        return Swept(deaths=deaths, rescued=rescued[State.QUEUED], dead_after_crashes=rescued[State.DEAD])

    async def _rescue(self, rules: CrashRules, page: int, jobs: Collection[UUID], *, only: bool) -> list[State]:
        return await self._transact(
            lambda runner, connection: sweep.rescue(runner, connection, rules, page, jobs, only=only)
        )

    async def _orphans(self, page: int, but: Collection[UUID]) -> list[UUID]:
        return [record[0] for record in await self._fetch(query("postgres", "orphans"), page, list(but))]

    async def _rescue_bare(self, rules: CrashRules, job: UUID) -> list[State]:
        return await self._transact(lambda runner, connection: sweep.rescue_bare(runner, connection, rules, job))

    async def wake_due(self, *, page: int = 500) -> int:
        return await self._run_in_transaction(lambda: wake_due_jobs(page))

    async def lead(self, name: str, worker: UUID, lease: float) -> bool:
        leads = bool(await self._value(query("postgres", "lead"), name, worker, lease))
        if leads and failpoints.armed:
            failpoints.hit("lead.taken")
        return leads

    async def prune(self, *, history: float, audit: float) -> None:
        for table, age in ((partitions.HISTORY, history), (partitions.AUDIT, audit)):
            await self._pool.run(table.prepare)
            await self._pool.run(partial(table.prune, age=age))
        await self.fold_figures(minutes=True)
        await self._execute(query("postgres", "drop_figures"), history)
        for step in ("prune_flow", "prune_admission", "prune_types"):
            while await self._value(query("postgres", step), history, PRUNE_PAGE) == PRUNE_PAGE:
                pass

    # Operate

    async def operate(self, verb: Verb, job: UUID, *, actor: str | None = None) -> State | None:
        if verb not in OPERATIONS:
            raise ValueError(f"{verb.value!r} is not an operator's verb; there are: {', '.join(OPERATIONS)}")
        try:
            return await self._transact(
                lambda runner, connection: operate.operate(runner, connection, verb, job, actor)
            )
        except operate.NotAllowed:
            raise refusal(verb, job, await self.find(job)) from None

    async def rerun(self, job: NewJob, *, discard: bool = False, actor: str | None = None) -> None:
        assert job.copied_from is not None
        old = job.copied_from
        try:
            await self._transact(
                lambda runner, connection: operate.rerun(runner, connection, job, old, discard=discard, actor=actor)
            )
        except operate.NotAllowed:
            raise refusal(Verb.DISCARD, old, await self.find(old)) from None


def _is_unreadable(error: Exception) -> bool:
    """Whether a row exists and cannot be read: a time out of range, or a document of another shape."""
    return not isinstance(error, StoreError) or isinstance(error.__cause__, OverflowError)
