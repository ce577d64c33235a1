"""Prometheus metrics of what the store knows, whichever workers run: depths, ages, ends from the figures, snapshots.

With the setting `broker` also the outbox and what the broker holds. Its state is asked for now, and no worker's view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
        now = self._now
        yield from _of_queues(now.queues)
        yield _of_phases(now.phases)
        about = "Workers with a row, by state."
        states = Counter(dict.fromkeys(("busy", "idle", "silent", "dead"), 0))
        states.update(row.state.value for row in now.workers)
        yield gauge("windlass_store_workers", about, ("state",), (((state,), count) for state, count in states.items()))
        # From the figures, which the store keeps in spans of ten seconds: gauges, because old spans are folded away.
        yield _of_ends("windlass_store_attempts_last_hour", "Attempts that ended.", now.last_hour, 1)
        yield _of_ends("windlass_store_attempts_per_second", "In the last minute.", now.last_minute, 60)
        if now.outbox_due is not None:
            about = "Rows of the outbox that wait for a relay, up to a bound."
            yield GaugeMetricFamily("windlass_store_outbox_due", about, value=now.outbox_due)
            about = "For how long the oldest row of the outbox waits."
            yield GaugeMetricFamily("windlass_store_outbox_lag_seconds", about, value=now.outbox_lag)
        if now.broker is not None:
            yield from _of_broker(now.broker)
        if now.oldest_snapshot is not None:
            about = "Age of the oldest transaction that keeps dead rows (PostgreSQL)."
            yield GaugeMetricFamily("windlass_store_oldest_snapshot_seconds", about, value=now.oldest_snapshot)


def gauge(
    name: str, about: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    """A metric with a value for each set of labels. A name may have any letter: it is written as in the log."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, sample in samples:
        family.add_metric([escape(value) for value in values], sample)
    return family


def _of_queues(rows: Sequence[QueueRow]) -> Iterator[GaugeMetricFamily]:
    counts: Counter[tuple[str, ...]] = Counter()
    ages: dict[tuple[str, ...], float] = {}
    for place, row in enumerate(rows):
        queue = row.queue if place < MOST_QUEUES else OTHER
        ages[queue,] = max(ages.get((queue,), 0.0), row.lag or 0.0)
        for state in STATES:
            counts[queue, state] += getattr(row, state)
    known = rows[:MOST_QUEUES]
    yield gauge("windlass_store_jobs", "Jobs by state, up to a bound.", ("queue", "state"), counts.items())
    about = "For how long the oldest due job could have started."
    yield gauge("windlass_store_oldest_due_seconds", about, ("queue",), ages.items())
    serving = (((row.queue,), row.workers) for row in known)
    yield gauge("windlass_store_queue_workers", "Live workers that serve it.", ("queue",), serving)
    closed = (((row.queue,), row.gate.value != "open") for row in known)
    yield gauge("windlass_store_queue_closed", "1: its gate is closed.", ("queue",), closed)


def _of_phases(rows: Sequence[PhaseDepth]) -> GaugeMetricFamily:
    counts: Counter[tuple[str, ...]] = Counter()
    for place, row in enumerate(rows):
        named = (row.pipeline or "", row.phase) if place < MOST_QUEUES else (OTHER, OTHER)
        counts[(*named, "due")] += row.due
        counts[(*named, "running")] += row.running
    about = "Due and running jobs of each phase."
    return gauge("windlass_store_phase_jobs", about, ("pipeline", "phase", "state"), counts.items())


def _of_ends(name: str, about: str, rows: Sequence[FigureRow], seconds: int) -> GaugeMetricFamily:
    counts: Counter[tuple[str, ...]] = Counter()
    places = {place: number for number, place in enumerate(dict.fromkeys((row.queue, row.phase) for row in rows))}
    for row in rows:
        named = (row.queue, row.phase) if places[row.queue, row.phase] < MOST_QUEUES else (OTHER, OTHER)
        for end in ENDS:
            counts[(*named, end)] += getattr(row, end)
    samples = ((values, count / seconds) for values, count in counts.items())
    return gauge(name, about, ("queue", "phase", "outcome"), samples)


def _of_broker(broker: BrokerNow) -> Iterator[GaugeMetricFamily]:
    yield GaugeMetricFamily("windlass_store_broker_up", "1: the broker answers.", value=broker.is_up)
    if not broker.is_up:
        return
    messages = (
        ((queue, state), count)
        for state, counts in (("ready", broker.ready), ("unacknowledged", broker.unacknowledged))
        for queue, count in counts.items()
    )
    yield gauge("windlass_store_broker_messages", "Messages by state.", ("queue", "state"), messages)
    consumers = (((queue,), count) for queue, count in broker.consumers.items())
    yield gauge("windlass_store_broker_consumers", "Workers that consume it.", ("queue",), consumers)
    about = "Messages in the broker's dead-letter queue."
    yield GaugeMetricFamily("windlass_store_broker_dead_letters", about, value=broker.dead_letters)
