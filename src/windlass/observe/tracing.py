"""OpenTelemetry (the extra `otel`): an enqueue and each attempt are spans of one trace.

    from windlass.observe.tracing import instrument
    instrument(app)

An enqueue is a PRODUCER span, and its context is stored with the job. An attempt is a CONSUMER span below it, current
while the handler runs; a retry has a link to the attempt before, whose context stands in the job's `attempts`. Names
are those of OpenTelemetry's conventions for messaging. Claims, polls and beats have no spans.

A recorded span costs about as much time as a job that does nothing. So first attempts have so many recorded spans per
second, and enqueues as well; beyond them the span above stays the current one. An attempt that fails gets its span
then, with the time of its start, and each retry has one: a failure is always found in its trace.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from windlass.model.job import Job, NewJob
from windlass.model.trace import Traceparent, read_traceparent
from windlass.observe.events import AttemptEnded
from windlass.observe.instruments import Instrument, SendWatch, Watch
from windlass.observe.scrub import Scrubber

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace as traces
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise ImportError("tracing needs OpenTelemetry; install it with: pip install 'windlass[otel]'") from error

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from windlass.app import Windlass

SYSTEM = "windlass"
MOST_PER_SECOND = 50  # recorded enqueues, and attempts that go well
FLUSH_MILLISECONDS = 1_000  # a child process that ends has two seconds


def instrument(
    app: Windlass, *, tracer_provider: TracerProvider | None = None, most_per_second: int | None = MOST_PER_SECOND
) -> JobTracing:
    """Trace the enqueues and attempts of a program: `instrument(app)`, at the top level of its module.

    Spans go to `tracer_provider`, or to the one that OpenTelemetry has as the global one when a span begins. Each
    process records at most so many enqueues per second, and as many attempts that go well; None: all of them.
    """
    tracing = JobTracing(Scrubber(app.settings.redact), tracer_provider, most_per_second)
    app._registry.instruments.add(tracing)
    return tracing


class PerSecond:
    """Counts recorded spans; None: without a limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._began = time.monotonic()
        self._spans = 0

    def has_room(self) -> bool:
        if self._most is None:
            return True
        now = time.monotonic()
        if now - self._began >= 1.0:
            self._began, self._spans = now, 0
        return self._spans < self._most

    def count(self, span: Span) -> Span:
        """The span, which a sampler may have left out: that costs little."""
        self._spans += span.is_recording()
        return span


