"""Sentry: failures arrive at a local server, through the SDK's own transport, without secrets."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

from windlass import Context, Windlass, fixed
from windlass.errors import JobUnsuccessful
from windlass.observe.log_lines import LogSubscriber
from windlass.observe.logs import ROUTINE
from windlass.observe.sentry import instrument
from windlass.policy.fingerprint import fingerprint

from .tracing_rig import CANARY, PATIENCE, PLACES, empty_database, eventually, make_app

ON_A_FILE = pytest.mark.parametrize("app", ["sqlite"], indirect=True)  # the store is not the point


class SentryServer:
    """Receives envelopes on a real socket."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        received = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                compressed = self.headers.get("content-encoding") == "gzip"
                received.append((gzip.decompress(body) if compressed else body).decode())
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def dsn(self) -> str:
        return f"http://key@127.0.0.1:{self._server.server_port}/1"

    def items(self, kind: str) -> list[dict[str, Any]]:
        """The items of that kind, in the order in which they arrived."""
        found = []
        for body in self.bodies:
            lines = body.splitlines()
            for header, item in zip(lines[1::2], lines[2::2], strict=False):
                if json.loads(header)["type"] == kind:
                    found.append(json.loads(item))
        return found

    async def events(self, count: int) -> list[dict[str, Any]]:
        return await eventually(lambda: self.items("event"), lambda found: len(found) >= count)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[SentryServer]:
    server = SentryServer()
    sentry_sdk.init(dsn=server.dsn, shutdown_timeout=0)
    yield server
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.init()  # no DSN: nothing is sent
    server.close()


@pytest.fixture(params=PLACES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Windlass]:
    with empty_database(request.param, tmp_path) as url:
        app = make_app(url)
        yield app
        await app.aclose()


async def fail(job: Any) -> None:
    with pytest.raises(JobUnsuccessful):
        await job.aresult(timeout=PATIENCE)


