"""Log lines: one per record, whatever the values are."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from windlass.model.job import Job, new_id
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.events import JobEnded, JobFinished, JobStarted, LeasesLost
from windlass.observe.logs import EndingTracker, LineFormatter, LogSubscriber, describe_end, escape

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(**values: Any) -> Job:
    fields: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    fields |= {"id": new_id(), "type": "add", "attempt": 1, "max_attempts": 4, "run_at": NOW, "created_at": NOW}
    return Job(**(fields | values))


def end(
    ending: Ending = Ending.SUCCEEDED, error: str | None = None, delay: float | None = None, **values: Any
) -> JobEnded:
    return JobEnded(job(**values), "default-processor-1", ending, 0.012, error, delay)


@pytest.mark.parametrize(
    ("raw", "escaped"),
    [
        ("plain, ünïcode, 日本", "plain, ünïcode, 日本"),
        ("two\nlines\r\n\tx", "two\\nlines\\r\\n\\tx"),
        ("\x1b[31mred\x9b", "\\x1b[31mred\\x9b"),
        ("abc\u202edef\u2066", "abc\\u202edef\\u2066"),
        ("\u2028\u200b\ufeff\udc80", "\\u2028\\u200b\\ufeff\\udc80"),
    ],
)
def test_what_cannot_be_printed_is_escaped(raw: str, escaped: str) -> None:
    assert escape(raw) == escaped


def test_a_record_is_one_line_with_time_level_process_and_job() -> None:
    record = logging.makeLogRecord(
        {"msg": "it said %s", "args": ("a\nb",), "levelname": "INFO", "created": NOW.timestamp(), "job": "17\n"}
    )

    assert LineFormatter("2").format(record) == "2026-01-01T12:00:00.000Z INFO    [2] it said a\\nb job=17\\n"


def test_a_traceback_stays_on_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "broke", "exc_info": (type(error), error, error.__traceback__)})

    line = LineFormatter().format(record)

    assert "\n" not in line
    assert "ValueError: two\\nlines" in line


@pytest.mark.parametrize(
    ("event", "state", "message"),
    [
        (end(), State.SUCCEEDED, "succeeded in 12ms"),
        (
            end(Ending.RAISED, "ValueError: no\nmore", 10.0),
            State.FAILED,
            "failed in 12ms (attempt 1 of 4), again in 10s: ValueError: no",
        ),
        (end(Ending.RAISED, "ValueError: no", attempt=4), State.DEAD, "dead in 12ms (attempt 4 of 4): ValueError: no"),
        (end(Ending.SNOOZED, delay=90.0), State.QUEUED, "snoozed for 1m30s"),
        (end(Ending.RELEASED), State.QUEUED, "released after 12ms"),
        (end(Ending.CANCELLED), State.CANCELLED, "cancelled after 12ms"),
        (end(Ending.LOST), None, "lost its lease after 12ms; nothing was written"),
    ],
)
def test_each_end_is_described(event: JobEnded, state: State | None, message: str) -> None:
    assert describe_end(event, state) == message


def test_an_end_is_reported_when_it_is_committed_and_not_before() -> None:
    received: list[tuple[JobEnded, State | None]] = []
    tracker = EndingTracker(lambda end, state: received.append((end, state)))
    event = end()

    tracker(event)
    assert received == []

    tracker(JobFinished(event.job.id, State.SUCCEEDED))
    tracker(JobFinished(event.job.id, State.SUCCEEDED))
    assert received == [(event, State.SUCCEEDED)]


def test_ends_with_lost_leases_are_reported_as_lost() -> None:
    received: list[State | None] = []
    tracker = EndingTracker(lambda end, state: received.append(state))

    tracker(end())
    tracker(LeasesLost(uuid4(), 1))
    tracker(end(Ending.LOST))

    assert received == [None, None]


def test_a_worker_logs_starts_and_ends_with_the_job_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windlass")
    subscriber = LogSubscriber()
    event = end(Ending.RAISED, "ValueError: no", 10.0)

    subscriber(JobStarted(event.job, "default-processor-1"))
    subscriber(event)
    subscriber(JobFinished(event.job.id, State.FAILED))

    first, second = caplog.records
    assert (first.levelname, first.getMessage()) == ("INFO", "add started, attempt 1 of 4")
    assert (second.levelname, second.getMessage().split(",")[0]) == ("WARNING", "add failed in 12ms (attempt 1 of 4)")
    assert getattr(second, "job") == event.job.id  # noqa: B009
