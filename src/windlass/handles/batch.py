"""Many jobs and one callback that waits for all of them, counts how they end, and runs when the last one has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from windlass.blocking import blocking
from windlass.client import Call, Client, gather
from windlass.clock import Duration
from windlass.config import Settings
from windlass.errors import FlowError, JobNotFound, TransitionRefused
from windlass.handles.graph import check_call, check_due, check_policy
from windlass.handles.job import JobHandle
from windlass.model.job import Edge, NewJob, Wait
from windlass.model.state import FINAL, State, Verb
from windlass.store.protocol import Store

M = TypeVar("M")
R = TypeVar("R")
M_co = TypeVar("M_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

PAGE = 1_000  # jobs per read


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a batch has, how many succeeded, and how many ended badly (dead, cancelled or gone)."""

    total: int
    processed: int
    failed: int


class Batch(Generic[M_co, R_co]):
    """What `app.batch(…)` returns. Its id is the callback's: another process finds the callback by `app.find(id)`."""

    _noun = "batch"

    def __init__(self, client: Client, callback: JobHandle[R_co], jobs: Sequence[JobHandle[M_co]]) -> None:
        self.callback = callback
        """The handle of the callback."""
        self.jobs = jobs
        """The handles of the jobs, in the order of the calls."""
        self._client = client

    def __repr__(self) -> str:
        return f"<batch {self.id} of {len(self.jobs)} job{'' if len(self.jobs) == 1 else 's'}>"

    @property
    def id(self) -> UUID:
        """The id of the callback: `app.find(batch.id)`."""
        return self.callback.id

    async def aprogress(self) -> BatchProgress:
        """How far the batch is: `batch.progress().processed`, as counted on the record of its callback."""
        record = await self.callback.arecord()
        return BatchProgress(total=record.total or 0, processed=record.processed, failed=record.failed)

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Wait for the callback to end and return its result: `batch.result(timeout="1m")`.

        Raises JobDead, JobCancelled or ResultTimeout.
        """
        return await self.callback.aresult(timeout)

    async def acancel(self) -> State:
        """Cancel the callback and every job of this batch that has not ended: `batch.cancel()`.

        The answer is the callback's state.

        A job that existed before the batch, and was taken for its key, is left alone.
        """
        return await self._client.aask(self._cancel)

    progress = blocking(aprogress)
    result = blocking(aresult)
    cancel = blocking(acancel)

    async def _cancel(self, store: Store) -> State:
        """The store cancels the children with the callback, but not of a callback that ended first (`fail`)."""
        try:
            return await self.callback._operate(Verb.CANCEL)(store) or State.CANCELLED
        except TransitionRefused:
            cancelled = 0
            async for job in self._unfinished(store):
                try:
                    await job._operate(Verb.CANCEL)(store)
                    cancelled += 1
                except (TransitionRefused, JobNotFound):
                    pass  # the job has ended meanwhile
            if not cancelled:
                raise
        return (await self.callback._find(store)).status

    async def _unfinished(self, store: Store) -> AsyncIterator[JobHandle[M_co]]:
        mine = [job for job in self.jobs if not job.existing]
        for first in range(0, len(mine), PAGE):
            page = {job.id: job for job in mine[first : first + PAGE]}
            for id, record in (await store.find_many(list(page))).items():
                if record.status not in FINAL:
                    yield page[id]


class BatchPlan(NamedTuple):
    """A checked batch that is not written yet."""

    calls: list[Call]
    members: list[NewJob]
    then: Call
    callback: NewJob
    conn: object | None  # the connection that the calls name

    @property
    def jobs(self) -> list[NewJob]:
        return [*self.members, self.callback]

    def enqueued(self, client: Client, existing: Mapping[UUID, UUID]) -> Batch[M, R]:
        """The handle of the batch, once it is written."""
        jobs: list[JobHandle[M]] = [
            JobHandle._of(client, job, call.definition, existing)
            for job, call in zip(self.members, self.calls, strict=True)
        ]
        callback: JobHandle[R] = JobHandle(client, self.callback.id, self.then.definition)
        return Batch(client, callback, jobs)


def plan(calls: Iterable[Call], then: object, policy: object, settings: Settings) -> BatchPlan:
    """The new jobs of a batch: the members are children of the callback, so a cancel of the callback reaches them."""
    call = check_call(then, "the callback (then=)", carrier="app.batch(…, conn=conn)")
    check_due(call, "the callback (then=)")
    chosen = check_policy(policy, "the batch")
    jobs, kept, conn = gather(calls, settings)
    callback = call.new_job(settings)
    if callback.unique is not None or callback.idempotency is not None:
        raise FlowError(
            "the callback (then=) has a key, and its batch would have no callback when another job holds the key; take "
            "the key off, or give one to each call of the batch"
        )
    members = [msgspec.structs.replace(job, parent=callback.id) for job in jobs]
    callback = msgspec.structs.replace(
        callback,
        wait=Wait(edges=tuple(Edge(job.id, chosen) for job in jobs), need=len(jobs), batch=True),
        links=tuple((str(place), job.id) for place, job in enumerate(jobs)),
    )
    return BatchPlan(kept, members, call, callback, conn)
