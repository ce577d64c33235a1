"""Reads of jobs, workers, queues and the audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from windlass.model.filter import Filter
from windlass.model.flow import Linked, Recollection, Waiting
from windlass.model.job import Job
from windlass.model.rows import AuditRow, QueueRow, WorkerRow
from windlass.model.state import State
from windlass.store.parts.search import MOST_ROWS, POSTGRES, where
from windlass.store.postgres import rows
from windlass.store.postgres.session import Session
from windlass.store.sql import LAST, audit_query, query, search_query


class PostgresReads(Session):
    """The part of the store that only reads."""

    async def now(self) -> datetime:
        now: datetime = await self._value(query("postgres", "time"))
        return now

    async def recall(self, job: UUID) -> Recollection:
        steps: dict[str, str] = {}
        signals: dict[str, str] = {}
        for kind, name, value in await self._fetch(query("postgres", "memory_of_job"), job):
            (steps if kind == "step" else signals)[name] = value
        return Recollection(steps=steps, signals=signals)

    async def links(self, job: UUID) -> list[Linked]:
        return [
            Linked(name, target, None if status is None else rows.STATES[status], output, error)
            for name, target, status, output, error in await self._fetch(query("postgres", "links"), job)
        ]

    async def waits(self, jobs: Sequence[UUID]) -> dict[UUID, Waiting]:
        found = map(dict, await self._fetch(query("postgres", "waits_of_jobs"), jobs))
        return {wait.pop("job"): Waiting(**wait) for wait in found}

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        records = await self._fetch(query("postgres", "find_many"), jobs)
        return {job.id: job for job in map(rows.job_to_show, records)}

    async def holders(self, key: str, *, page: int = 50) -> list[Job]:
        return [rows.job_to_show(record) for record in await self._fetch(query("postgres", "slot_holders"), key, page)]

    async def waiters(self, key: str, *, page: int = 50) -> list[Job]:
        return [rows.job_to_show(record) for record in await self._fetch(query("postgres", "parked_jobs"), key, page)]

    async def find(self, job: UUID) -> Job | None:
        records = await self._fetch(query("postgres", "find"), job)
        return rows.job_to_show(records[0]) if records else None

    async def counts(self) -> dict[State, int]:
        counted = dict.fromkeys(State, 0)
        for status, jobs in await self._fetch(query("postgres", "count_by_state")):
            counted[rows.STATES[status]] += jobs
        return counted

    async def workers(self) -> list[WorkerRow]:
        return [rows.worker(record) for record in await self._fetch(query("postgres", "workers"))]

    async def search(self, filter: Filter, *, page: int = 50, below: UUID | None = None) -> list[Job]:
        condition, parameters = where(filter, POSTGRES, 3)
        records = await self._fetch(search_query("postgres", condition), min(page, MOST_ROWS), below, *parameters)
        return [rows.job_to_show(record) for record in records]

    async def queues(self) -> list[QueueRow]:
        return [QueueRow(**record) for record in await self._fetch(query("postgres", "queues"))]

    async def audit(
        self, *, job: UUID | None = None, action: str | None = None, page: int = 50, below: int | None = None
    ) -> list[AuditRow]:
        sql, given = audit_query("postgres", job=job, action=action)
        records = await self._fetch(sql, min(page, MOST_ROWS), LAST if below is None else below, *given)
        return [AuditRow(**record) for record in records]
