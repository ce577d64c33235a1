"""Where the time of a job went: the parts of its life, for every way in which a job can go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.clock import in_words
from windlass.documents import life_document
from windlass.model.job import Attempt, Failure, Job
from windlass.model.reports.story import Life, LifeKind
from windlass.model.rows import JobRow, WaitKind, WaitReason
from windlass.model.state import FINAL, State
from windlass.policy.reports.life import KEPT_BY, MOST_PARTS, life_of

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
ID = UUID(int=7)


def at(seconds: float) -> datetime:
    """So many seconds after the enqueue."""
    return NOON + timedelta(seconds=seconds)


def attempt(begin: float, end: float, outcome: str = "raised", number: int = 1, fence: int = 1, **more: Any) -> Attempt:
    error = more.pop("error", None)
    failure = None if error is None else Failure(type=error, message="no", attempt=number, attempted_at=at(end))
    return Attempt(
        attempt=number,
        fence=fence,
        worker=None,
        started_at=at(begin),
        finished_at=at(end),
        outcome=outcome,
        error=failure,
        **more,
    )


def job(status: State = State.QUEUED, *attempts: Attempt, **fields: Any) -> JobRow:
    """A row as a store would have it; times are seconds after the enqueue."""
    for name in ("run_at", "started_at", "finished_at", "updated_at", "claimed_at"):
        if isinstance(fields.get(name), int | float):
            fields[name] = at(fields[name])
    fence = fields.pop("fence", max((one.fence for one in attempts), default=0))
    values: dict[str, Any] = {
        "id": ID, "tenant": "default", "queue": "mail", "type": "send", "status": status, "priority": 0, "input": "{}",
        "output": None, "error": None, "cost_cents": 0, "attempt": 0, "max_attempts": 4, "crashes": 0, "rescues": 0,
        "run_at": NOON, "token": None, "fence": fence, "worker": None, "claimed_at": None, "key": None, "parent": None,
        "pipeline": None, "phase": "mail", "phase_rank": 0, "total": None, "processed": 0, "failed": 0, "trace": None,
        "created_at": NOON, "started_at": None, "finished_at": None, "updated_at": NOON, "cancel_requested": False,
        "reason": None, "copied_from": None,
        "attempts": msgspec.json.encode(list(attempts)).decode() if attempts else None,
    }  # fmt: skip
    return JobRow(**(values | fields))


def why(kind: WaitKind, name: str = "", until: datetime | None = None, text: str = "") -> WaitReason:
    return WaitReason(kind=kind, name=name, text=text, until=until)


def parts(life: Life) -> list[tuple[str, float]]:
    return [(kind.value, round(span, 3)) for kind, span in life.parts]


# Every way


LIVES: dict[str, tuple[JobRow, float, list[tuple[str, float]]]] = {
    # what happened: the row, the seconds until now, the parts
    "just enqueued": (job(), 0, []),
    "waits for a processor": (job(), 4, [("wait", 4)]),
    "not due yet": (job(run_at=60), 4, [("sleep", 4)]),
    "due after a delay": (job(run_at=60), 64, [("sleep", 60), ("wait", 4)]),
    "runs": (job(State.RUNNING, fence=1, attempt=1, started_at=2, updated_at=2), 12, [("wait", 2), ("run", 10)]),
    "runs after a delay": (
        job(State.RUNNING, fence=1, attempt=1, run_at=5, started_at=7),
        12,
        [("sleep", 5), ("wait", 2), ("run", 5)],
    ),
    "succeeded": (
        job(State.SUCCEEDED, fence=1, attempt=1, started_at=2, finished_at=9),
        100,
        [("wait", 2), ("run", 7)],
    ),
    "backs off": (
        job(State.FAILED, attempt(2, 12), attempt=1, run_at=50),
        20,
        [("wait", 2), ("run", 10), ("backoff", 8)],
    ),
    "failed and due": (
        job(State.FAILED, attempt(2, 12), attempt=1, run_at=20),
        25,
        [("wait", 2), ("run", 10), ("backoff", 8), ("wait", 5)],
    ),
    "runs again": (
        job(State.RUNNING, attempt(2, 12), fence=2, attempt=2, run_at=20, started_at=23),
        30,
        [("wait", 2), ("run", 10), ("backoff", 8), ("wait", 3), ("run", 7)],
    ),
    "dead": (
        job(State.DEAD, attempt(1, 2), attempt(5, 6.5, number=2, fence=2), attempt=2, run_at=7, finished_at=7),
        99,
        [("wait", 1), ("run", 1), ("backoff", 3), ("run", 2)],
    ),
    "replayed": (
        job(State.QUEUED, attempt(1, 2, number=4), attempt=0, run_at=60, updated_at=60),
        65,
        [("wait", 1), ("run", 1), ("ended", 58), ("wait", 5)],
    ),
    "runs after a replay": (
        job(State.RUNNING, attempt(1, 2, number=4), fence=2, attempt=1, run_at=60, started_at=61),
        65,
        [("wait", 1), ("run", 1), ("ended", 58), ("wait", 1), ("run", 4)],
    ),
    "snoozed": (
        job(State.QUEUED, attempt(1, 2, "snoozed"), run_at=30),
        10,
        [("wait", 1), ("run", 1), ("sleep", 8)],
    ),
    "rescued": (
        job(State.QUEUED, attempt(1, 31, "crashed", error="WorkerDied"), rescues=1, run_at=0),
        40,
        [("wait", 1), ("run", 30), ("wait", 9)],
    ),
    "rescued, and failed by itself": (
        job(
            State.FAILED,
            attempt(1, 31, "crashed", error="WorkerDied"),
            attempt(40, 41, fence=2),
            attempt=1,
            run_at=50,
        ),
        45,
        [("wait", 1), ("run", 30), ("wait", 9), ("run", 1), ("backoff", 4)],
    ),
    "its process crashed": (
        job(State.FAILED, attempt(1, 2, "crashed", error="ProcessDied"), run_at=30),
        10,
        [("wait", 1), ("run", 1), ("backoff", 8)],
    ),
    "waits for jobs after a quiet attempt": (
        job(State.WAITING, attempt(2, 12), fence=2, attempt=1, started_at=23, updated_at=24),
        100,
        [("wait", 2), ("run", 10), ("backoff", 11), ("run", 1), ("other", 76)],
    ),
    "a graph's node that waits": (job(State.WAITING), 10, [("other", 10)]),
    "woken and running again": (
        job(State.RUNNING, fence=2, attempt=1, run_at=50, started_at=52),
        60,
        [("other", 50), ("wait", 2), ("run", 8)],
    ),
    "woken and queued": (
        job(State.QUEUED, fence=1, started_at=2, run_at=50),
        52,
        [("wait", 2), ("other", 48), ("wait", 2)],
    ),
    "the next phase": (
        job(State.QUEUED, attempt(1, 2, "succeeded"), run_at=2),
        10,
        [("wait", 1), ("run", 1), ("wait", 8)],
    ),
    "cancelled before it ran": (job(State.CANCELLED, finished_at=9), 50, [("wait", 9)]),
    "stopped": (
        job(State.CANCELLED, attempt(1, 8.9, "cancelled"), finished_at=9),
        50,
        [("wait", 1), ("run", 8)],
    ),
    "resumed": (
        job(State.QUEUED, attempt(1, 9, "cancelled"), run_at=50),
        52,
        [("wait", 1), ("run", 8), ("ended", 41), ("wait", 2)],
    ),
    "parked": (job(parked_on="domain:a.org"), 5, [("limit", 5)]),
    "a worker whose clock is fast": (
        job(State.FAILED, attempt(500, 900), attempt=1, run_at=20),
        10,
        [("wait", 10)],
    ),
    "a worker whose clock is slow": (
        job(State.FAILED, attempt(-900, -500), attempt=1, run_at=20),
        10,
        [("backoff", 10)],
    ),
    "a clock that was set back": (job(State.RUNNING, fence=1, started_at=5), -10, []),
}


@pytest.mark.parametrize("story", LIVES)
def test_a_life_has_these_parts(story: str) -> None:
    row, now, expected = LIVES[story]

    life = row.life(at(now))

    assert parts(life) == expected
    assert life.total == sum(span for _, span in expected)
    assert life.open is (row.status not in FINAL)


@pytest.mark.parametrize("kind", WaitKind)
def test_the_last_part_is_named_by_what_keeps_the_job(kind: WaitKind) -> None:
    waits = kind in (WaitKind.JOBS, WaitKind.SIGNAL, WaitKind.SLEEP)
    row = job(State.WAITING if waits else State.QUEUED)

    life = life_of(row, at(5), why(kind))

    assert parts(life) == [(KEPT_BY.get(kind, LifeKind.WAIT).value, 5)]


def test_waits_that_are_over_are_named_by_the_caller() -> None:
    row, now, _ = LIVES["woken and running again"]

    assert parts(life_of(row, at(now), waited_for=LifeKind.JOBS))[0] == ("jobs", 50)


def test_a_hundred_attempts_are_twelve_parts_with_the_same_sums() -> None:
    attempts = [attempt(10 * n + 1, 10 * n + 3, number=n + 1, fence=n + 1) for n in range(100)]

    life = job(State.FAILED, *attempts, attempt=100, run_at=2000).life(at(1000))

    assert len(life.parts) == MOST_PARTS
    assert [kind for kind, _ in life.parts[:3]] == ["wait", "run", "backoff"]
    assert [kind for kind, _ in life.parts[-3:]] == ["backoff", "run", "backoff"]
    assert life.sums == {"wait": 1, "run": 200, "backoff": 799}
    assert (life.runs, life.failures, sum(span for _, span in life.parts)) == (100, 100, 1000)


# Whatever a row contains

moments = st.floats(-1e6, 1e6).map(at)
outcomes = st.sampled_from(
    ["raised", "timeout", "crashed", "retry", "snoozed", "waiting", "dead", "released", "cancelled", "succeeded", "new"]
)
any_attempt = st.builds(
    Attempt,
    attempt=st.integers(0, 5),
    fence=st.integers(0, 20),
    worker=st.none(),
    started_at=st.none() | moments,
    finished_at=moments,
    outcome=outcomes,
    error=st.none(),
)
any_job = st.builds(
    lambda status, attempts, fields: job(status, *attempts, **fields),
    st.sampled_from(State),
    st.lists(any_attempt, max_size=20),
    st.fixed_dictionaries(
        {
            "created_at": moments,
            "run_at": moments,
            "updated_at": moments,
            "started_at": st.none() | moments,
            "finished_at": st.none() | moments,
            "attempt": st.integers(0, 5),
            "fence": st.integers(0, 20),
            "parked_on": st.none() | st.just("key"),
        }
    ),
)
any_reason = st.none() | st.sampled_from(WaitKind).map(why)


@settings(max_examples=100, deadline=None)
@given(any_job, moments, any_reason)
def test_the_parts_of_every_life_add_up_and_none_is_negative(
    row: Job, now: datetime, reason: WaitReason | None
) -> None:
    life = life_of(row, now, reason)
    document = life_document(life)

    end = (row.finished_at or row.updated_at) if row.status in FINAL else now
    assert life.total == max((end - row.created_at).total_seconds(), 0.0)
    assert len(life.parts) <= MOST_PARTS
    assert all(span > 0 for _, span in life.parts)
    assert sum(span for _, span in life.parts) == pytest.approx(life.total, abs=1e-4)
    assert sum(life.sums.values()) == pytest.approx(life.total, abs=1e-4)
    assert all(span >= 0 for _, span in document["parts"])
    assert sum(span for _, span in document["parts"]) == document["total"]
    assert life.text


# In words


@pytest.mark.parametrize(
    ("row", "now", "reason", "text"),
    [
        (job(), 0, None, "just enqueued"),
        (job(), 4, None, "waited 4 s for a processor"),
        (
            job(State.FAILED, attempt(1, 2), attempt(20, 21, number=2, fence=2), attempt=2, run_at=60),
            22,
            None,
            "failed twice, waited 1 s for a processor, ran 2 s, backed off 19 s, retries in 38 s",
        ),
        (job(run_at=60), 4, None, "was not due for 4 s, starts in 56 s"),
        (job(parked_on="wikidata"), 31, None, "waited 31 s at wikidata"),
        (job(), 31, why(WaitKind.RATE, "wikidata"), "waited 31 s at wikidata"),
        (job(State.WAITING), 76, why(WaitKind.JOBS), "waited 1 m 16 s for its jobs"),
        (LIVES["rescued"][0], 40, None, "lost its worker once, waited 10 s for a processor, ran 30 s"),
        (LIVES["dead"][0], 99, None, "failed twice, waited 1 s for a processor, ran 3 s, backed off 3 s, is dead"),
        (LIVES["succeeded"][0], 99, None, "waited 2 s for a processor, ran 7 s, succeeded"),
    ],
)
def test_a_life_in_words(row: JobRow, now: float, reason: WaitReason | None, text: str) -> None:
    assert life_of(row, at(now), reason).text.replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (0.0004, "0 s"),
        (0.42, "420 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (6.2, "6.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (38.4, "38 s"),
        (59.6, "1 m"),
        (64, "1 m 04 s"),
        (472, "7 m 52 s"),
        (3599.7, "1 h"),
        (11_520, "3 h 12 m"),
        (86_399.9, "1 d"),
        (187_200, "2 d 4 h"),
        (86_400 * 1_500, "1,500 d"),
    ],
)
def test_a_duration_in_words(seconds: float, text: str) -> None:
    assert in_words(seconds) == text.replace(" ", "\N{NO-BREAK SPACE}")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(6.2, "6.2 s"), (38.4, "38 s"), (472, "7 m"), (3599.7, "1 h"), (11_520, "3 h"), (187_200, "2 d")],
)
def test_a_coarse_duration_has_one_unit(seconds: float, text: str) -> None:
    assert in_words(seconds, coarse=True) == text.replace(" ", "\N{NO-BREAK SPACE}")
