"""Sentry (the extra `sentry`): each failed attempt is an event, and each schedule a cron monitor.

    import sentry_sdk
    from windlass.observe.sentry import instrument

    sentry_sdk.init(dsn=…)
    instrument(app)

Each attempt has an isolation scope of its own. Everything that is captured in it is scrubbed: secrets, personal data
and the queries of URLs are hidden, and frames have no local variables. The tenant is left out: it is often a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from windlass.model.job import Job
from windlass.model.trace import read_traceparent
from windlass.observe.events import AttemptEnded, JobsRescued
from windlass.observe.instruments import Instrument, Watch
from windlass.observe.logs import ROUTINE
from windlass.observe.monitors import Monitors
from windlass.observe.scrub import WITHHELD, Scrubber
from windlass.observe.subscribers import Subscriber
from windlass.policy.fingerprint import fingerprint

try:
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import Scope, add_global_event_processor, use_isolation_scope, use_scope
    from sentry_sdk.utils import event_from_exception
except ImportError as error:
    raise ImportError("the capture needs Sentry's SDK; install it with: pip install 'windlass[sentry]'") from error

if TYPE_CHECKING:
    from windlass.app import Windlass

FLUSH_SECONDS = 1.0  # a child process that ends has two
FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
TEXTS = ("message", "logentry", "exception", "threads", "breadcrumbs", "extra", "request", "tags", "contexts", "user")
"""The parts of an event that hold texts of the program."""


def instrument(app: Windlass) -> Sentry:
    """Send the failures and schedules of a program to Sentry: `instrument(app)`, after `sentry_sdk.init(…)`."""
    sentry = Sentry(Scrubber(app.settings.redact), Monitors(app))
    app._registry.instruments.add(sentry)
    app._registry.subscribers.append(Subscriber(sentry.on_event, (JobsRescued,)))
    add_global_event_processor(sentry.on_log_record)
    ignore_logger(ROUTINE)  # a breadcrumb of each line would cost more than the line, and no failure needs it
    return sentry


class Sentry(Instrument):
    """Captures the failures of one program."""

    name = "the capture by Sentry"

    def __init__(self, scrubber: Scrubber, monitors: Monitors) -> None:
        self._scrubber = scrubber
        self._monitors = monitors
        self._kept: list[AbstractContextManager[Scope]] = []  # they undo what they did when they are dropped

    def start(self) -> None:
        """Make the scopes of which each attempt has a fork."""
        Scope.get_isolation_scope()
        self._kept = [manager := use_scope(BaseScope(Scope.get_current_scope()))]
        manager.__enter__()

    def begin(self, job: Job) -> Watch | None:
        if not sentry_sdk.get_client().is_active():
            return None
        self._monitors.begin(job)
        return AttemptScope(*self._enter(job), self._scrubber, self._monitors)

    def join(self, job: Job, trace: str | None) -> None:
        """In a child process: what the handler itself captures is about this job. The worker captures the failure."""
        if sentry_sdk.get_client().is_active():
            self._kept = [self._enter(job)[1]]  # until the next attempt of this process

    def flush(self) -> None:
        sentry_sdk.flush(timeout=FLUSH_SECONDS)

    def on_event(self, event: JobsRescued) -> None:
        """A sweep counts jobs that are dead by the deaths of their workers; it does not name them."""
        if event.dead_after_crashes:
            text = f"{event.dead_after_crashes} jobs are dead after crashes; see: windlass jobs list state:dead"
            group = ["windlass", "dead after crashes"]
            sentry_sdk.capture_event({"message": text, "level": "error", "logger": "windlass", "fingerprint": group})

    def on_log_record(self, event: Any, hint: Any) -> Any:
        """Of all events of the process: drop the line about a dead job, which is captured already, and scrub others."""
        record = hint.get("log_record")
        if record is not None and record.name == "windlass" and hasattr(record, "job"):
            return None
        if str(event.get("logger", "")).startswith("windlass"):
            return scrub(event, self._scrubber)
        for crumb in _breadcrumbs(event):
            if str(crumb.get("category", "")).startswith("windlass"):
                crumb.update(self._scrubber.value(crumb))
        return event

    def _enter(self, job: Job) -> tuple[Scope, AbstractContextManager[Scope]]:
        """A new isolation scope in the context of the attempt's task, and the manager that ends it."""

        def begin(scope: Scope) -> None:
            scope.clear_breadcrumbs()  # of other jobs
            scope.add_event_processor(lambda event, hint: scrub(_tagged(event, job), self._scrubber, job))

        manager = use_isolation_scope(LateScope(Scope.get_isolation_scope(), begin))
        return manager.__enter__(), manager


