"""The whole way of one job, from an HTTP request through a broker to its children: one trace, and no secret."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from opentelemetry.trace import SpanKind

from engine.brokers import private_part
from web.rig import serving
from windlass import Context, Windlass, fixed
from windlass.observe import sentry, tracing
from windlass.observe.log_lines import LogSubscriber
from windlass.observe.logs import CountingHandler, JsonFormatter, LineFormatter

from .test_sentry import SentryServer, server
from .tracing_rig import CANARY, PATIENCE, Spans, empty_database, eventually, ids, make_app, parent, spell, value

__all__ = ["server"]

REQUEST = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAGES = ("", "/story", "/details", "/result")


SERVERS = [
    "sqlite none",
    pytest.param("postgres redis", marks=(pytest.mark.postgres, pytest.mark.redis)),
    pytest.param("sqlite rabbitmq", marks=pytest.mark.rabbitmq),
]


@pytest.fixture(params=SERVERS)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Windlass]:
    """Without a broker the worker polls. With one, a scan comes each hour: only deliveries bring jobs in time."""
    place, broker = request.param.split()
    async with AsyncExitStack() as stack:
        url = stack.enter_context(empty_database(place, tmp_path))
        settings: dict[str, Any] = {"metrics_port": 0}
        if broker != "none":
            part = await stack.enter_async_context(private_part(broker))
            settings |= {"broker": part.url, "poll": "1h"}
        app = make_app(url, **settings)
        yield app
        await app.aclose()


def declare_orders(app: Windlass) -> None:
    @app.job(queue="parts")
    def part(n: int) -> int:
        return n

    @app.job(queue="orders", max_attempts=4, retry=fixed(0))
    async def order(ctx: Context, n: int, password: str) -> int:
        ctx.log.info(f"password={password}")
        if ctx.job.attempt < 3:
            raise ConnectionError(f"attempt {ctx.job.attempt} fails for {password}")
        await part.aenqueue(2)
        ctx.spawn("part", part.call(n))
        return n


async def test_one_trace_leads_through_a_broker_and_failures_to_the_children_and_no_secret_leaves(
    app: Windlass, server: SentryServer
) -> None:
    """Given a job with a password, when a request enqueues it and it fails twice, then its trace is one, and no log,
    span, event of Sentry, metric or page has the password."""
    spans, written = Spans(), io.StringIO()
    tracing.instrument(app, tracer_provider=spans.provider)
    sentry.instrument(app)
    declare_orders(app)
    root, before = logging.getLogger(), logging.getLogger("windlass").level
    handlers = [CountingHandler(written), CountingHandler(written)]
    for handler, form in zip(handlers, (JsonFormatter(), LineFormatter()), strict=True):
        handler.setFormatter(form)
        root.addHandler(handler)
    logging.getLogger("windlass").setLevel(logging.DEBUG)
    try:
        async with serving(app, local=True) as served:
            client = served.client(traceparent=REQUEST)
            answer = await client.post("/jobs", json={"type": "order", "input": {"n": 1, "password": CANARY}})
            job = await app.afind(answer.json()["id"])
            worker = app.worker()
            worker.subscribe(LogSubscriber())
            async with worker:
                assert await job.aresult(timeout=PATIENCE) == 1
                await eventually(lambda: spans.named("process parts"), lambda found: len(found) == 2)
                record = await job.arecord()
                document = (await client.get(f"/jobs/{job.id}")).json()
                assert worker.observed is not None
                pages = await read_pages(served.origin, worker.observed.port or 0, str(job.id))
                await server.events(2)
    finally:
        logging.getLogger("windlass").setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)

    texts = {"log": written.getvalue(), "spans": spans.text(), "Sentry": str(server.bodies), **pages}
    for place, text in texts.items():
        assert text, place
        assert CANARY not in text, place
    assert "fails for [redacted]" in written.getvalue()

    (sent,), attempts = spans.named("send orders"), spans.named("process orders")
    assert {ids(span)[0] for span in spans.ended} == {REQUEST.split("-")[1]}
    assert (sent.kind, parent(sent)) == (SpanKind.PRODUCER, REQUEST.split("-")[2])
    assert record.trace == document["trace"] == spell(sent)
    # Each attempt is below the enqueue, and has a link to the attempt before.
    assert [span.kind for span in attempts] == [SpanKind.CONSUMER] * 3
    assert [parent(span) for span in attempts] == [ids(sent)[1]] * 3
    assert [value(span, "windlass.job.ending") for span in attempts] == ["raised", "raised", "succeeded"]
    first, second, third = (ids(span)[1] for span in attempts)
    assert [[f"{link.context.span_id:016x}" for link in span.links] for span in attempts] == [[], [first], [second]]
    assert [attempt.trace for attempt in record.attempts_made()] == [spell(span) for span in attempts]
    # One part was enqueued by the handler, and one was spawned: each time the handler's span is above it.
    (enqueued,) = spans.named("send parts")
    assert parent(enqueued) == third
    assert {parent(span) for span in spans.named("process parts")} == {ids(enqueued)[1], third}
    assert len(spans.ended) == 1 + 3 + 1 + 2  # no span of a claim, a poll or a beat


async def read_pages(origin: str, metrics_port: int, job: str) -> dict[str, str]:
    """What the HTTP API and the metrics show to a caller who may not reveal inputs."""
    api = f"{origin}/api/v1"
    addresses = [
        *(f"{api}/jobs/{job}{page}" for page in PAGES),
        *(f"{api}/{page}" for page in ("jobs", "errors", "overview", "audit", "queues")),
        *(f"{origin}/jobs/{job}", f"{origin}/metrics", f"http://127.0.0.1:{metrics_port}/metrics"),
    ]
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answers = [await client.get(address) for address in addresses]
    return {str(answer.url): answer.text for answer in answers if answer.status_code == 200}
