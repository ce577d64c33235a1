"""Calling a handler: from a stored input to an `Outcome`, whatever the handler does. Used by workers and children."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import msgspec

from windlass.declare.registry import Definition, Registry
from windlass.errors import LeaseLost
from windlass.handler.context import Context
from windlass.handler.waits import Suspended
from windlass.model.admission import LONGEST_KEY, key_of
from windlass.model.job import Job
from windlass.model.outcome import Dead, Ending, Outcome, Retry, Snooze
from windlass.payload import describe
from windlass.policy.unique import shortened

log = logging.getLogger("windlass")

ENDS_MORE = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""What a coroutine lets through: these may be addressed to its task, or to the process. The attempt ends with them."""


async def call_coroutine(definition: Definition, job: Job, context: Context | None) -> Outcome:
    """Run an `async def` handler on this loop."""
    try:
        args, kwargs = definition.signature.unbind(job.input, lenient=job.pipeline is not None)
        if context is not None:
            args.insert(0, context)
        value = _finished(await definition.fn(*args, **kwargs))
        return Outcome(ending=Ending.SUCCEEDED, output=definition.signature.dump_result(value))
    except ENDS_MORE:
        raise
    except BaseException as error:  # sys.exit() in a handler ends the handler, not the worker
        return from_error(error, definition)


def call_plain(definition: Definition, job: Job, context: Context | None) -> Outcome:
    """Run a `def` handler on this thread."""
    try:
        args, kwargs = definition.signature.unbind(job.input, lenient=job.pipeline is not None)
        if context is not None:
            args.insert(0, context)
        value = _finished(definition.fn(*args, **kwargs))
        return Outcome(ending=Ending.SUCCEEDED, output=definition.signature.dump_result(value))
    except BaseException as error:  # nothing that a handler raises on its thread concerns anybody else
        return from_error(error, definition)


def _finished(value: object) -> object:
    """A coroutine as a result is a forgotten await: what it should have done was not done."""
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(
            f"the handler returned the coroutine {value.__qualname__}() without awaiting it; write: await …"
        )
    return value


def in_thread(executor: Executor, definition: Definition, job: Job, context: Context | None) -> asyncio.Future[Outcome]:
    """Run a `def` handler on a thread, in a copy of this context."""
    run: Any = contextvars.copy_context().run
    return asyncio.get_running_loop().run_in_executor(executor, run, call_plain, definition, job, context)


async def with_flow(outcome: Outcome, definition: Definition, context: Context | None) -> Outcome:
    """A success with what its handler spawned: that commits with the finish."""
    if context is None or outcome.ending is not Ending.SUCCEEDED:
        return outcome
    try:
        flow = await context.flow()
    except Exception as error:
        return from_error(error, definition)
    return outcome if flow is None else msgspec.structs.replace(outcome, flow=flow)


def from_error(error: BaseException, definition: Definition) -> Outcome:
    """What an exception says about the attempt."""
    error = _said(error)
    if isinstance(error, Suspended):
        return Outcome(ending=Ending.WAITING, flow=error.flow)
    if isinstance(error, Snooze):
        return Outcome(ending=Ending.SNOOZED, delay=error.delay)
    if isinstance(error, LeaseLost):
        return Outcome(ending=Ending.LOST)
    kind, message, trace = describe(error)
    if isinstance(error, Dead):
        return Outcome(ending=Ending.DEAD, type=kind, message=message, traceback=trace)
    if isinstance(error, Retry):
        return Outcome(
            ending=Ending.RETRY,
            type=kind,
            message=message,
            traceback=trace,
            delay=error.after,
            bucket=None if error.bucket is None else shortened(error.bucket, LONGEST_KEY),
        )
    permanent = False if getattr(error, "of_database", False) else definition.is_permanent(error)
    return Outcome(ending=Ending.RAISED, type=kind, message=message, traceback=trace, permanent=permanent)


def with_a_key(outcome: Outcome, registry: Registry) -> Outcome:
    """Of a Retry: the bare name of what has a key per value would hold back nobody, and is told instead."""
    if outcome.bucket is None or not registry.is_keyed(outcome.bucket):
        return outcome
    log.warning(
        "Retry(bucket=%r): nobody holds back: it has a key per value; say which, as in bucket=%r",
        outcome.bucket,
        key_of(outcome.bucket, "example.org"),
    )
    return msgspec.structs.replace(outcome, bucket=None)


def _said(error: BaseException) -> BaseException:
    """In a TaskGroup several tasks may wait or be snoozed: one speaks for all. It all starts from the top again."""
    if not isinstance(error, BaseExceptionGroup) or error.split((Suspended, Snooze))[1] is not None:
        return error
    words = list(_leaves(error))
    snoozes = [word for word in words if isinstance(word, Snooze)]
    return max(snoozes, key=lambda snooze: snooze.delay) if snoozes else words[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
