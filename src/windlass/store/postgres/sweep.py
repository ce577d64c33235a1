"""Sweeping: rescue the jobs of dead workers. One transaction per function."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from windlass.model.state import State
from windlass.store.parts.admission import release_slots
from windlass.store.parts.consequences import bury_crashed
from windlass.store.parts.rescue import CRASH_FINGERPRINT, CrashRules
from windlass.store.postgres import rows
from windlass.store.postgres.runner import PostgresRunner
from windlass.store.protocol import RESCUES_PER_CRASH
from windlass.store.sql import query


async def rescue(
    runner: PostgresRunner, connection: Any, rules: CrashRules, page: int, jobs: Collection[UUID], *, only: bool
) -> list[State]:
    """Give back one page of orphans, of these jobs or of all except these; returns their new states.

    What follows the death of a job is written with it, and the slots that the orphans held are released.
    """
    max_rescues = RESCUES_PER_CRASH * rules.max_crashes
    arguments = (rules.max_crashes, max_rescues, page, list(jobs), only, rules.crash_counts, rules.blames)
    records = await connection.fetch(query("postgres", "rescue"), *arguments, CRASH_FINGERPRINT)
    await runner.execute(bury_crashed((r["id"], r["reason"]) for r in records if r["status"] == State.DEAD))
    await runner.execute(release_slots(r["limits"] for r in records))
    return [rows.STATES[record["status"]] for record in records]


async def rescue_bare(runner: PostgresRunner, connection: Any, rules: CrashRules, job: UUID) -> list[State]:
    """Give back one orphan with the least that can be written; returns its new state."""
    records = await connection.fetch(query("postgres", "rescue_bare"), job, *rules)
    await runner.execute(release_slots(record["limits"] for record in records))
    return [rows.STATES[record["status"]] for record in records]
