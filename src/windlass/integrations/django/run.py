"""The one job type that carries Django's tasks.

The task runs on a thread, as Django's code expects; an asynchronous one on a loop of that thread, so that its queries
use the thread's connections. The signals observe: a receiver that raises changes nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from django.utils import timezone

from windlass.declare.jobtype import JobType
from windlass.errors import LeaseLost
from windlass.handler.context import Context
from windlass.integrations.django.instance import the_app
from windlass.integrations.django.register import REGISTER, Known
from windlass.integrations.django.results import make_error, make_result, seen
from windlass.model.job import Failure, attempts_in
from windlass.model.outcome import Dead, Ending, Snooze
from windlass.payload import describe

TYPE = "django.task"
PAUSE = 30.0  # seconds until a worker that does not know the task leaves it to another one again
PATIENCE = 20  # such pauses, ten minutes: a deployment is over by then


@cache
def carrier() -> JobType[..., Any]:
    """The job type, declared when it is first needed. One attempt, as Django's own backends have it."""
    declared: JobType[..., Any] = the_app().job(type=TYPE, max_attempts=1)(task)
    return declared


def task(
    ctx: Context, task: str, args: list[Any], kwargs: dict[str, Any], backend: str, run_after: str | None = None
) -> Any:
    """Run the task that was declared under this path."""
    known = REGISTER.look(task)
    if known is None:
        _leave(ctx, task)
    return _perform(ctx, known)


def _perform(ctx: Context, known: Known) -> Any:
    flavour = known.flavour
    result = make_result(flavour, known.task, seen(ctx.job))
    sender = type(result.task.get_backend())
    flavour.started.send_robust(sender, task_result=result)
    try:
        context = [flavour.context(task_result=result)] if result.task.takes_context else []
        value = flavour.normalize_json(result.task.call(*context, *result.args, **result.kwargs))
    except BaseException as error:
        if _is_last(ctx, error):
            result.errors.append(make_error(flavour, _failure(ctx, error)))
            _finish(result, flavour.status.FAILED)
            flavour.finished.send_robust(sender, task_result=result)
        raise
    object.__setattr__(result, "_return_value", value)
    _finish(result, flavour.status.SUCCESSFUL)
    flavour.finished.send_robust(sender, task_result=result)
    return value


def _finish(result: Any, status: Any) -> None:
    """Django's results are frozen, and its own backends write them like this."""
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())


def _failure(ctx: Context, error: BaseException) -> Failure:
    kind, message, trace = describe(error)
    now = timezone.now()
    return Failure(type=kind, message=message, attempt=ctx.attempt, attempted_at=now, traceback=trace)


def _is_last(ctx: Context, error: BaseException) -> bool:
    """Whether the task ends with this error: a retry is not the end, and a lost lease is another worker's."""
    if isinstance(error, (Snooze, LeaseLost)):
        return False
    return isinstance(error, Dead) or ctx.job.attempt >= ctx.job.max_attempts


def _leave(ctx: Context, path: str) -> NoReturn:
    """A newer worker may know the task: leave it there for the time of a deployment, then say what is wrong."""
    why = (
        f"no task {path!r} is declared in this project; put it into the tasks.py of an installed app, or name its "
        f'module: WINDLASS = {{"MODULES": ["{path.rpartition(".")[0]}"]}}'
    )
    if sum(attempt.outcome == Ending.SNOOZED for attempt in attempts_in(ctx.job.attempts)) >= PATIENCE:
        raise Dead(why)
    ctx.log.warning("%s", why)
    raise Snooze(PAUSE)
