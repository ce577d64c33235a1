"""Pools of named processors: one pool per phase, `<phase>-processor-<n>`, each idle, busy or in error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.model.job import Job
from windlass.model.processors import ProcessorState


class Processor:
    """A named slot in a worker. What runs in it is an `Execution` of `runtime/processor.py`."""

    __slots__ = ("job", "name", "number", "phase", "since", "state", "stuck")

    def __init__(self, phase: str, number: int) -> None:
        self.name = f"{phase}-processor-{number}"
        self.number = number
        self.phase = phase
        self.state = ProcessorState.IDLE
        self.job: Job | None = None
        self.since: float | None = None  # when its attempt began or ended, on the monotonic clock; None: neither yet
        self.stuck = False  # a thread or coroutine of a fenced-out attempt still runs in it


class PhasePool:
    """The processors of one phase, made when they are first needed."""

    def __init__(self, phase: str, size: int) -> None:
        self.phase = phase
        self.size = size
        self._processors: list[Processor] = []
        self._idle: list[Processor] = []  # a stack: the processor that worked last works next

    def available(self) -> Processor | None:
        """An idle processor; None when all are busy or in error."""
        if self._idle:
            return self._idle.pop()
        if len(self._processors) < self.size:
            processor = Processor(self.phase, len(self._processors) + 1)
            self._processors.append(processor)
            return processor
        return None

    def free(self) -> int:
        return len(self._idle) + self.size - len(self._processors)

    def release(self, processor: Processor) -> None:
        """Mark it idle again."""
        processor.state = ProcessorState.IDLE
        processor.job = None
        self._idle.append(processor)

    def fail(self, processor: Processor, *, stuck: bool) -> None:
        """Mark it in error; while `stuck`, the health check leaves it so."""
        processor.state = ProcessorState.ERROR
        processor.stuck = stuck

    def reset(self) -> list[Processor]:
        """Processors in error become idle when their handler has ended; returns them."""
        reset = [p for p in self._processors if p.state is ProcessorState.ERROR and not p.stuck]
        for processor in reset:
            self.release(processor)
        return reset

    def __iter__(self) -> Iterator[Processor]:
        return iter(self._processors)


class PhasePools:
    """All pools of a worker under its total. A phase may name its pool's size; the others have a common one."""

    def __init__(self, *, total: int, size: int | None, sizes: Mapping[str, int] | None = None) -> None:
        self.total = total
        self._size = size or total
        self._sizes = sizes or {}
        self._pools: dict[str, PhasePool] = {}
        self.busy = 0  # processors that are not idle, of all phases

    def acquire(self, phase: str) -> Processor | None:
        """An idle processor of the phase, marked busy."""
        if self.busy >= self.total:
            return None
        processor = self.of(phase).available()
        if processor is not None:
            processor.state = ProcessorState.BUSY
            self.busy += 1
        return processor

    def release(self, processor: Processor) -> None:
        self.busy -= 1
        self._pools[processor.phase].release(processor)

    def fail(self, processor: Processor, *, stuck: bool) -> None:
        self._pools[processor.phase].fail(processor, stuck=stuck)

    def reset(self) -> list[Processor]:
        reset = [processor for pool in self._pools.values() for processor in pool.reset()]
        self.busy -= len(reset)
        return reset

    def of(self, phase: str) -> PhasePool:
        pool = self._pools.get(phase)
        if pool is None:
            pool = self._pools[phase] = PhasePool(phase, self.size(phase))
        return pool

    def size(self, phase: str) -> int:
        return min(self._sizes.get(phase, self._size), self.total)

    def free_in(self, phase: str) -> int:
        """Processors of the phase that could start a job now."""
        return min(self.of(phase).free(), self.free)

    @property
    def free(self) -> int:
        """Processors of the worker that could start a job now."""
        return self.total - self.busy

    def used(self) -> dict[str, list[Processor]]:
        """The processors that were made so far, by phase. From any thread.

        Copies, because the worker's loop may add a pool or a processor meanwhile: a copy of a dict or a list is one
        step of the interpreter, and a loop over it is not.
        """
        return {phase: list(pool) for phase, pool in self._pools.copy().items()}

    def __iter__(self) -> Iterator[Processor]:
        return (processor for pool in self._pools.values() for processor in pool)
