"""`app.on_event(…)`: what a subscriber gets of a worker's events, and that it cannot harm a job."""

from __future__ import annotations

import functools
import logging
import sys
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from windlass import (
    AttemptEnded,
    AttemptStarted,
    Event,
    JobChanged,
    LeasesLost,
    Retry,
    Windlass,
    WorkerStarted,
    WorkerStopped,
    fixed,
)
from windlass.errors import RegistrationError
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.log_lines import LogSubscriber
from windlass.observe.subscribers import make_subscriber

from .programs import admitted
from .rig import PATIENCE, ended, failure, working


async def test_a_subscriber_gets_the_events_that_its_hint_names(app: Windlass) -> None:
    """Given subscribers with one event, with a union and without a hint, when a job runs, then each gets its own."""
    one: list[AttemptEnded] = []
    two: list[AttemptStarted | JobChanged] = []
    every: list[Any] = []

    @app.on_event
    def on_end(event: AttemptEnded) -> None:
        one.append(event)

    @app.on_event
    def on_start_and_finish(event: AttemptStarted | JobChanged) -> None:
        two.append(event)

    app.on_event(every.append)

    @app.job
    async def work(n: int) -> int:
        return n

    async with working(app) as (_, events):
        job = await work.aenqueue(1)
        await events.until(JobChanged)

    assert [(event.job.id, event.ending, event.error) for event in one] == [(job.id, Ending.SUCCEEDED, None)]
    assert [type(event) for event in two] == [AttemptStarted, JobChanged]
    assert [type(event).__name__ for event in every] == [
        "WorkerStarted",
        "AttemptStarted",
        "AttemptEnded",
        "JobChanged",
        "WorkerStopped",
    ]


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_the_end_of_a_failed_attempt_has_the_exception_and_the_time_of_the_next(app: Windlass, kind: str) -> None:
    """Given two attempts, when both fail, then the first event names its retry, and the second that there is none."""
    ends: list[AttemptEnded] = []
    raised: list[ValueError] = []

    @app.on_event
    def on_end(event: AttemptEnded) -> None:
        ends.append(event)

    def fail() -> None:
        raised.append(ValueError("no rope"))
        raise raised[-1]

    if kind == "coroutine":

        @app.job(type="fail", max_attempts=2, retry=fixed("50ms"))
        async def as_coroutine() -> None:
            fail()

        job = await as_coroutine.aenqueue()
    else:

        @app.job(type="fail", max_attempts=2, retry=fixed("50ms"))
        def on_thread() -> None:
            fail()

        job = await on_thread.aenqueue()

    async with working(app):
        record = await ended(job)

    first, last = ends
    assert first.exception is raised[0]
    assert (first.error_type, first.message, first.error) == ("ValueError", "no rope", "ValueError: no rope")
    assert (first.job.attempt, first.will_retry, last.job.attempt, last.will_retry) == (1, True, 2, False)
    assert first.retry_at is not None
    assert first.job.claimed_at is not None
    assert first.retry_at >= first.job.claimed_at + timedelta(milliseconds=50)
    assert last.exception is raised[1]
    assert last.traceback == failure(record).traceback
    assert last.traceback is not None
    assert "raise raised[-1]" in last.traceback


async def test_a_failure_in_a_child_has_its_traceback_as_text(
    program: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a handler in a child process, when it fails, then the event and the log have the stored traceback."""
    async with working(program) as (worker, events):
        worker.state.subscribers.append(LogSubscriber())
        job = await admitted.retries_in_process.aenqueue()
        record = await ended(job)
        end = await events.ended(job)

    assert (end.exception, end.error_type, end.message) == (None, "windlass.Retry", "429")
    assert end.traceback == failure(record).traceback
    logged = next(line for line in caplog.records if line.levelname == "ERROR")
    assert not logged.exc_info
    assert logged.getMessage().endswith(f"job={job.id}\n{end.traceback}")


async def test_a_subscriber_that_fails_is_logged_once_and_harms_no_job(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    """Given subscribers that raise and that exit, when jobs run, then the jobs end, and each error has one record."""

    @app.on_event
    def raises(event: AttemptStarted | AttemptEnded) -> None:
        raise RuntimeError("a fault of its own")

    @app.on_event
    def exits(event: AttemptEnded) -> None:
        sys.exit(3)

    @app.job
    async def work(n: int) -> int:
        return n

    async with working(app):
        for n in range(3):
            assert await (await work.aenqueue(n)).aresult(timeout=PATIENCE) == n

    failed = [record for record in caplog.records if "the subscriber" in record.getMessage()]
    assert [record.getMessage().partition(";")[0].rpartition(".")[2] for record in failed] == [
        "raises failed at AttemptStarted",
        "exits failed at AttemptEnded",
    ]
    assert all(record.exc_info is not None for record in failed)


async def test_the_log_has_the_exception_of_a_failed_attempt(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    """Given a job that fails twice, when a worker logs, then a WARNING and an ERROR carry the exception itself."""
    caplog.set_level(logging.INFO, "windlass")
    app.on_event(LogSubscriber())

    @app.job(max_attempts=2)
    async def fail() -> None:
        raise Retry("not yet", after="10ms")

    async with working(app):
        job = await fail.aenqueue()
        assert (await ended(job)).status is State.DEAD

    first, last = (record for record in caplog.records if record.levelno >= logging.WARNING)
    for record in (first, last):
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], Retry)
        assert f"job={job.id}" in record.getMessage()
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")


def test_a_partial_has_the_hint_of_its_function() -> None:
    """Given a partial of a function with a hint, when it subscribes, then it gets the events of that hint."""

    def note(where: list[object], event: WorkerStarted | WorkerStopped) -> None:
        where.append(event)

    seen: list[object] = []
    subscriber = make_subscriber(functools.partial(note, seen), {})
    started = WorkerStarted(uuid4(), "host:1")
    subscriber(LeasesLost(uuid4(), 3))
    subscriber(started)

    assert seen == [started]


def no_parameter() -> None: ...
async def awaited(event: AttemptEnded) -> None: ...
def wrong(event: int) -> None: ...
def unresolved(event: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (no_parameter, r"called with one argument, the event; write: def no_parameter\(event\)"),
        (awaited, r"awaited is async, and events are not awaited; write: def awaited\(event\)"),
        (
            wrong,
            "wrong takes int, which is no event; there are: AttemptEnded, AttemptStarted, BrokerBack, BrokerLost, ",
        ),
        (unresolved, "the hints of unresolved cannot be resolved .*not under TYPE_CHECKING"),
        (WorkerStarted, "is no function; write: def on_event"),
        ("alert", "'alert' is no function; write: def on_event"),
    ],
)
def test_a_function_that_cannot_subscribe_is_refused_with_what_to_write(fn: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        Windlass("sqlite:///nowhere.db").on_event(fn)


def test_every_event_can_be_imported_from_the_package() -> None:
    import windlass
    from windlass.observe.subscribers import DETAILS, EVENTS

    assert [kind for kind in (*EVENTS, *DETAILS) if getattr(windlass, kind.__name__) is not kind] == []
    assert windlass.Event is Event
