"""The health check: resets processors in error, and releases jobs that waited in memory too long.

Each 30 s it reports how the worker is, if a subscriber wants that. Only then attempts are counted for it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict

from windlass.model.outcome import Ending
from windlass.observe.events import AttemptEnded, HealthReported, JobsReleased, PhaseHealth, ReleaseReason
from windlass.runtime.completer import Completer
from windlass.runtime.duties.report import ProcessorReport
from windlass.runtime.leases import release_unstarted
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

log = logging.getLogger("windlass")

REPORT_EVERY = 30.0  # seconds
MOST_KEYS = 1_000  # limit keys of failed attempts that are counted between two reports
TOP_FAILURES = 5


class HealthCheck(Service):
    """One check per period."""

    name = "health"

    def __init__(self, state: WorkerState, completer: Completer, report: ProcessorReport) -> None:
        super().__init__(state.clock)
        self._state = state
        self._completer = completer
        self._report = report
        self._tally: Tally | None = None
        self._reported_at = self.clock.monotonic()

    async def round(self) -> float:
        subscribers = self._state.subscribers
        subscribers.refresh()
        if self._tally is None and subscribers.wants(HealthReported):
            self._tally = Tally()
            subscribers.append(self._tally)
        self._reset_processors()
        self._release_stale()
        period = self._state.settings.health
        # A round is a little late each time: the one that is nearest to the end of 30 s reports.
        if self._tally is not None and self.clock.monotonic() - self._reported_at >= REPORT_EVERY - period / 2:
            self._emit(self._tally)
        return period

    def _reset_processors(self) -> None:
        reset = self._state.pools.reset()
        for processor in reset:
            processor.since = self.clock.monotonic()
            log.info("processor %s is idle again", processor.name)
        if self._tally is not None:
            self._tally.reset += len(reset)
        if reset:  # jobs may wait in memory for just these, and then nothing else would start them
            self._state.signals.processors_reset()

    def _release_stale(self) -> None:
        """A job that waited here longer than it may run goes back, without a retry counted (seed 001).

        Where jobs have no time limit, it goes back after a lease: this worker's processors are taken, and another
        worker's may be idle.
        """
        limit = self._state.settings.timeout or self._state.settings.lease
        now = self.clock.monotonic()
        stale = self._state.local_queue.drain(lambda job, at: now - at > limit)
        for job in stale:
            log.warning("job %s waited %.0f s in memory and goes back", job.id, limit)
            self._completer.submit(release_unstarted(job))
        if stale:
            self._state.emit(JobsReleased(self._state.worker, len(stale), ReleaseReason.STALE))

    def _emit(self, tally: Tally) -> None:
        now = self.clock.monotonic()
        self._state.emit(
            HealthReported(
                worker=self._state.worker,
                seconds=now - self._reported_at,
                phases=tuple(
                    PhaseHealth(
                        phase=pool.phase,
                        idle=pool.idle,
                        busy=pool.busy,
                        error=pool.error,
                        in_memory=pool.waiting,
                        succeeded=tally.succeeded[pool.phase],
                        failed=tally.failed[pool.phase],
                        mean_run=tally.mean_run(pool.phase),
                    )
                    for pool in self._report.pools()
                ),
                reset=tally.reset,
                released=tally.released,
                top_failures=tuple(tally.keys.most_common(TOP_FAILURES)),
            )
        )
        self._reported_at = now
        tally.clear()


class Tally:
    """A subscriber that counts what ended between two reports."""

    kinds = (AttemptEnded, JobsReleased)

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.succeeded: Counter[str] = Counter()  # by phase
        self.failed: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.reset = self.released = 0
        self._runs: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])  # attempts and seconds

    def __call__(self, event: AttemptEnded | JobsReleased) -> None:
        if isinstance(event, JobsReleased):
            self.released += event.jobs
            return
        phase = event.job.phase
        runs = self._runs[phase]
        runs[0] += 1
        runs[1] += event.elapsed
        if event.ending is Ending.SUCCEEDED:
            self.succeeded[phase] += 1
        elif event.error_type is not None:
            self.failed[phase] += 1
            self._count_keys(event)

    def _count_keys(self, event: AttemptEnded) -> None:
        """The domains, hosts or accounts that attempts fail at are the keys of their limits: `domain:a.org`."""
        for key in event.job.limits or ():
            if key in self.keys or len(self.keys) < MOST_KEYS:
                self.keys[key] += 1

    def mean_run(self, phase: str) -> float | None:
        attempts, seconds = self._runs.get(phase, (0, 0.0))
        return seconds / attempts if attempts else None
