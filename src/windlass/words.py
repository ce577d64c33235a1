"""Words of other libraries and wrong arguments: an error answers each with the line to write instead."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Never, TypeVar, cast

from windlass.config import suggest

F = TypeVar("F", bound=Callable[..., Any])

# Names that an object does not have. `{0._noun}` is the name of the object.

_ENQUEUE, _AWAIT = "{0._noun}.enqueue(…)", "await {0._noun}.aenqueue(…)"
_LATER, _CALL = '{0._noun}.options(delay="10m").enqueue(…)', "{0._noun}.call(…)"
JOB_TYPE = {
    **dict.fromkeys(("delay", "send", "defer"), _ENQUEUE),
    **dict.fromkeys(("kiq", "adelay", "asend", "defer_async"), _AWAIT),
    **dict.fromkeys(("apply_async", "send_with_options", "enqueue_in", "schedule", "configure", "using"), _LATER),
    **dict.fromkeys(("s", "si", "signature"), _CALL),
    "apply": "{0._noun}.enqueue(…).result()",
}

_WORKER = "async with app.worker(): …; in a program without an event loop, start it in a shell: windlass worker app.py"
_ADD = "add.enqueue(…), where @app.job decorates add"
APP = {
    **dict.fromkeys(("task", "actor", "register_task"), "@app.job"),
    **dict.fromkeys(("enqueue", "send", "send_task", "defer", "delay", "apply_async"), _ADD),
    **dict.fromkeys(("aenqueue", "enqueue_job"), f"await {_ADD.replace('enqueue', 'aenqueue')}"),
    **dict.fromkeys(("get_job", "fetch_job", "get", "result", "AsyncResult"), "app.find(id)"),
    **dict.fromkeys(
        ("cron", "periodic", "periodic_task", "crontab", "add_periodic_task", "every"),
        'app.schedule("nightly", report.call(), cron="0 3 * * *")',
    ),
    **dict.fromkeys(("start", "run", "run_worker", "work", "worker_main"), _WORKER),
    **dict.fromkeys(("cancel", "revoke", "abort"), "app.find(id).cancel()"),
    "retry": "app.find(id).retry()",
    "group": "app.batch(calls, then=report.call())",
    "chord": "app.batch(calls, then=report.call())",
    "chain": 'app.pipeline("site", fetch, parse)',
    "delete": "app.find(id).discard()",
}

_END = "job.result(timeout=5), which waits for the end"
HANDLE = {
    **dict.fromkeys(("get", "wait", "join", "wait_result", "get_result", "return_value"), _END),
    **dict.fromkeys(("ready", "done", "finished", "is_finished"), 'job.status() in ("succeeded", "dead", "cancelled")'),
    **dict.fromkeys(("successful", "is_success"), 'job.status() == "succeeded"'),
    **dict.fromkeys(("failed", "is_failed"), 'job.status() in ("failed", "dead")'),
    **dict.fromkeys(("state", "get_status", "job_status"), "job.status()"),
    **dict.fromkeys(("revoke", "abort", "stop", "kill", "terminate"), "job.cancel()"),
    **dict.fromkeys(("traceback", "exc_info", "info", "error"), "job.record().failure()"),
    **dict.fromkeys(("refresh", "fetch"), "job.record()"),
    **dict.fromkeys(("delete", "forget"), "job.discard()"),
    **dict.fromkeys(("task_id", "job_id", "message_id"), "job.id"),
}

_NOT_YET = "add.enqueue(…), or for a call that is made already: app.enqueue_many([call])"
CALL = dict.fromkeys(("enqueue", "delay", "apply_async", "send", "defer", "aenqueue"), _NOT_YET)

CONTEXT = {
    "retry": 'raise Retry(after="30s")',
    "snooze": 'raise Snooze("30s")',
    "request": "ctx.job, ctx.attempt",
    "update_state": "ctx.progress(3, total=10)",
    "update_progress": "ctx.progress(3, total=10)",
    "enqueue": 'ctx.spawn("name", add.call(…)), or add.enqueue(…)',
    "id": "ctx.job.id",
    "job_id": "ctx.job.id",
    "is_cancelled": "ctx.cancelled",
}

WORKER = dict.fromkeys(("run", "start", "work", "run_forever", "serve"), _WORKER)


def answer_words(what: str, words: Mapping[str, str]) -> Callable[[object, str], Never]:
    """A `__getattr__` that answers a word of another library with the line to write."""

    def answer(self: object, name: str) -> Never:
        if name not in words:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        raise AttributeError(f"{what} has no .{name}; write: {words[name].format(self)}", name=None, obj=self)

    return answer


# Options

OPTIONS = {
    "queue": '"mail"',
    "priority": "5",
    "tenant": '"acme"',
    "max_attempts": "4",
    "delay": '"10s"',
    "run_at": "datetime(…, tzinfo=UTC)",
    "key": '"order-7"',
    "unique": "False",
    "idempotency_key": '"order-7"',
    "limits": '{"domain": "a.org"}',
    "conn": "conn",
}
"""The options of an enqueue, each with an example of its value."""

_ATTEMPTS = ("max_attempts", "4", " for 3 retries: the first attempt counts, too")
_TIMEOUT, _RETRY = ("timeout", '"5m"', ""), ("retry", 'exponential("10s")', "")
SYNONYMS = {
    **dict.fromkeys(("countdown", "defer_by", "enqueue_in", "wait", "after"), ("delay", '"10s"', "")),
    **dict.fromkeys(("eta", "at", "defer_until", "schedule_at", "scheduled_at"), ("run_at", OPTIONS["run_at"], "")),
    **dict.fromkeys(("retries", "max_retries", "max_tries"), _ATTEMPTS),
    **dict.fromkeys(("time_limit", "soft_time_limit", "job_timeout"), _TIMEOUT),
    **dict.fromkeys(("backoff", "retry_backoff", "retry_delay", "default_retry_delay", "min_backoff"), _RETRY),
    **dict.fromkeys(("name", "task_name", "actor_name"), ("type", '"mail.send"', "")),
    **dict.fromkeys(("queue_name", "queues"), ("queue", '"mail"', "")),
    **dict.fromkeys(("task_id", "job_id", "dedup_key", "queueing_lock"), ("key", OPTIONS["key"], "")),
    **dict.fromkeys(("throws", "dont_retry", "dont_retry_for"), ("permanent", "[ValueError]", "")),
}
"""Options of other libraries: the option here, an example of its value, and what else to know."""


def suggest_option(name: str, known: Mapping[str, object], others: Mapping[str, object], line: str) -> str:
    """What to write instead of an unknown option: the option of that meaning, here or in the other place, as `line`."""
    option, value, note = SYNONYMS.get(name, (name, OPTIONS.get(name, "…"), ""))
    if option in known:
        return f"; write: {option}={value}{note}"
    return f"; {line.format(f'{option}={value}')}{note}" if option in others else suggest(name, known)


def suggest_enqueue(job: str, name: str) -> str:
    """What to write when an option of the enqueue was given as an argument of the job; else nothing."""
    option, _, note = SYNONYMS.get(name, (name, "", ""))
    if option not in OPTIONS:
        return ""
    return f"; options come before the enqueue: {job}.options({option}={OPTIONS[option]}).enqueue(…){note}"


# Arguments

ARGUMENTS = {
    "app.jobs": {
        **{name: f'app.jobs("{name}:…")' for name in ("queue", "type", "tenant")},
        "state": 'app.jobs("state:dead")',
        "status": 'app.jobs("state:dead")',
        "limit": "count=5",
    },
    "app.schedule": {"crontab": 'cron="0 3 * * *"', "interval": 'every="15m"', "timezone": 'tz="Europe/Berlin"'},
    "app.worker": {"queue": 'queues=["mail"]'},
    "app.lifespan": {"workers": "worker=True"},
    "exponential": {"max": 'most="1h"', "max_delay": 'most="1h"', "initial": 'base="10s"'},
    "Retry": dict.fromkeys(("countdown", "delay", "in_", "seconds"), 'after="30s"'),
}
"""Arguments that a public function does not have, and what to write instead."""


def explain_arguments(public: str) -> Callable[[F], F]:
    """Let the error for wrong arguments of a function name it as users write it, with a line that is right."""

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return fn(*args, **kwargs)
            except TypeError as error:
                if was_raised_inside(error):
                    raise
                raise explain_call(error, fn, public, args, kwargs) from None

        return cast(F, call)

    return decorate


def was_raised_inside(error: TypeError) -> bool:
    """Whether a function raised the error. Otherwise the call itself failed, since its arguments do not fit."""
    return error.__traceback__ is None or error.__traceback__.tb_next is not None


def explain_call(
    error: TypeError, fn: Callable[..., Any], public: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> TypeError:
    """The error for arguments that do not fit."""
    parameters = inspect.signature(fn).parameters
    unknown = next((name for name in kwargs if name not in parameters), None)
    if unknown is not None:
        line = ARGUMENTS.get(public, {}).get(unknown)
        known = {name: None for name in parameters if name != "self"}
        return TypeError(
            f"{public}() has no argument {unknown!r}{suggest(unknown, known) if line is None else f'; write: {line}'}"
        )
    by_place = [p for p in parameters.values() if p.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if len(args) > len(by_place):
        own = "self" in parameters
        most = len(by_place) - own
        plural = "s" * (most > 1)
        text = (
            f"takes {most} argument{plural} without a name, not {len(args) - own}"
            if most
            else "takes its arguments by name"
        )
    else:
        text = str(error).partition("() ")[2]
    described = fn if fn.__doc__ or not args else type(args[0])  # an `__init__` has the docstring of its class
    example = re.search(rf"`([^`]*\b{public.rpartition('.')[2]}\([^`]*)`", described.__doc__ or "")
    return TypeError(f"{public}() {text}" + (f"; write: {example[1]}" if example else ""))
