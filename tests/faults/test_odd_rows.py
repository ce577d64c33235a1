"""Rows that no program should write: times no program can read, counters at their maximum. Other jobs go on."""

from __future__ import annotations

import re
import sqlite3
from uuid import UUID

import asyncpg
import pytest

from store.conftest import making, rig
from store.rig import Rig, new_job
from windlass.model.state import State
from windlass.store.migrate import newest

__all__ = ["making", "rig"]

pytestmark = pytest.mark.asyncio(loop_scope="session")  # that of `rig`

LAST = {
    "postgres": {"time": "'infinity'", "first": "'-infinity'", "late": "'12000-01-01'", "fence": "9223372036854775807"},
    "sqlite": {
        "time": "9223372036854775807",
        "first": "-9223372036854775808",
        "late": "316516204800000000",
        "fence": "9223372036854775807",
    },
}
ODD = {
    "due never": "run_at = {time}",
    "due before all time": "run_at = {first}",
    "due in the year 12000": "run_at = {late}",
    "created never": "created_at = {time}",
    "created before all time": "created_at = {first}",
    "created in the year 12000": "created_at = {late}",
    "updated never": "updated_at = {time}",
    "finished in the year 12000": "finished_at = {late}",
    "with the last fence": "fence = {fence}",
    "with the last fence but one": "fence = {fence} - 1",
    "with the last attempt": "attempt = 2147483647",
    "with the last attempt but one": "attempt = 2147483646",
}
GUARDS = {
    "postgres": (
        "ALTER TABLE windlass.jobs DROP CONSTRAINT IF EXISTS jobs_times_are_in_the_years_1_to_9999,"
        " DROP CONSTRAINT IF EXISTS jobs_fence_is_below_its_maximum,"
        " DROP CONSTRAINT IF EXISTS jobs_attempt_is_below_its_maximum",
    ),
    "sqlite": (
        "DROP TRIGGER IF EXISTS windlass_jobs_sound_when_new",
        "DROP TRIGGER IF EXISTS windlass_jobs_sound_when_changed",
    ),
}


async def unguarded(rig: Rig) -> None:
    """As before there were any checks."""
    for statement in GUARDS[rig.dialect]:
        await rig.run(statement)


async def make_odd(rig: Rig, job: UUID, kind: str) -> None:
    change = ODD[kind].format(**LAST[rig.dialect])
    await rig.run(f"UPDATE {{}}jobs SET {change} WHERE id = '{job}'")


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "limited"])
async def test_rows_from_before_keep_no_other_job_from_being_claimed(rig: Rig, limited: bool) -> None:
    declared = "now()" if rig.dialect == "postgres" else "0"
    await rig.run(f"INSERT INTO {{}}limits (name, most, declared_at) VALUES ('domain', 100, {declared})")
    limits = ("domain:a",) if limited else ()
    await unguarded(rig)

    for kind in ODD:
        odd = await rig.enqueue(limits=limits)
        await make_odd(rig, odd, kind)
        jobs = {await rig.enqueue(limits=limits), await rig.enqueue(queue="other"), await rig.enqueue(priority=5)}

        claimed = {job.id for _ in range(3) for job in await rig.claim(aged=1)}

        assert claimed - {odd} == jobs, kind
        assert await rig.claim(by_creation=True) == [], kind


ADDED = {
    "jobs": ("fingerprint", "error_at", "error_worker"),
    "history": ("fingerprint", "error_at", "error_worker"),
    "workers": ("pools", "version", "windlass", "schema_number"),
    "installation": ("delivery",),
}
"""The columns that migrations after the second added."""


async def test_the_next_migration_makes_good_what_was_written_before(rig: Rig) -> None:
    await unguarded(rig)
    jobs = {kind: await rig.enqueue() for kind in ODD}
    for kind, job in jobs.items():
        await make_odd(rig, job, kind)
    await rig.run("DELETE FROM {}migrations WHERE number > 1")
    # What the migrations after the second made:
    for index in ("jobs_aside", "jobs_parked_in", "history_cancelled", "audit_actor", "audit_tenant"):
        await rig.run(f"DROP INDEX {{}}{index}")
    for index in ("jobs_errors", "jobs_fingerprint", "history_errors", "history_fingerprint", "jobs_in_phases"):
        await rig.run(f"DROP INDEX {{}}{index}")
    for index in ("jobs_aside_newest", "history_tenant", "audit_action"):
        await rig.run(f"DROP INDEX {{}}{index}")
    for table, columns in ADDED.items():
        for column in columns:
            await rig.run(f"ALTER TABLE {{}}{table} DROP COLUMN {column}")
    for table in ("figures", "depths", "tokens", "types", "outbox"):
        await rig.run(f"DROP TABLE {{}}{table}")
    if rig.dialect == "postgres":
        await rig.run("DROP VIEW {}queue_depths")
        for function in ("histogram", "add_up", "deliver_new", "deliver_changed", "add_partition", "drop_partition"):
            await rig.run(f"DROP FUNCTION {{}}{function} CASCADE")
    await rig.run("ALTER TABLE {}installation DROP COLUMN seen_at")
    await rig.run("DELETE FROM {}workers")  # no live worker may fall two versions behind

    assert len(await rig.migrator.migrate()) == newest(rig.dialect) - 1

    rig.worker = await rig.register()
    assert {await rig.status(job) for job in jobs.values()} == {State.QUEUED}
    claimed = {job.id for job in await rig.claim(room=100)}
    assert jobs.keys() - {kind for kind, job in jobs.items() if job in claimed} == {
        "due never",
        "due in the year 12000",
    }


async def test_a_write_of_such_a_row_is_refused(rig: Rig) -> None:
    job = await rig.enqueue()

    for kind in ODD:
        if not kind.endswith("but one"):
            with pytest.raises((asyncpg.CheckViolationError, sqlite3.IntegrityError)) as refused:
                await make_odd(rig, job, kind)
            assert re.search("years.1.to.9999|maximum", str(refused.value)), kind


async def test_an_enqueue_of_such_a_row_is_refused(rig: Rig) -> None:
    job = await rig.enqueue()
    columns = "id, type, input, run_at, created_at, updated_at"
    time = LAST[rig.dialect]["time"]

    with pytest.raises((asyncpg.CheckViolationError, sqlite3.IntegrityError), match=r"1.to.9999"):
        await rig.run(
            f"INSERT INTO {{0}}jobs ({columns}) SELECT '{new_job().id}', type, input, {time}, created_at, updated_at"
            f" FROM {{0}}jobs WHERE id = '{job}'"
        )


async def test_queues_and_tenants_are_told_beside_a_row_that_was_due_before_all_time(rig: Rig) -> None:
    await unguarded(rig)
    await make_odd(rig, await rig.enqueue(), "due before all time")
    await make_odd(rig, await rig.enqueue(queue="other"), "due never")

    assert [row.queue for row in await rig.store.queues()] == ["default", "other"]
    assert [row.name for row in await rig.store.tenants()] == ["default"]
