"""Decides the transition that follows from an outcome: one exhaustive match, pure.

succeeded → succeed, or advance to the next phase of a pipeline
raised, timeout, retry → fail, or bury when attempts are used up or the error is permanent
crashed → fail without counting the attempt, or bury after max_crashes; with crash_counts the attempt counts
snoozed → snooze      waiting → wait      dead → bury      released → release      cancelled → stop      lost → nothing
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import assert_never
from uuid import UUID

import msgspec

from windlass.config import Settings
from windlass.model import audit
from windlass.model.flow import Advance, Flow, kept_output
from windlass.model.job import Attempt, Failure, Job
from windlass.model.outcome import Ending, Outcome, Transition
from windlass.model.state import Verb
from windlass.payload.sanitise import describe
from windlass.policy.fingerprint import fingerprint
from windlass.policy.limit import LONGEST_HOLD
from windlass.policy.retry import LONGEST_DELAY, RetryPolicy

EXHAUSTED = "exhausted"
PERMANENT = "permanent"
CRASHED = "crashed"

FALLBACK_DELAY = 60.0  # seconds, if a retry policy of the user's own fails

encoder = msgspec.json.Encoder()
log = logging.getLogger("windlass")


class Run(msgspec.Struct, kw_only=True):
    """What the processor knows about one attempt besides its outcome. Times are the database's."""

    job: Job
    worker: UUID
    started_at: datetime
    finished_at: datetime
    elapsed: float
    total: int | None
    processed: int
    failed: int
    cost_cents: int  # of all attempts, including this one
    log: list[str]
    trace: str | None = None  # of this attempt


def decide(
    run: Run,
    outcome: Outcome,
    *,
    retry: RetryPolicy,
    settings: Settings,
    advance: Advance | None = None,
    success: str | None = audit.SUCCEEDED,
) -> Transition | None:
    """The transition that follows; None when the lease is lost or the finish is already committed.

    `advance` is the phase that follows a success, and `success` is the audit action of a success.
    """
    match outcome.ending:
        case Ending.SUCCEEDED:
            if outcome.finished:
                return None
            if advance is not None:
                return _advance(run, outcome, advance)
            return _transition(run, outcome, Verb.SUCCEED, flow=outcome.flow, success=success)
        case Ending.RAISED | Ending.TIMED_OUT | Ending.RETRY:
            if outcome.permanent:
                return _transition(run, outcome, Verb.BURY, reason=PERMANENT)
            return _fail(run, outcome, retry)
        case Ending.DEAD:
            return _transition(run, outcome, Verb.BURY, reason=outcome.message)
        case Ending.CRASHED:
            return _fail_after_crash(run, outcome, retry, settings)
        case Ending.SNOOZED:
            return _transition(run, outcome, Verb.SNOOZE, burned=False, delay=outcome.delay or 0.0)
        case Ending.WAITING:
            return _transition(run, outcome, Verb.WAIT, burned=False, delay=None, flow=outcome.flow)
        case Ending.RELEASED:
            return _transition(run, outcome, Verb.RELEASE, burned=False, delay=None)
        case Ending.CANCELLED:
            return _transition(run, outcome, Verb.STOP, burned=False, reason="cancelled")
        case Ending.LOST:
            return None
        case _:
            assert_never(outcome.ending)


def _fail(run: Run, outcome: Outcome, retry: RetryPolicy) -> Transition:
    """Fail, or bury when attempts are used up. In both cases a `Retry` with a bucket holds that bucket for all jobs."""
    job = run.job
    exhausted = job.attempt >= job.max_attempts
    if exhausted and outcome.bucket is None:
        return _transition(run, outcome, Verb.BURY, reason=EXHAUSTED)
    delay = _delay(retry, job.attempt) if outcome.delay is None else outcome.delay
    hold = None if outcome.bucket is None else (outcome.bucket, min(delay, LONGEST_HOLD))
    if exhausted:
        return _transition(run, outcome, Verb.BURY, reason=EXHAUSTED, hold=hold)
    return _transition(run, outcome, Verb.FAIL, delay=delay, hold=hold)


