"""The check of waiting jobs: joins, signals and timers that nothing would ever wake. There must never be one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import spell
from windlass.store import dialect_of
from windlass.store.doctor.checkup import SLACK, Finding, ok, problem, warning
from windlass.store.sql import query

if TYPE_CHECKING:
    from windlass.config import Settings

CHECK = "joins"

HANGS = {
    "nothing": "waiting for nothing: no job, no signal and no time is recorded",
    "ended": "waiting for a job that has ended or no longer exists",
    "miscounted": "waiting with a wrong count of the jobs that have yet to end",
    "signal": "waiting for a signal that was sent to them",
}
LATE = {
    "met": "waiting although what they need has come, or cannot come any more",
    "late": "waiting although their time is up",
}
"""Jobs that a live worker wakes within a poll."""
WAITING = "waiting"
LONGEST_PAUSE = 5.0  # seconds before the second read


class WaitingJobs(msgspec.Struct, frozen=True):
    """Waiting jobs of one kind."""

    kind: str
    jobs: int
    example: str  # a job's id


async def examine_joins(settings: Settings) -> list[Finding]:
    """Run the check; the schema must be the one that this program needs."""
    found = await _read(settings)
    if any(waiters.kind == "met" for waiters in found):  # a worker may be waking it now: read once more
        await asyncio.sleep(min(2 * settings.poll, LONGEST_PAUSE))
        found = await _read(settings)
    return check_joins(settings, found)


async def _read(settings: Settings) -> list[WaitingJobs]:
    slack = settings.poll + SLACK
    if dialect_of(settings.url) == "sqlite":
        return await asyncio.to_thread(_read_file, settings.url, slack)
    return await _read_server(settings.url, slack)


def check_joins(settings: Settings, found: Sequence[WaitingJobs]) -> list[Finding]:
    by_kind = {waiters.kind: waiters for waiters in found}
    findings = [_hanging(by_kind[kind], said) for kind, said in HANGS.items() if kind in by_kind]
    findings += [_late(settings, by_kind[kind], said) for kind, said in LATE.items() if kind in by_kind]
    if findings:
        return findings
    count = by_kind[WAITING].jobs if WAITING in by_kind else 0
    return [ok(CHECK, f"{count:,} waiting, and something will wake each of them" if count else "no job is waiting")]


def _hanging(waiters: WaitingJobs, said: str) -> Finding:
    return problem(
        CHECK,
        f"{waiters.jobs:,} {said}; such as {waiters.example}",
        f"start it from the top: windlass jobs cancel {waiters.example} && windlass jobs resume {waiters.example} "
        "(this cancels what it created and has not ended); and report it, for this is a fault of Windlass",
    )


def _late(settings: Settings, waiters: WaitingJobs, said: str) -> Finding:
    level = warning if waiters.kind == "met" and 2 * settings.poll > LONGEST_PAUSE else problem
    return level(
        CHECK,
        f"{waiters.jobs:,} {said}; such as {waiters.example}",
        f"a live worker wakes them within {spell(settings.poll)}: windlass worker app.py; if there is one, search "
        "for 'timers' in its log",
    )


def _read_file(url: str, slack: float) -> list[WaitingJobs]:
    from windlass.clock import SystemClock
    from windlass.store.sqlite.connections.file import connect, locate, translate_errors
    from windlass.store.sqlite.rows import micros

    path = locate(url)
    parameters = {"now": micros(SystemClock().now()), "slack": int(slack * 1_000_000)}
    with translate_errors(path), closing(connect(path)) as connection:
        return [WaitingJobs(*row) for row in connection.execute(query("sqlite", "doctor_joins"), parameters)]


async def _read_server(url: str, slack: float) -> list[WaitingJobs]:
    from windlass.store.postgres.connections.pool import connect

    connection = await connect(url, pooler=True)
    try:
        return [WaitingJobs(*row) for row in await connection.fetch(query("postgres", "doctor_joins"), slack)]
    finally:
        await connection.close()
