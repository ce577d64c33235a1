"""What a worker knows of gates: which jobs they stop, what changed, and when a claim knows better."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from windlass.model.admission import BudgetRow, Closure
from windlass.model.job import Job, new_id
from windlass.model.state import State
from windlass.runtime.duties.closures import Closures

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {field.name: 0 if field.type is int else None for field in msgspec.structs.fields(Job)}
    values |= {
        "id": new_id(), "tenant": "acme", "queue": "mail", "phase": "mail", "type": "send", "input": "{}",
        "status": State.RUNNING, "run_at": NOW, "token": uuid4(), "worker": uuid4(), "claimed_at": NOW,
        "created_at": NOW, "updated_at": NOW, "cancel_requested": False, "followed": False,
    }  # fmt: skip
    return Job(**values | changes)


def closure(kind: str, name: str = "", state: str = "paused") -> Closure:
    return Closure(kind=kind, name=name, state=state)


@pytest.mark.parametrize(
    ("closed", "stopped"),
    [
        (closure("all"), True),
        (closure("queue", "mail"), True),
        (closure("type", "send"), True),
        (closure("tenant", "acme"), True),
        (closure("queue", "mail", "spent"), True),
        (closure("bucket", "wiki", "held"), True),
        (closure("queue", "acme"), False),
        (closure("type", "mail"), False),
        (closure("tenant", "mail"), False),
        (closure("bucket", "mail", "held"), False),
        (closure("all", state="draining"), False),
        (closure("queue", "mail", "draining"), False),
    ],
)
def test_a_job_is_stopped_by_what_it_belongs_to(closed: Closure, stopped: bool) -> None:
    gates = Closures()
    gates.learn([closed], 10.0)

    assert gates.stops(job(limits=["domain:a.org", "wiki"]), 5.0) is stopped
    assert gates.anything_closed is (closed.state != "draining")


def test_a_job_without_limits_is_stopped_by_no_bucket() -> None:
    gates = Closures()
    gates.learn([closure("bucket", "wiki", "held")], 10.0)

    assert not gates.stops(job(), 5.0)


def test_a_claim_that_began_after_the_answer_knows_better() -> None:
    gates = Closures()
    gates.learn([closure("all")], 10.0)

    assert [gates.stops(job(), at) for at in (9.0, 10.0, 10.1, None)] == [True, True, False, True]


def test_a_draining_gate_does_not_hide_a_spent_budget_of_the_same_name() -> None:
    gates = Closures()
    gates.learn([closure("queue", "mail", "draining"), closure("queue", "mail", "spent")], 10.0)

    assert gates.stops(job(), 5.0)


def test_what_changes_is_told_once() -> None:
    gates = Closures()
    paused, draining, spent = (closure("queue", "mail", state) for state in ("paused", "draining", "spent"))

    assert gates.learn([paused], 1.0) == ([paused], [])
    assert gates.learn([paused], 2.0) == ([], [])
    assert gates.learn([draining, spent], 3.0) == ([draining, spent], [])
    assert gates.learn([spent], 4.0) == ([], [draining])
    assert gates.learn([], 5.0) == ([], [spent])
    assert not gates.anything_closed


# Budgets


def budget(cents: int, *, spent: int = 0, kind: str = "tenant", name: str = "acme") -> BudgetRow:
    return BudgetRow(kind=kind, name=name, cents=cents, seconds=3600.0, spent=spent, until=NOW)


def test_what_ended_here_counts_before_it_is_written() -> None:
    gates, ended = Closures(), job()
    gates.learn_budgets([budget(5), budget(5, kind="queue", name="other")], set())
    gates.charge(ended, 4)
    assert (gates.anything_closed, gates.take_newly_spent()) == (False, False)

    gates.charge(job(), 1)

    assert (gates.anything_closed, gates.take_newly_spent()) == (True, True)
    assert gates.stops(job(), 99.0), "a claim does not know what is not written"
    assert not gates.stops(job(tenant="else"), 99.0)


def test_what_is_not_written_yet_comes_off_the_stores_answer_and_what_is_written_does_not() -> None:
    gates, held, written = Closures(), job(), job()
    gates.learn_budgets([budget(9)], set())
    gates.charge(held, 5)
    gates.charge(written, 5)

    gates.learn_budgets([budget(9, spent=5)], {held.id})
    assert gates.stops(job(), 99.0)

    gates.learn_budgets([budget(12, spent=10)], set())
    assert not gates.stops(job(), 99.0)


def test_a_budget_that_the_store_calls_spent_is_closed_as_a_gate_is() -> None:
    """A claim that found its next window open knows better: it would be given back, again and again."""
    gates = Closures()
    gates.learn([closure("tenant", "acme", "spent")], 10.0)
    gates.learn_budgets([budget(5, spent=5)], set())

    assert [gates.stops(job(), at) for at in (9.0, 10.1)] == [True, False]
