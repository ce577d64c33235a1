"""A checkup of what may run: slots that nobody uses, jobs parked for nothing, what is closed, and late ticks."""

from __future__ import annotations

import asyncio
import shlex
from asyncio import sleep
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import spell
from windlass.store import dialect_of
from windlass.store.doctor.checkup import TOLD, Finding, ok, problem, warning
from windlass.store.sql import query

if TYPE_CHECKING:
    from windlass.config import Settings

OVERDUE = 60.0  # seconds that a tick may be late
LONGEST_PAUSE = 5.0  # seconds before a second look

RECOUNT = {
    "postgres": "BEGIN; SELECT FROM windlass.limit_counters ORDER BY key FOR UPDATE; "
    "UPDATE windlass.limit_counters SET used = "
    "(SELECT count(*) FROM windlass.jobs WHERE status = 'running' AND limit_counters.key = ANY (limits)) "
    "WHERE most IS NOT NULL; COMMIT",
    "sqlite": "UPDATE windlass_limit_counters SET used = "
    "(SELECT count(*) FROM windlass_jobs, json_each(limits) AS held "
    "WHERE status = 'running' AND held.value = windlass_limit_counters.key) WHERE most IS NOT NULL",
}
"""Counts the slots anew. Safe while workers run: a claim or a finish that changes slots holds the counter's row."""


class Slots(msgspec.Struct, frozen=True):
    """A limit that is not counted right."""

    key: str
    used: int
    running: int


class Parked(msgspec.Struct, frozen=True):
    """Jobs that wait at a key that has room."""

    key: str
    jobs: int
    first: str  # the id of the one that comes next


class Closed(msgspec.Struct, frozen=True):
    """A closed gate."""

    kind: str
    name: str
    state: str
    reason: str | None
    actor: str | None
    age: float  # seconds


class Spent(msgspec.Struct, frozen=True):
    """A spent budget."""

    kind: str
    name: str
    cents: int
    spent: int
    opens: float  # seconds


class Overdue(msgspec.Struct, frozen=True):
    """A schedule whose tick nobody fired."""

    name: str
    late: float  # seconds


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """What one look sees."""

    slots: Sequence[Slots] = ()
    parked: Sequence[Parked] = ()
    gates: Sequence[Closed] = ()
    budgets: Sequence[Spent] = ()
    schedules: Sequence[Overdue] = ()


async def examine_admission(settings: Settings) -> list[Finding]:
    """Ask the database; its schema must be the one this program needs."""
    seen = await _ask(settings)
    if seen.parked:  # the next look of a worker may let them in: only who is still the first one is stuck
        await sleep(min(2 * settings.poll, LONGEST_PAUSE))
        again = await _ask(settings)
        before = {(parked.key, parked.first) for parked in seen.parked}
        stuck = [parked for parked in again.parked if (parked.key, parked.first) in before]
        seen = msgspec.structs.replace(again, parked=stuck)
    return judge_admission(settings, seen)


def judge_admission(settings: Settings, seen: Admitted) -> list[Finding]:
    return [
        *_judge_limits(settings, seen),
        *_judge_gates(seen.gates),
        *_judge_budgets(seen.budgets),
        *_judge_schedules(seen.schedules),
    ]


def _judge_limits(settings: Settings, seen: Admitted) -> list[Finding]:
    lost = [slots for slots in seen.slots if slots.used > slots.running]
    short = [slots for slots in seen.slots if slots.used < slots.running]
    findings: list[Finding] = []
    if lost:
        count = sum(slots.used - slots.running for slots in lost)
        findings.append(_miscounted(settings, lost, f"{_said(count, 'slot is', 'slots are')} in use by no running job"))
    if short:
        count = sum(slots.running - slots.used for slots in short)
        findings.append(
            _miscounted(
                settings,
                short,
                f"{_said(count, 'running job has no slot of its', 'running jobs have no slot of their')} limit",
            )
        )
    if seen.parked:
        findings.append(_judge_parked(settings, seen.parked))
    return findings or [
        ok("limits", "every slot in use is that of a running job, and nobody waits where there is room")
    ]


def _miscounted(settings: Settings, wrong: Sequence[Slots], said: str) -> Finding:
    keys = ", ".join(f"{slots.key} ({slots.used} in use, {slots.running} running)" for slots in wrong[:TOLD])
    more = f" and {len(wrong) - TOLD:,} keys more" if len(wrong) > TOLD else ""
    statement = RECOUNT[dialect_of(settings.url)]
    return problem(
        "limits",
        f"{said}: {keys}{more}",
        f"count them anew: {statement}; and report it, for this is a fault of Windlass",
    )