class JobTracing(Instrument):
    """Makes the spans of one program."""

    name = "tracing with OpenTelemetry"

    def __init__(
        self, scrubber: Scrubber, provider: TracerProvider | None = None, most_per_second: int | None = MOST_PER_SECOND
    ) -> None:
        self._scrubber = scrubber
        self._provider = provider
        self._tracer = traces.get_tracer("windlass", metadata.version("windlass"), provider)
        self._enqueues, self._attempts = PerSecond(most_per_second), PerSecond(most_per_second)

    def send(self, jobs: Sequence[NewJob], incoming: str | None) -> SendWatch:
        """A span for the enqueue: below the current span, else below the span that the HTTP request names."""
        current = traces.get_current_span().get_span_context()
        if not self._enqueues.has_room():
            return SendWatch(_spell(current) or incoming)
        queues = {job.queue for job in jobs}
        attributes = _attributes("send", next(iter(queues)) if len(queues) == 1 else None)
        if len(jobs) == 1:
            attributes["messaging.message.id"] = str(jobs[0].id)
            attributes["windlass.job.type"] = jobs[0].type
        else:
            attributes["messaging.batch.message_count"] = len(jobs)
        parent = None if current.is_valid else _remote(incoming)
        span = self._tracer.start_span(_name(attributes), parent, SpanKind.PRODUCER, attributes)
        return SendSpan(self._enqueues.count(span), self._scrubber)

    def begin(self, job: Job) -> Watch:
        """A span for the attempt, current in its task, and so in its handler; beyond the limit the span above it."""
        first, last = _earlier(job)
        # Without a trace of the enqueue, the first attempt's trace is that of the job.
        parent = _remote(job.trace) or (Context() if first is None else _below(first))
        watch = AttemptSpan(self, job, parent, last)
        if job.attempt > 1 or self._attempts.has_room():
            parent = traces.set_span_in_context(self._attempts.count(watch.open()), Context())
        # Until the end of the attempt's task, which has a context of its own: nothing has to be detached.
        contexts.attach(parent)
        return watch

    def join(self, job: Job, trace: str | None) -> None:
        """In a child process the worker's span is current, so that spans of the handler are below it."""
        contexts.attach(_remote(trace) or _remote(job.trace) or Context())

    def current(self) -> str | None:
        return _spell(traces.get_current_span().get_span_context())

    def flush(self) -> None:
        flush = getattr(self._provider or traces.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(FLUSH_MILLISECONDS)

    def _start(self, job: Job, parent: Context, last: SpanContext | None, began: int) -> Span:
        attributes = _attributes("process", job.queue)
        attributes["messaging.message.id"] = str(job.id)
        attributes["windlass.job.type"] = job.type
        attributes["windlass.job.attempt"] = job.attempt
        if job.pipeline is not None:
            attributes["windlass.job.phase"] = job.phase
        links = None if last is None else [Link(last)]
        return self._tracer.start_span(_name(attributes), parent, SpanKind.CONSUMER, attributes, links, began)


class SendSpan(SendWatch):
    """The span of an enqueue."""

    def __init__(self, span: Span, scrubber: Scrubber) -> None:
        super().__init__(_spell(span.get_span_context()))
        self._span = span
        self._scrubber = scrubber

    def end(self, error: BaseException | None) -> None:
        try:
            if error is not None and self._span.is_recording():
                kind = type(error).__qualname__
                self._span.set_attribute("error.type", kind)
                self._span.set_status(Status(StatusCode.ERROR, f"{kind}: {self._scrubber.text(str(error))}"))
        finally:
            self._span.end()


class AttemptSpan(Watch):
    """The span of an attempt. Until it is opened there is none, and `open` gives it the time of the start."""

    def __init__(self, tracing: JobTracing, job: Job, parent: Context, last: SpanContext | None) -> None:
        self._tracing = tracing
        self._job = job
        self._place = parent, last
        self._began = time.time_ns()
        self._span: Span | None = None

    def open(self) -> Span:
        self._span = span = self._tracing._start(self._job, *self._place, self._began)
        self.trace = _spell(span.get_span_context())
        return span

    def fail(self) -> None:
        if self._span is None:
            self.open()

    def end(self, end: AttemptEnded) -> None:
        if self._span is None:
            return
        try:
            if self._span.is_recording():
                self._span.set_attribute("windlass.job.ending", end.ending.value)
                if end.ending.is_failure:
                    self._record(self._span, end)
        finally:
            self._span.end()

    def _record(self, span: Span, end: AttemptEnded) -> None:
        """The error, with the names that `record_exception` gives it, and without secrets."""
        kind = end.error_type or end.ending.value
        hidden = self._tracing._scrubber.failure(end.job, end.message, end.traceback)
        attributes = {"exception.type": kind, "exception.message": hidden.message}
        if hidden.traceback is not None:
            attributes["exception.stacktrace"] = hidden.traceback
        span.add_event("exception", attributes)
        span.set_attribute("error.type", kind)
        span.set_attribute("windlass.job.will_retry", end.will_retry)
        span.set_status(Status(StatusCode.ERROR, f"{kind}: {hidden.message}"))


def _attributes(operation: str, queue: str | None) -> dict[str, str | int]:
    """The names of OpenTelemetry's conventions for messaging."""
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
    }
    if queue is not None:
        attributes["messaging.destination.name"] = queue
    return attributes


def _name(attributes: dict[str, str | int]) -> str:
    """`send mail`; `send` alone for jobs of several queues."""
    operation, queue = attributes["messaging.operation.name"], attributes.get("messaging.destination.name")
    return f"{operation} {queue}" if queue is not None else str(operation)


def _earlier(job: Job) -> tuple[SpanContext | None, SpanContext | None]:
    """The spans of the first and the last recorded attempt. A first attempt has nothing to read."""
    if job.attempts is None:
        return None, None
    known = [read for attempt in job.attempts_made() if (read := read_traceparent(attempt.trace)) is not None]
    return (_span_context(known[0]), _span_context(known[-1])) if known else (None, None)


def _remote(trace: str | None) -> Context | None:
    """The context of a traceparent; None for a text that is none."""
    read = read_traceparent(trace)
    return None if read is None else _below(_span_context(read))


def _below(span: SpanContext) -> Context:
    return traces.set_span_in_context(NonRecordingSpan(span), Context())


def _span_context(trace: Traceparent) -> SpanContext:
    flags = TraceFlags(int(trace.flags, 16))
    return SpanContext(int(trace.trace_id, 16), int(trace.span_id, 16), is_remote=True, trace_flags=flags)


def _spell(span: SpanContext) -> str | None:
    """The traceparent of a span; None where OpenTelemetry has no provider, and so no ids."""
    if not span.is_valid:
        return None
    trace_id, span_id = traces.format_trace_id(span.trace_id), traces.format_span_id(span.span_id)
    return str(Traceparent(trace_id, span_id, f"{span.trace_flags:02x}"))
