"""Durable steps: a function runs once, and every later run of the handler gets its stored result.

What a step writes through `ctx.transaction()` and its result are one commit, under the lease. Without a transaction the
result is written after the function returned: if the worker dies between the two, the function runs again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from windlass import failpoints
from windlass.errors import FlowError, LeaseLost
from windlass.handler.memory import RunMemory, check_name
from windlass.handler.transaction import AttemptTransaction, current_transaction
from windlass.model.flow import Memory
from windlass.payload.packing import pack, unpack

T = TypeVar("T")

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on the worker's loop and waits for it on a handler's thread."""

current_step: ContextVar[Step | None] = ContextVar("windlass_step", default=None)
"""The step that runs its function in this context."""


class Step:
    """A step while its function runs."""

    def __init__(self, name: str, memory: RunMemory, transaction: AttemptTransaction, owner: object = None) -> None:
        self.name = name
        self.memory = memory
        self.transaction = transaction  # the step's own; or the attempt's, with the owner of the enclosing block
        self.owner = owner


def step_of(memory: RunMemory) -> Step | None:
    """The step of this job in which this is called. A step of another job does not count: tests nest jobs."""
    step = current_step.get()
    return step if step is not None and step.memory is memory else None


def refuse_inside_a_step(memory: RunMemory, method: str) -> None:
    step = step_of(memory)
    if step is not None:
        raise FlowError(
            f"ctx.{method}() inside step {step.name!r}: a step that ran is not run again, and what it left to the end "
            "of the run would be lost; call it before or after the step"
        )


class Steps:
    """The steps of one run."""

    def __init__(self, memory: RunMemory) -> None:
        self._memory = memory
        self._turn = asyncio.Lock()  # steps inside one transaction block
        self._open: set[AttemptTransaction] = set()

    async def run(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a step for a coroutine; a plain function runs on a thread."""
        check_function(name, fn)
        key = self._memory.take(name, "step")
        try:
            text = await self._memory.read(key)
            if text is None:
                async with self._begin(name) as step:
                    token = current_step.set(step)
                    try:
                        value = await _call(fn, args, kwargs)
                    finally:
                        current_step.reset(token)
                    text = pack(value, what=f"step {name!r}")
                    await self._keep(step, Memory(key, text))
        except BaseException:
            self._memory.give_back(name)
            raise
        return unpack(text, fn)

    def run_here(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], run: Run
    ) -> Any:
        """Run a step for a synchronous handler; a plain function runs on this thread."""
        check_function(name, fn)
        key = self._memory.take(name, "step")
        try:
            text = run(self._memory.read(key))
            if text is None:
                text = self._run_first_time(name, key, lambda: fn(*args, **kwargs), run)
        except BaseException:
            self._memory.give_back(name)
            raise
        return unpack(text, fn)

    def _run_first_time(self, name: str, key: str, call: Callable[[], Any], run: Run) -> str:
        block = self._begin(name)
        step = run(block.__aenter__())
        try:
            token = current_step.set(step)
            try:
                value = call()
                if inspect.isawaitable(value):
                    value = run(_await(value))
            finally:
                current_step.reset(token)
            text = pack(value, what=f"step {name!r}")
            run(self._keep(step, Memory(key, text)))
        except BaseException as error:
            run(block.__aexit__(type(error), error, error.__traceback__))
            raise
        run(block.__aexit__(None, None, None))
        return text

    @asynccontextmanager
    async def _begin(self, name: str) -> AsyncIterator[Step]:
        """A step with its own transaction; inside a block of the attempt's transaction it joins that one."""
        attempt, around = self._memory.transaction, current_transaction.get()
        attempt.check()
        if attempt.transaction is None:
            own = attempt.another()
            self._open.add(own)
            try:
                yield Step(name, self._memory, own)
            finally:
                self._open.discard(own)
                await own.close()
        elif around is not None and around.transaction is attempt.transaction:
            async with self._turn:
                yield Step(name, self._memory, attempt, attempt.owner)
        else:
            raise FlowError(
                f"step {name!r} follows a block of ctx.transaction(), which stays open until the finish; put the "
                "step before the block, or into it"
            )

    async def _keep(self, step: Step, result: Memory) -> None:
        """Store the result, together with what the step wrote."""
        if failpoints.armed:
            failpoints.hit("step.before_commit")
        if step.transaction is self._memory.transaction or step.transaction.transaction is None:
            step.transaction.check()
            await self._memory.keep(result)
        else:
            await self._commit(step.transaction, result)
        if failpoints.armed:
            failpoints.hit("step.committed")

    async def _commit(self, own: AttemptTransaction, result: Memory) -> None:
        transaction, memory = own.transaction, self._memory
        assert transaction is not None
        try:
            if not await transaction.remember(memory.job.lease, result):
                raise memory.lease_lost(result.name)
            await transaction.commit()
        except LeaseLost:
            raise
        except Exception:
            # The answer to a COMMIT can be lost after the commit happened: read the store.
            known = await memory.retry_while_leased(lambda: memory.store.recall(memory.job.id))
            if result.name not in known.steps:
                raise

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    async def close(self) -> None:
        """The attempt has ended: roll back the open transactions of its steps."""
        for own in list(self._open):
            await own.close()


def check_function(name: str, fn: object) -> None:
    check_name(name, "step")
    if inspect.iscoroutine(fn):
        fn.close()  # it is not awaited, and Python would warn of that beside the error
    if not callable(fn):
        raise FlowError(
            f"step {name!r} is given {type(fn).__name__}, not a function: the call was made before the step; give "
            f'the function and its arguments: ctx.step("{name}", fn, 3)'
        )


async def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(fn):
        return await fn(*args, **kwargs)
    value = await asyncio.to_thread(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


async def _await(value: Awaitable[T]) -> T:
    return await value
