"""Hands the next job of each phase to an idle processor.

In:   the local queue and the pools
Out:  an execution, which knows the job's next phase: that is decided here, before the attempt
Next: runtime/processor.py, which runs it

Eager: as soon as there is a job and a processor. Steady: every 5 s, at most 3 per phase (settings
`assign_every` and `assign_most`). An earlier phase of a pipeline is served first.
"""

from __future__ import annotations

import msgspec

from windlass.declare.pipeline import next_phase
from windlass.declare.registry import Definition, Isolation
from windlass.errors import FlowError
from windlass.model.flow import Advance
from windlass.model.job import Job
from windlass.observe.events import JobAssigned, JobsReleased, ReleaseReason
from windlass.payload.signature import Signature
from windlass.runtime.completer import Completer
from windlass.runtime.leases import release_unstarted
from windlass.runtime.pool import Processor
from windlass.runtime.processor import Execution
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState


class Coordinator(Service):
    """Assignment, as a step that other parts call (eager) or as a service of its own (steady)."""

    name = "coordinator"

    def __init__(self, state: WorkerState, completer: Completer) -> None:
        super().__init__(state.clock)
        self._state = state
        self._completer = completer
        self.assigns_at_once = state.settings.assign_every == 0
        if self.assigns_at_once:
            state.signals.slot_freed.subscribe(self.on_slot_freed)
            state.signals.processors_reset.subscribe(self.assign)

    async def round(self) -> float:
        """The steady pace's round."""
        self.assign()
        return self._state.settings.assign_every

    def on_jobs_queued(self) -> None:
        if self.assigns_at_once:
            self.assign()

    def on_slot_freed(self, processor: Processor) -> None:
        if len(self._state.local_queue):
            self.assign()

    def assign(self) -> None:
        """Give every phase's next jobs to idle processors, at most `assign_most` per phase."""
        state = self._state
        for phase, waiting in state.local_queue.phases():
            for _ in range(min(waiting, state.settings.assign_most or waiting)):
                processor = state.pools.acquire(phase)
                if processor is None:
                    break
                job = state.local_queue.dequeue(phase, processor.name)
                assert job is not None, "the phase had a job a moment ago"
                if state.closures.anything_closed and self._is_stopped(job):
                    self._release(job, processor)
                else:
                    self._start(job, processor)

    def _is_stopped(self, job: Job) -> bool:
        return self._state.closures.stops(job, self._state.leases.sent_at(job.lease))

    def _release(self, job: Job, processor: Processor) -> None:
        """The job's gate closed while the job was claimed, or while it waited here."""
        self._state.local_queue.complete(processor.name)
        self._state.pools.release(processor)
        self._completer.submit(release_unstarted(job))
        self._state.emit(JobsReleased(self._state.worker, 1, ReleaseReason.CLOSED))

    def _start(self, job: Job, processor: Processor) -> None:
        state = self._state
        definition = state.registry.get(job.type)
        assert definition is not None, "a claim names only types this program knows"
        advance = None
        if job.pipeline is not None:
            definition, advance = self._decide_next_phase(job, definition)
        processor.job, processor.since = job, None
        if state.subscribers.wants(JobAssigned):
            state.emit(JobAssigned(job, processor.name))
        Execution(job, definition, processor, state, self._completer, advance).start()

    def _decide_next_phase(self, job: Job, definition: Definition) -> tuple[Definition, Advance | None]:
        """Where a success will lead. A job with an unknown next phase would succeed into nowhere: it fails instead,
        before its handler runs."""
        try:
            return definition, next_phase(self._state.registry, job)
        except FlowError as error:
            return raise_instead(definition, error), None


def raise_instead(definition: Definition, error: Exception) -> Definition:
    """The same type with a handler that only raises; its retries go on, for a newer program may know more."""

    async def refuse() -> None:
        raise error

    return msgspec.structs.replace(definition, fn=refuse, signature=Signature.of(refuse), isolation=Isolation.COROUTINE)
