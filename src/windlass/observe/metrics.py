"""Prometheus metrics of one worker: a subscriber that counts, and a collector that Prometheus reads.

Numbers are kept in plain dicts, and become metrics when they are asked for: what a job costs here is a few additions.
Labels are bounded: beyond MOST_SERIES sets of queue, type, pipeline and phase, all further ones are counted as `other`.
The worker's loop counts while a scrape reads on its own thread, so a scrape reads copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.endpoint import WorkerNow
from windlass.observe.events import (
    AttemptEnded,
    DeliveriesRefused,
    JobChanged,
    JobRefused,
    JobsClaimed,
    JobsReleased,
    JobsRescued,
    LeasesLost,
    ReleaseReason,
)
from windlass.observe.logs import count_lost_records, escape
from windlass.observe.store_metrics import OTHER, gauge
from windlass.observe.subscribers import EndingTracker

LABELS = ("queue", "type", "pipeline", "phase")
MOST_SERIES = 200  # sets of labels; a set has about 40 lines in an answer
MOST_PHASES = 100
BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1_800.0, 7_200.0)  # seconds
OUTCOMES = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.DEAD: "dead",
    State.CANCELLED: "cancelled",
    State.WAITING: "waiting",
}
QUEUED = {
    Ending.SUCCEEDED: "advanced",
    Ending.SNOOZED: "snoozed",
    Ending.RELEASED: "released",
    Ending.WAITING: "waiting",
}

Metrics = Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]


class Series:
    """What is counted of one queue, type, pipeline and phase."""

    __slots__ = ("outcomes", "retries", "run_seconds", "runs", "wait_seconds", "waits")

    def __init__(self) -> None:
        # Known from the first sample on: an increase is only seen between two samples.
        self.outcomes: Counter[str] = Counter(dict.fromkeys(("succeeded", "failed", "dead"), 0))
        self.retries = 0  # ended attempts that were not the first of their job
        self.runs = [0] * (len(BUCKETS) + 1)
        self.waits = [0] * (len(BUCKETS) + 1)
        self.run_seconds = self.wait_seconds = 0.0


class MetricsSubscriber:
    """Counts a worker's events: `registry` has them, and what `read` says of the worker now."""

    def __init__(self, read: Callable[[], WorkerNow | None] = lambda: None) -> None:
        self._read = read
        self._series: dict[tuple[str, str, str, str], Series] = {}
        self._endings = EndingTracker(self._count)
        self.totals: Counter[str] = Counter()
        self.released: Counter[str] = Counter({reason.name.lower(): 0 for reason in ReleaseReason})
        self.refused: Counter[str] = Counter()
        self.deliveries: Counter[str] = Counter()
        self._counting: dict[type, Callable[..., None]] = {
            AttemptEnded: self._endings,
            JobChanged: self._endings,
            JobsClaimed: self._claim,
            JobsReleased: self._release,
            JobRefused: self._refuse,
            DeliveriesRefused: self._refuse_deliveries,
            LeasesLost: self._lose,
            JobsRescued: self._rescue,
        }
        self.kinds = tuple(self._counting)
        self.registry = CollectorRegistry()  # its own: that of the program may have anything
        ProcessCollector(registry=self.registry)  # CPU, memory and open files of the process, from /proc
        self.registry.register(_WorkerCollector(self))

    def __call__(self, event: object) -> None:
        self._counting[type(event)](event)

    # Counting

    def _count(self, end: AttemptEnded, state: State | None) -> None:
        outcome = "lost" if state is None else OUTCOMES.get(state) or QUEUED.get(end.ending, "queued")
        job = end.job
        key = (job.queue, job.type, job.pipeline or "", job.phase)
        series = self._series.get(key)
        if series is None:
            series = self._make_series(key)
        series.outcomes[outcome] += 1
        series.retries += job.attempt > 1
        series.run_seconds += end.elapsed
        series.runs[bisect_left(BUCKETS, end.elapsed)] += 1
        waited = end.wait
        series.wait_seconds += waited
        series.waits[bisect_left(BUCKETS, waited)] += 1
        if end.ending is Ending.CRASHED:
            self.totals["crashes"] += 1

    def _make_series(self, key: tuple[str, str, str, str]) -> Series:
        if len(self._series) >= MOST_SERIES:
            key = (OTHER, OTHER, OTHER, OTHER)
        return self._series.setdefault(key, Series())

    def _claim(self, event: JobsClaimed) -> None:
        self.totals["claims"] += 1
        self.totals["claimed"] += event.got

    def _release(self, event: JobsReleased) -> None:
        self.released[event.reason.name.lower()] += event.jobs

    def _refuse(self, event: JobRefused) -> None:
        self.refused[event.reason] += 1

    def _refuse_deliveries(self, event: DeliveriesRefused) -> None:
        self.deliveries.update(event.reasons)

    def _lose(self, event: LeasesLost) -> None:
        self.totals["losses"] += 1
        self.totals["lost_jobs"] += event.jobs
        self._endings(event)

    def _rescue(self, event: JobsRescued) -> None:
        self.totals["deaths"] += event.deaths
        self.totals["rescued"] += event.rescued
        self.totals["dead_after_crashes"] += event.dead_after_crashes

    def series(self) -> list[tuple[list[str], Series]]:
        """All series with their labels. A name may have any letter: it is written as in the log."""
        return [([escape(name) for name in key], series) for key, series in self._series.copy().items()]

    def now(self) -> WorkerNow | None:
        return self._read()


