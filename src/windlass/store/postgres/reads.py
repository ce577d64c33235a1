"""Reads of jobs, workers, queues and the audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from windlass.model.filter import Filter
from windlass.model.flow import Linked, Recollection, Waiting
from windlass.model.job import Job, Key
from windlass.model.reports.error_groups import ErrorText, FailedJob
from windlass.model.reports.story import LinkGroup, Relative
from windlass.model.rows import COUNTED, AuditRow, DueRow, FoundJob, JobState, WorkerRow
from windlass.model.state import State
from windlass.store.parts.keys import encode_keys
from windlass.store.parts.search import (
    MOST_FACETED,
    MOST_IDS,
    MOST_READ,
    MOST_ROWS,
    POSTGRES,
    collect_facets,
    counting,
    listing,
    where,
)
from windlass.store.postgres import rows
from windlass.store.postgres.figures import PostgresFigures
from windlass.store.sql import LAST, audit_query, errors_query, query, search_query


class PostgresReads(PostgresFigures):
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

    async def links(self, job: UUID, *, page: int | None = None) -> list[Linked]:
        return [
            Linked(name, target, None if status is None else rows.STATES[status], output, error)
            for name, target, status, output, error in await self._fetch(query("postgres", "links"), job, page)
        ]

    async def waits(self, jobs: Sequence[UUID]) -> dict[UUID, Waiting]:
        found = map(dict, await self._fetch(query("postgres", "waits_of_jobs"), jobs))
        return {wait.pop("job"): Waiting(**wait) for wait in found}

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        records = await self._fetch(query("postgres", "find_many"), jobs)
        return {job.id: job for job in map(rows.job_to_show, records)}

    async def find_brief(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        records = await self._fetch_list("the jobs around a job", query("postgres", "find_brief"), jobs)
        return {job.id: job for job in map(rows.job_to_show, records)}

    async def link_groups(self, job: UUID, *, most: int) -> list[LinkGroup]:
        records = await self._fetch_list("the children of a job", query("postgres", "link_groups"), job, most)
        return [
            LinkGroup(name=name, type=type, state=rows.STATES.get(status), child=child, count=count)
            for name, type, status, child, count, _ in records
        ]

    async def relatives(self, jobs: Sequence[UUID], *, page: int) -> list[Relative]:
        records = await self._fetch_list("the jobs around a job", query("postgres", "relatives"), jobs, page)
        return [Relative(job, name, other) for job, name, other, _ in records]

    async def states(self, jobs: Sequence[UUID]) -> dict[UUID, JobState]:
        return {record["id"]: rows.job_state(record) for record in await self._fetch(query("postgres", "states"), jobs)}

    async def holders(self, key: str, *, page: int = 50) -> list[Job]:
        return [rows.job_to_show(record) for record in await self._fetch(query("postgres", "slot_holders"), key, page)]

    async def waiters(self, key: str, *, page: int = 50) -> list[Job]:
        return [rows.job_to_show(record) for record in await self._fetch(query("postgres", "parked_jobs"), key, page)]

    async def find(self, job: UUID) -> Job | None:
        records = await self._fetch(query("postgres", "find"), job)
        return rows.job_to_show(records[0]) if records else None

    async def counts(self) -> dict[State, int]:
        counted = dict.fromkeys(State, 0)
        for status, jobs in await self._fetch_list("the counts by state", query("postgres", "count_by_state")):
            counted[rows.STATES[status]] += jobs
        return counted

    async def workers(self, *, processors: bool = False) -> list[WorkerRow]:
        return [rows.worker(record) for record in await self._fetch(query("postgres", "workers"), processors)]

    async def search(
        self, filter: Filter, *, page: int = 50, below: UUID | None = None, tenant: str | None = None
    ) -> list[Job]:
        name, condition, names, parameters = listing(filter, POSTGRES, 3, tenant)
        sql = search_query("postgres", name, condition, names)
        records = await self._fetch_list("a page of jobs", sql, min(page, MOST_ROWS), below, *parameters)
        return [rows.job_to_show(record) for record in records]

    async def search_ids(
        self, filter: Filter, *, page: int = MOST_IDS, below: UUID | None = None, tenant: str | None = None
    ) -> list[FoundJob]:
        condition, parameters = where(filter, POSTGRES, 3, tenant)
        statement = search_query("postgres", "search_ids", condition)
        what = "the jobs that a filter chooses"
        records = await self._fetch_list(what, statement, min(page, MOST_IDS), below, *parameters)
        return [
            FoundJob(id, queue, type, rows.STATES[status], followed) for id, queue, type, status, followed in records
        ]

    async def errors(
        self, *, since: float, queue: str | None = None, tenant: str | None = None, page: int = COUNTED + 1
    ) -> list[FailedJob]:
        sql, given = errors_query("postgres", queue=queue, tenant=tenant)
        records = await self._fetch_list("the errors", sql, since, page, *given)
        return [FailedJob(id, fingerprint, rows.STATES[status], *rest) for id, fingerprint, status, *rest in records]

    async def error_texts(self, jobs: Sequence[UUID]) -> dict[UUID, ErrorText]:
        found = await self._fetch_list("the texts of errors", query("postgres", "error_texts"), jobs)
        return {job: ErrorText(error, attempts) for job, error, attempts in found}

    async def count_due(self) -> list[DueRow]:
        found = await self._fetch_list("the due jobs", query("postgres", "count_due"))
        return [DueRow(**record) for record in found]

    async def facets(
        self, filter: Filter, fields: Sequence[str], *, tenant: str | None = None
    ) -> dict[str, dict[str, int]]:
        name, condition, names, chosen, parameters = counting(filter, POSTGRES, 4, tenant)
        sql = search_query("postgres", name, condition, names)
        given = (MOST_FACETED, fields, MOST_READ, *chosen, *parameters)
        rows = await self._fetch_list("the facets of a filter", sql, *given)
        return collect_facets(fields, rows)

    async def changes(self, *, page: int = 5) -> list[AuditRow]:
        records = await self._fetch_list("the last changes", query("postgres", "changes"), page)
        return [AuditRow(**record) for record in records]

    async def held_keys(self, keys: Sequence[Key]) -> dict[tuple[str, str], UUID]:
        found = await self._fetch(query("postgres", "held_keys"), encode_keys(keys))
        return {(scope, key): job for scope, key, job in found}

    async def audit(
        self,
        *,
        job: UUID | None = None,
        action: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        page: int = 50,
        below: int | None = None,
    ) -> list[AuditRow]:
        sql, given = audit_query("postgres", job=job, action=action, tenant=tenant, actor=actor)
        last = LAST if below is None else below
        records = await self._fetch_list("a page of the audit", sql, min(page, MOST_ROWS), last, *given)
        return [AuditRow(**record) for record in records]
