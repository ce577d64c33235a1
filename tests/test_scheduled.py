"""Impossible declarations of schedules, each with its own message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from windlass import Windlass, limit
from windlass.errors import EnqueueError, ScheduleError, UnknownType, WindlassError

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db")


def declare(app: Windlass) -> Any:
    @app.job
    def report(name: str = "sales") -> None: ...

    return report


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"every": "1h", "catch_up": "some"}, ScheduleError, "catch_up='some'; there are: skip, one, all"),
        ({"every": "1h", "overlap": True}, ScheduleError, "overlap=True; there are: allow, skip, cancel"),
        ({"every": "1h", "name": " x"}, ScheduleError, "the name of a schedule begins or ends with white space"),
        ({"every": "1h", "name": ""}, ScheduleError, "the name of a schedule is empty"),
        ({"every": 0}, ScheduleError, "every=0 is too short"),
        ({"cron": "0 0 30 2 *"}, ScheduleError, "never fires"),
        ({"cron": "@daily", "tz": "Berlin"}, ScheduleError, "did you mean 'Europe/Berlin'?"),
        ({}, ScheduleError, "give exactly one of cron=, every= and at="),
        (
            {"every": "1h", "call": "reprot"},
            UnknownType,
            "schedule 'nightly': no job type 'reprot' in this program; did you mean 'report'?",
        ),
        ({"every": "1h", "call": "report"}, ScheduleError, "give it a call, with its arguments: report.call(…)"),
        ({"every": "1h", "call": 5}, ScheduleError, "schedule 'nightly' is given int; give it a call of a job type"),
    ],
)
def test_a_declaration_that_cannot_be(
    app: Windlass, given: dict[str, Any], error: type[WindlassError], message: str
) -> None:
    report = declare(app)
    options: dict[str, Any] = {"name": "nightly", "call": report.call(), **given}

    with pytest.raises(error) as refused:
        app.schedule(options.pop("name"), options.pop("call"), **options)

    assert message in str(refused.value)
    assert app._registry.schedules == {}


@pytest.mark.parametrize("count", [-1, True, 2.5, "5", 10**30])
def test_a_count_that_cannot_be(app: Windlass, count: Any) -> None:
    nightly = app.schedule("nightly", declare(app).call(), every="1h")

    for call in (nightly.upcoming, nightly.ticks):
        with pytest.raises(ScheduleError, match=f"schedule 'nightly': {call.__name__}.*give a whole number"):
            call(count)


def test_calls_that_no_tick_can_make(app: Windlass) -> None:
    report = declare(app)
    with pytest.raises(ScheduleError, match="is given a job type; give it a call"):
        app.schedule("nightly", report, every="1h")
    for options in ({"delay": "5s"}, {"run_at": NOW}, {"idempotency_key": "x"}, {"conn": object()}):
        (name,) = options
        with pytest.raises(ScheduleError, match=f"its call has {name}=, which a tick cannot have"):
            app.schedule("nightly", report.options(**options).call(), every="1h")


def test_a_type_of_another_app_is_unknown(app: Windlass) -> None:
    other = declare(Windlass("sqlite:////nowhere/other.db"))

    with pytest.raises(UnknownType, match="job type 'report' is another app's"):
        app.schedule("nightly", other.call(), every="1h")


def test_two_schedules_of_one_name(app: Windlass) -> None:
    report = declare(app)
    app.schedule("nightly", report.call(), every="1h")

    with pytest.raises(ScheduleError, match="schedule 'nightly' is declared twice"):
        app.schedule("nightly", report.call(), every="2h")


def test_a_job_that_cannot_be_made_is_an_error_when_a_worker_is_made(app: Windlass) -> None:
    def domain_of(url: str) -> str:
        return url.split("/")[2]

    @app.job(limits=[limit("domain", 2, key=domain_of)])
    def crawl(url: str) -> None: ...

    app.schedule("crawl", crawl.call("nowhere"), every="1h")

    with pytest.raises(EnqueueError, match="domain"):
        app.worker()
