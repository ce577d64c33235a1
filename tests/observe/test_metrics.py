"""The metrics of a worker against the database, after failures, retries, a release and a killed worker."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
from collections import defaultdict
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.rig import PATIENCE, Database, ended, eventually
from windlass import Windlass, fixed
from windlass.clock import SystemClock
from windlass.observe.events import AttemptEnded, JobChanged, JobsRescued
from windlass.observe.metrics import MOST_SERIES, MetricsSubscriber
from windlass.runtime.worker import Worker
from windlass.store import make_store
from windlass.store.protocol import Claim, NewWorker

CANARY = "c4n4ry-metrics-9Zk"
ON_A_FILE = pytest.mark.parametrize("place", ["sqlite"])  # the store is not the point


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def sums(text: str) -> dict[str, float]:
    """Each sample's sum over its labels, and of attempts by outcome."""
    found: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] += sample.value
            if "outcome" in sample.labels:
                found[f"{sample.name}:{sample.labels['outcome']}"] += sample.value
    return found


def port_of(worker: Worker) -> int:
    assert worker.observed is not None
    assert worker.observed.port is not None
    return worker.observed.port


async def kill_worker_with_jobs(app: Windlass, types: tuple[str, ...], jobs: int) -> None:
    """Leave behind what a killed worker leaves: a row whose lease ends, and jobs under its lease."""
    store = make_store(app.settings, SystemClock())
    await store.open()
    id = uuid4()
    await store.register(
        NewWorker(id=id, name="killed:1", lease=0.2, queues=("doomed",), types=types, concurrency=jobs)
    )
    claimed = await store.claim(Claim(worker=id, room=jobs, types=types, queues=("doomed",), rescan=True))
    assert len(claimed.jobs) == jobs
    await store.close()


async def test_each_metric_is_the_count_in_the_database(database: Database) -> None:
    """Given jobs that succeed, fail and die and a killed worker, when all have ended, then metrics and rows agree."""
    app = database.app(metrics_port=0, sweep="200ms")

    @app.job(max_attempts=3, retry=fixed("20ms"))
    async def work(n: int, password: str = "") -> int:
        if n % 3 == 1:
            raise ValueError(f"no {password}")
        return n

    @app.job(queue="doomed")
    async def rescued(n: int) -> int:
        return n

    doomed = [await rescued.aenqueue(n) for n in range(4)]
    await kill_worker_with_jobs(app, ("rescued",), 4)
    jobs = [await work.aenqueue(n, password=CANARY) for n in range(30)]
    async with app.worker() as worker:
        for job in [*jobs, *doomed]:
            await ended(job)

        async def scrape() -> dict[str, float]:
            status, text = await asyncio.to_thread(get, port_of(worker), "/metrics")
            assert status == 200
            assert CANARY not in text
            return sums(text)

        ends = 20 + 30 + 4  # ten jobs fail three times
        found = await eventually(scrape, lambda found: found["windlass_run_seconds_count"] >= ends)

    count = "SELECT count(*) FROM {0}history WHERE status = ?"
    assert found["windlass_attempts_total:succeeded"] == (await database.run(count, "succeeded"))[0][0] == 24
    dead = "SELECT count(*), sum(attempt) FROM {0}jobs WHERE status = ?"
    assert [(found["windlass_attempts_total:dead"], 30)] == await database.run(dead, "dead")
    assert found["windlass_attempts_total:failed"] == 20
    assert found["windlass_retries_total"] == 20
    assert found["windlass_run_seconds_count"] == found["windlass_wait_seconds_count"] == ends
    rescues = (await database.run("SELECT sum(rescues) FROM {0}history"))[0][0]
    assert found["windlass_jobs_rescued_total"] == rescues == 4
    assert found["windlass_worker_deaths_total"] == 1
    assert found["windlass_jobs_claimed_total"] == ends
    assert found["windlass_processors"] > 0
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert found["process_cpu_seconds_total"] > 0
    assert "windlass_loop_delay_seconds" in found


@ON_A_FILE
async def test_a_worker_is_ready_when_it_polled_and_not_when_it_stops(database: Database) -> None:
    app = database.app(metrics_port=0)

    @app.job
    async def work() -> None: ...

    async with app.worker() as worker:
        port = port_of(worker)
        await eventually(lambda: asyncio.to_thread(get, port, "/readyz"), lambda answer: answer[0] == 200)
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/else")[0] == 404
        worker.parts.discovery.end()
        assert get(port, "/readyz") == (503, "not ready: it stops\n")
        worker.state.begin_incarnation()
    with pytest.raises(OSError, match="refused"):
        get(port, "/healthz")


@ON_A_FILE
async def test_a_store_that_is_silent_for_long_makes_a_worker_unready(database: Database) -> None:
    app = database.app(metrics_port=0)

    @app.job
    async def work() -> None: ...

    async with app.worker() as worker:
        port = port_of(worker)
        await eventually(lambda: asyncio.to_thread(get, port, "/readyz"), lambda answer: answer[0] == 200)
        worker.state.contact.answered_at -= 3600.0
        # Without an await: no service of the loop can ask the store meanwhile.
        status, text = get(port, "/readyz")

    assert status == 503
    assert "the store has not answered for" in text


@ON_A_FILE
async def test_a_port_that_is_taken_is_a_warning_and_jobs_go_on(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        app = database.app(metrics_port=port)

        @app.job
        async def work() -> int:
            return 7

        job = await work.aenqueue()
        async with app.worker() as worker:
            assert await job.aresult(timeout=PATIENCE) == 7
            assert worker.observed is not None
            assert worker.observed.port is None

    (warning,) = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
    assert f"cannot listen on 127.0.0.1 port {port}" in warning
    assert f"--metrics-port {port + 1}" in warning


@ON_A_FILE
async def test_a_client_that_sends_nothing_keeps_no_scrape_from_its_answer(database: Database) -> None:
    app = database.app(metrics_port=0)

    @app.job
    async def work() -> None: ...

    async with app.worker() as worker:
        port = port_of(worker)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        try:
            assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
        finally:
            for each in silent:
                each.close()


@ON_A_FILE
async def test_labels_are_bounded(app: Windlass) -> None:
    """Given more queues than series, when their jobs end, then all further ones are counted as `other`."""
    recorded: list[object] = []
    app.on_event(recorded.append)

    @app.job
    async def work() -> None: ...

    job = await work.aenqueue()
    async with app.worker():
        await ended(job)
    end = next(event for event in recorded if isinstance(event, AttemptEnded))
    change = next(event for event in recorded if isinstance(event, JobChanged))
    metrics = MetricsSubscriber()
    import msgspec

    for number in range(MOST_SERIES + 50):
        named = msgspec.structs.replace(end.job, queue=f"q{number}\x1b[31m")
        metrics(msgspec.structs.replace(end, job=named))
        metrics(change)
    metrics(JobsRescued(1, 2, 0))

    series = metrics.series()
    assert len(series) == MOST_SERIES + 1
    assert series[-1][0] == ["other"] * 4
    assert series[-1][1].outcomes["succeeded"] == 50
    assert series[0][0][0] == "q0\\x1b[31m"
