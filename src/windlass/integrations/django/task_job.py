"""Every declared Django task as a job type of its own, with the task's path as its name.

A task runs on a thread, as Django's code expects. An asynchronous task runs on an event loop of that thread, so that
its queries use the thread's connections. Signals only observe: a receiver that raises changes nothing.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from functools import cache
from time import monotonic
from typing import Any

import msgspec
from django.utils import timezone

from windlass.declare.registry import Definition, Registry, define
from windlass.errors import LeaseLost
from windlass.handler.sync_context import CONTEXTS, SyncContext
from windlass.integrations.django.results import make_error, make_result, read_record
from windlass.integrations.django.task_registry import TASK_REGISTRY, DeclaredTask
from windlass.model.job import Failure
from windlass.model.outcome import Dead, Directive, Snooze
from windlass.payload.sanitise import describe


def add_job_type(registry: Registry, path: str) -> None:
    """Add the job type of a task. It has one attempt, as in Django's own backends."""
    common = _definition()
    signature = copy.copy(common.signature)
    signature.name = path  # for messages about arguments
    registry.add(msgspec.structs.replace(common, type=path, signature=signature))


@cache
def _definition() -> Definition:
    return define(run_task, contexts=CONTEXTS, max_attempts=1)


def run_task(
    ctx: SyncContext, args: list[Any], kwargs: dict[str, Any], backend: str, run_after: str | None = None
) -> Any:
    """Run the task that was declared under the job's type."""
    declared = TASK_REGISTRY.find(ctx.job.type)
    assert declared is not None, "a worker claims the types of declared tasks only"
    return _call_task(ctx, declared)


def _call_task(ctx: SyncContext, declared: DeclaredTask) -> Any:
    api, began = declared.api, monotonic()
    result = make_result(api, declared.task, read_record(ctx.job))
    sender = type(result.task.get_backend())
    api.started.send_robust(sender, task_result=result)
    try:
        context = [api.context(task_result=result)] if result.task.takes_context else []
        value = result.task.call(*context, *result.args, **result.kwargs)
        if isinstance(value, Directive):
            raise value
        value = api.normalize_json(value)
    except BaseException as error:
        if _is_last(ctx, error):
            result.errors.append(make_error(api, _failure(ctx, error)))
            _finish(result, api.status.FAILED, monotonic() - began)
            api.finished.send_robust(sender, task_result=result)
        raise
    object.__setattr__(result, "_return_value", value)
    _finish(result, api.status.SUCCESSFUL, monotonic() - began)
    api.finished.send_robust(sender, task_result=result)
    return value


def _finish(result: Any, status: Any, elapsed: float) -> None:
    """Write the end into a result. Django's results are frozen, and its own backends write them like this.

    The time counts from the start, which is the database's: this machine's clock may be behind it.
    """
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", result.last_attempted_at + timedelta(seconds=elapsed))


def _failure(ctx: SyncContext, error: BaseException) -> Failure:
    kind, message, trace = describe(error)
    now = timezone.now()
    return Failure(type=kind, message=message, attempt=ctx.attempt, attempted_at=now, traceback=trace)


def _is_last(ctx: SyncContext, error: BaseException) -> bool:
    """Whether the task ends with this error. A retry does not end it; after a lost lease another worker has it."""
    if isinstance(error, (Snooze, LeaseLost)):
        return False
    return isinstance(error, Dead) or ctx.job.attempt >= ctx.job.max_attempts
