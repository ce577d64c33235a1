"""Where the time of a job went, from its enqueue to its end or until now: parts that wait, run, back off or are kept.

The parts are added up from the recorded attempts. A row has only the times of its last attempt and of its next one:
after a snooze, a replay or a rescue, or with clocks that differ between machines, differences of them may be negative.
So each part begins where the part before it ended, and a time outside of what is left is moved to the nearest moment
inside.

What a row does not tell: when an earlier retry became due (the time between two attempts is all backoff), and attempts
that began to wait, or were released, and logged nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from windlass.clock import in_words
from windlass.model.job import LAST_OUTCOMES, Attempt, Job
from windlass.model.outcome import Ending
from windlass.model.reports.story import Life, LifeKind
from windlass.model.rows import WaitKind, WaitReason
from windlass.model.state import CLAIMABLE, FINAL, State

MOST_PARTS = 12
FAILURES = frozenset({"raised", "timeout", "retry", "dead", "crashed"})
WORKER_DIED = "WorkerDied"  # the type of the error that a rescue writes: its job is due at once

AFTER = {
    Ending.RAISED: LifeKind.BACKOFF,
    Ending.TIMED_OUT: LifeKind.BACKOFF,
    Ending.RETRY: LifeKind.BACKOFF,
    Ending.CRASHED: LifeKind.BACKOFF,
    Ending.DEAD: LifeKind.ENDED,
    Ending.CANCELLED: LifeKind.ENDED,
    Ending.SNOOZED: LifeKind.SLEEP,
    Ending.WAITING: LifeKind.OTHER,
}
"""What a job does after an attempt that ended so, until it is due again; after any other it is due at once."""

KEPT_BY = {
    WaitKind.GATE: LifeKind.GATE,
    WaitKind.BUDGET: LifeKind.BUDGET,
    WaitKind.LIMIT: LifeKind.LIMIT,
    WaitKind.RATE: LifeKind.LIMIT,
    WaitKind.HOLD: LifeKind.HOLD,
    WaitKind.JOBS: LifeKind.JOBS,
    WaitKind.SIGNAL: LifeKind.SIGNAL,
    WaitKind.SLEEP: LifeKind.SLEEP,
}
"""The kind of the part that lasts until now, by the reason for which the job does not start."""

PAST = {
    LifeKind.WAIT: "waited {} for a processor",
    LifeKind.RUN: "ran {}",
    LifeKind.BACKOFF: "backed off {}",
    LifeKind.SLEEP: "was not due for {}",
    LifeKind.LIMIT: "waited {} at a limit",
    LifeKind.HOLD: "waited {} at a limit that is held back",
    LifeKind.GATE: "waited {} behind a gate",
    LifeKind.BUDGET: "waited {} for its budget",
    LifeKind.JOBS: "waited {} for its jobs",
    LifeKind.SIGNAL: "waited {} for a signal",
    LifeKind.OTHER: "waited {} for jobs, a signal or a time",
    LifeKind.ENDED: "was ended for {}",
}

Parts = list[tuple[LifeKind, timedelta]]


def life_of(job: Job, now: datetime, why: WaitReason | None = None, waited_for: LifeKind = LifeKind.OTHER) -> Life:
    """The life of a job as its row tells it.

    `why` is the reason for which it does not start now. `waited_for` is the kind of its waits that are over, where the
    caller knows it from the jobs and signals of this job.
    """
    line = _Line(job, now, why, waited_for)
    line.add_attempts()
    line.add_latest()
    spans: dict[LifeKind, timedelta] = {}  # whole microseconds: sums of floats would differ from the total
    for kind, span in line.parts:
        spans[kind] = spans.get(kind, timedelta()) + span
    sums = {kind: span.total_seconds() for kind, span in spans.items()}
    return Life(
        parts=tuple((kind, span.total_seconds()) for kind, span in merge(line.parts)),
        sums=sums,
        total=(line.end - line.begin).total_seconds(),
        began_at=line.begin,
        open=job.status not in FINAL,
        runs=line.runs,
        failures=line.failures,
        text=_describe(job, line, sums, now),
    )


class _Line:
    """The life of a job while it is added up: `at` is the end of the last part."""

    def __init__(self, job: Job, now: datetime, why: WaitReason | None, waited_for: LifeKind) -> None:
        self.job, self.why, self.waited_for = job, why, waited_for
        self.begin = self.at = job.created_at
        ended = (job.finished_at or job.updated_at) if job.status in FINAL else now
        self.end = max(self.begin, ended)
        self.parts: Parts = []
        self.attempts = job.attempts_made()
        self.last: Attempt | None = None  # the attempt that ended at `at`, or before it
        self.runs = 0
        self.failures, self.lost = count_failures(self.attempts)

    def add(self, kind: LifeKind, until: datetime) -> None:
        """The part from the end of the last one to this time, or as much of it as there can be."""
        until = min(until, self.end)
        if until > self.at:
            self.parts.append((self.waited_for if kind is LifeKind.OTHER else kind, until - self.at))
            self.at = until

    def add_run(self, until: datetime) -> None:
        self.add(LifeKind.RUN, until)
        self.runs += 1

    def add_attempts(self) -> None:
        """The recorded attempts, each with the time before it."""
        for attempt in self.attempts:
            is_last = attempt.fence == self.job.fence
            self._add_gap(attempt.started_at or attempt.finished_at, attempt.attempt, attempt.fence)
            self.add_run(self.end if is_last and self._ended_by(attempt) else attempt.finished_at)
            self.last = attempt

    def _ended_by(self, attempt: Attempt) -> bool:
        """Whether the job ended with this attempt: its end is then the row's, and not by the clock of the worker."""
        match self.job.status:
            case State.SUCCEEDED:
                return attempt.outcome == Ending.SUCCEEDED
            case State.DEAD:
                return attempt.outcome in LAST_OUTCOMES
            case State.CANCELLED:
                return attempt.outcome == Ending.CANCELLED
            case _:
                return False

    def add_latest(self) -> None:
        """What is not among the attempts: the one that runs now or succeeded, and the time until now."""
        job, started = self.job, self.job.started_at
        recorded = any(attempt.fence == job.fence for attempt in self.attempts)
        if started is not None and not recorded and job.fence > 0:
            if job.status in (State.RUNNING, State.SUCCEEDED):
                self._add_due(self._after(job.attempt, job.fence), started)
                self.add_run(self.end)
            elif job.status is State.WAITING:
                self._add_gap(started, job.attempt + 1, job.fence)  # a wait takes its attempt off again
                self.add_run(job.updated_at)
            else:  # an attempt that began to wait or was released: its end is not known
                self._add_gap(started, job.attempt + 1, job.fence)
                self._add_due(LifeKind.OTHER, self.end)
        if job.status is State.WAITING:
            self.add(LifeKind.OTHER if self.why is None else KEPT_BY.get(self.why.kind, LifeKind.OTHER), self.end)
        else:
            self._add_due(self._after(job.attempt + 1, job.fence + 1), self.end)

    def _add_gap(self, until: datetime, attempt: int, fence: int) -> None:
        """The time before an attempt that is over: when it was due is not known any more."""
        kind = self._after(attempt, fence)
        self.add(LifeKind.WAIT if kind is None else kind, until)

    def _add_due(self, kind: LifeKind | None, until: datetime) -> None:
        """The time before the newest attempt, or until now: the row knows when it is, or was, due."""
        if kind is None:  # a job with jobs from its enqueue on is a graph's node or a batch's callback
            kind = LifeKind.JOBS if self.waited_for is LifeKind.JOBS else LifeKind.SLEEP
        self.add(kind, min(self.job.run_at, until))
        self.add(self._kept(), until)

    def _after(self, attempt: int, fence: int) -> LifeKind | None:
        """What the job did before this attempt until it was due; None before the first one."""
        last = self.last
        if fence > (1 if last is None else last.fence + 1):
            return LifeKind.OTHER  # a claim between them left no attempt behind
        if last is None:
            return None
        if last.outcome in FAILURES and last.outcome != Ending.CRASHED and attempt <= last.attempt:
            return LifeKind.ENDED  # attempts count from one again: it was dead, and an operator replayed it
        if _lost_worker(last):
            return LifeKind.WAIT
        try:
            return AFTER.get(Ending(last.outcome), LifeKind.WAIT)
        except ValueError:  # of a newer version
            return LifeKind.WAIT

    def _kept(self) -> LifeKind:
        """What keeps a job that is due."""
        if self.job.status not in CLAIMABLE:
            return LifeKind.WAIT
        if self.why is not None:
            return KEPT_BY.get(self.why.kind, LifeKind.WAIT)
        return LifeKind.LIMIT if self.job.parked_on else LifeKind.WAIT


