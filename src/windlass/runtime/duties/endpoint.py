"""What a worker shows of itself on its port: metrics, and whether it is ready. Only with the setting `metrics_port`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from windlass.clock import spell
from windlass.config import Settings
from windlass.observe.endpoint import INSTALL, Answer, WorkerEndpoint, WorkerNow, open_endpoint

if TYPE_CHECKING:
    from windlass.observe.metrics import MetricsSubscriber
    from windlass.runtime.parts import WorkerParts

log = logging.getLogger("windlass")

LATELY = 15.0  # seconds in which the store answered, or a scan ended, for a worker that is ready
DELAY_EVERY = 0.5  # seconds between two measurements of the event loop's delay


class Observed:
    """The metrics and the port of one worker, from its start to its end."""

    def __init__(self, settings: Settings, *, find_parts: Callable[[], WorkerParts | None]) -> None:
        self._settings = settings
        self._find_parts = find_parts
        self._delay = LoopDelay()
        self._endpoint: WorkerEndpoint | None = None
        self._task: asyncio.Task[None] | None = None
        self.metrics = self._make_metrics()

    def _make_metrics(self) -> MetricsSubscriber | None:
        try:
            from windlass.observe.metrics import MetricsSubscriber
        except ImportError:
            log.warning("%s; until then this worker answers only /healthz and /readyz", INSTALL)
            return None
        return MetricsSubscriber(self.read)

    @property
    def port(self) -> int | None:
        """Where it listens; None: the port was taken."""
        return None if self._endpoint is None else self._endpoint.port

    def start(self) -> None:
        """Listen. On the worker's loop, before the database is asked for the first time: a probe is answered."""
        settings = self._settings
        assert settings.metrics_port is not None
        metrics = None if self.metrics is None else self._write_metrics
        self._endpoint = open_endpoint(
            settings.metrics_host, settings.metrics_port, explain_unready=self.explain_unready, metrics=metrics
        )
        self._task = asyncio.get_running_loop().create_task(self._delay.run(), name="windlass-loop-delay")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.close)

    def explain_unready(self) -> str | None:
        """Why the worker is not ready; None: it is. From any thread."""
        parts = self._find_parts()
        return "it starts" if parts is None else explain_unready(parts)

    def read(self) -> WorkerNow | None:
        """What the worker is doing now, for one scrape; from any thread."""
        parts = self._find_parts()
        if parts is None:
            return None
        return WorkerNow(
            pools=parts.report.pools(),
            held=len(parts.state.leases),
            unwritten=parts.completer.backlog,
            waits_for=explain_unready(parts),
            loop_delay=self._delay.take_longest(),
            has_broker=None if parts.broker is None else parts.broker.carries,
            failures=count_failures(parts),
            slow=parts.state.subscribers.slow,
        )

    def _write_metrics(self, accept: str) -> Answer:
        from prometheus_client.exposition import choose_encoder

        assert self.metrics is not None
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(self.metrics.registry)


def count_failures(parts: WorkerParts) -> Counter[str]:
    """What failed to observe: subscribers, and the instruments of tracing and of Sentry, by name."""
    counts = parts.state.subscribers.count_failures()
    counts.update(parts.state.registry.instruments.count_failures())
    return counts


def explain_unready(parts: WorkerParts) -> str | None:
    """Why a worker would not start a job that is due now; None: it polled the store lately, and will again.

    The gate watcher asks the store at least once a second, whatever the pace and however busy the processors are. The
    loop runs it: while a handler or a subscriber blocks the loop, the last answer gets old.
    """
    state = parts.state
    now, settings = state.clock.monotonic(), state.settings
    if parts.discovery.is_ending:
        return "it stops"
    if not state.registered:
        return "it is not registered in the store"
    if now - state.contact.answered_at > LATELY:
        return f"the store has not answered for {spell(now - state.contact.answered_at)}"
    scanned, limit = parts.discovery.succeeded_at, max(LATELY, 3 * settings.poll)
    if scanned is None:
        return "it has not scanned for jobs yet"
    return f"its last scan ended {spell(now - scanned)} ago" if now - scanned > limit else None


class LoopDelay:
    """How late the event loop is: the time by which a sleep ended too late."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._due = time.monotonic()

    async def run(self) -> None:
        while True:
            self._due = time.monotonic() + DELAY_EVERY
            await asyncio.sleep(DELAY_EVERY)
            self._longest = max(self._longest, time.monotonic() - self._due)

    def take_longest(self) -> float:
        """The longest delay since the last call, also one that is not over; from any thread."""
        longest, self._longest = max(self._longest, time.monotonic() - self._due), 0.0
        return max(0.0, longest)
