"""Claimed jobs that wait in memory for a processor, one queue per phase, and which processor has which job.

In:   claimed jobs
Out:  the next one for a phase's processor
Next: runtime/coordinator.py, which hands it to an idle processor

Four checks stand behind the store's claim: a job that is here already (in its own phase, in
another one, or in a processor) is refused, and so is a job that its full phase has no room for. Each refusal has a
reason; the caller releases the job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from uuid import UUID

from windlass.model.job import Job


class QueueRefusal(StrEnum):
    """Why a job was not queued."""

    SAME_PHASE = "it is queued in this phase already"
    PROCESSING = "it is being processed"
    OTHER_PHASE = "it is queued in another phase"
    FULL = "the local queue of its phase is full"


class PhaseQueue:
    """The waiting jobs of one phase: higher priority first, inside one priority tenants in turn, each in claim order.

    So a job of a light tenant does not wait behind everything that was claimed before it.
    """

    def __init__(self) -> None:
        self.phase_rank = 0
        self._tenants: dict[int, dict[str, deque[tuple[Job, float]]]] = {}  # by -priority; the next tenant comes first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, job: Job, at: float, *, first: bool = False) -> None:
        self.phase_rank = job.phase_rank
        tenants = self._tenants.setdefault(-job.priority, {})
        waiting = tenants.get(job.tenant)
        if waiting is None:
            waiting = tenants[job.tenant] = deque()
        if first:
            waiting.appendleft((job, at))
        else:
            waiting.append((job, at))
        self._length += 1

    def pop(self) -> Job:
        urgency = min(self._tenants)
        tenants = self._tenants[urgency]
        tenant = next(iter(tenants))
        waiting = tenants[tenant]
        job, _ = waiting.popleft()
        if not waiting:
            del tenants[tenant]
            if not tenants:
                del self._tenants[urgency]
        elif len(tenants) > 1:
            tenants[tenant] = tenants.pop(tenant)  # to the end: the next tenant's turn
        self._length -= 1
        return job

    def drain(self, chosen: Callable[[Job, float], bool]) -> list[Job]:
        """Take out the jobs for which `chosen(job, queued at)` holds."""
        waiting = [
            entry for urgency in sorted(self._tenants) for each in self._tenants[urgency].values() for entry in each
        ]
        taken = [job for job, at in waiting if chosen(job, at)]
        if taken:
            self._tenants, self._length = {}, 0
            for job, at in waiting:
                if not chosen(job, at):
                    self.append(job, at)
        return taken


class LocalQueue:
    """Queues by phase and the processing map. Used from one event loop only; `sizes` from any thread."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity  # jobs per phase; None: the caller claims no more than it has room for
        self.processing: dict[str, Job] = {}  # processor → job
        self._queues: dict[str, PhaseQueue] = {}
        self._phase_of: dict[UUID, str] = {}
        self._of_type: dict[str, int] = {}  # how many wait
        self._processing: set[UUID] = set()
        self._suspects: dict[UUID, str] = {}  # their types; those that wait and those in processors

    def __len__(self) -> int:
        return len(self._phase_of)

    def enqueue(self, job: Job, at: float = 0.0) -> QueueRefusal | None:
        """Take the job, or return why not. `at` is when, on the monotonic clock."""
        known = self._phase_of.get(job.id)
        if known is not None:
            return QueueRefusal.SAME_PHASE if known == job.phase else QueueRefusal.OTHER_PHASE
        if job.id in self._processing:
            return QueueRefusal.PROCESSING
        queue = self._queues.get(job.phase)
        if queue is None:
            queue = self._queues[job.phase] = PhaseQueue()
        if self.capacity is not None and len(queue) >= self.capacity:
            return QueueRefusal.FULL
        queue.append(job, at)
        self._record(job)
        return None

    def dequeue(self, phase: str, processor: str) -> Job | None:
        """The next job of the phase, which that processor has from now on."""
        queue = self._queues.get(phase)
        if not queue:
            return None
        job = queue.pop()
        self._forget(job)
        self._processing.add(job.id)
        self.processing[processor] = job
        return job

    def complete(self, processor: str) -> Job:
        """The processor is done with its job."""
        job = self.processing.pop(processor)
        self._processing.discard(job.id)
        self._suspects.pop(job.id, None)
        return job

    def release(self, processor: str, at: float = 0.0) -> Job:
        """The processor puts its job back unstarted, at the head of its phase."""
        job = self.complete(processor)
        self._queues.setdefault(job.phase, PhaseQueue()).append(job, at, first=True)
        self._record(job)
        return job

    def phases(self) -> Iterator[tuple[str, int]]:
        """Phases that have jobs waiting, the earliest of a pipeline first, with how many."""
        waiting = [(queue.phase_rank, phase, len(queue)) for phase, queue in self._queues.items() if queue]
        return ((phase, count) for _, phase, count in sorted(waiting))

    def sizes(self) -> dict[str, int]:
        """How many jobs wait in each phase that had one. From any thread: a copy is one step of the interpreter."""
        return {phase: len(queue) for phase, queue in self._queues.copy().items()}

    def waiting(self, phase: str) -> int:
        return len(self._queues.get(phase, ()))

    def waiting_of(self, types: Iterable[str]) -> int:
        """How many jobs of these types wait, in whichever phase."""
        return sum(self._of_type.get(type, 0) for type in types)

    def suspects(self, types: Iterable[str] | None = None) -> int:
        """How many suspects wait or are processed: all, or those of these types."""
        if types is None or not self._suspects:
            return len(self._suspects)
        return sum(type in types for type in self._suspects.values())

    def drain(self, chosen: Callable[[Job, float], bool] = lambda job, at: True) -> list[Job]:
        """Take out the waiting jobs for which `chosen(job, queued at)` holds: the caller releases them."""
        taken: list[Job] = []
        for queue in self._queues.values():
            taken += queue.drain(chosen)
        for job in taken:
            self._forget(job)
            self._suspects.pop(job.id, None)
        return taken

    def _record(self, job: Job) -> None:
        self._phase_of[job.id] = job.phase
        self._of_type[job.type] = self._of_type.get(job.type, 0) + 1
        if job.suspect:
            self._suspects[job.id] = job.type

    def _forget(self, job: Job) -> None:
        del self._phase_of[job.id]
        self._of_type[job.type] -= 1
