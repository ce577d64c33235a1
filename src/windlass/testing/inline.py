"""Inline mode: an enqueue runs its job at once, and with it the jobs that it spawns or waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Protocol
from uuid import UUID

from windlass.model.job import NewJob
from windlass.model.outcome import Ending
from windlass.model.state import CLAIMABLE, FINAL, State
from windlass.store.protocol import Store
from windlass.testing.clock import ManualClock
from windlass.testing.errors import EndlessDrain
from windlass.testing.results import AttemptResult, to_raise
from windlass.testing.stepped_worker import SteppedWorker

MOST_LEVELS = 20  # inline jobs inside one another; each holds a store of its own
MOST_ATTEMPTS = 1_000  # that one enqueue may lead to

ENDED = FINAL | {None}

depth: ContextVar[int] = ContextVar("windlass_inline_depth", default=0)


class MakesSteppedWorker(Protocol):
    def __call__(self, *, types: tuple[str, ...] | None = None, queues: tuple[str, ...] | None = None) -> SteppedWorker:
        """A worker for these types and queues; without them, for all."""
        ...


async def run_these(
    jobs: Sequence[NewJob], make_worker: MakesSteppedWorker, clock: ManualClock, strict: bool
) -> list[AttemptResult]:
    """Run the jobs, and what has to do with them, until nothing of it is due."""
    done: list[AttemptResult] = []
    types, queues = {job.type for job in jobs}, {job.queue for job in jobs}
    async with make_worker(types=tuple(types), queues=tuple(queues)) as worker:
        related = RelatedJobs(worker.state.store)
        for job in jobs:
            ran = None if job.wait is not None else await worker.work(job.id)
            if ran is not None:
                done.append(ran)
                if to_raise(ran, strict) is not None:
                    return done
            # Else it waits, as a node of a graph; or a drain() on another thread was faster.
            await related.add(job.id, ran)
        if not related.open:
            return done
    async with make_worker() as worker:
        related.store = worker.state.store
        while (job_id := await related.due(clock.now())) is not None:
            ran = await worker.work(job_id)
            if ran is None:
                break
            done.append(ran)
            if to_raise(ran, strict) is not None:
                break
            _refuse_more(done)
            await related.add(job_id, ran)
    return done


class RelatedJobs:
    """Jobs, those they spawned, and those they wait for, as far as they have still to run."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.open: list[UUID] = []
        self._known: set[UUID] = set()

    async def add(self, job: UUID, ran: AttemptResult | None) -> None:
        """A job after its attempt. It goes on here if it waits or has another phase; a retry comes another time."""
        advanced = ran is not None and (ran.ending, ran.state) == (Ending.SUCCEEDED, State.QUEUED)
        goes_on = ran is None or ran.ending is Ending.WAITING or advanced
        if job in self.open and not goes_on:
            self.open.remove(job)
        elif job not in self.open and goes_on:
            self.open.append(job)
        self._known.add(job)
        for linked in await self.store.links(job):
            if linked.id not in self._known and linked.status not in ENDED:
                await self.add(linked.id, None)

    async def due(self, now: datetime) -> UUID | None:
        """The first that can run now."""
        found = await self.store.find_many(self.open)
        records = [found[job] for job in self.open if job in found]
        return next((job.id for job in records if job.status in CLAIMABLE and job.run_at <= now), None)


def _refuse_more(done: Sequence[AttemptResult]) -> None:
    if len(done) >= MOST_ATTEMPTS:
        raise EndlessDrain(
            f"inline: one enqueue led to {len(done)} attempts, the last of {done[-1].type!r}; does it spawn itself "
            "without end? If not, leave inline mode: windlass.drain()"
        )


@contextmanager
def nested(jobs: Sequence[NewJob]) -> Iterator[None]:
    """Jobs that run inside jobs that run inside …: an error comes before the end of the stack."""
    level = depth.get()
    if level >= MOST_LEVELS:
        raise EndlessDrain(
            f"inline: {jobs[0].type!r} was enqueued {level} levels deep; does it enqueue itself without end? If not, "
            "leave inline mode: windlass.drain()"
        )
    token = depth.set(level + 1)
    try:
        yield
    finally:
        depth.reset(token)
