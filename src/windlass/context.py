"""What a handler may know and do: its job, its lease's fence, one transaction, progress, a log, and when to stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, TypeVar

from windlass.errors import LeaseLost, WindlassError
from windlass.job import Job
from windlass.payload import sanitise_text
from windlass.store.protocol import Transaction

T = TypeVar("T")

LOG_LINES = 1_000
LOG_BYTES = 64 * 1024

current_transaction: ContextVar[Joined | None] = ContextVar("windlass_transaction", default=None)
"""The open `ctx.transaction()` block of the running handler: an enqueue inside it joins it."""

handler_log = logging.getLogger("windlass.job")


class Joined:
    """An open transaction and the loop it lives on, for an enqueue that joins it."""

    def __init__(self, transaction: Transaction, loop: asyncio.AbstractEventLoop) -> None:
        self.transaction = transaction
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it, from a handler's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class Begins(Protocol):
    """What a context needs of its store."""

    def transaction(self, *, limit: float) -> AbstractAsyncContextManager[Transaction]: ...


class Context:
    """Given to a handler whose first parameter is annotated `Context`."""

    def __init__(
        self,
        job: Job,
        *,
        store: Begins,
        loop: asyncio.AbstractEventLoop,
        transaction_limit: float,
        time_limit: float | None,
        on_progress: Callable[[Context], None] | None = None,
    ) -> None:
        self.job = job
        self.attempt = job.attempt
        self.fence = job.fence
        self.log = JobLog(job)
        self.total = job.total
        self.processed = job.processed
        self.failed = job.failed
        self._time_limit = time_limit
        self._on_progress = on_progress
        self._cancelled = False
        self._transaction = AttemptTransaction(store, loop=loop, limit=transaction_limit)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for this job to stop; a handler that runs long looks now and then."""
        return self._cancelled

    @property
    def deadline(self) -> datetime | None:
        """When the time limit ends, on the database's clock; None without a limit."""
        started = self.job.claimed_at
        if self._time_limit is None or started is None:
            return None
        return started + timedelta(seconds=self._time_limit)

    def transaction(self) -> TransactionBlock:
        """A transaction on the store's database that commits together with the finish of this attempt.

        `async with ctx.transaction() as tx: await tx.execute("insert … values ($1)", n)`, or `with` in a synchronous
        handler. What is written through it happens exactly once: it is committed with the success of the attempt
        that wrote it, under its lease, and rolled back with any other outcome. Put it last: it is capped at a third
        of the lease.
        """
        return TransactionBlock(self._transaction)

    def progress(self, processed: int | None = None, *, total: int | None = None, failed: int | None = None) -> None:
        """Say how far the job is. Cheap: it is written at most once a second, and with the finish."""
        if processed is not None:
            self.processed = _count("processed", processed)
        if total is not None:
            self.total = _count("total", total)
        if failed is not None:
            self.failed = _count("failed", failed)
        if self._on_progress is not None:
            self._on_progress(self)

    def ask_to_stop(self) -> None:
        """The worker's side of `cancelled`."""
        self._cancelled = True


def _count(what: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"progress({what}={value!r}): a whole number from 0 to {2**31 - 1} is needed")
    return value


