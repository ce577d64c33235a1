"""The call of a handler: from a stored input to an `Outcome`, whatever the handler does. For workers and children."""

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
from windlass.handler.context import BaseContext
from windlass.handler.waits import Suspended
from windlass.model.admission import LONGEST_KEY, key_of
from windlass.model.job import Job
from windlass.model.outcome import Dead, Directive, Ending, Outcome, Retry, Snooze
from windlass.payload.sanitise import describe
from windlass.policy.unique import shorten_key

log = logging.getLogger("windlass")

NOT_ONLY_FOR_THE_JOB = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Exceptions that a coroutine lets through: they may be meant for its task or for the process. They end the attempt."""


async def call_coroutine(definition: Definition, job: Job, context: BaseContext | None) -> Outcome:
    """Run an `async def` handler on this loop."""
    try:
        args, kwargs = definition.signature.unbind(job.input, lenient=job.pipeline is not None)
        if context is not None:
            args.insert(0, context)
        return succeed(await definition.fn(*args, **kwargs), definition)
    except NOT_ONLY_FOR_THE_JOB:
        raise
    except BaseException as error:  # sys.exit() in a handler ends the handler, not the worker
        return from_error(error, definition)


def call_plain(definition: Definition, job: Job, context: BaseContext | None) -> Outcome:
    """Run a `def` handler on this thread."""
    try:
        args, kwargs = definition.signature.unbind(job.input, lenient=job.pipeline is not None)
        if context is not None:
            args.insert(0, context)
        return succeed(definition.fn(*args, **kwargs), definition)
    except BaseException as error:  # an exception on the handler's thread is meant for the job alone
        return from_error(error, definition)


def succeed(value: object, definition: Definition) -> Outcome:
    """The outcome of a handler that returned this. A returned directive does what a raised one does."""
    if isinstance(value, Directive):
        return from_error(value, definition)
    output, problem = definition.signature.dump_result(_refuse_forgotten(value))
    return Outcome(ending=Ending.SUCCEEDED, output=output, problem=problem)


def _refuse_forgotten(value: object) -> object:
    """A coroutine as a result is a forgotten await, and an exception a forgotten raise: the work was not done."""
    if isinstance(value, type) and issubclass(value, Directive):
        raise TypeError(f"the handler returned the class {value.__name__}; return a value of it: {value.__name__}(…)")
    if isinstance(value, BaseException):
        kind = type(value).__name__
        raise TypeError(f"the handler returned an exception, {kind}, and did not raise it; write: raise {kind}(…)")
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(
            f"the handler returned the coroutine {value.__qualname__}() without awaiting it; write: await …"
        )
    return value


def in_thread(
    executor: Executor, definition: Definition, job: Job, context: BaseContext | None
) -> asyncio.Future[Outcome]:
    """Run a `def` handler on a thread, in a copy of this context."""
    run: Any = contextvars.copy_context().run
    return asyncio.get_running_loop().run_in_executor(executor, run, call_plain, definition, job, context)


async def with_flow(outcome: Outcome, definition: Definition, context: BaseContext | None) -> Outcome:
    """A success with the jobs that its handler spawned: they commit with the finish."""
    if context is None or outcome.ending is not Ending.SUCCEEDED:
        return outcome
    try:
        flow = await context._flow()
    except Exception as error:
        return from_error(error, definition)
    return outcome if flow is None else msgspec.structs.replace(outcome, flow=flow)


def from_error(error: BaseException, definition: Definition) -> Outcome:
    """The outcome of an attempt that raised this exception."""
    error = _directive_in(error)
    if isinstance(error, Suspended):
        return Outcome(ending=Ending.WAITING, flow=error.flow)
    if isinstance(error, Snooze):
        return Outcome(ending=Ending.SNOOZED, delay=error.delay)
    if isinstance(error, LeaseLost):
        return Outcome(ending=Ending.LOST)
    kind, message, trace = describe(error)
    if isinstance(error, Dead):
        return Outcome(ending=Ending.DEAD, type=kind, message=message, traceback=trace, exception=error)
    if isinstance(error, Retry):
        return Outcome(
            ending=Ending.RETRY,
            type=kind,
            message=message,
            traceback=trace,
            exception=error,
            delay=error.after,
            bucket=None if error.bucket is None else shorten_key(error.bucket, LONGEST_KEY),
        )
    permanent = False if getattr(error, "of_database", False) else definition.is_permanent(error)
    return Outcome(
        ending=Ending.RAISED, type=kind, message=message, traceback=trace, exception=error, permanent=permanent
    )


def without_bare_bucket(outcome: Outcome, registry: Registry) -> Outcome:
    """A Retry that names a bucket without its key: that holds back no job, so the bucket is dropped with a warning."""
    if outcome.bucket is None or not registry.is_keyed(outcome.bucket):
        return outcome
    log.warning(
        "Retry(bucket=%r): no job holds back: it has a key per value; name one, as in bucket=%r",
        outcome.bucket,
        key_of(outcome.bucket, "example.org"),
    )
    return msgspec.structs.replace(outcome, bucket=None)


def _directive_in(error: BaseException) -> BaseException:
    """In a TaskGroup several tasks may wait or be snoozed: one exception counts for all, as the handler starts from the
    top again."""
    if not isinstance(error, BaseExceptionGroup) or error.split((Suspended, Snooze))[1] is not None:
        return error
    leaves = list(_leaves(error))
    snoozes = [leaf for leaf in leaves if isinstance(leaf, Snooze)]
    return max(snoozes, key=lambda snooze: snooze.delay) if snoozes else leaves[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
