"""Hands the next job of each phase to an idle processor.

In:   the local queue and the pools
Out:  an execution, which knows the job's next phase: that is decided here, before the attempt
Next: runtime/processor.py, which runs it

Eager: as soon as there is a job and a processor. Steady: every few seconds, a few per phase (the seeds' five and
three). An earlier phase of a pipeline is served first.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.declare.pipeline import next_phase
from windlass.declare.registry import Definition, Isolation
from windlass.errors import FlowError
from windlass.model.flow import Advance
from windlass.model.job import Job
from windlass.payload import Signature
from windlass.runtime.leases import give_back
from windlass.runtime.pool import Processor
from windlass.runtime.processor import Execution
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState


class Coordinator(Service):
    """Assignment, as a step that others call (eager) or as a service of its own (steady)."""

    name = "coordinator"

    def __init__(self, state: WorkerState, *, freed: Callable[[Processor], None]) -> None:
        super().__init__(state.clock)
        self._state = state
        self._freed = freed
        self.at_once = state.settings.assign_every == 0

    async def round(self) -> float:
        """The steady pace's round."""
        self.assign()
        return self._state.settings.assign_every

    def arrived(self) -> None:
        """Jobs were queued."""
        if self.at_once:
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
                if state.gates.closed and self._is_stopped(job):
                    self._give_back(job, processor)
                else:
                    self._start(job, processor)

    def freed(self, processor: Processor) -> None:
        """A processor ended its attempt: at once, it takes the next job."""
        if self.at_once and len(self._state.local_queue):
            self.assign()
        self._freed(processor)

    def _is_stopped(self, job: Job) -> bool:
        return self._state.gates.stops(job, self._state.leases.claimed_at(job.lease))

    def _give_back(self, job: Job, processor: Processor) -> None:
        """Its gate closed while it was claimed, or while it waited here."""
        self._state.local_queue.complete(processor.name)
        self._state.pools.release(processor)
        self._state.completer.submit(give_back(job))

    def _start(self, job: Job, processor: Processor) -> None:
        state = self._state
        definition = state.registry.get(job.type)
        assert definition is not None, "a claim names only types this program knows"
        advance = None
        if job.pipeline is not None:
            definition, advance = self._in_phase(job, definition)
        processor.job = job
        Execution(job, definition, processor, state, self.freed, advance).start()

    def _in_phase(self, job: Job, definition: Definition) -> tuple[Definition, Advance | None]:
        """A job whose next phase nobody can tell would succeed into nowhere: it fails before it begins."""
        try:
            return definition, next_phase(self._state.registry, job)
        except FlowError as error:
            return refusing(definition, error), None


def refusing(definition: Definition, error: Exception) -> Definition:
    """The same type with a handler that only raises; its retries go on, for a newer program may know more."""

    async def refuse() -> None:
        raise error

    return msgspec.structs.replace(definition, fn=refuse, signature=Signature.of(refuse), isolation=Isolation.COROUTINE)
