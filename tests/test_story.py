"""The story of a job: a sentence for every state and for every reason for which a job does not start."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from test_life import NOON, at, attempt, job, why
from windlass.model.flow import Waiting
from windlass.model.job import Failure
from windlass.model.reports.story import NextKind
from windlass.model.rows import AuditRow, JobDetails, JobRow, WaitKind, WaitReason
from windlass.model.state import State
from windlass.policy.reports.story import actions_of, next_of, story_of

WORKER = UUID(int=3)


def details(*reasons: WaitReason, **fields: Any) -> JobDetails:
    values: dict[str, Any] = {
        "reasons": reasons, "waits": None, "links": (), "foreign": frozenset(), "steps": (), "signals": (), "audit": (),
        "workers": {WORKER: "fly-icn-1"},
    }  # fmt: skip
    return JobDetails(**(values | fields))


def error(type: str = "HTTPStatusError", message: str = "429 Too Many Requests") -> str:
    return msgspec.json.encode(Failure(type=type, message=message, attempt=1, attempted_at=NOON)).decode()


def waits(need: int, pending: int, succeeded: int) -> Waiting:
    return Waiting(need=need, pending=pending, succeeded=succeeded, signal=None, wake_at=None)


def cancelled_by(actor: str | None, action: str = "JOB_CANCELLED") -> AuditRow:
    return AuditRow(
        number=1, at=NOON, action=action, actor=actor, job=None, type=None, queue=None, tenant=None, reason=None
    )


FAILED = job(State.FAILED, attempt(1, 2), attempt=1, error=error(), run_at=50)
FAILED_TWICE = job(
    State.FAILED, attempt(1, 2), attempt(4, 5, number=2, fence=2), attempt=2, error=error("Boom", "a\nb"), run_at=50
)
FOUR_ATTEMPTS = [attempt(n, n + 0.5, number=n, fence=n) for n in range(1, 5)]
GATE = why(WaitKind.GATE, "queue:mail", text="queue mail is paused by ann: the server moves")
RETRY = why(WaitKind.TIME, until=at(50))
JOBS = why(WaitKind.JOBS)
RUNNING = job(State.RUNNING, fence=1, attempt=1, started_at=2, worker=WORKER)

STORIES: list[tuple[JobRow, JobDetails, str]] = [
    # the row, what is known beside it 12 seconds after the enqueue, the story
    # queued
    (job(), details(), "Waits for a processor for 12 s; a worker takes it with its next claim."),
    (job(run_at=50), details(why(WaitKind.TIME, until=at(50))), "Starts in 38 s."),
    (
        job(run_at=50),
        details(RETRY, GATE),
        "Starts in 38 s at the earliest: queue mail is paused by ann: the server moves.",
    ),
    (
        job(),
        details(GATE),
        "Waits behind a gate: queue mail is paused by ann: the server moves. It starts when the gate is opened.",
    ),
    (
        job(),
        details(why(WaitKind.BUDGET, "tenant:acme", until=at(11_532))),
        "Waits for the budget of tenant acme, which opens in 3 h 12 m.",
    ),
    (
        job(),
        details(why(WaitKind.BUDGET, "queue:mail")),
        "Waits for the budget of queue mail, which is 0 and does not open by itself.",
    ),
    (
        job(),
        details(why(WaitKind.WORKER, "queue:mail", text="no live worker serves queue mail")),
        "Waits for a worker: no live worker serves queue mail.",
    ),
    (
        job(),
        details(why(WaitKind.TYPE, "type:send", text="no live worker of queue mail knows the type send")),
        "Waits for a worker: no live worker of queue mail knows the type send.",
    ),
    (
        job(),
        details(why(WaitKind.LIMIT, "domain:a.org", text="waits for limit domain:a.org (2 of 2 in use)")),
        "Waits for limit domain:a.org (2 of 2 in use).",
    ),
    (
        job(),
        details(why(WaitKind.RATE, "wikidata", until=at(16))),
        "Waits for rate wikidata; its next token is free in 4 s.",
    ),
    (job(), details(why(WaitKind.RATE, "wikidata")), "Waits for rate wikidata; its next token is free now."),
    (
        job(),
        details(why(WaitKind.HOLD, "wikidata", until=at(132))),
        "Waits for wikidata, which is held back for 2 m more.",
    ),
    (
        job(),
        details(why(WaitKind.BUSY, "queue:mail", text="its worker is busy: it holds 10 jobs and runs 10 at a time")),
        "Waits for a processor: its worker is busy: it holds 10 jobs and runs 10 at a time.",
    ),
    (
        job(State.QUEUED, attempt(1, 2), attempt=1, run_at=6),
        details(),
        "Failed once, then went on: it waits for a processor for 6 s; a worker takes it with its next claim.",
    ),
    (
        job(State.QUEUED, attempt(1, 2, "crashed", error="WorkerDied"), rescues=1),
        details(why(WaitKind.WORKER, text="no live worker serves queue mail")),
        "Lost its worker once, then went on: it waits for a worker: no live worker serves queue mail.",
    ),
    (
        job(State.QUEUED, attempt(1, 2, "snoozed"), run_at=50),
        details(RETRY),
        "Starts in 38 s.",  # a snooze is no failure
    ),
    # running
    (RUNNING, details(), "Runs for 10 s on fly-icn-1, attempt 1 of 4."),
    (
        msgspec.structs.replace(RUNNING, worker=None, total=2560, processed=1702, failed=3),
        details(),
        "Runs for 10 s, attempt 1 of 4. 1,702 of 2,560 are done, 3 failed.",
    ),
    (
        msgspec.structs.replace(RUNNING, cancel_requested=True),
        details(),
        "Runs for 10 s on fly-icn-1, attempt 1 of 4. A cancel is requested, and its handler has not stopped yet.",
    ),
    (
        job(State.RUNNING, attempt(1, 2), fence=2, attempt=2, started_at=11, worker=WORKER),
        details(),
        "Failed once, then went on: it runs for 1 s on fly-icn-1, attempt 2 of 4.",
    ),
    # failed
    (FAILED, details(RETRY), "Failed once: HTTPStatusError: 429 Too Many Requests. Retries in 38 s, attempt 2 of 4."),
    (FAILED_TWICE, details(), "Failed twice: Boom: a. The next attempt is due now, attempt 3 of 4."),
    (
        FAILED,
        details(GATE),
        "Failed once: HTTPStatusError: 429 Too Many Requests. Waits behind a gate: queue mail is paused by ann: the "
        "server moves. It starts when the gate is opened.",
    ),
    (
        job(State.FAILED, attempt(1, 2, "crashed", error="WorkerDied"), error=error("WorkerDied", "gone."), run_at=50),
        details(RETRY),
        "Lost its worker once: WorkerDied: gone. Retries in 38 s, attempt 1 of 4.",
    ),
    # waiting
    (job(State.WAITING), details(), "Waits for a reason that is not recorded."),
    (job(State.WAITING), details(JOBS), "Waits for its jobs."),
    (
        job(State.WAITING, attempt(1, 2), fence=2, started_at=4, updated_at=5),
        details(JOBS, waits=waits(4, 2, 2), linked={State.SUCCEEDED: 2, State.FAILED: 1, State.RUNNING: 1}),
        "Failed once, then went on: it waits for 2 of its 4 jobs. One of them retries in 1 m 20 s.",
    ),
    (
        job(State.WAITING),
        details(JOBS, waits=waits(1, 2560, 0), linked={State.FAILED: 5, State.DEAD: 3, State.QUEUED: 2555}),
        "Waits for 2,560 of its 2,563 jobs; 1 more must succeed. 3 of them are dead.",
    ),
    (
        job(State.WAITING),
        details(JOBS, waits=waits(9_000, 9_000, 0), linked={State.QUEUED: 10_001}),
        "Waits for 9,000 of its 10,000+ jobs. One of them retries in 1 m 20 s.",
    ),
    (
        job(State.WAITING),
        details(why(WaitKind.JOBS, until=at(72)), waits=waits(1, 1, 0), linked={State.FAILED: 2}),
        "Waits for 1 of its 2 jobs, for 1 m more. Of 2 that failed, the first retries in 1 m 20 s.",
    ),
    (job(State.WAITING), details(why(WaitKind.SIGNAL, "approved")), "Waits for the signal approved."),
    (
        job(State.WAITING),
        details(why(WaitKind.SIGNAL, "approved", until=at(187_212))),
        "Waits for the signal approved, for 2 d 4 h more.",
    ),
    (job(State.WAITING), details(why(WaitKind.SLEEP, until=at(72))), "Sleeps for 1 m more."),
    (job(State.WAITING), details(why(WaitKind.SLEEP, until=at(2))), "Sleeps until now."),
    # succeeded
    (
        job(State.SUCCEEDED, fence=1, attempt=1, started_at=2.1, finished_at=8.3),
        details(),
        "Succeeded after 8.3 s, of which it ran 6.2 s.",
    ),
    (
        job(State.SUCCEEDED, fence=1, attempt=1, started_at=0, finished_at=0.42),
        details(),
        "Succeeded after it ran 420 ms.",
    ),
    (
        job(State.SUCCEEDED, attempt(1, 2), fence=2, attempt=2, started_at=4, finished_at=6),
        details(),
        "Failed once, then succeeded after 6 s, of which it ran 3 s.",
    ),
    # dead
    (
        job(State.DEAD, *FOUR_ATTEMPTS, error=error(), reason="exhausted"),
        details(),
        "Failed 4 times and is dead: no attempt is left. The last error is HTTPStatusError: 429 Too Many Requests.",
    ),
    (
        job(State.DEAD, attempt(1, 2), attempt=1, error=error("builtins.TypeError", "no"), reason="permanent"),
        details(),
        "Is dead after attempt 1: TypeError: no. No retry repairs this error.",
    ),
    (
        job(State.DEAD, attempt(1, 2, "crashed"), crashes=3, reason="crashed"),
        details(),
        "Is dead: its process or its worker died 3 times.",
    ),
    (
        job(State.DEAD, attempt(1, 2, "dead"), error=error("windlass.Dead", "it is blocked"), reason="it is blocked"),
        details(),
        "Is dead: it is blocked.",
    ),
    (
        job(State.DEAD, error=error(), reason="failed: job 7, on which it depends, did not succeed"),
        details(),
        "Is dead: failed: job 7, on which it depends, did not succeed. The last error is HTTPStatusError: 429 Too Many "
        "Requests.",
    ),
    (job(State.DEAD), details(), "Is dead."),
    # cancelled
    (job(State.CANCELLED, finished_at=5), details(audit=[cancelled_by("ann")]), "Was cancelled by ann before it ran."),
    (
        job(State.CANCELLED, attempt(1, 5, "cancelled"), finished_at=5, reason="cancelled"),
        details(audit=[cancelled_by(None), cancelled_by("bob", "JOB_CANCEL_REQUESTED")]),
        "Was cancelled by bob after 5 s, of which it ran 4 s.",
    ),
    (
        job(State.CANCELLED, finished_at=5, reason="skipped: job 7, on which it depends, did not succeed"),
        details(),
        "Was cancelled: skipped: job 7, on which it depends, did not succeed.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("row", "known", "story"), STORIES, ids=[story for _, _, story in STORIES])
def test_the_story_is_told_in_these_words(row: JobRow, known: JobDetails, story: str) -> None:
    retry_at = at(92) if known.linked else None

    assert story_of(row, known, at(12), retry_at=retry_at).replace("\N{NO-BREAK SPACE}", " ") == story


def test_every_state_and_every_reason_has_a_story() -> None:
    assert {row.status for row, _, _ in STORIES} == set(State)
    assert {reason.kind for _, known, _ in STORIES for reason in known.reasons} == set(WaitKind)


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    assert "in 38\N{NO-BREAK SPACE}s," in story_of(FAILED, details(RETRY), at(12))


def test_a_long_error_of_many_lines_is_one_line() -> None:
    row = msgspec.structs.replace(FAILED, error=error("a.b.Boom", "x" * 500 + "\nsecret"))

    story = story_of(row, details(RETRY), at(12))

    assert story.startswith("Failed once: Boom: xxx")
    assert "secret" not in story
    assert len(story) < 250


# What is next


@pytest.mark.parametrize(
    ("row", "reason", "child_at", "expected"),
    [
        (FAILED, RETRY, None, (at(50), NextKind.RETRY)),
        (job(), RETRY, None, (at(50), NextKind.START)),
        (job(), GATE, None, (None, None)),
        (job(), why(WaitKind.WORKER), None, (None, None)),
        (job(), why(WaitKind.TYPE), None, (None, None)),
        (job(), why(WaitKind.BUSY), None, (None, None)),
        (job(), why(WaitKind.LIMIT), None, (None, None)),
        (job(), why(WaitKind.RATE, until=at(9)), None, (at(9), NextKind.ROOM)),
        (job(), why(WaitKind.HOLD, until=at(9)), None, (at(9), NextKind.ROOM)),
        (job(), why(WaitKind.BUDGET, until=at(9)), None, (at(9), NextKind.BUDGET)),
        (job(State.WAITING), why(WaitKind.SLEEP, until=at(9)), None, (at(9), NextKind.WAKE)),
        (job(State.WAITING), why(WaitKind.SIGNAL), None, (None, None)),
        (job(State.WAITING), why(WaitKind.SIGNAL, until=at(9)), None, (at(9), NextKind.TIMEOUT)),
        (job(State.WAITING), JOBS, None, (None, None)),
        (job(State.WAITING), JOBS, at(8), (at(8), NextKind.CHILD)),
        (job(State.WAITING), why(WaitKind.JOBS, until=at(9)), at(8), (at(8), NextKind.CHILD)),
        (job(State.WAITING), why(WaitKind.JOBS, until=at(9)), at(10), (at(9), NextKind.TIMEOUT)),
    ],
)
def test_what_counts_down_is_a_time_with_its_kind(
    row: JobRow, reason: WaitReason, child_at: datetime | None, expected: tuple[datetime | None, NextKind | None]
) -> None:
    assert next_of(row, details(reason), retry_at=child_at) == expected


def test_nothing_counts_down_without_a_reason() -> None:
    assert next_of(job(), details()) == (None, None)


# What can be done


@pytest.mark.parametrize(
    ("row", "actions"),
    [
        (job(), ("cancel", "signal", "rerun")),
        (RUNNING, ("cancel", "signal", "rerun")),
        (msgspec.structs.replace(RUNNING, cancel_requested=True), ("signal", "rerun")),
        (FAILED, ("retry", "cancel", "signal", "rerun")),
        (job(State.WAITING), ("cancel", "signal", "rerun")),
        (job(State.SUCCEEDED), ("rerun",)),
        (job(State.DEAD), ("replay", "discard", "rerun")),
        (job(State.CANCELLED), ("resume", "rerun")),
    ],
)
def test_the_actions_fit_the_state(row: JobRow, actions: tuple[str, ...]) -> None:
    assert actions_of(row) == actions
