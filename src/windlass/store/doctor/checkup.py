"""A checkup of the database behind a store: what `windlass doctor` asks, and how the answers are judged.

Each dialect implements `Checkup` in its own `checkup.py`, with its questions in `queries/checkup_*.sql`. What is true
of both, the schema, types nobody knows, jobs nobody holds and workers that are gone, is judged here, once.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from windlass.clock import spell
from windlass.store import dialect_of, masked
from windlass.store.migrate import newest

if TYPE_CHECKING:
    from windlass.config import Settings

SLACK = 5.0  # seconds beyond a bound before anybody is blamed
UNKNOWN_SWEEPS = 13  # holders that nobody knows are looked for every twelfth sweep on PostgreSQL
ANSWER = 20.0  # seconds until a worker knows what it claimed: the answer may take so long, or be asked for again
TOLD = 5  # of many, so many are named
AHEAD = 5.0  # seconds that a job may lie in the future of the clock: transactions take a moment
REFUSED = "42501"  # SQLSTATE: insufficient privilege
GRANT = (
    "as its owner: GRANT USAGE ON SCHEMA windlass TO <user>; GRANT SELECT ON ALL TABLES IN SCHEMA windlass TO <user>"
)


class Level(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"  # jobs are lost, stuck or slow until somebody acts
    WARNING = "warning"
    OK = "ok"


class Finding(msgspec.Struct, frozen=True):
    """One answer: what was looked at, how bad it is, what was seen, and the next thing to do."""

    check: str
    level: Level
    said: str
    advice: str | None = None


class Checkup(Protocol):
    """What a dialect can say about its database. Reads only; opens its own connection and closes it again."""

    async def examine(self) -> list[Finding]:
        """Every check; a database that cannot be reached is a finding, too."""
        ...


class UnservedType(msgspec.Struct, frozen=True):
    """Due jobs of one type on one queue that no live worker would claim."""

    type: str
    queue: str
    jobs: int
    lag: float  # seconds


class Holder(msgspec.Struct, frozen=True):
    """A worker that is dead, silent or unknown."""

    name: str | None  # None: nobody knows it
    jobs: int  # that it still holds
    silent: float  # seconds since its lease ended; for an unknown one, since its jobs last changed


class Forgetful(msgspec.Struct, frozen=True):
    """A live worker that holds fewer jobs, as it says, than name it."""

    name: str
    says: int
    jobs: int


def make_checkup(settings: Settings) -> Checkup:
    """The checkup for this database; it opens nothing yet."""
    if dialect_of(settings.url) == "sqlite":
        from windlass.store.sqlite.doctor import SqliteCheckup

        return SqliteCheckup(settings)
    from windlass.store import _require_asyncpg

    _require_asyncpg()
    from windlass.store.postgres.doctor import PostgresCheckup

    return PostgresCheckup(settings)


def ok(check: str, said: str) -> Finding:
    return Finding(check, Level.OK, said)


def warning(check: str, said: str, advice: str | None = None) -> Finding:
    return Finding(check, Level.WARNING, said, advice)


def problem(check: str, said: str, advice: str | None = None) -> Finding:
    return Finding(check, Level.PROBLEM, said, advice)


def judge_schema(settings: Settings, current: int) -> Finding:
    needed = newest(dialect_of(settings.url))
    if current == 0:
        return problem("schema", f"{masked(settings.url)} has no Windlass schema yet", "windlass migrate")
    if current < needed:
        return problem("schema", f"number {current}; this program needs {needed}", "windlass migrate")
    if current > needed:
        return problem(
            "schema",
            f"number {current}; this program knows {needed} at most and will not touch it",
            "pip install --upgrade windlass",
        )
    return ok("schema", f"number {current}, as this program needs")


def unasked(check: str, error: BaseException) -> Finding:
    """A question that the database did not answer; the others are still asked."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if getattr(error, "sqlstate", None) == REFUSED:
        return warning(check, f"this user may not ask: {said}", GRANT)
    return warning(check, f"could not be checked: {said}")


