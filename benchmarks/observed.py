"""What logs, metrics, tracing and Sentry cost: the same jobs through workers that differ in these alone, by turns.

Two figures per variant: jobs per second as a share of the bare worker's, and the worker's own CPU time per job. What
else the machine does only ever makes a round slower: so the best rounds are compared. What leaves the process is thrown
away there: lines go to /dev/null, spans to an exporter that drops them, and Sentry has nothing to send while no job
fails.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from database import finished_batches, fresh_database, now, open_connection, rate, vacuum, wait_until_drained
from program import Sender
from worker_process import run_worker

if TYPE_CHECKING:
    from windlass import Windlass
    from windlass.runtime.worker import Worker

WATCHES = "WINDLASS_BENCH_WATCHES"  # names of VARIANTS' parts, in the worker's environment
VARIANTS = ("", "json", "metrics", "tracing", "sentry", "json metrics tracing sentry")
ROUNDS = 5
KINDS = {"noop": 2, "wait": 2, "compute": 20}  # jobs of the program, and the part of --jobs per variant and round
LIMIT = 60.0  # seconds until all handlers must have run


async def measure(jobs: int, kind: str) -> dict[str, dict[str, float]]:
    """`kind` is the job of the program: it does nothing, waits for a millisecond, or computes for three."""
    rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
    spent: dict[str, list[float]] = {name: [] for name in VARIANTS}
    async with fresh_database() as url, open_connection(url) as observer:
        sender = Sender(url)
        try:
            for number in range(ROUNDS):
                for name in VARIANTS if number % 2 == 0 else reversed(VARIANTS):
                    await vacuum(observer)
                    await sender.app.aenqueue_many(getattr(sender, kind).call(n) for n in range(jobs))
                    speed, seconds = await _drain(url, observer, jobs, name)
                    rates[name].append(speed)
                    spent[name].append(seconds / jobs * 1e6)
        finally:
            await sender.app.aclose()
    return {name or "bare": _compare(name, rates, spent) for name in VARIANTS}


async def _drain(url: str, observer: Any, jobs: int, name: str) -> tuple[float, float]:
    since = await now(observer)
    ports = {"WINDLASS_METRICS_PORT": "0"} if "metrics" in name else {}
    async with run_worker(url, expected=jobs, environment={WATCHES: name, **ports}) as worker:
        before = worker.cpu()
        await worker.wait_for("done", limit=LIMIT)
        await wait_until_drained(observer)
        spent = worker.cpu() - before
    return rate(await finished_batches(observer, since)), spent


def _compare(name: str, rates: dict[str, list[float]], spent: dict[str, list[float]]) -> dict[str, float]:
    """The best rounds: the fastest, and the one that took the least CPU time."""
    least = min(spent[name])
    return {
        "jobs/s": max(rates[name]),
        "jobs, %": 100 * max(rates[name]) / max(rates[""]),
        "CPU, us": least,
        "CPU, +us": least - min(spent[""]),
    }


# In the worker's process


def watch(app: Windlass) -> None:
    """Switch on what the program itself would switch on."""
    wanted = os.environ.get(WATCHES, "").split()
    if "tracing" in wanted:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

        from windlass.observe import tracing

        class Dropping(SpanExporter):
            def export(self, spans: object) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(Dropping()))
        tracing.instrument(app, tracer_provider=provider)
    if "sentry" in wanted:
        import sentry_sdk

        from windlass.observe import sentry

        sentry_sdk.init(dsn="http://key@127.0.0.1:9/1")
        sentry.instrument(app)


def log_like_a_worker(worker: Worker) -> None:
    """The lines of `windlass worker`, written to nowhere."""
    from windlass.observe.log_lines import LogSubscriber
    from windlass.observe.logs import guard_handlers, set_up

    if "json" in os.environ.get(WATCHES, "").split():
        set_up("INFO", stream=open(os.devnull, "w"), format="json")  # noqa: SIM115
        guard_handlers()
        worker.subscribe(LogSubscriber())
