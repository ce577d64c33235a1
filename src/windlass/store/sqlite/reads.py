"""Reads of jobs, workers, queues and the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.model.flow import Linked, Recollection, Waiting
from windlass.model.rows import AuditRow, QueueRow, WorkerRow
from windlass.model.state import State
from windlass.store.parts.search import MOST_ROWS, SQLITE, where
from windlass.store.protocol import Held
from windlass.store.sql import LAST, audit_query, query, search_query
from windlass.store.sqlite import rows
from windlass.store.sqlite.rows import named, numbered
from windlass.store.sqlite.session import Session

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from windlass.model.filter import Filter
    from windlass.model.job import Job, Lease


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

    async def links(self, job: UUID) -> list[Linked]:
        def read(connection: sqlite3.Connection, now: int) -> list[Linked]:
            return [
                Linked(name, UUID(target), None if status is None else State(status), output, error)
                for name, target, status, output, error in connection.execute(
                    query("sqlite", "links"), {"id": str(job)}
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

        return await self._read(read)

    async def workers(self) -> list[WorkerRow]:
        return await self._read(
            lambda connection, now: [
                rows.worker_row(row, now) for row in connection.execute(query("sqlite", "workers"))
            ]
        )

    async def search(self, filter: Filter, *, page: int = 50, below: UUID | None = None) -> list[Job]:
        condition, parameters = where(filter, SQLITE, 4)

        def read(connection: sqlite3.Connection, now: int) -> list[Job]:
            values = (now, min(page, MOST_ROWS), None if below is None else str(below), *parameters)
            return [
                rows.job(row) for row in connection.execute(numbered(search_query("sqlite", condition)), named(values))
            ]

        return await self._read(read)

    async def queues(self) -> list[QueueRow]:
        def read(connection: sqlite3.Connection, now: int) -> list[QueueRow]:
            counted = connection.execute(query("sqlite", "queues"), {"now": now})
            names = [column[0] for column in counted.description]
            return [QueueRow(**dict(zip(names, row, strict=True))) for row in counted]

        return await self._read(read)

    async def audit(
        self, *, job: UUID | None = None, action: str | None = None, page: int = 50, below: int | None = None
    ) -> list[AuditRow]:
        sql, given = audit_query("sqlite", job=None if job is None else str(job), action=action)
        values = (min(page, MOST_ROWS), LAST if below is None else below, *given)

        def read(connection: sqlite3.Connection, now: int) -> list[AuditRow]:
            return [rows.audit_row(row) for row in connection.execute(numbered(sql), named(values))]

        return await self._read(read)
