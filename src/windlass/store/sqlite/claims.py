"""Claiming: the due jobs of a few lanes, in the order of a claim, leased in the same transaction."""

from __future__ import annotations

import heapq
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from windlass.store.protocol import Claim, Claimed
from windlass.store.sql import query
from windlass.store.sqlite.rows import SECOND, Parameters, array, job, span

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from windlass.job import Job

Lane = dict[str, Any]  # queue, phase_rank, priority


def take(connection: sqlite3.Connection, now: int, claim: Claim) -> Claimed:
    """Lease up to `claim.room` jobs. The caller's transaction holds the write lock: nobody else claims."""
    if connection.execute(query("sqlite", "alive"), {"worker": str(claim.worker)}).fetchone() is None:
        return Claimed(jobs=[])
    common = _parameters(claim, now)
    lanes = _lanes(connection, claim)
    oldest = _oldest(connection, lanes, common, min(claim.aged, claim.room))
    chosen = dict.fromkeys(oldest)
    for ident in _ordered(connection, lanes, common, claim):
        if len(chosen) >= claim.room:
            break
        chosen[ident] = None
    jobs = _lease(connection, now, claim, list(chosen)) if chosen else []
    return Claimed(jobs=jobs, next_due=_next_due(connection, lanes, common, now) if len(jobs) < claim.room else None)


def _parameters(claim: Claim, now: int) -> Parameters:
    return {
        "types": array(claim.types),
        "suspects": claim.suspects.value,
        "rest": span(claim.rest),
        "limit": claim.room,
        "now": now,
    }


def _lanes(connection: sqlite3.Connection, claim: Claim) -> list[Lane]:
    queues = None if claim.queues is None else array(claim.queues)
    rows = connection.execute(query("sqlite", "lanes"), {"queues": queues})
    return [{"queue": queue, "phase_rank": rank, "priority": priority} for queue, rank, priority in rows]


def _oldest(connection: sqlite3.Connection, lanes: list[Lane], common: Parameters, places: int) -> list[str]:
    """Ageing: the oldest due jobs of any priority."""
    if not places:
        return []
    due = [connection.execute(query("sqlite", "due"), common | lane | {"limit": places}) for lane in lanes]
    return [ident for _, ident in islice(heapq.merge(*due), places)]


def _ordered(connection: sqlite3.Connection, lanes: list[Lane], common: Parameters, claim: Claim) -> Iterator[str]:
    """Due jobs in the order of a claim. Lanes that differ only in their queue are merged by time."""
    due = query("sqlite", "due_by_creation" if claim.by_creation else "due")
    for _, peers in groupby(lanes, key=lambda lane: (lane["phase_rank"], lane["priority"])):
        for _, ident in heapq.merge(*[connection.execute(due, common | lane).fetchall() for lane in peers]):
            yield ident


def _lease(connection: sqlite3.Connection, now: int, claim: Claim, idents: list[str]) -> list[Job]:
    lease = {"worker": str(claim.worker), "token": str(uuid4())}
    connection.execute(query("sqlite", "claim"), lease | {"ids": array(idents), "now": now})
    jobs = [job(row) for row in connection.execute(query("sqlite", "claimed"), lease)]
    if claim.by_creation:
        return sorted(jobs, key=lambda job: (job.phase_rank, -job.priority, job.created_at, job.id))
    return sorted(jobs, key=lambda job: (job.phase_rank, -job.priority, job.run_at, job.id))


def _next_due(connection: sqlite3.Connection, lanes: list[Lane], common: Parameters, now: int) -> float | None:
    found = [connection.execute(query("sqlite", "next_due"), common | lane).fetchone() for lane in lanes]
    return min(((row[0] - now) / SECOND for row in found if row is not None), default=None)
