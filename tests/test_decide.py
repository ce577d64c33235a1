"""From an outcome to the transition: the verb, the attempts that count, the audit action, and the flow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from windlass.config import Settings
from windlass.model.flow import Advance, Flow, Spawn
from windlass.model.job import Attempt, Job, NewJob, Wait, new_id
from windlass.model.outcome import Ending, Outcome
from windlass.model.state import State, Verb
from windlass.policy.failure import Run, decide
from windlass.policy.fingerprint import fingerprint
from windlass.policy.retry import fixed

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLOW = Flow(spawns=(Spawn(name="a", job=NewJob(id=new_id(), type="child", input="{}")),), wait=Wait(delay=1.0))
ERROR: dict[str, Any] = {"type": "ValueError", "message": "no"}
NEXT = Advance(type="form", phase="form", phase_rank=1, queue="forms", max_attempts=3)


def run_of(*, log: list[str] | None = None, spent: int = 0, **changes: Any) -> Run:
    """The second of four attempts."""
    values: dict[str, Any] = {field.name: 0 if field.type is int else None for field in msgspec.structs.fields(Job)}
    values |= {
        "id": new_id(), "tenant": "default", "queue": "default", "phase": "default", "type": "work", "input": "{}",
        "status": State.RUNNING, "attempt": 2, "max_attempts": 4, "run_at": NOW, "token": uuid4(), "fence": 2,
        "worker": uuid4(), "claimed_at": NOW, "created_at": NOW, "updated_at": NOW, "cancel_requested": False,
        "followed": False,
    }  # fmt: skip
    job = Job(**values | changes)
    return Run(
        job=job, worker=uuid4(), started_at=NOW, finished_at=NOW, elapsed=1.0, total=None, processed=0, failed=0,
        cost_cents=job.cost_cents + spent, log=log or [],
    )  # fmt: skip


def decided(run: Run, outcome: Outcome, **more: Any) -> Any:
    return decide(run, outcome, retry=fixed(10), settings=Settings(), **more)


@pytest.mark.parametrize(
    ("ending", "more", "verb", "attempt", "action"),
    [
        (Ending.SUCCEEDED, {}, Verb.SUCCEED, 2, "JOB_SUCCEEDED"),
        (Ending.RAISED, ERROR, Verb.FAIL, 2, None),
        (Ending.RAISED, ERROR | {"permanent": True}, Verb.BURY, 2, "JOB_DEAD"),
        (Ending.DEAD, ERROR, Verb.BURY, 2, "JOB_DEAD"),
        (Ending.SNOOZED, {}, Verb.SNOOZE, 1, None),
        (Ending.WAITING, {}, Verb.WAIT, 1, None),
        (Ending.RELEASED, {}, Verb.RELEASE, 1, None),
        (Ending.CANCELLED, {}, Verb.STOP, 1, "JOB_CANCELLED"),
    ],
)
def test_an_ending_has_its_verb_its_attempts_and_its_audit_action(
    ending: Ending, more: dict[str, Any], verb: Verb, attempt: int, action: str | None
) -> None:
    transition = decided(run_of(followed=True), Outcome(ending=ending, flow=FLOW, **more))

    assert (transition.verb, transition.attempt, transition.action) == (verb, attempt, action)
    assert transition.followed
    assert transition.flow == (FLOW if verb in (Verb.SUCCEED, Verb.WAIT) else None)


@pytest.mark.parametrize("ending", [Ending.RAISED, Ending.TIMED_OUT, Ending.RETRY, Ending.DEAD, Ending.CRASHED])
def test_an_error_has_its_fingerprint_and_nothing_else_has_one(ending: Ending) -> None:
    assert decided(run_of(), Outcome(ending=ending, **ERROR)).fingerprint == fingerprint("ValueError", "no")
    for quiet in (Ending.SUCCEEDED, Ending.SNOOZED, Ending.WAITING, Ending.RELEASED, Ending.CANCELLED):
        assert decided(run_of(), Outcome(ending=quiet)).fingerprint is None


def test_the_last_attempt_that_fails_has_exhausted_its_retries() -> None:
    transition = decided(run_of(attempt=4), Outcome(ending=Ending.RAISED, **ERROR))

    assert (transition.verb, transition.reason, transition.action) == (Verb.BURY, "exhausted", "JOB_EXHAUSTED_RETRIES")


@pytest.mark.parametrize(
    ("counts", "attempt", "crashes", "expected"),
    [
        (False, 4, 0, (Verb.FAIL, 3, 1, None, None)),
        (True, 3, 0, (Verb.FAIL, 3, 1, None, None)),
        (True, 4, 0, (Verb.BURY, 4, 1, "exhausted", "JOB_EXHAUSTED_RETRIES")),
        (True, 2, 2, (Verb.BURY, 2, 3, "crashed", "JOB_DEAD")),
        (False, 2, 2, (Verb.BURY, 1, 3, "crashed", "JOB_DEAD")),
    ],
)
def test_a_crash_uses_up_its_attempt_where_crashes_count(
    counts: bool, attempt: int, crashes: int, expected: tuple[Any, ...]
) -> None:
    run = run_of(attempt=attempt, crashes=crashes)

    ended = decide(
        run, Outcome(ending=Ending.CRASHED, **ERROR), retry=fixed(10), settings=Settings(crash_counts=counts)
    )

    assert ended is not None
    assert (ended.verb, ended.attempt, ended.crashes, ended.reason, ended.action) == expected


def test_a_type_has_its_own_audit_action_for_a_success_or_none() -> None:
    success = Outcome(ending=Ending.SUCCEEDED)

    assert decided(run_of(), success, success="EMAIL_SENT").action == "EMAIL_SENT"
    assert decided(run_of(), success, success=None).action is None
    assert decided(run_of(attempt=4), Outcome(ending=Ending.DEAD, **ERROR), success=None).action == "JOB_DEAD"


def test_a_success_before_the_last_phase_advances_with_fresh_attempts_and_is_remembered() -> None:
    run = run_of(pipeline="site", phase="analyse", crashes=1)

    transition = decided(run, Outcome(ending=Ending.SUCCEEDED, output="7", flow=FLOW), advance=NEXT)

    assert (transition.verb, transition.attempt, transition.crashes) == (Verb.ADVANCE, 0, 0)
    assert (transition.output, transition.action) == ("7", None)
    assert (transition.flow.advance, transition.flow.spawns) == (NEXT, FLOW.spawns)
    entry = msgspec.json.decode(transition.entry, type=Attempt)
    assert (entry.outcome, entry.phase, entry.attempt) == ("succeeded", "analyse", 2)


def test_a_wait_has_an_entry_only_when_it_logged_something() -> None:
    waiting = Outcome(ending=Ending.WAITING, flow=FLOW)

    assert decided(run_of(), waiting).entry is None
    assert msgspec.json.decode(decided(run_of(log=["INFO so far"]), waiting).entry)["outcome"] == "waiting"


@pytest.mark.parametrize("outcome", [Outcome(ending=Ending.LOST), Outcome(ending=Ending.SUCCEEDED, finished=True)])
def test_nothing_is_written_twice_or_under_a_lost_lease(outcome: Outcome) -> None:
    assert decided(run_of(), outcome, advance=NEXT) is None


@pytest.mark.parametrize("ending", [each for each in Ending if each is not Ending.LOST])
@pytest.mark.parametrize("spent", [0, 7])
def test_every_transition_has_the_cost_of_the_attempt_and_whether_it_held_slots(ending: Ending, spent: int) -> None:
    limited = decided(run_of(spent=spent, cost_cents=5, limits=["wiki"]), Outcome(ending=ending, **ERROR))
    free = decided(run_of(spent=spent, cost_cents=5), Outcome(ending=ending, **ERROR))

    assert (limited.cost_cents, limited.charged, limited.limited) == (5 + spent, spent > 0, True)
    assert (free.cost_cents, free.charged, free.limited) == (5 + spent, spent > 0, False)


@pytest.mark.parametrize(
    ("attempt", "delay", "verb", "hold"),
    [
        (2, 120.0, Verb.FAIL, ("wiki", 120.0)),
        (2, None, Verb.FAIL, ("wiki", 10.0)),  # the policy's delay
        (4, 120.0, Verb.BURY, ("wiki", 120.0)),
        (4, None, Verb.BURY, ("wiki", 10.0)),
    ],
)
def test_a_retry_with_a_bucket_holds_the_bucket_also_after_the_last_attempt(
    attempt: int, delay: float | None, verb: Verb, hold: tuple[str, float]
) -> None:
    retry = Outcome(ending=Ending.RETRY, delay=delay, bucket="wiki", **ERROR)

    transition = decided(run_of(attempt=attempt), retry)

    assert (transition.verb, transition.hold) == (verb, hold)
    assert decided(run_of(attempt=attempt), Outcome(ending=Ending.RETRY, delay=delay, **ERROR)).hold is None