async def test_every_failed_attempt_is_captured_and_the_last_one_has_its_breadcrumb(
    app: Windlass, server: SentryServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a worker that logs, when a job fails until it is dead, then no line of a start is its breadcrumb."""
    caplog.set_level(logging.INFO, "windlass")
    instrument(app)

    @app.job(queue="mail", max_attempts=2, retry=fixed(0))
    async def send(ctx: Context, n: int) -> None:
        raise ConnectionError("refused by 10.0.0.1")

    worker = app.worker()
    worker.subscribe(LogSubscriber())
    async with worker:
        job = await send.options(tenant="ann").aenqueue(1)
        await fail(job)
        first, last = await server.events(2)

    assert any(record.name == ROUTINE for record in caplog.records)
    tags = {"job.id": str(job.id), "job.type": "send", "job.queue": "mail"}
    assert first["tags"] == {**tags, "job.attempt": "1"}
    assert last["tags"] == {**tags, "job.attempt": "2"}
    group = fingerprint("ConnectionError", "refused by 10.0.0.1")
    assert [event["fingerprint"] for event in (first, last)] == [["windlass", "send", group]] * 2
    assert [event["level"] for event in (first, last)] == ["warning", "error"]
    assert [crumb["message"] for crumb in first["breadcrumbs"]["values"]] == []
    assert [crumb["message"] for crumb in last["breadcrumbs"]["values"]] == ["the job is dead after attempt 2 of 2"]
    (error,) = last["exception"]["values"]
    assert (error["type"], error["value"]) == ("ConnectionError", "refused by 10.0.0.1")
    assert error["stacktrace"]["frames"][-1]["function"].endswith("send")
    assert all("vars" not in frame for frame in error["stacktrace"]["frames"])
    assert "ann" not in json.dumps([first, last]).split()


@ON_A_FILE
async def test_nothing_that_arrives_has_a_secret(app: Windlass, server: SentryServer) -> None:
    instrument(app)
    log = logging.getLogger("shop")

    @app.job(max_attempts=1)
    async def log_in(ctx: Context, user: str, password: str, email: str, url: str) -> None:
        copy = password
        log.warning("logging in with password=%s", password)
        ctx.log.error("it failed for %s at %s", email, url)
        try:
            raise ValueError(copy)
        except ValueError as error:
            sentry_sdk.capture_exception(error)
            raise ConnectionError(f"{user} with {copy} at {url} for {email}") from error

    @app.job(max_attempts=1, timeout="50ms")
    async def slow(token: str) -> None:
        await asyncio.sleep(PATIENCE)

    @app.job(max_attempts=1, isolation="process")
    def unreachable(password: str) -> None: ...

    worker = app.worker()
    worker.subscribe(LogSubscriber())  # as `windlass worker` does: the line of a dead job is no second event
    async with worker:
        url = f"https://a.example/x?key={CANARY}"
        jobs = [
            await log_in.aenqueue("ann", CANARY, f"{CANARY}@example.org", url),
            await log_in.aenqueue("x" * 100_000, CANARY, f"{CANARY}@example.org", url),
            await slow.aenqueue(CANARY),
            await unreachable.aenqueue(CANARY),
        ]
        for job in jobs:
            await fail(job)
        events = await eventually(
            lambda: server.items("event"), lambda found: sum("fingerprint" in event for event in found) == 4
        )

    # Of each log_in: its failure, the exception that it captured itself, and its line at level ERROR.
    assert len(events) == 2 * 3 + 2
    assert CANARY not in "\n".join(server.bodies)
    assert "https://a.example/x?[removed]" in "\n".join(server.bodies)
    inputs = [event["contexts"]["job"]["input"] for event in events if "job" in event["contexts"]]
    assert {"token": "[redacted]"} in inputs
    assert any(event["contexts"].get("job", {}).get("ending") == "timeout" for event in events)


@ON_A_FILE
async def test_scopes_of_attempts_that_run_together_are_apart(app: Windlass, server: SentryServer) -> None:
    """Given attempts that run together, when each fails, then its event has its own tags and those of the program."""
    instrument(app)
    together = asyncio.Barrier(3)

    @app.job(max_attempts=1)
    async def meet(n: int) -> None:
        sentry_sdk.set_tag("mine", str(n))
        sentry_sdk.add_breadcrumb(message=f"crumb {n}")
        await together.wait()
        raise ValueError("met")

    with sentry_sdk.isolation_scope() as scope:
        scope.set_tag("of the program", "before")
        async with app.worker():
            scope.set_tag("later", "too")
            for job in await app.aenqueue_many(meet.call(n) for n in range(3)):
                await fail(job)
            events = await server.events(3)
        assert "mine" not in scope._tags

    for event in events:
        assert (event["tags"]["of the program"], event["tags"]["later"]) == ("before", "too")
        n, crumbs = event["tags"]["mine"], [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
        assert crumbs == [f"crumb {n}", "the job is dead after attempt 1 of 1"]
        assert event["contexts"]["job"]["input"] == {"n": int(n)}


async def test_the_job_of_a_tick_checks_in(app: Windlass, server: SentryServer) -> None:
    instrument(app)

    @app.job(max_attempts=1)
    async def report(good: bool) -> None:
        if not good:
            raise ValueError("no")

    app.schedule("Nightly report!", report.call(True), every="1s")
    app.schedule("broken", report.call(False), every="1s")
    async with app.worker():
        await report.aenqueue(True)  # of no schedule: it checks in nowhere
        statuses = await eventually(
            lambda: [(item["monitor_slug"], item["status"]) for item in server.items("check_in")],
            lambda found: {("nightly-report", "ok"), ("broken", "error")} <= set(found),
        )

    assert {name for name, _ in statuses} == {"nightly-report", "broken"}
    by_id: dict[str, list[str]] = {}
    for item in server.items("check_in"):
        by_id.setdefault(item["check_in_id"], []).append(item["status"])
    assert ["in_progress", "ok"] in by_id.values()
    assert ["in_progress", "error"] in by_id.values()


@ON_A_FILE
async def test_jobs_go_on_while_sentry_is_unreachable(app: Windlass) -> None:
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", shutdown_timeout=0)
    instrument(app)

    @app.job(max_attempts=2, retry=fixed(0))
    async def flaky(ctx: Context) -> int:
        if ctx.job.attempt == 1:
            raise ValueError("once")
        return ctx.job.attempt

    try:
        async with app.worker():
            jobs = await app.aenqueue_many(flaky.call() for _ in range(20))
            assert {await job.aresult(timeout=PATIENCE) for job in jobs} == {2}
    finally:
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.init()
    assert not app._registry.instruments.failures