def merge(parts: Parts) -> Parts:
    """The parts, neighbours of one kind as one, and at most 12: of a long life the shortest ones are put together.

    The first and the last three parts stay as they are. Two neighbours become one part of the longer one's kind, so
    the total does not change.
    """
    merged: Parts = []
    for kind, span in parts:
        if merged and merged[-1][0] is kind and kind is not LifeKind.RUN:
            merged[-1] = (kind, merged[-1][1] + span)
        else:
            merged.append((kind, span))
    while len(merged) > MOST_PARTS:
        place = min(range(3, len(merged) - 4), key=lambda place: merged[place][1] + merged[place + 1][1])
        (kind, span), (other, more) = merged[place], merged[place + 1]
        merged[place : place + 2] = [(kind if span >= more else other, span + more)]
    return merged


# In words


def _describe(job: Job, line: _Line, sums: dict[LifeKind, float], now: datetime) -> str:
    """`failed twice, waited 31 s at wikidata, retries in 38 s`."""
    words = [f"failed {times(line.failures)}"] if line.failures else []
    words += [f"lost its worker {times(line.lost)}"] if line.lost else []
    for kind, span in sums.items():
        where = line.why.name if line.why is not None and kind in (LifeKind.LIMIT, LifeKind.HOLD) else job.parked_on
        if kind is LifeKind.LIMIT and where:
            words.append(f"waited {in_words(span)} at {where}")
        else:
            words.append(PAST[kind].format(in_words(span)))
    left = (job.run_at - now).total_seconds()
    if job.status in CLAIMABLE and left > 0:
        words.append(f"{'retries' if job.status is State.FAILED else 'starts'} in {in_words(left)}")
    elif job.status in FINAL:
        words.append(job.status.value if job.status is not State.DEAD else "is dead")
    elif job.status is State.RUNNING:
        words.append("runs")
    return ", ".join(words) or "just enqueued"


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def count_failures(attempts: Sequence[Attempt]) -> tuple[int, int]:
    """How many of these attempts failed, and how many others lost their worker: that is no failure of the job."""
    lost = sum(map(_lost_worker, attempts))
    return sum(attempt.outcome in FAILURES for attempt in attempts) - lost, lost


def _lost_worker(attempt: Attempt) -> bool:
    return attempt.outcome == Ending.CRASHED and attempt.error is not None and attempt.error.type == WORKER_DIED
