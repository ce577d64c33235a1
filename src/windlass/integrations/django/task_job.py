"""The one job type that runs all of Django's tasks.

A task runs on a thread, as Django's code expects. An asynchronous task runs on an event loop of that thread, so that
its queries use the thread's connections. Signals only observe: a receiver that raises changes nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from django.utils import timezone

from windlass.declare.jobtype import JobType
from windlass.errors import LeaseLost
from windlass.handler.sync_context import SyncContext
from windlass.integrations.django.instance import get_app
from windlass.integrations.django.results import make_error, make_result, read_record
from windlass.integrations.django.task_registry import TASK_REGISTRY, DeclaredTask
from windlass.model.job import Failure, attempts_in
from windlass.model.outcome import Dead, Ending, Snooze
from windlass.payload.sanitise import describe

TYPE = "django.task"
PAUSE = 30.0  # seconds for which a worker that does not know the task snoozes it
MOST_PAUSES = 20  # ten minutes: a deployment is over by then


@cache
def task_job_type() -> JobType[..., Any]:
    """The job type, declared when it is first needed. It has one attempt, as in Django's own backends."""
    declared: JobType[..., Any] = get_app().job(type=TYPE, max_attempts=1)(task)
    return declared


def task(
    ctx: SyncContext, task: str, args: list[Any], kwargs: dict[str, Any], backend: str, run_after: str | None = None
) -> Any:
    """Run the task that was declared under this path."""
    declared = TASK_REGISTRY.find(task)
    if declared is None:
        _snooze_unknown(ctx, task)
    return _call_task(ctx, declared)


def _call_task(ctx: SyncContext, declared: DeclaredTask) -> Any:
    api = declared.api
    result = make_result(api, declared.task, read_record(ctx.job))
    sender = type(result.task.get_backend())
    api.started.send_robust(sender, task_result=result)
    try:
        context = [api.context(task_result=result)] if result.task.takes_context else []
        value = api.normalize_json(result.task.call(*context, *result.args, **result.kwargs))
    except BaseException as error:
        if _is_last(ctx, error):
            result.errors.append(make_error(api, _failure(ctx, error)))
            _finish(result, api.status.FAILED)
            api.finished.send_robust(sender, task_result=result)
        raise
    object.__setattr__(result, "_return_value", value)
    _finish(result, api.status.SUCCESSFUL)
    api.finished.send_robust(sender, task_result=result)
    return value


def _finish(result: Any, status: Any) -> None:
    """Write the end into a result. Django's results are frozen, and its own backends write them like this."""
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())


def _failure(ctx: SyncContext, error: BaseException) -> Failure:
    kind, message, trace = describe(error)
    now = timezone.now()
    return Failure(type=kind, message=message, attempt=ctx.attempt, attempted_at=now, traceback=trace)


def _is_last(ctx: SyncContext, error: BaseException) -> bool:
    """Whether the task ends with this error. A retry does not end it; after a lost lease another worker has it."""
    if isinstance(error, (Snooze, LeaseLost)):
        return False
    return isinstance(error, Dead) or ctx.job.attempt >= ctx.job.max_attempts


def _snooze_unknown(ctx: SyncContext, path: str) -> NoReturn:
    """Snooze the job for as long as a deployment takes, as a newer worker may know the task; then mark it dead."""
    why = (
        f"no task {path!r} is declared in this project; put it into the tasks.py of an installed app, or name its "
        f'module: WINDLASS = {{"MODULES": ["{path.rpartition(".")[0]}"]}}'
    )
    if sum(attempt.outcome == Ending.SNOOZED for attempt in attempts_in(ctx.job.attempts)) >= MOST_PAUSES:
        raise Dead(why)
    ctx.log.warning("%s", why)
    raise Snooze(PAUSE)
