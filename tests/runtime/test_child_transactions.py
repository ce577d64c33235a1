"""ctx.transaction() in a child: its writes and the fenced finish are committed together, by the child itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from windlass.model.job import Job
from windlass.model.outcome import Ending, Outcome, Transition
from windlass.model.state import State, Verb
from windlass.policy.failure import decide
from windlass.runtime.commit import account
from windlass.runtime.processes.process_pool import ProcessPool

from .children_rig import SERIAL, StandIn, Stored, exists, stored_in_postgres, stored_in_sqlite
from .programs import handlers


@pytest.fixture(params=["sqlite", "postgres"])
async def stored(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stored]:
    making = stored_in_sqlite(tmp_path / "jobs.db") if request.param == "sqlite" else stored_in_postgres()
    async with making as stored:
        monkeypatch.setenv("WINDLASS_URL", stored.url)  # the program's own app enqueues there
        yield stored


@pytest.fixture
async def children(stored: Stored) -> AsyncIterator[ProcessPool]:
    children = ProcessPool(SERIAL.with_(url=stored.url), program=None)
    yield children
    await asyncio.wait_for(children.close(), 20)


@pytest.mark.parametrize("kind", [handlers.writes, handlers.writes_async])
async def test_what_was_written_commits_with_the_finish(stored: Stored, children: ProcessPool, kind: Any) -> None:
    attempt = await stored.attempt(kind, 7)

    outcome = await asyncio.wait_for(children.run(attempt, waited=1.5), 20)

    assert outcome == Outcome(ending=Ending.SUCCEEDED, output='"written"', finished=True)
    finished = await stored.store.find(attempt.job.id)
    assert finished is not None
    assert (finished.status, finished.output) == (State.SUCCEEDED, '"written"')
    assert await stored.effects() == [7]
    assert (await stored.store.counts())[State.QUEUED] == 1  # what it enqueued inside


async def test_the_log_is_kept_with_the_finish_that_the_child_wrote(stored: Stored, children: ProcessPool) -> None:
    attempt = await stored.attempt(handlers.writes, 7)

    await asyncio.wait_for(children.run(attempt, waited=1.5), 20)

    finished = await stored.store.find(attempt.job.id)
    assert finished is not None
    assert finished.attempts is not None
    (entry,) = msgspec.json.decode(finished.attempts)
    assert entry["log"] == ["INFO wrote"]
    assert entry["worker"] == str(attempt.job.worker)
    assert attempt.context is not None
    assert attempt.context.log.lines == ["INFO wrote"]


async def test_a_failure_takes_the_writes_back(stored: Stored, children: ProcessPool) -> None:
    attempt = await stored.attempt(handlers.writes, 7, fail=True)

    outcome = await asyncio.wait_for(children.run(attempt), 20)

    assert (outcome.ending, outcome.finished) == (Ending.RAISED, False)
    assert await stored.effects() == []
    assert await stored.status(attempt.job) is State.RUNNING  # the worker writes the failure
    assert (await stored.store.counts())[State.QUEUED] == 0


async def test_without_its_lease_a_child_commits_nothing(stored: Stored, children: ProcessPool) -> None:
    attempt = await stored.attempt(handlers.writes, 7)
    stale = StandIn(handlers.writes, 7, job=msgspec.structs.replace(attempt.job, token=uuid4()))

    outcome = await asyncio.wait_for(children.run(stale), 20)

    assert outcome.ending is Ending.LOST
    assert await stored.effects() == []
    assert await stored.status(attempt.job) is State.RUNNING


async def test_a_killed_child_leaves_no_transaction_open(stored: Stored, children: ProcessPool) -> None:
    attempt = await stored.attempt(handlers.writes_and_waits, 7)
    running = asyncio.create_task(children.run(attempt))
    pid = await attempt.pid()

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert not exists(pid)
    assert await settle(stored, attempt.job, Outcome(ending=Ending.CANCELLED)) is State.CANCELLED
    assert await stored.effects() == []


async def test_a_child_that_dies_before_its_commit_changed_nothing(
    stored: Stored, children: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_FAILPOINTS", "transaction.before_commit=kill")
    attempt = await stored.attempt(handlers.writes, 7)

    outcome = await asyncio.wait_for(children.run(attempt), 20)

    assert outcome.ending is Ending.CRASHED
    assert await settle(stored, attempt.job, outcome) is State.FAILED
    assert await stored.effects() == []


async def test_a_child_that_dies_between_its_commit_and_its_word_has_finished_the_job(
    stored: Stored, children: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_FAILPOINTS", "transaction.committed=kill")
    attempt = await stored.attempt(handlers.writes, 7)

    outcome = await asyncio.wait_for(children.run(attempt), 20)

    assert outcome.ending is Ending.CRASHED
    assert await settle(stored, attempt.job, outcome) is None  # the crash is refused: the lease is spent
    assert await stored.status(attempt.job) is State.SUCCEEDED
    assert await stored.effects() == [7]


async def test_a_lost_answer_to_the_commit_is_asked_for(
    stored: Stored, children: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_FAILPOINTS", "transaction.committed=raise")
    attempt = await stored.attempt(handlers.writes, 7)

    outcome = await asyncio.wait_for(children.run(attempt), 20)

    assert (outcome.ending, outcome.finished) == (Ending.SUCCEEDED, True)
    assert await stored.effects() == [7]


async def test_a_commit_that_did_not_happen_is_a_failure(
    stored: Stored, children: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_FAILPOINTS", "transaction.before_commit=raise")
    attempt = await stored.attempt(handlers.writes, 7)

    outcome = await asyncio.wait_for(children.run(attempt), 20)

    assert (outcome.ending, outcome.message, outcome.finished) == (Ending.RAISED, "failpoint", False)
    assert await stored.effects() == []


async def settle(stored: Stored, job: Job, outcome: Outcome) -> State | None:
    """What the processor does with an outcome; None when the store refuses it as lost."""
    assert job.worker is not None
    run = account(job, None, worker=job.worker, waited=0.0, elapsed=1.0)
    transition: Transition | None = decide(run, outcome, retry=handlers_retry(), settings=SERIAL)
    assert transition is not None
    assert transition.verb in (Verb.FAIL, Verb.STOP)
    settled = await stored.store.finish([transition])
    return settled.states.get(job.id)


def handlers_retry() -> Any:
    return handlers.writes._definition.retry_policy(SERIAL)