class JobLog:
    """Lines that are kept with the attempt (1,000 of them, or 64 KiB) and also go to the `windlass.job` logger."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._bytes = 0
        self.lines: list[str] = []
        self.dropped = 0

    def debug(self, message: str, *args: object) -> None:
        self._say(logging.DEBUG, message, args)

    def info(self, message: str, *args: object) -> None:
        self._say(logging.INFO, message, args)

    def warning(self, message: str, *args: object) -> None:
        self._say(logging.WARNING, message, args)

    def error(self, message: str, *args: object) -> None:
        self._say(logging.ERROR, message, args)

    __call__ = info

    def _say(self, level: int, message: str, args: tuple[object, ...]) -> None:
        handler_log.log(level, message, *args, extra={"job": str(self._job.id), "job_type": self._job.type})
        try:
            text = message % args if args else str(message)
        except (TypeError, ValueError):
            text = f"{message} {args!r}"
        line = sanitise_text(f"{logging.getLevelName(level)} {text}", 8 * 1024)
        size = len(line.encode()) + 4
        if len(self.lines) >= LOG_LINES or self._bytes + size > LOG_BYTES:
            self.dropped += 1
            return
        self.lines.append(line)
        self._bytes += size

    def told(self) -> list[str]:
        """The lines to keep, with a last one that owns up to what was dropped."""
        return [*self.lines, f"… {self.dropped} more lines were dropped"] if self.dropped else self.lines


class AttemptTransaction:
    """The one transaction of an attempt: opened by its first block, ended by whoever concludes the attempt."""

    def __init__(self, store: Begins, *, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        self.loop = loop
        self._store = store
        self._limit = limit
        self._open: tuple[AbstractAsyncContextManager[Transaction], Transaction] | None = None
        self._closed = False
        self._turn = asyncio.Lock()
        self._owner: object = None  # the task or thread whose block is open

    @property
    def transaction(self) -> Transaction | None:
        return None if self._open is None else self._open[1]

    @asynccontextmanager
    async def block(self, owner: object) -> AsyncIterator[Transaction]:
        """The first block begins; a later one is a savepoint. A block that raises takes back what it wrote.

        Blocks of one owner may nest; those of several tasks in one handler take turns, or one would undo the other's.
        """
        if self._owner == owner:
            async with self._savepoint() as transaction:
                yield transaction
            return
        async with self._turn:
            self._owner = owner
            try:
                async with self._begin() if self._open is None else self._savepoint() as transaction:
                    yield transaction
            finally:
                self._owner = None

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[Transaction]:
        self._check()
        assert self._open is not None
        transaction = self._open[1]
        await transaction.savepoint()
        try:
            yield transaction
        except BaseException:
            await transaction.rollback_to()
            raise
        await transaction.release()

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[Transaction]:
        self._check()
        manager = self._store.transaction(limit=self._limit)
        self._open = (manager, await manager.__aenter__())
        try:
            self._check()  # once more: it may have waited for its turn until after the attempt's end
            yield self._open[1]
        except BaseException:
            await self.end()
            raise

    def _check(self) -> None:
        """A handler that was fenced out comes late: what it wrote could never commit."""
        if self._closed:
            raise LeaseLost(
                "this attempt has ended, and its late transaction is refused; look at ctx.cancelled in time"
            )

    async def close(self) -> None:
        """The attempt has ended: roll back what is open and not committed, and begin no other."""
        self._closed = True
        await self.end()

    async def end(self) -> None:
        """Roll back, unless it was committed before."""
        held, self._open = self._open, None
        if held is not None:
            await held[0].__aexit__(None, None, None)


class TransactionBlock:
    """`async with` in a coroutine, `with` in a synchronous handler; what comes out fits either."""

    def __init__(self, attempt: AttemptTransaction) -> None:
        self._attempt = attempt
        self._block: AbstractAsyncContextManager[Transaction] | None = None
        self._token: Any = None

    async def __aenter__(self) -> Transaction:
        self._block = self._attempt.block(asyncio.current_task())
        transaction = await self._block.__aenter__()
        self._token = current_transaction.set(Joined(transaction, self._attempt.loop))
        return transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        current_transaction.reset(self._token)
        return await self._block.__aexit__(kind, error, trace)

    def __enter__(self) -> BlockingTransaction:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise WindlassError("`with ctx.transaction()` in a coroutine would block it; use `async with`")
        self._block = self._attempt.block(threading.get_ident())
        joined = Joined(self._run(self._block.__aenter__()), self._attempt.loop)
        self._token = current_transaction.set(joined)
        return BlockingTransaction(joined)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        current_transaction.reset(self._token)
        return self._run(self._block.__aexit__(kind, error, trace))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._attempt.loop).result()


class BlockingTransaction(Joined):
    """A transaction for a synchronous handler: the same calls, each waiting for its answer."""

    def __init__(self, joined: Joined) -> None:
        super().__init__(joined.transaction, joined._loop)

    def execute(self, sql: str, *args: object) -> str:
        """Run one statement; the answer is a short status such as `INSERT 1`."""
        return self.run(self.transaction.execute(sql, *args))

    def fetch(self, sql: str, *args: object) -> list[dict[str, Any]]:
        """Run one statement and return its rows."""
        return self.run(self.transaction.fetch(sql, *args))


__all__ = ["Context", "JobLog", "current_transaction"]