def _fail_after_crash(run: Run, outcome: Outcome, retry: RetryPolicy, settings: Settings) -> Transition:
    """Fail after the handler's process died. As in the rescue of a dead worker's jobs, the attempt counts only with
    `crash_counts`.
    """
    job, crashes, burned = run.job, run.job.crashes + 1, settings.crash_counts
    exhausted = burned and job.attempt >= job.max_attempts
    reason = CRASHED if crashes >= settings.max_crashes else EXHAUSTED if exhausted else None
    if reason is not None:
        return _transition(run, outcome, Verb.BURY, crashes=crashes, burned=burned, reason=reason)
    return _transition(run, outcome, Verb.FAIL, crashes=crashes, burned=burned, delay=_delay(retry, crashes))


def _delay(retry: RetryPolicy, attempt: int) -> float:
    """The policy's delay. A policy of the user's own may raise or return nonsense: the job must not be lost by that."""
    try:
        return max(0.0, min(float(retry.delay(attempt)), LONGEST_DELAY))
    except BaseException as error:
        name, trace = type(retry).__qualname__, describe(error)[2]
        log.error("the retry policy %s failed; the job is tried again in %g s\n%s", name, FALLBACK_DELAY, trace)
        return FALLBACK_DELAY


def _advance(run: Run, outcome: Outcome, advance: Advance) -> Transition:
    """Go to the next phase, which counts its own attempts and crashes. This phase's output is kept."""
    flow = outcome.flow or Flow()
    kept = kept_output(run.job.phase, outcome.output or "null")
    flow = msgspec.structs.replace(flow, advance=advance, memories=(*flow.memories, kept))
    transition = _transition(run, outcome, Verb.ADVANCE, flow=flow)
    return msgspec.structs.replace(transition, attempt=0, crashes=0)


def _transition(
    run: Run,
    outcome: Outcome,
    verb: Verb,
    *,
    delay: float | None = 0.0,
    burned: bool = True,
    crashes: int | None = None,
    reason: str | None = None,
    flow: Flow | None = None,
    success: str | None = None,
    hold: tuple[str, float] | None = None,
) -> Transition:
    """Make a transition. Only a success and a wait have a `flow`: what a failed attempt spawned is dropped."""
    job = run.job
    error = _failure(run, outcome)
    return Transition(
        lease=job.lease,
        verb=verb,
        delay=delay,
        attempt=job.attempt if burned else job.attempt - 1,
        crashes=_crashes(job, outcome, verb) if crashes is None else crashes,
        output=outcome.output,
        error=None if error is None else encoder.encode(error).decode(),
        fingerprint=None if error is None else fingerprint(error.type, error.message),
        entry=_attempt_entry(run, outcome, error, always=verb is Verb.ADVANCE),
        reason=reason,
        elapsed=run.elapsed,
        total=run.total,
        processed=run.processed,
        failed=run.failed,
        cost_cents=run.cost_cents,
        flow=flow,
        action=audit.action(verb, exhausted=reason == EXHAUSTED, success=success),
        followed=job.followed,
        limited=bool(job.limits),
        charged=run.cost_cents > job.cost_cents,
        hold=hold,
    )


def _crashes(job: Job, outcome: Outcome, verb: Verb) -> int:
    """A suspect that ran without a crash is no longer a suspect. A job that ends here keeps its count of crashes."""
    return 0 if outcome.harmless and verb in (Verb.FAIL, Verb.SNOOZE, Verb.WAIT) else job.crashes


def _failure(run: Run, outcome: Outcome) -> Failure | None:
    if outcome.type is None:
        return None
    return Failure(
        type=outcome.type,
        message=outcome.message or "",
        attempt=run.job.attempt,
        attempted_at=run.finished_at,
        traceback=outcome.traceback,
    )


def _attempt_entry(run: Run, outcome: Outcome, error: Failure | None, *, always: bool) -> str | None:
    """The entry of an attempt in the job's record; None for a success, release or wait that logged nothing.

    An attempt that ends a phase always has an entry. A problem with the result is the last line of the log.
    """
    quiet = outcome.ending in (Ending.SUCCEEDED, Ending.RELEASED, Ending.WAITING)
    if quiet and not run.log and not always and outcome.problem is None:
        return None
    entry = Attempt(
        attempt=run.job.attempt,
        fence=run.job.fence,
        worker=run.worker,
        started_at=run.started_at,
        finished_at=run.finished_at,
        outcome=outcome.ending.value,
        phase=None if run.job.pipeline is None else run.job.phase,
        trace=run.trace,
        error=error,
        log=run.log if outcome.problem is None else [*run.log, f"WARNING the result: {outcome.problem}"],
    )
    return encoder.encode(entry).decode()
