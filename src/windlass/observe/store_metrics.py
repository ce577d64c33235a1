"""Prometheus metrics of what the store knows, whichever workers run: depths, ages, ends from the figures, snapshots.

Outbox and broker have their place here: a store with a broker gives `outbox_lag`, `broker_up` and `broker_queues`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

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


class BrokerQueue(msgspec.Struct, frozen=True):
    """What a broker holds for one queue."""

    queue: str
    ready: int
    unacknowledged: int = 0
    dead_lettered: int = 0


class StoreNow(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows at one moment. Numbers of jobs end at the bound of their row: 10,001 means more."""

    queues: Sequence[QueueRow] = ()
    phases: Sequence[PhaseDepth] = ()
    workers: Sequence[WorkerRow] = ()
    last_hour: Sequence[FigureRow] = ()
    last_minute: Sequence[FigureRow] = ()
    oldest_snapshot: float | None = None  # seconds; None: the store has none
    outbox_lag: float | None = None  # seconds for which the oldest row of the outbox waits
    broker_up: bool | None = None  # None: there is no broker
    broker_queues: Sequence[BrokerQueue] = ()


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
    if now.outbox_lag is not None:
        about = "For how long the oldest row of the outbox waits."
        yield GaugeMetricFamily("windlass_store_outbox_lag_seconds", about, value=now.outbox_lag)
    if now.broker_up is None:
        return
    yield GaugeMetricFamily("windlass_store_broker_up", "1: the broker answered last.", value=now.broker_up)
    family = GaugeMetricFamily("windlass_store_broker_messages", "Messages by state.", labels=("queue", "state"))
    for row in now.broker_queues[:MOST_QUEUES]:
        for state in ("ready", "unacknowledged", "dead_lettered"):
            family.add_metric([escape(row.queue), state], getattr(row, state))
    yield family
