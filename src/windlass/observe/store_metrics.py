"""Prometheus metrics of what the store knows, whichever workers run: depths, ages, ends from the figures, snapshots.

With the setting `broker` also the outbox and what the broker holds. Its state is asked for now, and no worker's view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from windlass.model.figures import FigureRow, PhaseDepth
from windlass.model.rows import QueueRow, WorkerRow
from windlass.observe.logs import escape

MOST_QUEUES = 200  # queues or phases with labels of their own; the others are added up as `other`
OTHER = "other"
STATES = ("queued", "running", "failed", "waiting", "dead")
ENDS = ("succeeded", "advanced", "failed", "dead", "cancelled")


class BrokerNow(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says; where it is down, only that."""

    is_up: bool
    ready: Mapping[str, int] = {}  # messages that no worker has, by queue
    unacknowledged: Mapping[str, int] = {}  # messages that a worker has
    consumers: Mapping[str, int] = {}
    dead_letters: int = 0


class StoreNow(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows at one moment. Numbers of jobs end at the bound of their row: 10,001 means more."""

    queues: Sequence[QueueRow] = ()
    phases: Sequence[PhaseDepth] = ()
    workers: Sequence[WorkerRow] = ()
    last_hour: Sequence[FigureRow] = ()
    last_minute: Sequence[FigureRow] = ()
    oldest_snapshot: float | None = None  # seconds; None: the store has none
    outbox_due: int | None = None  # rows that wait for a relay; None: the store writes no outbox
    outbox_lag: float = 0.0  # seconds for which the oldest of them waits
    broker: BrokerNow | None = None  # None: no broker is set, or its client is not installed


def make_registry(now: StoreNow) -> CollectorRegistry:
    """The metrics of one read."""
    registry = CollectorRegistry()
    registry.register(_StoreCollector(now))
    return registry


class _StoreCollector(Collector):
    def __init__(self, now: StoreNow) -> None:
        self._now = now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from _of_queues(self._now)
        yield from _of_phases(self._now)
        yield from _of_workers(self._now)
        yield from _of_ends(self._now)
        yield from _of_delivery(self._now)
        if self._now.oldest_snapshot is not None:
            about = "Age of the oldest transaction that keeps dead rows (PostgreSQL)."
            yield GaugeMetricFamily("windlass_store_oldest_snapshot_seconds", about, value=self._now.oldest_snapshot)


def _of_queues(now: StoreNow) -> Iterator[GaugeMetricFamily]:
    jobs = GaugeMetricFamily("windlass_store_jobs", "Jobs by state, up to a bound.", labels=("queue", "state"))
    oldest = GaugeMetricFamily(
        "windlass_store_oldest_due_seconds", "For how long the oldest due job could have started.", labels=("queue",)
    )
    serving = GaugeMetricFamily("windlass_store_queue_workers", "Live workers that serve it.", labels=("queue",))
    closed = GaugeMetricFamily("windlass_store_queue_closed", "1: its gate is closed.", labels=("queue",))
    counts: Counter[tuple[str, str]] = Counter()
    ages: dict[str, float] = {}
    for place, row in enumerate(now.queues):
        queue = escape(row.queue) if place < MOST_QUEUES else OTHER
        ages[queue] = max(ages.get(queue, 0.0), row.lag or 0.0)
        for state in STATES:
            counts[queue, state] += getattr(row, state)
        if queue != OTHER:
            serving.add_metric([queue], row.workers)
            closed.add_metric([queue], row.gate.value != "open")
    for (queue, state), count in counts.items():
        jobs.add_metric([queue, state], count)
    for queue, age in ages.items():
        oldest.add_metric([queue], age)
    yield from (jobs, oldest, serving, closed)


def _of_phases(now: StoreNow) -> Iterator[GaugeMetricFamily]:
    family = GaugeMetricFamily(
        "windlass_store_phase_jobs", "Due and running jobs of each phase.", labels=("pipeline", "phase", "state")
    )
    counts: Counter[tuple[str, str, str]] = Counter()
    for place, row in enumerate(now.phases):
        named = (escape(row.pipeline or ""), escape(row.phase)) if place < MOST_QUEUES else (OTHER, OTHER)
        counts[(*named, "due")] += row.due
        counts[(*named, "running")] += row.running
    for labels, count in counts.items():
        family.add_metric(list(labels), count)
    yield family


def _of_workers(now: StoreNow) -> Iterator[GaugeMetricFamily]:
    family = GaugeMetricFamily("windlass_store_workers", "Workers with a row, by state.", labels=("state",))
    counts = Counter(row.state.value for row in now.workers)
    for state in ("busy", "idle", "silent", "dead"):
        family.add_metric([state], counts[state])
    yield family


def _of_ends(now: StoreNow) -> Iterator[GaugeMetricFamily]:
    """From the figures, which the store keeps in spans of ten seconds: gauges, because old spans are folded away."""
    labels = ("queue", "phase", "outcome")
    hour = GaugeMetricFamily("windlass_store_attempts_last_hour", "Attempts that ended.", labels=labels)
    rate = GaugeMetricFamily("windlass_store_attempts_per_second", "In the last minute.", labels=labels)
    for family, rows, share in ((hour, now.last_hour, 1), (rate, now.last_minute, 60)):
        counts: Counter[tuple[str, str, str]] = Counter()
        places = {place: number for number, place in enumerate(dict.fromkeys((row.queue, row.phase) for row in rows))}
        for row in rows:
            known = places[row.queue, row.phase] < MOST_QUEUES
            named = (escape(row.queue), escape(row.phase)) if known else (OTHER, OTHER)
            for end in ENDS:
                counts[(*named, end)] += getattr(row, end)
        for values, count in counts.items():
            family.add_metric(list(values), count / share)
        yield family


def _of_delivery(now: StoreNow) -> Iterator[GaugeMetricFamily]:
    if now.outbox_due is not None:
        about = "Rows of the outbox that wait for a relay, up to a bound."
        yield GaugeMetricFamily("windlass_store_outbox_due", about, value=now.outbox_due)
        about = "For how long the oldest row of the outbox waits."
        yield GaugeMetricFamily("windlass_store_outbox_lag_seconds", about, value=now.outbox_lag)
    broker = now.broker
    if broker is None:
        return
    yield GaugeMetricFamily("windlass_store_broker_up", "1: the broker answers.", value=broker.is_up)
    if not broker.is_up:
        return
    messages = GaugeMetricFamily("windlass_store_broker_messages", "Messages by state.", labels=("queue", "state"))
    for state, counts in (("ready", broker.ready), ("unacknowledged", broker.unacknowledged)):
        for queue, count in counts.items():
            messages.add_metric([escape(queue), state], count)
    consumers = GaugeMetricFamily("windlass_store_broker_consumers", "Workers that consume it.", labels=("queue",))
    for queue, count in broker.consumers.items():
        consumers.add_metric([escape(queue)], count)
    about = "Messages in the broker's dead-letter queue."
    yield from (
        messages,
        consumers,
        GaugeMetricFamily("windlass_store_broker_dead_letters", about, value=broker.dead_letters),
    )
