"""A subscriber that logs events: one line each, with the same facts as fields of the record (`extra`).

The texts of an error are the handler's own. They are redacted here, with the job's input at hand: a value that is
hidden in the input is also hidden where the error repeats it. All other lines consist of names, numbers and ids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Any

from windlass.clock import spell
from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.events import (
    AttemptEnded,
    AttemptStarted,
    DeliveriesRefused,
    Detail,
    Event,
    HealthReported,
    JobAssigned,
    JobChanged,
    JobQueued,
    JobRefused,
    JobsClaimed,
    JobsReleased,
    LeasesLost,
    PhaseHealth,
    ReleaseReason,
    WorkerStarted,
    WorkerStopped,
)
from windlass.observe.routine_lines import LISTED, RoutineLines, listed, say_counts
from windlass.observe.subscribers import EndingTracker
from windlass.policy.redaction import Redaction

LONGEST_ERROR = 300  # characters of an error in a line
MOST_NAMED = 100  # jobs in the fields of one line

log = logging.getLogger("windlass")


LEVEL_OF = {State.FAILED: logging.WARNING, State.DEAD: logging.ERROR, None: logging.WARNING}
"""The level of an attempt's end by the job's new state, None for a lost lease; INFO for all others."""
ALWAYS = (AttemptEnded, JobChanged, LeasesLost)
AT_INFO = (
    *(AttemptStarted, JobsReleased, JobRefused, DeliveriesRefused, HealthReported),
    *(WorkerStarted, WorkerStopped),
)
AT_DEBUG = (JobsClaimed, JobQueued, JobAssigned)


class LogSubscriber:
    """Logs events as lines. Lost leases and rescues are logged as warnings where they happen."""

    def __init__(self, redact: Iterable[str] = ()) -> None:
        self._endings = EndingTracker(self._log_end)
        self._redaction = Redaction(redact)
        self._routine = RoutineLines()
        self._steady = False  # the worker scans by the clock: a scan is a line at INFO

    @property
    def kinds(self) -> tuple[type, ...]:
        """What is worth making at the level of the log: a worker makes no event for a line that is not logged."""
        if log.isEnabledFor(logging.DEBUG):
            return (*ALWAYS, *AT_INFO, *AT_DEBUG)
        scans = (JobsClaimed,) if self._steady else ()
        return (*ALWAYS, *AT_INFO, *scans) if log.isEnabledFor(logging.INFO) else ALWAYS

    def __call__(self, event: Event | Detail) -> None:
        match event:
            case AttemptStarted():
                if self._routine.admits():
                    job, fields = event.job, job_fields("attempt_started", event.job) | {"processor": event.processor}
                    self._routine.write("%s started, %s job=%s", (job.type, attempt_of(job), job.id), fields)
                else:
                    self._routine.count_start()
            case AttemptEnded() | JobChanged() | LeasesLost():
                self._endings(event)
            case JobQueued():
                log.debug("%s queued job=%s", event.job.type, event.job.id, extra=job_fields("job_queued", event.job))
            case JobAssigned():
                job, fields = event.job, job_fields("job_assigned", event.job) | {"processor": event.processor}
                log.debug("%s assigned to %s job=%s", job.type, event.processor, job.id, extra=fields)
            case JobRefused():
                job, fields = event.job, job_fields("job_refused", event.job) | {"reason": event.reason}
                log.info("%s goes back: %s job=%s", job.type, event.reason, job.id, extra=fields)
            case _:
                self._log_worker(event)

    def _log_worker(self, event: Event | Detail) -> None:
        match event:
            case JobsClaimed():
                _log_claim(event, logging.INFO if self._steady else logging.DEBUG)
            case JobsReleased():
                if event.reason is not ReleaseReason.STALE:  # the health check warns of each such job
                    fields = {"kind": "jobs_released", "worker": event.worker, "jobs": event.jobs}
                    text = "unstarted jobs released, because %s: %d"
                    log.info(text, event.reason.value, event.jobs, extra=fields | {"reason": event.reason.value})
            case DeliveriesRefused() if event.jobs:  # the intake warns of messages that name no job
                jobs = {str(job): reason for job, reason in islice(event.jobs.items(), MOST_NAMED)}
                fields = {"kind": "deliveries_refused", "reasons": dict(event.reasons), "jobs": jobs}
                named = listed(f"{job} ({reason})" for job, reason in jobs.items())
                log.info("claims of delivered jobs refused: %d: %s", len(event.jobs), named, extra=fields)
            case HealthReported():
                _log_health(event)
            case WorkerStarted():
                self._steady = event.pace == "steady"
                _log_start(event)
            case WorkerStopped():
                self._routine.flush()
                fields = {"kind": "worker_stopped", "worker": event.worker, "worker_name": event.name}
                log.info("worker %s stopped", event.name, extra=fields)
            case _:
                pass

    def _log_end(self, end: AttemptEnded, state: State | None) -> None:
        """A failure has its traceback: as exc_info, which error trackers read, or as the text that a child sent.

        The record's own text of the exception is set here, redacted: a formatter uses it as it is.
        """
        level = LEVEL_OF.get(state, logging.INFO)
        if not log.isEnabledFor(level):
            return
        if level == logging.INFO and not self._routine.admits():
            self._routine.count_end(end)
            return
        error, trace = end.error, end.traceback
        if error is not None:
            error, trace = self._redaction.texts_about(end.job.input, error, trace or "")
        values: tuple[object, ...] = (end.job.type, describe_end(end, state, error), end.job.id)
        if level == logging.INFO:
            self._routine.write("%s %s job=%s", values, _end_fields(end, state, error))
            return
        text, exception = "%s %s job=%s", end.exception if state in (State.FAILED, State.DEAD) else None
        if state in (State.FAILED, State.DEAD) and exception is None and trace:
            text, values = f"{text}\n%s", (*values, trace)
        found = None if exception is None else (type(exception), exception, exception.__traceback__)
        record = log.makeRecord(
            log.name, level, __file__, 0, text, values, found, "_log_end", _end_fields(end, state, error)
        )
        if exception is not None:
            record.exc_text = trace or None
        log.handle(record)


def job_fields(kind: str, job: Job) -> dict[str, Any]:
    """The fields of a line about a job."""
    return {
        "kind": kind,
        "job": job.id,
        "type": job.type,
        "queue": job.queue,
        "phase": job.phase,
        "pipeline": job.pipeline,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "retries": max(0, job.attempt - 1),
    }


def _end_fields(end: AttemptEnded, state: State | None, error: str | None) -> dict[str, Any]:
    fields = job_fields("attempt_ended", end.job) | {
        "processor": end.processor,
        "state": "lost" if state is None else state.value,
        "ending": end.ending.value,
        "job_duration_ms": round(end.elapsed * 1000, 3),
        "wait_ms": round(end.wait * 1000, 3),
    }
    if error is not None:
        fields |= {"error_type": end.error_type, "error": shorten_error(error), "retry_in": end.delay}
    return fields


def _log_claim(event: JobsClaimed, level: int) -> None:
    waiting = sum(event.in_memory.values())
    fields = {
        "kind": "jobs_claimed",
        "worker": event.worker,
        "types": event.types,
        "asked": event.asked,
        "batch_claimed_count": event.got,
        "claim_ms": round(event.seconds * 1000, 3),
        "rescan": event.rescan,
        "in_memory": event.in_memory,
    }
    text = "scan for %s: asked for %d jobs, got %d in %s; %d in memory before%s"
    values = (listed(event.types), event.asked, event.got, spell(event.seconds), waiting, say_counts(event.in_memory))
    log.log(level, text, *values, extra=fields)


def _log_start(event: WorkerStarted) -> None:
    """Pools and their sizes, queues, discovery, coordinator, in this order."""
    queues = "all queues" if event.queues is None else f"queues {listed(event.queues)}"
    batch = "as many as there is room for" if event.batch is None else f"{event.batch} per phase"
    scans = f"scans each {spell(event.poll)}, {batch}"
    most = "" if event.assign_most is None else f", {event.assign_most} per phase"
    assigns = "assigns at once" if not event.assign_every else f"assigns each {spell(event.assign_every)}{most}"
    fields = {
        "kind": "worker_started",
        "worker": event.worker,
        "worker_name": event.name,
        "pools": dict(event.pools),
        "processors": event.processors,
        "queues": event.queues,
        "pace": event.pace,
        "poll_seconds": event.poll,
        "batch": event.batch,
        "assign_every_seconds": event.assign_every,
        "assign_most": event.assign_most,
    }
    text = "worker %s started as %s: %d processors%s; %s; %s; %s"
    pools = say_counts(dict(event.pools))
    log.info(text, event.name, event.worker, event.processors, pools, queues, scans, assigns, extra=fields)


def _log_health(event: HealthReported) -> None:
    busy, error = sum(phase.busy for phase in event.phases), sum(phase.error for phase in event.phases)
    fields = {
        "kind": "health_reported",
        "worker": event.worker,
        "seconds": round(event.seconds, 3),
        "phases": [_phase_fields(phase) for phase in event.phases],
        "success_count": event.succeeded,
        "fail_count": event.failed,
        "reset": event.reset,
        "released": event.released,
        "top_failure_domains": dict(event.top_failures),
    }
    said = "; ".join(_say(phase) for phase in event.phases[:LISTED])
    top = (
        f"; failures at {', '.join(f'{key} {count}' for key, count in event.top_failures)}"
        if event.top_failures
        else ""
    )
    text = "health: %d succeeded and %d failed in %s; %d processors busy, %d in error, %d reset; %d jobs released; %s%s"
    values = (event.succeeded, event.failed, spell(event.seconds), busy, error, event.reset, event.released, said, top)
    log.info(text, *values, extra=fields)


def _phase_fields(phase: PhaseHealth) -> dict[str, Any]:
    mean = None if phase.mean_run is None else round(phase.mean_run * 1000, 3)
    names = ("phase", "idle", "busy", "error", "in_memory", "succeeded", "failed")
    return {name: getattr(phase, name) for name in names} | {"mean_run_ms": mean}


def _say(phase: PhaseHealth) -> str:
    mean = "" if phase.mean_run is None else f", mean {spell(phase.mean_run)}"
    processors = f"{phase.idle} idle, {phase.busy} busy, {phase.error} in error"
    return f"{phase.phase}: {processors}, {phase.in_memory} in memory{mean}"


def describe_end(end: AttemptEnded, state: State | None, error: str | None = None) -> str:
    """`succeeded in 12ms`, `failed in 3ms (attempt 1 of 4), again in 10s: ValueError: …`.

    `error` stands for the error's text where that is given: without secrets.
    """
    said = end.error if error is None else error
    took, why = f"in {spell(end.elapsed)}", f": {shorten_error(said)}" if said else ""
    match state:
        case None:
            return f"lost its lease after {spell(end.elapsed)}; nothing was written"
        case State.SUCCEEDED:
            return f"succeeded {took}"
        case State.FAILED:
            return f"failed {took} ({attempt_of(end.job)}), again in {spell(end.delay or 0.0)}{why}"
        case State.DEAD:
            return f"dead {took} ({attempt_of(end.job)}){why}"
        case State.CANCELLED:
            return f"cancelled after {spell(end.elapsed)}"
        case State.WAITING:
            return f"waiting, after {spell(end.elapsed)}"
        case State.QUEUED if end.ending is Ending.WAITING:
            return f"has what it waited for, after {spell(end.elapsed)}"
        case State.QUEUED if end.ending is Ending.SUCCEEDED:
            return f"goes on to its next phase, after {spell(end.elapsed)}"
        case State.QUEUED if end.ending is Ending.SNOOZED:
            return f"snoozed for {spell(end.delay or 0.0)}"
        case State.QUEUED if end.ending is Ending.RELEASED:
            return f"released after {spell(end.elapsed)}"
        case _:
            return f"{state} {took}{why}"


def attempt_of(job: Job) -> str:
    return f"attempt {job.attempt} of {job.max_attempts}"


def shorten_error(error: str) -> str:
    """The first line of an error, cut to LONGEST_ERROR."""
    first = error.strip().partition("\n")[0]
    return first if len(first) <= LONGEST_ERROR else f"{first[:LONGEST_ERROR]}…"
