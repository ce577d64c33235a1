"""Log lines: a record begins at the left edge and nothing else does, whatever the values are."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from windlass.model.job import Job, new_id
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.events import AttemptEnded, AttemptStarted, JobChanged, LeasesLost
from windlass.observe.log_lines import LogSubscriber, describe_end
from windlass.observe.logs import LineFormatter, escape
from windlass.observe.subscribers import EndingTracker

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(**values: Any) -> Job:
    fields: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    fields |= {"id": new_id(), "type": "add", "attempt": 1, "max_attempts": 4, "run_at": NOW, "created_at": NOW}
    return Job(**(fields | values))


def end(
    ending: Ending = Ending.SUCCEEDED, error: str | None = None, delay: float | None = None, **values: Any
) -> AttemptEnded:
    kind, _, message = (error or "").partition(": ")
    return AttemptEnded(
        job=job(**values),
        processor="default-processor-1",
        ending=ending,
        elapsed=0.012,
        delay=delay,
        error_type=kind or None,
        message=message or None,
    )


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


def test_a_record_begins_with_time_level_process_and_job_and_its_other_lines_are_indented() -> None:
    """Given values with newlines, when they are logged, then none of them can imitate the beginning of a record."""
    forged = "a\n2026-01-01T12:00:00.000Z ERROR   forged\r\n\x1b[31mred"
    record = logging.makeLogRecord(
        {"msg": "it said %s", "args": (forged,), "levelname": "INFO", "created": NOW.timestamp(), "job": "17\n"}
    )

    assert LineFormatter("2").format(record).split("\n") == [
        "2026-01-01T12:00:00.000Z INFO    [2] it said a job=17\\n",
        "    [2] 2026-01-01T12:00:00.000Z ERROR   forged\\r",
        "    [2] \\x1b[31mred",
    ]


def test_a_job_that_the_message_names_is_not_repeated() -> None:
    record = logging.makeLogRecord({"msg": "add failed job=17", "job": "17"})

    assert LineFormatter().format(record).endswith("add failed job=17")


def test_a_traceback_can_be_read() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "broke", "exc_info": (type(error), error, error.__traceback__)})

    first, *others = LineFormatter().format(record).split("\n")

    assert first.endswith(" broke")
    assert others[0] == "    Traceback (most recent call last):"
    assert others[-2:] == ["    ValueError: two", "    lines"]
    assert '        raise ValueError("two\\nlines")' in others


def test_a_record_of_any_size_keeps_its_beginning_and_its_end() -> None:
    record = logging.makeLogRecord({"msg": "begins " + "x" * 100_000_000 + " ends"})

    text = LineFormatter().format(record)

    assert len(text) < 40_000
    assert "begins x" in text
    assert "characters cut] …" in text
    assert text.endswith(" ends")


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
def test_each_end_is_described(event: AttemptEnded, state: State | None, message: str) -> None:
    assert describe_end(event, state) == message


def test_an_end_is_reported_when_it_is_committed_and_not_before() -> None:
    received: list[tuple[AttemptEnded, State | None]] = []
    tracker = EndingTracker(lambda end, state: received.append((end, state)))
    event = end()

    tracker(event)
    assert received == []

    tracker(JobChanged(event.job.id, State.SUCCEEDED))
    tracker(JobChanged(event.job.id, State.SUCCEEDED))
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

    subscriber(AttemptStarted(event.job, "default-processor-1"))
    subscriber(event)
    subscriber(JobChanged(event.job.id, State.FAILED))

    first, second = caplog.records
    assert (first.levelname, first.getMessage()) == ("INFO", f"add started, attempt 1 of 4 job={event.job.id}")
    assert (second.levelname, second.getMessage().split(",")[0]) == ("WARNING", "add failed in 12ms (attempt 1 of 4)")
    assert getattr(second, "job") == event.job.id  # noqa: B009


@pytest.mark.parametrize(
    ("state", "level"),
    [(State.FAILED, "WARNING"), (State.DEAD, "ERROR"), (State.SUCCEEDED, "INFO"), (State.CANCELLED, "INFO")],
)
def test_the_level_and_the_exception_follow_the_state(
    state: State, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    error = ValueError("no")
    event = msgspec.structs.replace(end(Ending.RAISED, "ValueError: no", 10.0), exception=error, traceback="…")
    subscriber = LogSubscriber()

    subscriber(event)
    subscriber(JobChanged(event.job.id, state))

    (record,) = caplog.records
    assert record.levelname == level
    assert (record.exc_info or (None, None))[1] is (error if level != "INFO" else None)