class LateScope(Scope):
    """A fork of a scope that is made when it is used: by far the most attempts send nothing, and never use theirs."""

    def __init__(self, origin: Scope, begin: Callable[[Scope], object] = lambda scope: None) -> None:
        self._late = origin, begin  # and no attribute of a scope: `__getattr__` is called for those that are not there

    def __getattr__(self, name: str) -> Any:
        if "_late" not in vars(self):
            raise AttributeError(name)
        if name == "client":  # asked with each line of the log, and no fork has another one
            return vars(self)["_late"][0].client
        origin, begin = vars(self).pop("_late")
        forked, own = copy(origin), object.__getattribute__
        for slot in Scope.__slots__:
            try:
                own(self, slot)  # set before anything was read
            except AttributeError:
                if hasattr(forked, slot):
                    setattr(self, slot, own(forked, slot))
        begin(self)
        return getattr(self, name)


class BaseScope(LateScope):
    """The scope outside of all attempts, which changes no more."""

    def fork(self) -> Scope:
        return LateScope(self)


class AttemptScope(Watch):
    """The scope of one attempt, and its failure."""

    def __init__(
        self, scope: Scope, manager: AbstractContextManager[Scope], scrubber: Scrubber, monitors: Monitors
    ) -> None:
        self._scope, self._manager = scope, manager
        self._scrubber = scrubber
        self._monitors = monitors

    def end(self, end: AttemptEnded) -> None:
        try:
            if end.ending.is_failure:
                with use_isolation_scope(self._scope):
                    self._capture(end)
        finally:
            self._monitors.end(end)
            with suppress(ValueError, LookupError):  # a fenced-out attempt ends outside of its task
                self._manager.__exit__(None, None, None)

    def _capture(self, end: AttemptEnded) -> None:
        kind, hidden = end.error_type or end.ending.value, self._scrubber.failure(end.job, end.message, end.traceback)
        if not end.will_retry:  # first the breadcrumb, so that the event has it
            message = f"the job is dead after attempt {end.job.attempt} of {end.job.max_attempts}"
            self._scope.add_breadcrumb(category="windlass.dead", level="error", message=message)
        event: dict[str, Any] = {
            "level": "warning" if end.will_retry else "error",
            "logger": "windlass.attempt",
            "transaction": end.job.type,
            "exception": {"values": self._exceptions(end, kind, hidden.message, hidden.traceback)},
            "fingerprint": ["windlass", end.job.type, fingerprint(kind, end.message or "")],
            "contexts": {"job": {"id": str(end.job.id), "input": hidden.input, "ending": end.ending.value}},
        }
        trace = read_traceparent(end.job.trace)
        if trace is not None:
            event["contexts"]["trace"] = {"trace_id": trace.trace_id, "span_id": trace.span_id}
        sentry_sdk.capture_event(event)  # type: ignore[arg-type]  # one of its many TypedDicts

    def _exceptions(self, end: AttemptEnded, kind: str, message: str, traceback: str | None) -> list[dict[str, Any]]:
        """The chain of exceptions with its frames; of a child process, the frames that its traceback names."""
        mechanism = {"type": "windlass", "handled": False}
        if end.exception is None:
            frames = [
                {"filename": found["file"], "lineno": int(found["line"]), "function": found["function"], "in_app": True}
                for found in FRAME.finditer(traceback or "")
            ]
            stack = {"stacktrace": {"frames": frames}} if frames else {}
            return [{"type": kind, "value": message, "mechanism": mechanism, **stack}]
        options = {**sentry_sdk.get_client().options, "include_local_variables": False}
        made, _ = event_from_exception(end.exception, client_options=options, mechanism=mechanism)
        values: list[dict[str, Any]] = made["exception"]["values"]
        for value in values:  # of the whole chain: each text is compared with the hidden values of the input
            value["value"] = self._scrubber.failure(end.job, str(value.get("value") or ""), None).message
        return values


def scrub(event: Any, scrubber: Scrubber, job: Job | None = None) -> Any:
    """The event without secrets, and without the variables of its frames."""
    texts = {name: _without_variables(event[name]) for name in TEXTS if name in event}
    hidden = scrubber.value(texts) if job is None else scrubber.about(job, texts)
    if hidden is None:  # no text can be told from a secret of the input
        errors = texts.get("exception", {}).get("values", [])
        hidden = {name: texts[name] for name in ("tags", "contexts") if name in texts}
        hidden["exception"] = {"values": [{**error, "value": WITHHELD} for error in errors]}
        for name in TEXTS:
            event.pop(name, None)
    event.update(hidden)
    return event


def _without_variables(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_variables(item) for name, item in value.items() if not (name == "vars" and "lineno" in value)
        }
    return [_without_variables(item) for item in value] if isinstance(value, list | tuple) else value


def _breadcrumbs(event: Any) -> list[dict[str, Any]]:
    crumbs = event.get("breadcrumbs") or {}
    return list(crumbs.get("values") or []) if isinstance(crumbs, dict) else list(crumbs)


def _tagged(event: Any, job: Job) -> Any:
    """The event with the job's tags: added here, because by far the most attempts have no event."""
    tags = {"job.id": str(job.id), "job.type": job.type, "job.queue": job.queue, "job.attempt": str(job.attempt)}
    if job.pipeline is not None:
        tags["job.phase"] = job.phase
    event["tags"] = {**(event.get("tags") or {}), **tags}
    return event
