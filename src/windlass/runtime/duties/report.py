"""The report: which processors a worker has, and what each of them does. The beat carries it into the worker's row.

It is made on the beat's thread, also while a handler blocks the worker's event loop: this is when an operator wants to
read it. So the loop may change what is read here. A report may name a processor with the job that it just left, and the
next beat corrects that.
"""

from __future__ import annotations

import logging

from windlass.declare.registry import Registry
from windlass.model.processors import PoolReport, ProcessorState, UsedProcessor, encode_pools
from windlass.runtime.pool import Processor
from windlass.runtime.state import WorkerState

log = logging.getLogger("windlass")


class ProcessorReport:
    """Describes the processors of one worker; called once per beat, from the beat's thread."""

    def __init__(self, state: WorkerState, *, queues: tuple[str, ...] | None, types: tuple[str, ...]) -> None:
        self._state = state
        self._known = list_phases(state.registry, queues, frozenset(types))
        self._failed = False

    def __call__(self) -> str | None:
        """The report as JSON; None where it could not be made: a lease is renewed without it."""
        self._state.subscribers.report_hanging()
        try:
            return encode_pools(self.pools())
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("the processors of this worker cannot be reported; jobs go on")
            return None

    def pools(self) -> list[PoolReport]:
        """The processors of each phase, now; from any thread."""
        used, waiting = self._state.pools.used(), self._state.local_queue.sizes()
        now = self._state.clock.monotonic()
        phases = dict.fromkeys([*self._known, *used, *waiting])  # without duplicates, in this order
        return [self._pool(phase, used.get(phase, []), waiting.get(phase, 0), now) for phase in phases]

    def sizes(self) -> tuple[tuple[str, int], ...]:
        """The phases that this worker serves, each with the processors that it may use."""
        return tuple((phase, self._state.pools.size(phase)) for phase in self._known)

    def _pool(self, phase: str, processors: list[Processor], waiting: int, now: float) -> PoolReport:
        pools = self._state.pools
        reports = [_report(processor, now) for processor in processors]
        idle = [each for each in reports if each.state is ProcessorState.IDLE]
        others = [each for each in reports if each.state is not ProcessorState.IDLE]
        size = pools.size(phase)
        free = max(0, size - len(others))
        if size == pools.total:  # it shares the worker's processors with other phases: those may be busy there
            free = min(free, max(0, pools.free))
        return PoolReport(
            phase=phase,
            idle=free,
            busy=sum(each.state is ProcessorState.BUSY for each in others),
            error=sum(each.state is ProcessorState.ERROR for each in others),
            waiting=waiting,
            used=(*others, *idle[:free]),
        )


def _report(processor: Processor, now: float) -> UsedProcessor:
    state, job, since = processor.state, processor.job, processor.since
    if state is ProcessorState.IDLE or job is None:  # without a job: the loop gives or takes it at this moment
        return UsedProcessor(processor.number, ProcessorState.IDLE, _age(since, now))
    # A job without a time was assigned, and its attempt begins with the loop's next turn.
    return UsedProcessor(processor.number, state, _age(since, now) or 0.0, job.id, job.type)


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else round(max(0.0, now - since), 3)


def list_phases(registry: Registry, queues: tuple[str, ...] | None, types: frozenset[str]) -> list[str]:
    """The phases that a worker serves, earlier ones first; then the queues of its types that are in no pipeline."""
    every = [(rank, phase) for plan in registry.pipelines.values() for rank, phase in enumerate(plan.phases)]
    every.sort(key=lambda item: item[0])
    staged = {phase.type for _, phase in every}
    served = [(phase.name, phase.definition) for _, phase in every]
    served += [(definition.queue, definition) for definition in registry if definition.type not in staged]
    return list(
        dict.fromkeys(
            name
            for name, definition in served
            if definition.type in types and (queues is None or definition.queue in queues)
        )
    )