class _WorkerCollector(Collector):
    """Makes metrics of the counts, for each scrape."""

    def __init__(self, counts: MetricsSubscriber) -> None:
        self._counts = counts

    def collect(self) -> Metrics:
        counts = self._counts
        yield from self._attempts()
        for name, about, key in TOTALS:
            yield CounterMetricFamily(name, about, value=counts.totals[key])
        yield _counter("windlass_jobs_released", "Jobs released before they started.", "reason", counts.released)
        yield _counter("windlass_jobs_refused", "Claimed jobs that were not queued.", "reason", counts.refused)
        about = "Deliveries of the broker whose claim was refused."
        yield _counter("windlass_deliveries_refused", about, "reason", counts.deliveries)
        yield CounterMetricFamily(
            "windlass_log_records_lost",
            "Records that no handler of the log wrote.",
            value=count_lost_records(),
        )
        now = counts.now()
        if now is not None:
            yield from _present(now)

    def _attempts(self) -> Metrics:
        every = self._counts.series()
        ended = CounterMetricFamily(
            "windlass_attempts", "Attempts by their committed outcome.", labels=(*LABELS, "outcome")
        )
        retries = CounterMetricFamily(
            "windlass_retries", "Ended attempts that were not the first of their job.", labels=LABELS
        )
        runs = HistogramMetricFamily("windlass_run_seconds", "How long attempts ran.", labels=LABELS)
        waits = HistogramMetricFamily(
            "windlass_wait_seconds", "From when a job was due to the start of its attempt.", labels=LABELS
        )
        for labels, series in every:
            for outcome, count in series.outcomes.copy().items():
                ended.add_metric([*labels, outcome], count)
            retries.add_metric(labels, series.retries)
            runs.add_metric(labels, _cumulated(series.runs), series.run_seconds)
            waits.add_metric(labels, _cumulated(series.waits), series.wait_seconds)
        yield from (ended, retries, runs, waits)


TOTALS = (
    ("windlass_claims", "Claims that the store answered.", "claims"),
    ("windlass_jobs_claimed", "Jobs that claims brought.", "claimed"),
    ("windlass_lease_losses", "Times that this worker lost all its leases.", "losses"),
    ("windlass_leases_lost", "Jobs that were dropped then.", "lost_jobs"),
    ("windlass_crashes", "Attempts whose child process died.", "crashes"),
    ("windlass_worker_deaths", "Workers that a sweep of this worker marked dead.", "deaths"),
    ("windlass_jobs_rescued", "Jobs of dead workers that a sweep of this worker made claimable.", "rescued"),
    ("windlass_jobs_dead_after_crashes", "Jobs that such a sweep marked dead.", "dead_after_crashes"),
)


def _present(now: WorkerNow) -> Metrics:
    """What a worker is doing now. Phases beyond MOST_PHASES are added up as `other`."""
    states: Counter[tuple[str, str]] = Counter()
    waiting: Counter[tuple[str]] = Counter()
    for place, pool in enumerate(now.pools):
        phase = pool.phase if place < MOST_PHASES else OTHER
        waiting[phase,] += pool.waiting
        for state in ("idle", "busy", "error"):
            states[phase, state] += getattr(pool, state)
    yield gauge("windlass_processors", "Processors by state.", ("phase", "state"), states.items())
    yield gauge("windlass_jobs_in_memory", "Claimed jobs that wait for a processor.", ("phase",), waiting.items())
    yield GaugeMetricFamily("windlass_leases_held", "Jobs that this worker holds.", value=now.held)
    yield GaugeMetricFamily("windlass_ends_unwritten", "Ended attempts that wait for the store.", value=now.unwritten)
    yield GaugeMetricFamily("windlass_ready", "1: the worker polled the store lately.", value=now.waits_for is None)
    if now.has_broker is not None:
        about = "1: deliveries of the broker arrive at this worker."
        yield GaugeMetricFamily("windlass_broker_connected", about, value=now.has_broker)
    yield GaugeMetricFamily(
        "windlass_loop_delay_seconds",
        "The event loop's longest delay since the last scrape.",
        value=now.loop_delay,
    )
    yield _counter(
        "windlass_subscriber_failures",
        "Events that a subscriber or an instrument failed at.",
        "subscriber",
        now.failures,
    )
    yield _counter("windlass_subscriber_slow", "Calls of a subscriber above one second.", "subscriber", now.slow)


def _counter(name: str, about: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, about, labels=(label,))
    for value, count in counts.copy().items():
        family.add_metric([escape(value)], count)
    return family


def _cumulated(counts: Iterable[int]) -> list[tuple[str, float]]:
    """Buckets as Prometheus has them: each contains all smaller ones."""
    total, buckets = 0, []
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), list(counts), strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
