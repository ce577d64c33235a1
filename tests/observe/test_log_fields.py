"""Log records of a worker: their fields, as JSON and for structlog, without secrets, and whatever a handler does."""

from __future__ import annotations

import io
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import structlog

from engine.rig import PATIENCE, Database, ended, eventually
from windlass import AttemptEnded, HealthReported, JobsClaimed, Windlass, WorkerStarted, fixed, limit
from windlass.observe import logs, routine_lines
from windlass.observe.events import DeliveriesRefused, JobAssigned, JobQueued
from windlass.observe.log_lines import LogSubscriber
from windlass.observe.logs import CountingHandler, JsonFormatter, LineFormatter, count_lost_records
from windlass.observe.metrics import MetricsSubscriber
from windlass.observe.subscribers import Subscribers
from windlass.runtime.duties import health

CANARY = "c4n4ry-logs-8Wq"
ON_A_FILE = pytest.mark.parametrize("place", ["sqlite"])  # the store is not the point


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What a handler with the JSON form writes of the logger `windlass`, at DEBUG."""
    written = io.StringIO()
    handler = CountingHandler(written)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("windlass")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield written
    log.removeHandler(handler)
    log.setLevel(before)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_each_step_of_a_job_is_one_line_with_fields_and_no_secret(
    app: Windlass, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a job that fails with its password in the error, when it is logged, then the lines tell all but that."""
    monkeypatch.setattr(health, "REPORT_EVERY", 0.0)

    @app.job(max_attempts=2, retry=fixed("10ms"), limits=[limit("domain", 5, key="host")])
    async def login(host: str, password: str) -> None:
        raise ValueError(f"no entry for {password}\n2026-01-01T00:00:00.000Z ERROR forged \x1b[31m\u202e")

    job = await login.aenqueue("a.org", password=CANARY)
    worker = app.worker()
    worker.subscribe(LogSubscriber())
    async with worker:
        await ended(job)
        worker.parts.services["health"].nudge()
        await eventually(lambda: _now(lines(stream)), lambda found: any(line.get("fail_count") == 2 for line in found))

    text, found = stream.getvalue(), lines(stream)
    assert CANARY not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    by_kind = {line["kind"]: line for line in found if "kind" in line}
    assert {"worker_started", "jobs_claimed", "job_queued", "job_assigned", "attempt_started", "attempt_ended"} <= set(
        by_kind
    )
    end = by_kind["attempt_ended"]
    assert (end["state"], end["job"], end["attempt"], end["retries"]) == ("dead", str(job.id), 2, 1)
    assert end["job_duration_ms"] >= 0
    assert "[redacted]" in end["error"]
    assert "[redacted]" in end["exception"]
    assert any(line.get("batch_claimed_count") == 1 and line["asked"] >= 1 <= len(line["types"]) for line in found)
    report = next(line for line in found if line.get("fail_count") == 2)
    assert report["success_count"] == 0
    assert report["top_failure_domains"] == {"domain:a.org": 2}
    assert report["phases"][0]["mean_run_ms"] >= 0


