"""OpenTelemetry: one trace from the enqueue through every attempt to the children."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from web.rig import serving
from windlass import Context, JobType, NamedCall, SyncContext, Windlass, fixed
from windlass.client import Client
from windlass.errors import ConfigError, JobUnsuccessful
from windlass.observe.instruments import Instruments
from windlass.observe.tracing import PerSecond, instrument

from . import traced_program
from .tracing_rig import (
    CANARY,
    PATIENCE,
    PLACES,
    Spans,
    UnreachableCollector,
    empty_database,
    ids,
    make_app,
    parent,
    spell,
    value,
)

ON_A_FILE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # the store is not the point
REQUEST = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with empty_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
async def app(url: str) -> AsyncIterator[Windlass]:
    app = make_app(url)
    yield app
    await app.aclose()


@pytest.fixture
def spans(app: Windlass) -> Spans:
    spans = Spans()
    instrument(app, tracer_provider=spans.provider)
    return spans


def declare_orders(app: Windlass) -> None:
    @app.job(queue="parts")
    def part(n: int) -> int:
        return n

    @app.job(queue="orders", max_attempts=4, retry=fixed(0))
    async def order(ctx: Context, n: int) -> int:
        if ctx.job.attempt < 3:
            raise ConnectionError(f"attempt {ctx.job.attempt} fails")
        await part.aenqueue(2)
        ctx.spawn("part", part.call(n))
        return n


@ON_A_FILE
async def test_spans_have_the_names_of_the_conventions(app: Windlass, spans: Spans) -> None:
    @app.job(queue="mail", max_attempts=1)
    async def send() -> None:
        raise ConnectionError("refused")

    async with app.worker():
        job = await send.aenqueue()
        with pytest.raises(JobUnsuccessful):
            await job.aresult(timeout=PATIENCE)

    (sent,), (process,) = spans.named("send mail"), spans.named("process mail")
    shared = {"messaging.system": "windlass", "messaging.destination.name": "mail", "messaging.message.id": str(job.id)}
    assert dict(sent.attributes or {}) == {
        **shared,
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "windlass.job.type": "send",
    }
    assert dict(process.attributes or {}) == {
        **shared,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "windlass.job.type": "send",
        "windlass.job.attempt": 1,
        "windlass.job.ending": "raised",
        "windlass.job.will_retry": False,
        "error.type": "ConnectionError",
    }
    assert (process.status.status_code, process.status.description) == (StatusCode.ERROR, "ConnectionError: refused")
    (event,) = process.events
    assert event.name == "exception"
    assert event.attributes is not None
    assert "ConnectionError: refused" in str(event.attributes["exception.stacktrace"])


async def test_a_batch_has_one_span_that_all_its_jobs_continue(app: Windlass, spans: Spans) -> None:
    @app.job
    def add(n: int) -> int:
        return n

    async with app.worker():
        for job in await app.aenqueue_many(add.call(n) for n in range(20)):
            await job.aresult(timeout=PATIENCE)

    (sent,) = spans.named("send default")
    assert value(sent, "messaging.batch.message_count") == 20
    assert {parent(span) for span in spans.named("process default")} == {ids(sent)[1]}
    assert len(spans.named("process default")) == 20


async def test_beyond_the_limit_an_attempt_has_its_span_when_it_fails(app: Windlass) -> None:
    """Given a limit of no span per second, when a job fails and another goes well, then only failures have spans."""
    spans = Spans()
    instrument(app, tracer_provider=spans.provider, most_per_second=0)
    ran_at: list[int] = []

    @app.job(max_attempts=2, retry=fixed(0))
    async def flaky(ctx: Context) -> None:
        ran_at.append(time.time_ns())
        if ctx.job.attempt == 1:
            raise ValueError("no")

    @app.job
    async def well() -> str:
        return format(trace.get_current_span().get_span_context().span_id, "016x")

    with spans.provider.get_tracer("shop").start_as_current_span("request"):
        job, other = await flaky.aenqueue(), await well.aenqueue()
    async with app.worker():
        await job.aresult(timeout=PATIENCE)
        above = await other.aresult(timeout=PATIENCE)

    (request,), (failed, succeeded) = spans.named("request"), spans.named("process default")
    record = await job.arecord()
    assert [span.name for span in spans.ended if span.name.startswith("send")] == []
    assert record.trace == spell(request)
    assert above == ids(request)[1]
    assert [parent(span) for span in (failed, succeeded)] == [ids(request)[1]] * 2
    assert [f"{link.context.span_id:016x}" for link in succeeded.links] == [ids(failed)[1]]
    assert record.attempts_made()[0].trace == spell(failed)
    assert [event.name for event in failed.events] == ["exception"]
    assert (failed.start_time or 0) <= ran_at[0] <= (failed.end_time or 0)


def test_the_limit_is_per_second_and_counts_recorded_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("windlass.observe.tracing.time.monotonic", lambda: now)
    limit, recorded = PerSecond(2), Spans().provider.get_tracer("shop").start_span("recorded")

    limit.count(trace.NonRecordingSpan(trace.INVALID_SPAN_CONTEXT))
    limit.count(recorded)
    assert limit.has_room()
    limit.count(recorded)
    assert not limit.has_room()
    now = 101.0
    assert limit.has_room()


async def test_attempts_of_a_job_without_a_trace_share_one(app: Windlass, spans: Spans) -> None:
    async def untraced() -> None: ...

    @app.job(max_attempts=3, retry=fixed(0))
    async def flaky(ctx: Context) -> None:
        if ctx.job.attempt < 3:
            raise ValueError("no")

    other = make_app(app.settings.url)  # a program that is not traced, as the tick of a schedule is not
    other.job(type="flaky")(untraced)
    (job,) = await other.aenqueue_named([NamedCall("flaky", {}, {"max_attempts": 3})])
    await other.aclose()
    async with app.worker():
        await (await app.afind(job.id)).aresult(timeout=PATIENCE)

    attempts = spans.named("process default")
    first = ids(attempts[0])[1]
    assert len({ids(span)[0] for span in attempts}) == 1
    assert [parent(span) for span in attempts] == [None, first, first]
    assert [len(span.links) for span in attempts] == [0, 1, 1]


@pytest.fixture
async def program(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Spans]:
    """The traced program on this story's database; the worker's own spans stay in memory."""
    spans, registry = Spans(), traced_program.app._registry
    monkeypatch.setenv("WINDLASS_TEST_SPANS", str(tmp_path / "spans"))
    monkeypatch.setattr(registry, "instruments", Instruments())
    instrument(traced_program.app, tracer_provider=spans.provider)
    settings = traced_program.app.settings.with_(url=url, poll=0.1, grace=5.0, cancel_grace=0.2)
    client = Client(settings, traced_program.app.clock, registry.instruments)
    monkeypatch.setattr(traced_program.app, "settings", settings)
    monkeypatch.setattr(traced_program.app, "_client", client)
    yield spans
    await client.aclose()


@pytest.mark.parametrize(
    "kind",
    [
        traced_program.coroutine,
        traced_program.thread,
        traced_program.process,
        traced_program.coroutine_in_a_process,
    ],
)
async def test_the_span_is_current_in_every_isolation(
    program: Spans, tmp_path: Path, kind: JobType[[], list[str]]
) -> None:
    async with traced_program.app.worker():
        seen = await (await kind.aenqueue()).aresult(timeout=PATIENCE)
    traced_program.provider.force_flush()

    (attempt,) = program.named("process default")
    assert seen == list(ids(attempt))
    # The child flushed what its handler traced before it ended.
    assert (tmp_path / "spans").read_text() == f"inside {seen[0]} {seen[1]}\n"


async def test_a_child_process_passes_the_trace_on_to_a_retry_and_to_children(program: Spans) -> None:
    async with traced_program.app.worker():
        job = await traced_program.parent_in_a_process.aenqueue()
        spawned = await job.aresult(timeout=PATIENCE)
        child = await (await traced_program.app.afind(spawned)).arecord()

    (sent,), attempts = program.named("send default"), program.named("process default")
    first, second, *_ = attempts
    assert {ids(span)[0] for span in attempts} == {ids(sent)[0]}
    assert [f"{link.context.span_id:016x}" for link in second.links] == [ids(first)[1]]
    assert child.trace == spell(second)


@ON_A_FILE
async def test_a_handlers_context_does_not_reach_the_next_job(app: Windlass) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @app.job
    async def look() -> str:
        seen = variable.get()
        variable.set("set by another job")
        return seen

    async with app.worker(concurrency=1):
        jobs = await app.aenqueue_many(look.call() for _ in range(5))
        assert {await job.aresult(timeout=PATIENCE) for job in jobs} == {"unset"}


@ON_A_FILE
async def test_no_span_has_a_secret(app: Windlass, spans: Spans) -> None:
    @app.job(max_attempts=1)
    async def log_in(user: str, password: str, email: str) -> None:
        raise ConnectionError(f"{user} with {password} at https://a.example/x?key={CANARY} for {email}")

    @app.job(max_attempts=1)
    def call(headers: dict[str, str]) -> None:
        raise ValueError(f"refused: {headers}")

    async with app.worker():
        jobs = [
            await log_in.aenqueue("ann", CANARY, f"{CANARY}@example.org"),
            await call.aenqueue({"Authorization": f"Bearer {CANARY}"}),
            await call.aenqueue({"Authorization": CANARY, "padding": "x" * 100_000}),
        ]
        for job in jobs:
            with pytest.raises(JobUnsuccessful):
                await job.aresult(timeout=PATIENCE)

    assert len(spans.named("process default")) == 3
    assert CANARY not in spans.text()
    assert "https://a.example/x?[removed]" in spans.text()


@ON_A_FILE
async def test_jobs_go_on_while_the_collector_is_unreachable(app: Windlass) -> None:
    collector = UnreachableCollector()
    instrument(app, tracer_provider=Spans(collector).provider)

    @app.job
    def add(n: int) -> int:
        return n

    async with app.worker():
        jobs = await app.aenqueue_many(add.call(n) for n in range(20))
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == list(range(20))

    assert collector.tries == 1 + 20


@ON_A_FILE
async def test_a_broken_tracer_fails_no_job_and_is_logged_once(
    app: Windlass, spans: Spans, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracing = instrument(app, tracer_provider=spans.provider)

    def break_down(*args: Any, **options: Any) -> Any:
        raise RuntimeError("out of order")

    monkeypatch.setattr(tracing._tracer, "start_span", break_down)

    @app.job
    def add(ctx: SyncContext, n: int) -> int:
        return n

    async with app.worker():
        jobs = [await add.aenqueue(n) for n in range(5)]
        assert [await job.aresult(timeout=PATIENCE) for job in jobs] == list(range(5))

    assert app._registry.instruments.failures == {"tracing with OpenTelemetry": 10}
    assert len([record for record in caplog.records if "tracing with OpenTelemetry failed" in record.message]) == 1


HEADERS = (
    "",
    "00-abc",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    f"00-{'0' * 32}-b7ad6b7169203331-01",
    "é",
)


@ON_A_FILE
async def test_a_header_in_another_form_is_left_out(app: Windlass) -> None:
    declare_orders(app)
    async with serving(app, local=True) as served:
        for header in HEADERS:
            headers = [(b"traceparent", header.encode("latin-1"))]
            answer = await served.client().post("/jobs", json={"type": "part", "input": {"n": 1}}, headers=headers)
            assert answer.status_code == 202, header
            assert (await (await app.afind(answer.json()["id"])).arecord()).trace is None, header


@ON_A_FILE
async def test_the_trace_of_a_request_is_kept_without_opentelemetry(app: Windlass) -> None:
    declare_orders(app)
    async with serving(app, local=True) as served:
        answer = await served.client(traceparent=REQUEST).post("/jobs", json={"type": "part", "input": {"n": 1}})

        assert (await (await app.afind(answer.json()["id"])).arecord()).trace == REQUEST


@ON_A_FILE
async def test_a_job_has_a_link_to_its_trace_where_the_setting_names_the_place(url: str) -> None:
    app = make_app(url, trace_url="https://jaeger.example/trace/{trace_id}")
    declare_orders(app)
    async with serving(app, local=True) as served:
        client, body = served.client(), {"type": "part", "input": {"n": 1}}
        traced = (await client.post("/jobs", json=body, headers={"traceparent": REQUEST})).json()["id"]
        other = (await client.post("/jobs", json=body)).json()["id"]
        links = [(await client.get(f"/jobs/{id}")).json()["trace_url"] for id in (traced, other)]
    await app.aclose()

    assert links == ["https://jaeger.example/trace/0af7651916cd43dd8448eb211c80319c", None]


@pytest.mark.parametrize("wrong", ["javascript:alert('{trace_id}')", "https://jaeger.example/trace"])
def test_a_link_to_traces_is_an_address_with_a_place_for_the_id(wrong: str) -> None:
    with pytest.raises(ConfigError, match="http"):
        Windlass("sqlite:///unused.db", trace_url=wrong)


WITHOUT = """
import asyncio, importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("opentelemetry", "sentry_sdk"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from windlass import Windlass

app = Windlass(sys.argv[1], poll="100ms")

@app.job
def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with app.worker():
        return await (await add.aenqueue(2, 3)).aresult(timeout=60)

print(asyncio.run(main()), [name for name in sys.modules if name.startswith(("opentelemetry", "sentry"))])
for module in ("tracing", "sentry"):
    try:
        __import__(f"windlass.observe.{module}")
    except ImportError as error:
        print(error)
"""


def test_without_the_extras_nothing_is_imported_and_jobs_run(tmp_path: Path) -> None:
    with empty_database("sqlite", tmp_path) as url:
        ran = subprocess.run([sys.executable, "-c", WITHOUT, url], capture_output=True, text=True, timeout=PATIENCE)

    assert ran.stdout.splitlines() == [
        "5 []",
        "tracing needs OpenTelemetry; install it with: pip install 'windlass[otel]'",
        "the capture needs Sentry's SDK; install it with: pip install 'windlass[sentry]'",
    ], ran.stderr
