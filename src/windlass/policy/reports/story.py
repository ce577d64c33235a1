"""The story of a job in one or two sentences: what happened to it, what it waits for, what is next, how it ended.

Every state and every reason for which a job does not start has its sentence here. A time that a page counts down is in
`next_of` as well.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from windlass.clock import in_words
from windlass.model import audit
from windlass.model.job import Failure, Job
from windlass.model.reports.story import LifeKind, NextKind
from windlass.model.rows import JobDetails, WaitKind, WaitReason
from windlass.model.state import FINAL, State, Verb, allows
from windlass.policy.failure import CRASHED, EXHAUSTED, PERMANENT
from windlass.policy.reports.graph_layout import count_text
from windlass.policy.reports.life import count_failures, life_of, times

LISTED = 120  # characters of an error on one line
ROOM = (WaitKind.LIMIT, WaitKind.RATE, WaitKind.HOLD)


def story_of(job: Job, details: JobDetails, now: datetime, *, retry_at: datetime | None = None) -> str:
    """What happened to the job, what keeps it and what is next: `Failed twice: Boom: no. Retries in 38 s, …`.

    `retry_at` is when the first of the failed jobs that it waits for is tried again.
    """
    match job.status:
        case State.QUEUED:
            return _go_on(job, _explain_queued(job, details, now))
        case State.RUNNING:
            return _go_on(job, _explain_running(job, details, now))
        case State.WAITING:
            return _go_on(job, _explain_waiting(job, details, now, retry_at))
        case State.FAILED:
            return _tell_failed(job, details, now)
        case State.SUCCEEDED:
            return _tell_succeeded(job, now)
        case State.DEAD:
            return _tell_dead(job)
        case State.CANCELLED:
            return _tell_cancelled(job, details, now)
        case _:
            assert_never(job.status)


def next_of(
    job: Job, details: JobDetails, *, retry_at: datetime | None = None
) -> tuple[datetime | None, NextKind | None]:
    """When something happens to the job by itself, and what; None where that is not known."""
    why = next(iter(details.reasons), None)
    if why is None or (why.until is None and why.kind is not WaitKind.JOBS):
        return None, None
    match why.kind:
        case WaitKind.TIME:
            return why.until, NextKind.RETRY if job.status is State.FAILED else NextKind.START
        case WaitKind.LIMIT | WaitKind.RATE | WaitKind.HOLD:
            return why.until, NextKind.ROOM
        case WaitKind.BUDGET:
            return why.until, NextKind.BUDGET
        case WaitKind.SLEEP:
            return why.until, NextKind.WAKE
        case WaitKind.JOBS if retry_at is not None and (why.until is None or retry_at < why.until):
            return retry_at, NextKind.CHILD
        case WaitKind.JOBS | WaitKind.SIGNAL:
            return why.until, None if why.until is None else NextKind.TIMEOUT
        case WaitKind.GATE | WaitKind.WORKER | WaitKind.TYPE | WaitKind.BUSY:
            return None, None
        case _:
            assert_never(why.kind)


ORDER = (Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.CANCEL, Verb.DISCARD)


def actions_of(job: Job) -> tuple[str, ...]:
    """What an operator may do with the job in its state; the most useful first."""
    verbs = [verb.value for verb in ORDER if allows(verb, job.status)]
    if job.status is State.RUNNING and not job.cancel_requested:
        verbs.append(Verb.CANCEL.value)  # a request: its handler has to stop
    return (*verbs, *(["signal"] if job.status not in FINAL else []), "rerun")


def summarize_failure(failure: Failure) -> str:
    """An error on one line: its type, and the first line of its message."""
    first = failure.message.strip().partition("\n")[0]
    text = f"{failure.type.rpartition('.')[2]}: {first}" if first else failure.type
    return text if len(text) <= LISTED else f"{text[:LISTED]}…"


# Jobs that go on


def _go_on(job: Job, clause: str) -> str:
    """`Waits …`, or after failures `Failed once, then went on: it waits …`. A clause has no subject."""
    failed, lost = count_failures(job.attempts_made())
    past = [f"failed {times(failed)}"] if failed else []
    past += [f"lost its worker {times(lost)}"] if lost else []
    if not past:
        return _sentence(clause)
    return _sentence(f"{' and '.join(past)}, then went on: it {clause}")


def _explain_queued(job: Job, details: JobDetails, now: datetime) -> str:
    if not details.reasons:
        waited = in_words((now - job.run_at).total_seconds())
        return f"waits for a processor for {waited}; a worker takes it with its next claim"
    return _explain(job, details, now)


def _explain_running(job: Job, details: JobDetails, now: datetime) -> str:
    worker = None if job.worker is None else details.workers.get(job.worker)
    place = f" on {worker}" if worker else ""
    since = in_words((now - (job.started_at or now)).total_seconds())
    more = ""
    if job.cancel_requested:
        more = ". A cancel is requested, and its handler has not stopped yet"
    elif job.total:
        more = f". {job.processed:,} of {job.total:,} are done" + (f", {job.failed:,} failed" if job.failed else "")
    return f"runs for {since}{place}, attempt {job.attempt} of {job.max_attempts}{more}"


def _explain_waiting(job: Job, details: JobDetails, now: datetime, retry_at: datetime | None) -> str:
    if not details.reasons:
        return "waits for a reason that is not recorded"
    clause = _explain(job, details, now)
    if details.reasons[0].kind is WaitKind.JOBS:
        dead = details.linked.get(State.DEAD, 0)
        if dead:
            clause += f". {dead:,} of them {'is' if dead == 1 else 'are'} dead"
        elif retry_at is not None:
            failed = details.linked.get(State.FAILED, 1)
            who = "One of them retries" if failed == 1 else f"Of {failed:,} that failed, the first retries"
            clause += f". {who} {_in(retry_at, now)}"
    return clause


def _explain(job: Job, details: JobDetails, now: datetime) -> str:
    """What keeps the job, as a clause without its subject: what has to end first, and one reason beside a time."""
    why = details.reasons[0]
    match why.kind:
        case WaitKind.TIME:
            verb = "retries" if job.status is State.FAILED else "starts"
            others = [reason.text for reason in details.reasons[1:]]
            earliest = f" at the earliest: {others[0]}" if others else ""
            return f"{verb} {_in(job.run_at, now)}{earliest}"
        case WaitKind.GATE:
            return f"waits behind a gate: {why.text}. It starts when the gate is opened"
        case WaitKind.BUDGET:
            opens = "is 0 and does not open by itself" if why.until is None else f"opens {_in(why.until, now)}"
            return f"waits for the budget of {why.name.replace(':', ' ', 1)}, which {opens}"
        case WaitKind.WORKER | WaitKind.TYPE:
            return f"waits for a worker: {why.text}"
        case WaitKind.BUSY:
            return f"waits for a processor: {why.text}"
        case WaitKind.LIMIT:
            return why.text
        case WaitKind.RATE:
            free = "its next token is free " + ("now" if why.until is None else _in(why.until, now))
            return f"waits for rate {why.name}; {free}"
        case WaitKind.HOLD:
            return f"waits for {why.name}, which is held back{_for(why, now)}"
        case WaitKind.SIGNAL:
            return f"waits for the signal {why.name}{_for(why, now, comma=True)}"
        case WaitKind.SLEEP:
            return f"sleeps{_for(why, now)}"
        case WaitKind.JOBS:
            return _explain_jobs(details, why, now)
        case _:
            assert_never(why.kind)


def _explain_jobs(details: JobDetails, why: WaitReason, now: datetime) -> str:
    """`waits for 2 of its 4 jobs`, and how many have to succeed where not all have to."""
    waits, linked = details.waits, sum(details.linked.values())
    if waits is None:
        return f"waits for its jobs{_for(why, now, comma=True)}"
    jobs = f"{waits.pending:,} job{'' if waits.pending == 1 else 's'}"
    which = f"{waits.pending:,} of its {count_text(linked)} jobs" if linked > waits.pending else jobs
    rest = waits.need - waits.succeeded
    needs = f"; {rest:,} more must succeed" if 0 < rest < waits.pending else ""
    return f"waits for {which}{needs}{_for(why, now, comma=True)}"


# Jobs that failed or ended


def _tell_failed(job: Job, details: JobDetails, now: datetime) -> str:
    failed, lost = count_failures(job.attempts_made())
    past = f"failed {times(failed)}" if failed or not lost else f"lost its worker {times(lost)}"
    attempt = f", attempt {job.attempt + 1} of {job.max_attempts}"
    if not details.reasons:
        upcoming = f"the next attempt is due now{attempt}"
    elif details.reasons[0].kind is WaitKind.TIME and len(details.reasons) == 1:
        upcoming = f"{_explain(job, details, now)}{attempt}"
    else:
        upcoming = _explain(job, details, now)
    failure = job.failure()
    what = "" if failure is None else f": {summarize_failure(failure)}"
    return f"{_sentence(past + what)} {_sentence(upcoming)}"


def _tell_succeeded(job: Job, now: datetime) -> str:
    life = life_of(job, now)
    past = f"failed {times(life.failures)}, then succeeded" if life.failures else "succeeded"
    return _sentence(f"{past} {_after(life.total, life.sums.get(LifeKind.RUN, 0.0))}")


def _after(total: float, ran: float) -> str:
    """`after 8.3 s, of which it ran 6.2 s`."""
    if total - ran < 0.001:
        return f"after it ran {in_words(ran)}"
    return f"after {in_words(total)}, of which it ran {in_words(ran)}"


def _tell_dead(job: Job) -> str:
    failure = job.failure()
    error = "" if failure is None else summarize_failure(failure)
    failed, _ = count_failures(job.attempts_made())
    last = f" {_sentence(f'The last error is {error}')}" if error else ""
    match job.reason:
        case _ if job.reason == EXHAUSTED:
            return _sentence(f"failed {times(max(failed, 1))} and is dead: no attempt is left") + last
        case _ if job.reason == PERMANENT and error:
            return f"{_sentence(f'is dead after attempt {max(job.attempt, 1)}: {error}')} No retry repairs this error."
        case _ if job.reason == CRASHED:
            return _sentence(f"is dead: its process or its worker died {times(max(job.crashes, 1))}")
        case None | "":
            return _sentence("is dead") + last
        case reason:
            known = failure is None or failure.message.strip() in reason
            return _sentence(f"is dead: {reason}") + ("" if known else last)


def _tell_cancelled(job: Job, details: JobDetails, now: datetime) -> str:
    who = (audit.CANCELLED, audit.OPERATIONS[Verb.CANCEL])
    actor = next((row.actor for row in details.audit if row.action in who and row.actor), None)
    by = f" by {actor}" if actor else ""
    if job.reason and job.reason != "cancelled":
        return _sentence(f"was cancelled{by}: {job.reason}")
    life = life_of(job, now)
    if not life.runs:
        return _sentence(f"was cancelled{by} before it ran")
    return _sentence(f"was cancelled{by} {_after(life.total, life.sums.get(LifeKind.RUN, 0.0))}")


# Pieces of sentences


def _in(moment: datetime, now: datetime) -> str:
    left = (moment - now).total_seconds()
    return f"in {in_words(left)}" if left > 0 else "now"


def _for(why: WaitReason, now: datetime, *, comma: bool = False) -> str:
    """` for 2 m more`, where it is known how long."""
    left = 0.0 if why.until is None else (why.until - now).total_seconds()
    if why.until is None:
        return ""
    sign = "," if comma else ""
    return f"{sign} for {in_words(left)} more" if left > 0 else f"{sign} until now"


def _sentence(text: str) -> str:
    """The text with a capital first and a full stop last."""
    text = text.strip()
    end = "" if text.endswith((".", "…", "!", "?")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"
