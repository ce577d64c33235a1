"""`ctx.transaction()`: the one transaction of an attempt, or of a step, and how an enqueue joins it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from windlass.errors import LeaseLost, WindlassError

if TYPE_CHECKING:
    from windlass.store.protocol import Transaction

T = TypeVar("T")

current_transaction: ContextVar[Joined | None] = ContextVar("windlass_transaction", default=None)
"""The open `ctx.transaction()` block of the running handler: an enqueue inside it joins it."""


class Joined:
    """An open transaction and the loop it runs on, for an enqueue that joins it."""

    def __init__(self, transaction: Transaction, loop: asyncio.AbstractEventLoop) -> None:
        self.transaction = transaction
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine of the transaction, on a handler's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class OpensTransaction(Protocol):
    """A store that opens transactions."""

    def transaction(self, *, limit: float) -> AbstractAsyncContextManager[Transaction]: ...


class AttemptTransaction:
    """The one transaction of an attempt: its first block opens it, and the end of the attempt ends it.

    A step outside of it has its own transaction, which ends with the step.
    """

    def __init__(self, store: OpensTransaction, *, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        self.loop = loop
        self._store = store
        self._limit = limit
        self._open: tuple[AbstractAsyncContextManager[Transaction], Transaction] | None = None
        self._closed = False
        self._turn = asyncio.Lock()
        self.owner: object = None  # the task or thread that has a block open

    @property
    def transaction(self) -> Transaction | None:
        return None if self._open is None else self._open[1]

    def another(self) -> AttemptTransaction:
        """A transaction that begins and commits separately from this one."""
        return AttemptTransaction(self._store, loop=self.loop, limit=self._limit)

    @asynccontextmanager
    async def block(self, owner: object) -> AsyncIterator[Transaction]:
        """The first block begins the transaction; a later block is a savepoint. A block that raises is rolled back.

        Blocks of one owner may nest. Blocks of several tasks in one handler run one after the other, or a rollback of
        one would undo writes of another.
        """
        if self.owner == owner:
            async with self._savepoint() as transaction:
                yield transaction
            return
        async with self._turn:
            self.owner = owner
            try:
                async with self._begin() if self._open is None else self._savepoint() as transaction:
                    yield transaction
            finally:
                self.owner = None

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[Transaction]:
        self.check()
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
        self.check()
        manager = self._store.transaction(limit=self._limit)
        self._open = (manager, await manager.__aenter__())
        try:
            self.check()  # once more: the attempt may have ended while the begin waited
            yield self._open[1]
        except BaseException:
            await self.end()
            raise

    def check(self) -> None:
        """Refuse a handler that was fenced out: its writes could never commit."""
        if self._closed:
            raise LeaseLost("this attempt has ended, and its late transaction is refused; check ctx.cancelled in time")

    async def close(self) -> None:
        """The attempt has ended: roll back what is open and not committed, and refuse another begin."""
        self._closed = True
        await self.end()

    async def end(self) -> None:
        """Roll back, unless it was committed before."""
        held, self._open = self._open, None
        if held is not None:
            await held[0].__aexit__(None, None, None)


class TransactionBlock:
    """`async with` in a coroutine, `with` in a synchronous handler; each gets a transaction of its kind.

    `owner` is given when the block nests in a block of another thread or task: in the thread of a step.
    """

    def __init__(self, attempt: AttemptTransaction, *, owner: object = None) -> None:
        self._attempt = attempt
        self._owner = owner
        self._block: AbstractAsyncContextManager[Transaction] | None = None
        self._token: Any = None

    async def __aenter__(self) -> Transaction:
        self._block = self._attempt.block(self._owner or asyncio.current_task())
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
        self._block = self._attempt.block(self._owner or threading.get_ident())
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
    """A transaction for a synchronous handler: the same calls, blocking."""

    def __init__(self, joined: Joined) -> None:
        super().__init__(joined.transaction, joined._loop)

    def execute(self, sql: str, *args: object) -> str:
        """Run one statement; the answer is a short status such as `INSERT 1`."""
        return self.run(self.transaction.execute(sql, *args))

    def fetch(self, sql: str, *args: object) -> list[dict[str, Any]]:
        """Run one statement and return its rows."""
        return self.run(self.transaction.fetch(sql, *args))