@ON_A_FILE
async def test_a_fast_worker_counts_the_lines_of_jobs_that_go_well_and_writes_all_others(
    app: Windlass, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given more jobs in a second than lines, when they end, then written and counted ends together are all of them."""
    monkeypatch.setattr(routine_lines, "SPAN", 3600.0)  # a second that a slow machine cannot outlast
    logging.getLogger("windlass").setLevel(logging.INFO)

    @app.job(max_attempts=1)
    async def work(n: int) -> None:
        if n % 50 == 0:
            raise ValueError("no")

    jobs = await app.aenqueue_many(work.call(n) for n in range(500))
    worker = app.worker()
    worker.subscribe(LogSubscriber())
    async with worker:
        for job in jobs:
            await ended(job)

    found = lines(stream)
    ends = Counter(line["state"] for line in found if line["kind"] == "attempt_ended")
    counts = [line for line in found if line["kind"] == "attempts_counted"]
    assert ends["dead"] == 10
    assert counts
    assert ends["succeeded"] + sum(line["success_count"] for line in counts) == 490
    starts = sum(line["kind"] == "attempt_started" for line in found)
    assert starts + sum(line["started"] for line in counts) == 500
    assert all(line["ended"] == line["success_count"] == line["types"].get("work", 0) for line in counts)
    assert all(line["longest_ms"] >= line["job_duration_ms"] >= 0 for line in counts)
    assert found[-1]["kind"] == "worker_stopped"


@ON_A_FILE
async def test_the_count_of_a_burst_comes_although_nothing_follows(
    app: Windlass, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routine_lines, "MOST_ROUTINE", 0)  # all are counted, in one line or, after a second, in two
    logging.getLogger("windlass").setLevel(logging.INFO)

    @app.job
    async def work() -> None: ...

    job = await work.aenqueue()
    worker = app.worker()
    worker.subscribe(LogSubscriber())
    async with worker:
        await ended(job)
        await eventually(lambda: _now(lines(stream)), lambda found: any(line.get("ended") == 1 for line in found))

    assert "1 ended (work 1)" in stream.getvalue()


async def _now(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return found


@ON_A_FILE
async def test_the_start_names_the_processors_that_can_work(database: Database) -> None:
    """Given three phases at the steady pace, when a worker starts, then it says 30, and not its cap of 100."""
    app = database.app(pace="steady", poll=None)
    started: list[WorkerStarted] = []

    @app.on_event
    def keep(event: WorkerStarted) -> None:
        started.append(event)

    @app.job
    async def first(n: int) -> int:
        return n

    @app.job
    async def second(n: int) -> int:
        return n

    @app.job
    async def third(n: int) -> int:
        return n

    app.pipeline("analysis", first, second, third)
    async with app.worker(types=["first", "second", "third"]):
        await eventually(lambda: _now(started), bool)  # type: ignore[arg-type]

    assert started[0].processors == 30
    assert started[0].pools == (("first", 10), ("second", 10), ("third", 10))
    assert (started[0].poll, started[0].assign_every, started[0].assign_most) == (60.0, 5.0, 3)


@ON_A_FILE
async def test_details_are_made_only_for_subscribers_that_name_them(app: Windlass) -> None:
    every: list[object] = []
    named: list[object] = []
    app.on_event(every.append)

    @app.on_event
    def detail(event: JobsClaimed | JobQueued | JobAssigned) -> None:
        named.append(event)

    @app.job
    async def work() -> None: ...

    job = await work.aenqueue()
    async with app.worker() as worker:
        await ended(job)
        assert worker.state.subscribers.wants(JobQueued)

    assert not any(isinstance(event, JobsClaimed | JobQueued | JobAssigned) for event in every)
    assert [type(event) for event in named if not isinstance(event, JobsClaimed)] == [JobQueued, JobAssigned]


def test_a_quiet_log_wants_no_event_that_it_would_not_write() -> None:
    log, before = logging.getLogger("windlass"), logging.getLogger("windlass").level
    try:
        log.setLevel(logging.WARNING)
        assert HealthReported not in LogSubscriber().kinds
        log.setLevel(logging.INFO)
        assert JobQueued not in LogSubscriber().kinds
        assert HealthReported in LogSubscriber().kinds
    finally:
        log.setLevel(before)


def test_a_refused_claim_of_a_delivered_job_is_a_line_and_a_count(stream: io.StringIO) -> None:
    job = uuid4()
    refused = DeliveriesRefused({"owned": 1}, {job: "owned"})
    metrics = MetricsSubscriber()

    LogSubscriber()(refused)
    LogSubscriber()(DeliveriesRefused({"undecodable": 1}))  # names no job: the intake itself warns of it
    metrics(refused)

    (line,) = lines(stream)
    assert (line["level"], line["kind"], line["jobs"]) == ("INFO", "deliveries_refused", {str(job): "owned"})
    assert line["message"] == f"claims of delivered jobs refused: 1: {job} (owned)"
    assert metrics.registry.get_sample_value("windlass_deliveries_refused_total", {"reason": "owned"}) == 1


class Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("the disk is full")


@ON_A_FILE
async def test_a_handler_of_the_log_that_raises_stops_no_job(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def fails() -> None:
        raise ValueError("no")

    log, raising, lost = logging.getLogger("windlass"), Raising(), count_lost_records()
    log.addHandler(raising)
    try:
        worker = app.worker()
        worker.subscribe(LogSubscriber())
        jobs = [await fails.aenqueue() for _ in range(3)]
        async with worker:
            for job in jobs:
                assert (await ended(job)).status.value == "dead"
        assert count_lost_records() > lost
    finally:
        log.removeHandler(raising)


@ON_A_FILE
async def test_a_subscriber_that_fails_or_is_slow_is_counted_and_named(
    app: Windlass, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.observe import subscribers

    monkeypatch.setattr(subscribers, "SLOW", 0.0)

    @app.on_event
    def breaks(event: AttemptEnded) -> None:
        raise RuntimeError("a fault of its own")

    @app.job
    async def work() -> None: ...

    jobs = [await work.aenqueue() for _ in range(3)]
    async with app.worker() as worker:
        for job in jobs:
            await ended(job)
        failures, slow = worker.state.subscribers.failures, worker.state.subscribers.slow

    (name,) = failures
    assert name.endswith("breaks")
    assert failures[name] == slow[name] == 3
    told = [line.getMessage() for line in caplog.records if "breaks" in line.getMessage()]
    assert len(told) == 2  # one error, one warning about its time


def test_a_subscriber_that_hangs_is_named_by_another_thread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a subscriber that does not return, when the beat's thread looks, then the log names it."""
    import threading

    from windlass.observe import subscribers

    monkeypatch.setattr(subscribers, "SLOW", 0.01)
    entered, leave = threading.Event(), threading.Event()

    def hangs(event: object) -> None:
        entered.set()
        leave.wait(PATIENCE)

    every = Subscribers([hangs])
    thread = threading.Thread(target=lambda: every(WorkerStarted(uuid4(), "host:1")))
    thread.start()
    assert entered.wait(PATIENCE)
    began = time.monotonic()
    while not caplog.records and time.monotonic() - began < PATIENCE:
        every.report_hanging()
    leave.set()
    thread.join(PATIENCE)

    assert "hangs has not returned for" in caplog.records[0].getMessage()


@pytest.mark.parametrize("form", [LineFormatter, JsonFormatter])
def test_other_records_are_redacted_and_escaped(form: type[LineFormatter] | type[JsonFormatter]) -> None:
    record = logging.makeLogRecord(
        {"name": "shop", "msg": f"login password={CANARY}\nforged \x1b[31m\u202e", "levelname": "INFO"}
    )
    record.password = CANARY
    record.weird = object()

    text = form().format(record)

    assert CANARY not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[redacted]" in text
    if form is JsonFormatter:
        assert json.loads(text)["password"] == "[redacted]"
        assert "\n" not in text


def test_structlog_gets_the_fields_of_a_record() -> None:
    """Given structlog as the formatter of the standard log, when a worker logs, then it has the fields."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    log, before = logging.getLogger("windlass"), logging.getLogger("windlass").level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    worker = uuid4()
    try:
        LogSubscriber()(WorkerStarted(worker, "host:1", pools=(("default", 20),), processors=20))
    finally:
        log.removeHandler(handler)
        log.setLevel(before)

    line = json.loads(written.getvalue())
    assert (line["kind"], line["worker"], line["processors"]) == ("worker_started", str(worker), 20)
    assert line["event"].startswith("worker host:1 started as ")
    assert logs.ENGINE == "windlass"
