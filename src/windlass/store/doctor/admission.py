"""The checks of admission: slots in use by no job, jobs parked on a key with room, what is closed, and late ticks."""

from __future__ import annotations

import asyncio
import shlex
from asyncio import sleep
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import spell
from windlass.model.admission import resume_command
from windlass.store import dialect_of
from windlass.store.doctor.checkup import NAMED, Finding, ok, problem, warning
from windlass.store.sql import query

if TYPE_CHECKING:
    from windlass.config import Settings

OVERDUE = 60.0  # seconds that a tick may be late
LONGEST_PAUSE = 5.0  # seconds before the second read

STATEMENTS = {
    "slots": "doctor_slots",
    "parked": "doctor_parked",
    "gates": "doctor_gates",
    "budgets": "doctor_budgets",
    "schedules": "doctor_schedules",
}
"""The statement behind each field of `AdmissionState`."""

RECOUNT = {
    "postgres": "BEGIN; SELECT FROM windlass.limit_counters ORDER BY key FOR UPDATE; "
    "UPDATE windlass.limit_counters SET used = "
    "(SELECT count(*) FROM windlass.jobs WHERE status = 'running' AND limit_counters.key = ANY (limits)) "
    "WHERE most IS NOT NULL; COMMIT",
    "sqlite": "UPDATE windlass_limit_counters SET used = "
    "(SELECT count(*) FROM windlass_jobs, json_each(limits) AS held "
    "WHERE status = 'running' AND held.value = windlass_limit_counters.key) WHERE most IS NOT NULL",
}
"""Counts the slots again. Safe while workers run: a claim or a finish that changes slots holds the counter's row."""


class MiscountedLimit(msgspec.Struct, frozen=True):
    """A limit with another count of used slots than it has running jobs."""

    key: str
    used: int
    running: int


class ParkedJobs(msgspec.Struct, frozen=True):
    """Jobs that are parked on a key that has room."""

    key: str
    jobs: int
    first: str  # the id of the job that comes next


class ClosedGate(msgspec.Struct, frozen=True):
    """A closed gate."""

    kind: str
    name: str
    state: str
    reason: str | None
    actor: str | None
    age: float  # seconds


class SpentBudget(msgspec.Struct, frozen=True):
    """A spent budget."""

    kind: str
    name: str
    cents: int
    spent: int
    opens: float  # seconds


class OverdueSchedule(msgspec.Struct, frozen=True):
    """A schedule with a tick that no worker fired."""

    name: str
    late: float  # seconds


class AdmissionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks read from the database."""

    slots: Sequence[MiscountedLimit] = ()
    parked: Sequence[ParkedJobs] = ()
    gates: Sequence[ClosedGate] = ()
    budgets: Sequence[SpentBudget] = ()
    schedules: Sequence[OverdueSchedule] = ()


async def examine_admission(settings: Settings) -> list[Finding]:
    """Run the checks; the schema must be the one that this program needs."""
    seen = await _read(settings)
    if seen.parked:  # a worker's next rescan may unpark them: a job is stuck if it is still the first one after that
        await sleep(min(2 * settings.poll, LONGEST_PAUSE))
        again = await _read(settings)
        before = {(parked.key, parked.first) for parked in seen.parked}
        stuck = [parked for parked in again.parked if (parked.key, parked.first) in before]
        seen = msgspec.structs.replace(again, parked=stuck)
    return check_admission(settings, seen)


def check_admission(settings: Settings, seen: AdmissionState) -> list[Finding]:
    return [
        *_check_limits(settings, seen),
        *_check_gates(seen.gates),
        *_check_budgets(seen.budgets),
        *_check_schedules(seen.schedules),
    ]


def _check_limits(settings: Settings, seen: AdmissionState) -> list[Finding]:
    lost = [slots for slots in seen.slots if slots.used > slots.running]
    short = [slots for slots in seen.slots if slots.used < slots.running]
    findings: list[Finding] = []
    if lost:
        count = sum(slots.used - slots.running for slots in lost)
        findings.append(
            _miscounted(settings, lost, f"{_counted(count, 'slot is', 'slots are')} in use by no running job")
        )
    if short:
        count = sum(slots.running - slots.used for slots in short)
        said = f"{_counted(count, 'running job has no slot of its', 'running jobs have no slot of their')} limit"
        findings.append(_miscounted(settings, short, said))
    if seen.parked:
        findings.append(_check_parked(settings, seen.parked))
    return findings or [
        ok("limits", "every slot in use is that of a running job, and no job is parked where there is room")
    ]


def _miscounted(settings: Settings, wrong: Sequence[MiscountedLimit], said: str) -> Finding:
    keys = ", ".join(f"{slots.key} ({slots.used} in use, {slots.running} running)" for slots in wrong[:NAMED])
    more = f" and {_counted(len(wrong) - NAMED, 'key', 'keys')} more" if len(wrong) > NAMED else ""
    statement = RECOUNT[dialect_of(settings.url)]
    return problem(
        "limits",
        f"{said}: {keys}{more}",
        f"count them again: {statement}; and report it, for this is a fault of Windlass",
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _check_parked(settings: Settings, parked: Sequence[ParkedJobs]) -> Finding:
    jobs = sum(each.jobs for each in parked)
    keys = ", ".join(each.key for each in parked[:NAMED]) + (" …" if len(parked) > NAMED else "")
    level = warning if 2 * settings.poll > LONGEST_PAUSE else problem
    return level(
        "limits",
        f"{_counted(jobs, 'job waits', 'jobs wait')} at a limit or rate that has room: {keys}; "
        f"such as {parked[0].first}",
        f"a live worker lets them in within {spell(settings.poll)}: windlass worker app.py; if there is one, search "
        "for 'discovery' in its log",
    )


def _check_gates(closed: Sequence[ClosedGate]) -> list[Finding]:
    return [_closed_gate(gate) for gate in closed] or [ok("gates", "every gate is open")]


def _closed_gate(gate: ClosedGate) -> Finding:
    what = "everything" if gate.kind == "all" else f"{gate.kind} {gate.name}"
    by, why = f" by {gate.actor}" if gate.actor else "", f": {gate.reason}" if gate.reason else ""
    since = f"{what} is {gate.state} since {spell(round(gate.age))}{by}{why}"
    return warning("gates", since, resume_command(gate.kind, gate.name))


def _check_budgets(spent: Sequence[SpentBudget]) -> list[Finding]:
    return [_spent_budget(each) for each in spent] or [ok("budgets", "none is spent")]


def _spent_budget(each: SpentBudget) -> Finding:
    what, which = f"the budget of {each.kind} {each.name}", f"--{each.kind} {shlex.quote(each.name)}"
    if each.cents == 0:
        return warning("budgets", f"{what} is 0: nothing of it starts", f"windlass budgets drop {which}")
    spent = f"{each.spent:,} of {_counted(each.cents, 'cent', 'cents')}"
    return warning(
        "budgets",
        f"{what} is spent, {spent}: nothing of it starts for {spell(round(each.opens))}",
        f"wait, or give it more: windlass budgets set {which} CENTS --per …",
    )


def _check_schedules(overdue: Sequence[OverdueSchedule]) -> list[Finding]:
    if not overdue:
        return [ok("schedules", "none is overdue")]
    names = ", ".join(f"{each.name} (for {spell(round(each.late))})" for each in overdue[:NAMED])
    more = f" and {len(overdue) - NAMED:,} more" if len(overdue) > NAMED else ""
    return [
        problem(
            "schedules",
            f"overdue: {names}{more}",
            "a live worker fires them: windlass worker app.py; if there is one, search for 'schedules' in its log",
        )
    ]


# Both databases


async def _read(settings: Settings) -> AdmissionState:
    if dialect_of(settings.url) == "sqlite":
        return await asyncio.to_thread(_read_file, settings.url)
    return await _read_server(settings.url)


def _read_file(url: str) -> AdmissionState:
    from windlass.clock import SystemClock
    from windlass.store.sqlite.connections.file import connect, locate, translate_errors
    from windlass.store.sqlite.rows import micros

    path = locate(url)
    parameters = {"now": micros(SystemClock().now()), "slack": int(OVERDUE * 1_000_000)}

    with translate_errors(path), closing(connect(path)) as connection:

        def rows(name: str) -> list[Any]:
            return connection.execute(query("sqlite", name), parameters).fetchall()

        return _state_of({name: rows(statement) for name, statement in STATEMENTS.items()})


async def _read_server(url: str) -> AdmissionState:
    from windlass.store.postgres.connections.pool import connect

    connection = await connect(url, pooler=True)
    try:
        given = {"schedules": (OVERDUE,)}
        return _state_of(
            {
                name: await connection.fetch(query("postgres", statement), *given.get(name, ()))
                for name, statement in STATEMENTS.items()
            }
        )
    finally:
        await connection.close()


def _state_of(rows: dict[str, list[Any]]) -> AdmissionState:
    return AdmissionState(
        slots=[MiscountedLimit(*row) for row in rows["slots"]],
        parked=[ParkedJobs(*row) for row in rows["parked"]],
        gates=[ClosedGate(*row) for row in rows["gates"]],
        budgets=[SpentBudget(*row) for row in rows["budgets"]],
        schedules=[OverdueSchedule(*row) for row in rows["schedules"]],
    )
