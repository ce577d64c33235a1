"""The finish inside the handler's own transaction: both are committed, or neither. Used by workers and children."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from windlass import failpoints
from windlass.clock import Clock
from windlass.declare.registry import Definition
from windlass.errors import StoreError, StoreUnavailable
from windlass.handler.context import BaseContext
from windlass.model.job import Job, Lease
from windlass.model.outcome import Ending, Outcome, Transition
from windlass.policy.failure import Run
from windlass.runtime.handler_call import from_error
from windlass.store.protocol import Store

log = logging.getLogger("windlass")

T = TypeVar("T")

RETRY_LOST_TRANSACTION = 1.0  # seconds until a job runs again after the database lost its transaction


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Await the end of an attempt's transaction, however often this task is cancelled meanwhile.

    A handler that cancelled its own task and then returned leaves a cancellation behind, which would end the commit in
    its middle.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()


async def commit(
    context: BaseContext,
    transition: Transition,
    outcome: Outcome,
    *,
    definition: Definition,
    store: Store,
    clock: Clock,
    held: Callable[[], bool],
) -> Outcome:
    """Write `transition` into the attempt's open transaction and commit; returns `outcome` as finished, or what became
    of it instead. `held` returns whether the lease is held.
    """
    transaction = context._transaction.transaction
    assert transaction is not None, "only an attempt with an open transaction commits its own finish"
    try:
        if not await transaction.finish(transition):
            return Outcome(ending=Ending.LOST)
        if failpoints.armed:
            failpoints.hit("transaction.before_commit")
        await transaction.commit()
        if failpoints.armed:
            failpoints.hit("transaction.committed")
    except Exception as error:
        # The answer to a COMMIT can be lost after the commit happened. Only the store knows: ask it before
        # anything else, or the job runs again although its effects are committed.
        if not await _was_committed(transition.lease, store=store, clock=clock, held=held):
            if transaction.lost(error):  # rolled back by the database: run again, with no attempt burned
                why = str(error).partition("\n")[0]
                log.warning("the transaction of job %s is lost, and the job runs again: %s", transition.job, why)
                return Outcome(ending=Ending.SNOOZED, delay=RETRY_LOST_TRANSACTION)
            return from_error(error, definition)
    return msgspec.structs.replace(outcome, flow=None, finished=True)


async def _was_committed(lease: Lease, *, store: Store, clock: Clock, held: Callable[[], bool]) -> bool:
    failures = 0
    while held():
        try:
            return await store.finished_by(lease)
        except StoreUnavailable:
            failures += 1
            await store.contact.hold_off(store.contact.pause(failures))
        except StoreError:
            return False
    return False


def account(
    job: Job,
    context: BaseContext | None,
    *,
    worker: UUID,
    waited: float,
    elapsed: float,
    trace: str | None = None,
) -> Run:
    """An attempt for `decide`: `waited` seconds from the answer to its claim until its start, `elapsed` since then."""
    assert job.claimed_at is not None
    # The database's time of the claim plus what this process measured since: no wall clock of ours.
    started_at = job.claimed_at + timedelta(seconds=waited)
    return Run(
        job=job,
        worker=worker,
        started_at=started_at,
        finished_at=started_at + timedelta(seconds=elapsed),
        elapsed=elapsed,
        total=job.total if context is None else context.total,
        processed=job.processed if context is None else context.processed,
        failed=job.failed if context is None else context.failed,
        cost_cents=job.cost_cents + (0 if context is None else context.spent),
        log=[] if context is None else context.log.kept_lines(),
        trace=trace,
    )
