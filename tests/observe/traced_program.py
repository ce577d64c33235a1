"""A program that a child process can import: it is traced, and its handlers make spans of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from windlass import Context, Windlass, fixed
from windlass.observe.tracing import instrument


class SpanFile(SpanExporter):
    """Appends each span to the file that a story names."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with open(os.environ["WINDLASS_TEST_SPANS"], "a", encoding="utf-8") as file:
            for span in spans:
                assert span.parent is not None
                assert span.context is not None
                file.write(f"{span.name} {span.context.trace_id:032x} {span.parent.span_id:016x}\n")
        return SpanExportResult.SUCCESS


provider = TracerProvider(shutdown_on_exit=False)  # of the handlers; a story gives the worker another one
provider.add_span_processor(BatchSpanProcessor(SpanFile()))
app = Windlass("sqlite:///unused.db")
instrument(app, tracer_provider=provider)


def current() -> list[str]:
    span = trace.get_current_span().get_span_context()
    with provider.get_tracer("handler").start_as_current_span("inside"):
        return [f"{span.trace_id:032x}", f"{span.span_id:016x}"]


@app.job
async def coroutine() -> list[str]:
    return current()


@app.job
def thread() -> list[str]:
    return current()


@app.job(isolation="process")
def process() -> list[str]:
    return current()


@app.job(isolation="process")
async def coroutine_in_a_process() -> list[str]:
    return current()


@app.job(isolation="process", max_attempts=2, retry=fixed(0))
async def parent_in_a_process(ctx: Context) -> str:
    if ctx.job.attempt == 1:
        raise ValueError("not yet")
    child = ctx.spawn("one", coroutine.call())
    await ctx.wait([child])
    return str(child.id)