def judge_foreign(where: str, said: str) -> Finding:
    """A schema of the same name that another program made, or what is left of ours."""
    return problem(
        "schema",
        f"{where} has a schema windlass that Windlass did not make, or that lost its tables: {said}",
        "name another database in WINDLASS_URL; or, if nobody needs it: DROP SCHEMA windlass CASCADE, and then "
        "windlass migrate",
    )


def judge_clock(ahead: float | None) -> Finding:
    """How many seconds the newest time in the store lies ahead of the database's clock."""
    if ahead is None or ahead <= AHEAD:
        return ok("time", "nothing in the store is of the future")
    return warning(
        "time",
        f"the newest job was written {spell(round(ahead))} in the future: the database's clock was set back; what had "
        "been due stays due, and what was delayed comes so much later",
        "is the clock of the database's machine right now? timedatectl; then: windlass jobs retry state:failed",
    )


def judge_rows(odd: int, example: str | None) -> Finding:
    """Rows that were written past the table's checks: a claim leaves them out."""
    if not odd:
        return ok("rows", "every job can be read and claimed")
    return problem(
        "rows",
        f"{odd:,} with times outside the years 1 to 9999, or with a fence or an attempt at its maximum, are never "
        f"claimed; such as {example}",
        "correct them by hand (UPDATE jobs of the schema windlass); the checks of the table refuse such rows",
    )


def judge_types(unserved: Sequence[UnservedType]) -> list[Finding]:
    if not unserved:
        return [ok("types", "a live worker knows the type of every due job")]
    return [
        problem(
            "types",
            f"no live worker serves {each.type!r} on queue {each.queue!r}: {each.jobs:,} due, the oldest since "
            f"{spell(round(each.lag))}",
            f"windlass worker app.py --queue {shlex.quote(each.queue)}",
        )
        for each in unserved
    ]


def judge_holders(settings: Settings, alive: int, gone: Sequence[Holder]) -> list[Finding]:
    """Jobs under workers that are gone should be given back within a sweep; and the workers' rows go after them."""
    findings = [_judge_orphans(settings, alive, gone)]
    known = [holder for holder in gone if holder.name is not None]
    if known:
        names = ", ".join(f"{holder.name} (for {spell(round(holder.silent))})" for holder in known[:TOLD])
        more = f" and {len(known) - TOLD} more" if len(known) > TOLD else ""
        findings.append(warning("workers", f"{alive} alive; dead or silent: {names}{more}", "windlass workers"))
    elif alive:
        findings.append(ok("workers", f"{alive} alive"))
    else:
        findings.append(warning("workers", "none is registered", "windlass worker app.py"))
    return findings


def judge_leases(forgetful: Sequence[Forgetful]) -> list[Finding]:
    """What live workers hold, in the store and by their own count."""
    if not forgetful:
        return [ok("leases", "live workers know every job that they hold")]
    return [
        problem(
            "leases",
            f"{each.jobs:,} running under worker {each.name}, which knows of {each.says:,}",
            f"restart worker {each.name}: its jobs are given back a lease after its end",
        )
        for each in forgetful
    ]


def _judge_orphans(settings: Settings, alive: int, gone: Sequence[Holder]) -> Finding:
    bound = settings.sweep + settings.poll + SLACK
    late = [
        holder
        for holder in gone
        if holder.jobs and holder.silent > (bound if holder.name is not None else settings.sweep * UNKNOWN_SWEEPS)
    ]
    if not late:
        return ok("orphans", "no job is held by a worker that is gone")
    jobs = sum(holder.jobs for holder in late)
    longest = spell(round(max(holder.silent for holder in late)))
    if alive:
        advice = "the live workers should have given them back; look for 'sweep' in their logs"
    else:
        advice = "a live worker gives them back: windlass worker app.py"
    return problem("orphans", f"{jobs:,} running under workers that are gone, for up to {longest}", advice)
