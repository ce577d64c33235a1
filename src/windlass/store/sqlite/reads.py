"""Reads of jobs, workers, queues and the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.model.figures import SPAN, depth_samples, merge_depths
from windlass.model.flow import Linked, Recollection, Waiting
from windlass.model.reports.error_groups import ErrorText, FailedJob
from windlass.model.reports.story import LinkGroup, Relative
from windlass.model.rows import COUNTED, AuditRow, DueRow, FoundJob, JobState, QueueRow, WorkerRow
from windlass.model.state import State
from windlass.store.parts.keys import encode_keys
from windlass.store.parts.search import (
    MOST_FACETED,
    MOST_IDS,
    MOST_READ,
    MOST_ROWS,
    SQLITE,
    collect_facets,
    counting,
    listing,
    where,
)
from windlass.store.parts.statements import run
from windlass.store.protocol import Held
from windlass.store.sql import LAST, audit_query, errors_query, query, search_query
from windlass.store.sqlite import rows
from windlass.store.sqlite.finish import fold_figures, read_depths, read_figures
from windlass.store.sqlite.rows import named, numbered
from windlass.store.sqlite.session import Session

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from windlass.model.figures import DepthRow, FigureRow, PhaseDepth
    from windlass.model.filter import Filter
    from windlass.model.job import Job, Key, Lease


class SqliteReads(Session):
    """The reading part of the store."""

    async def held(self, worker: UUID, known: Collection[UUID] = ()) -> Held:
        def read(connection: sqlite3.Connection, now: int) -> Held:
            held = Held(jobs=[], unreadable=[])
            parameters = {"worker": str(worker), "known": rows.array(known)}
            for row in connection.execute(query("sqlite", "jobs_of_worker"), parameters):
                try:
                    held.jobs.append(rows.job(row))
                except (ValueError, ArithmeticError, msgspec.DecodeError):
                    held.unreadable.append(rows.lease(row))
            return held

        return await self._read(read)

    async def now(self) -> datetime:
        return await self._read(lambda connection, now: rows.moment(now))

    async def recall(self, job: UUID) -> Recollection:
        def read(connection: sqlite3.Connection, now: int) -> Recollection:
            found = Recollection(steps={}, signals={})
            for kind, name, value in connection.execute(query("sqlite", "memory_of_job"), {"id": str(job)}):
                (found.steps if kind == "step" else found.signals)[name] = value
            return found

        return await self._read(read)

    async def links(self, job: UUID, *, page: int | None = None) -> list[Linked]:
        def read(connection: sqlite3.Connection, now: int) -> list[Linked]:
            return [
                Linked(name, UUID(target), None if status is None else State(status), output, error)
                for name, target, status, output, error in connection.execute(
                    query("sqlite", "links"), {"id": str(job), "page": -1 if page is None else page}
                )
            ]

        return await self._read(read)

    async def waits(self, jobs: Sequence[UUID]) -> dict[UUID, Waiting]:
        def read(connection: sqlite3.Connection, now: int) -> dict[UUID, Waiting]:
            found = connection.execute(query("sqlite", "waits_of_jobs"), {"ids": rows.array(jobs)})
            return {UUID(job): rows.waiting(row) for job, *row in found}

        return await self._read(read)

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        def read(connection: sqlite3.Connection, now: int) -> dict[UUID, Job]:
            found = map(rows.job, connection.execute(query("sqlite", "find_many"), {"ids": rows.array(jobs)}))
            return {job.id: job for job in found}

        return await self._read(read)

    async def find_brief(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        def read(connection: sqlite3.Connection, now: int) -> dict[UUID, Job]:
            found = map(rows.job, connection.execute(query("sqlite", "find_brief"), {"ids": rows.array(jobs)}))
            return {job.id: job for job in found}

        return await self._read_list("the jobs around a job", read)

    async def link_groups(self, job: UUID, *, most: int) -> list[LinkGroup]:
        def read(connection: sqlite3.Connection, now: int) -> list[LinkGroup]:
            found = connection.execute(query("sqlite", "link_groups"), {"id": str(job), "most": most})
            return [
                LinkGroup(
                    name=name,
                    type=type,
                    state=None if status is None else State(status),
                    child=bool(child),
                    count=count,
                )
                for name, type, status, child, count, _ in found
            ]

        return await self._read_list("the children of a job", read)

    async def relatives(self, jobs: Sequence[UUID], *, page: int) -> list[Relative]:
        def read(connection: sqlite3.Connection, now: int) -> list[Relative]:
            found = connection.execute(query("sqlite", "relatives"), {"ids": rows.array(jobs), "page": page})
            return [Relative(UUID(job), name, UUID(other)) for job, name, other, _ in found]

        return await self._read_list("the jobs around a job", read)

    async def states(self, jobs: Sequence[UUID]) -> dict[UUID, JobState]:
        def read(connection: sqlite3.Connection, now: int) -> dict[UUID, JobState]:
            found = map(rows.job_state, connection.execute(query("sqlite", "states"), {"ids": rows.array(jobs)}))
            return {state.id: state for state in found}

        return await self._read(read)

    async def cancel_requests(self, worker: UUID) -> list[UUID]:
        def read(connection: sqlite3.Connection, now: int) -> list[UUID]:
            found = connection.execute(query("sqlite", "cancel_requests"), {"worker": str(worker)})
            return [UUID(ident) for (ident,) in found]

        return await self._read(read)

    async def finished_by(self, lease: Lease) -> bool:
        parameters = {"id": str(lease.job), "token": str(lease.token)}
        statement = query("sqlite", "finished_by_lease")
        return await self._read(
            lambda connection, now: connection.execute(statement, parameters).fetchone() is not None
        )

    async def find(self, job: UUID) -> Job | None:
        def read(connection: sqlite3.Connection, now: int) -> Job | None:
            row = connection.execute(query("sqlite", "find"), {"id": str(job)}).fetchone()
            return None if row is None else rows.job(row)

        return await self._read(read)

    async def holders(self, key: str, *, page: int = 50) -> list[Job]:
        return await self._jobs_at("slot_holders", key, page)

    async def waiters(self, key: str, *, page: int = 50) -> list[Job]:
        return await self._jobs_at("parked_jobs", key, page)

    async def _jobs_at(self, statement: str, key: str, page: int) -> list[Job]:
        def read(connection: sqlite3.Connection, now: int) -> list[Job]:
            parameters = {"key": key, "page": page}
            return [rows.job(row) for row in connection.execute(query("sqlite", statement), parameters)]

        return await self._read(read)

    async def counts(self) -> dict[State, int]:
        def read(connection: sqlite3.Connection, now: int) -> dict[State, int]:
            counted = dict.fromkeys(State, 0)
            for status, jobs in connection.execute(query("sqlite", "count_by_state")):
                counted[State(status)] += jobs
            return counted

        return await self._read_list("the counts by state", read)

    async def workers(self, *, processors: bool = False) -> list[WorkerRow]:
        def read(connection: sqlite3.Connection, now: int) -> list[WorkerRow]:
            found = connection.execute(query("sqlite", "workers"), {"processors": processors})
            return [rows.worker_row(row, now) for row in found]

        return await self._read(read)

    async def search(
        self, filter: Filter, *, page: int = 50, below: UUID | None = None, tenant: str | None = None
    ) -> list[Job]:
        name, condition, names, parameters = listing(filter, SQLITE, 4, tenant)
        statement = numbered(search_query("sqlite", name, condition, names))

        def read(connection: sqlite3.Connection, now: int) -> list[Job]:
            values = (now, min(page, MOST_ROWS), None if below is None else str(below), *parameters)
            return [rows.job(row) for row in connection.execute(statement, named(values))]

        return await self._read_list("a page of jobs", read)

    async def search_ids(
        self, filter: Filter, *, page: int = MOST_IDS, below: UUID | None = None, tenant: str | None = None
    ) -> list[FoundJob]:
        condition, parameters = where(filter, SQLITE, 4, tenant)
        statement = numbered(search_query("sqlite", "search_ids", condition))

        def read(connection: sqlite3.Connection, now: int) -> list[FoundJob]:
            values = (now, min(page, MOST_IDS), None if below is None else str(below), *parameters)
            return [
                FoundJob(UUID(ident), queue, type, State(status), bool(followed))
                for ident, queue, type, status, followed in connection.execute(statement, named(values))
            ]

        return await self._read_list("the jobs that a filter chooses", read)

    async def queues(self) -> list[QueueRow]:
        def read(connection: sqlite3.Connection, now: int) -> list[QueueRow]:
            counted = connection.execute(query("sqlite", "queues"), {"now": now})
            names = [column[0] for column in counted.description]
            return [QueueRow(**dict(zip(names, row, strict=True))) for row in counted]

        return await self._read_list("the queues", read)

    async def phases(self) -> list[PhaseDepth]:
        return await self._read_list(
            "the phases",
            lambda connection, now: merge_depths(connection.execute(query("sqlite", "phases"), {"now": now})),
        )

    async def oldest_snapshot(self) -> float | None:
        return None

    async def fold_figures(self, *, minutes: bool = False) -> None:
        await self._write(lambda connection, now: fold_figures(connection, now, minutes=minutes))

    async def sample_depths(self) -> None:
        samples = depth_samples(await self.queues())
        await self._run_in_transaction(lambda: run("sample_depths", samples))

    async def figures(self, *, since: float, step: float, queue: str | None = None) -> list[FigureRow]:
        return await self._read_list(
            "the figures", lambda connection, now: read_figures(connection, now, since, step, queue)
        )

    async def depths(self, *, since: float, queue: str | None = None, step: float = SPAN) -> list[DepthRow]:
        return await self._read_list(
            "the depths", lambda connection, now: read_depths(connection, now, since, queue, step)
        )

    async def count_due(self) -> list[DueRow]:
        def read(connection: sqlite3.Connection, now: int) -> list[DueRow]:
            return [DueRow(*row) for row in connection.execute(query("sqlite", "count_due"), {"now": now})]

        return await self._read_list("the due jobs", read)

    async def facets(
        self, filter: Filter, fields: Sequence[str], *, tenant: str | None = None
    ) -> dict[str, dict[str, int]]:
        name, condition, names, chosen, parameters = counting(filter, SQLITE, 5, tenant)
        statement = search_query("sqlite", name, condition, names)
        given = (MOST_FACETED, rows.array(fields), MOST_READ, *chosen, *parameters)

        def read(connection: sqlite3.Connection, now: int) -> dict[str, dict[str, int]]:
            return collect_facets(fields, connection.execute(numbered(statement), named((now, *given))))

        return await self._read_list("the facets of a filter", read)

    async def changes(self, *, page: int = 5) -> list[AuditRow]:
        def read(connection: sqlite3.Connection, now: int) -> list[AuditRow]:
            return [rows.audit_row(row) for row in connection.execute(query("sqlite", "changes"), {"page": page})]

        return await self._read_list("the last changes", read)

    async def held_keys(self, keys: Sequence[Key]) -> dict[tuple[str, str], UUID]:
        def read(connection: sqlite3.Connection, now: int) -> dict[tuple[str, str], UUID]:
            found = connection.execute(query("sqlite", "held_keys"), {"keys": encode_keys(keys), "now": now})
            return {(scope, key): UUID(job) for scope, key, job in found}

        return await self._read(read)

    async def errors(
        self, *, since: float, queue: str | None = None, tenant: str | None = None, page: int = COUNTED + 1
    ) -> list[FailedJob]:
        sql, given = errors_query("sqlite", queue=queue, tenant=tenant)

        def read(connection: sqlite3.Connection, now: int) -> list[FailedJob]:
            values = named((now - rows.span(since), page, *given))
            return [rows.failed_job(row, now) for row in connection.execute(numbered(sql), values)]

        return await self._read_list("the errors", read)

    async def error_texts(self, jobs: Sequence[UUID]) -> dict[UUID, ErrorText]:
        def read(connection: sqlite3.Connection, now: int) -> dict[UUID, ErrorText]:
            found = connection.execute(query("sqlite", "error_texts"), {"ids": rows.array(jobs)})
            return {UUID(job): ErrorText(error, attempts) for job, error, attempts in found}

        return await self._read_list("the texts of errors", read)

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
        id = None if job is None else str(job)
        sql, given = audit_query("sqlite", job=id, action=action, tenant=tenant, actor=actor)
        values = (min(page, MOST_ROWS), LAST if below is None else below, *given)

        def read(connection: sqlite3.Connection, now: int) -> list[AuditRow]:
            return [rows.audit_row(row) for row in connection.execute(numbered(sql), named(values))]

        return await self._read_list("a page of the audit", read)