def _said(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _judge_parked(settings: Settings, parked: Sequence[Parked]) -> Finding:
    jobs = sum(each.jobs for each in parked)
    keys = ", ".join(each.key for each in parked[:TOLD]) + (" …" if len(parked) > TOLD else "")
    decide = warning if 2 * settings.poll > LONGEST_PAUSE else problem
    return decide(
        "limits",
        f"{_said(jobs, 'job waits', 'jobs wait')} at a limit or rate that has room: {keys}; such as {parked[0].first}",
        f"a live worker lets them in within {spell(settings.poll)}: windlass worker app.py; if there is one, look for "
        "'discovery' in its log",
    )


def _judge_gates(closed: Sequence[Closed]) -> list[Finding]:
    return [_closed(gate) for gate in closed] or [ok("gates", "every gate is open")]


def _closed(gate: Closed) -> Finding:
    what, option = ("everything", "--all") if gate.kind == "all" else (f"{gate.kind} {gate.name}", f"--{gate.kind}")
    by, why = f" by {gate.actor}" if gate.actor else "", f": {gate.reason}" if gate.reason else ""
    which = option if gate.kind == "all" else f"{option} {shlex.quote(gate.name)}"
    return warning(
        "gates", f"{what} is {gate.state} since {spell(round(gate.age))}{by}{why}", f"windlass gates open {which}"
    )


def _judge_budgets(spent: Sequence[Spent]) -> list[Finding]:
    return [_spent(each) for each in spent] or [ok("budgets", "none is spent")]


def _spent(each: Spent) -> Finding:
    what, which = f"the budget of {each.kind} {each.name}", f"--{each.kind} {shlex.quote(each.name)}"
    if each.cents == 0:
        return warning("budgets", f"{what} is 0: nothing of it starts", f"windlass budgets drop {which}")
    return warning(
        "budgets",
        f"{what} is spent, {each.spent:,} of {each.cents:,} cents: nothing of it starts for {spell(round(each.opens))}",
        f"wait, or give it more: windlass budgets set {which} CENTS --per …",
    )


def _judge_schedules(overdue: Sequence[Overdue]) -> list[Finding]:
    if not overdue:
        return [ok("schedules", "none is overdue")]
    names = ", ".join(f"{each.name} (for {spell(round(each.late))})" for each in overdue[:TOLD])
    more = f" and {len(overdue) - TOLD:,} more" if len(overdue) > TOLD else ""
    return [
        problem(
            "schedules",
            f"overdue: {names}{more}",
            "a live worker fires them: windlass worker app.py; if there is one, look for 'schedules' in its log",
        )
    ]


# Both databases


async def _ask(settings: Settings) -> Admitted:
    if dialect_of(settings.url) == "sqlite":
        return await asyncio.to_thread(_ask_file, settings.url)
    return await _ask_server(settings.url)


def _ask_file(url: str) -> Admitted:
    from windlass.clock import SystemClock
    from windlass.store.sqlite.connection import connect, locate, translated
    from windlass.store.sqlite.rows import micros

    path = locate(url)
    parameters = {"now": micros(SystemClock().now()), "slack": int(OVERDUE * 1_000_000)}

    with translated(path), closing(connect(path)) as connection:

        def rows(name: str) -> list[Any]:
            return connection.execute(query("sqlite", name), parameters).fetchall()

        return _admitted({name: rows(f"doctor_{name}") for name in Admitted.__struct_fields__})


async def _ask_server(url: str) -> Admitted:
    from windlass.store.postgres.pool import connect

    connection = await connect(url, pooler=True)
    try:
        given = {"schedules": (OVERDUE,)}
        return _admitted(
            {
                name: await connection.fetch(query("postgres", f"doctor_{name}"), *given.get(name, ()))
                for name in Admitted.__struct_fields__
            }
        )
    finally:
        await connection.close()


def _admitted(rows: dict[str, list[Any]]) -> Admitted:
    return Admitted(
        slots=[Slots(*row) for row in rows["slots"]],
        parked=[Parked(*row) for row in rows["parked"]],
        gates=[Closed(*row) for row in rows["gates"]],
        budgets=[Spent(*row) for row in rows["budgets"]],
        schedules=[Overdue(*row) for row in rows["schedules"]],
    )
