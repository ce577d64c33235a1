"""What the stories of tracing and of Sentry need: a database, spans in memory, and a program with each isolation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from servers import postgres_database
from windlass import Windlass
from windlass.testing.databases import write_migrated_file

T = TypeVar("T")

PATIENCE = 60.0  # seconds until a story gives up; nothing here waits that long when it works
CANARY = "c4n4ry-7Qx"  # the secret in the inputs and errors of the stories
PLACES = ["sqlite", "postgres"]


@contextmanager
def empty_database(place: str, folder: Path) -> Iterator[str]:
    """The URL of a migrated database."""
    if place == "postgres":
        with postgres_database() as lent:
            yield lent.url
        return
    write_migrated_file(folder / "jobs.db")
    yield f"sqlite:///{folder / 'jobs.db'}"


def make_app(url: str, **settings: Any) -> Windlass:
    defaults: dict[str, Any] = {"poll": "100ms", "grace": "5s", "cancel_grace": "200ms"}
    return Windlass(url, **(defaults | settings))


class Spans:
    """A provider whose ended spans stay in memory."""

    def __init__(self, *exporters: SpanExporter) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        for exporter in (self._kept, *exporters):
            self.provider.add_span_processor(SimpleSpanProcessor(exporter))

    @property
    def ended(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """In the order of their starts."""
        return sorted((span for span in self.ended if span.name == name), key=lambda span: span.start_time or 0)

    def text(self) -> str:
        """Everything that the spans have, to be searched."""
        return "\n".join(span.to_json() for span in self.ended)


class UnreachableCollector(SpanExporter):
    """An exporter whose collector does not answer."""

    tries = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.tries += 1
        raise ConnectionError("the collector does not answer")


def ids(span: ReadableSpan) -> tuple[str, str]:
    """The trace and the span."""
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def parent(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def value(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {})[name]


def spell(span: ReadableSpan) -> str:
    """The traceparent of a span."""
    context = span.get_span_context()
    assert context is not None
    return "-".join(("00", *ids(span), f"{context.trace_flags:02x}"))


async def eventually(look: Callable[[], T], fits: Callable[[T], bool]) -> T:
    """The first result of `look` that fits."""
    async with asyncio.timeout(PATIENCE):
        while not fits(seen := look()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return seen
