"""The checks of `windlass doctor`: what it reads from the database, and what it reports.

Each dialect implements `Checkup` in its own `doctor.py`; its statements are `doctor_…`. What both have in common is
checked here, once: the schema, types that no worker serves, orphans, and workers that are dead or silent.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from windlass.clock import spell
from windlass.store import dialect_of, masked
from windlass.store.migrate import fits, newest

if TYPE_CHECKING:
    from windlass.config import Settings

SLACK = 5.0  # seconds beyond a bound before a check reports it
UNKNOWN_SWEEPS = 13  # PostgreSQL searches for holders without a worker's row in every twelfth sweep
ANSWER = 20.0  # seconds until a worker knows what it claimed: the answer may take this time, or be read again
NAMED = 5  # the most examples that a finding names
AHEAD = 5.0  # seconds that a job's time may be ahead of the clock: transactions take a moment
UNRELAYED = 60.0  # seconds that a row of the outbox may be due before it is reported
COUNTED_ROWS = 10_000  # rows of the outbox that are counted at most
REFUSED = "42501"  # SQLSTATE: insufficient privilege
GRANT = (
    "as its owner: GRANT USAGE ON SCHEMA windlass TO <user>; GRANT SELECT ON ALL TABLES IN SCHEMA windlass TO <user>"
)


class Level(StrEnum):
    """How bad a finding is."""

    PROBLEM = "problem"  # jobs are lost, stuck or slow until the operator acts
    WARNING = "warning"
    OK = "ok"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: its name, how bad it is, what was found, and the next command."""

    check: str
    level: Level
    said: str
    advice: str | None = None


class Checkup(Protocol):
    """The checks of one dialect. They only read, on a connection that they open and close themselves."""

    async def examine(self) -> list[Finding]:
        """Run every check; a database that cannot be reached is a finding, too."""
        ...


class UnservedType(msgspec.Struct, frozen=True):
    """Due jobs of one type on one queue that no live worker would claim."""

    type: str
    queue: str
    jobs: int
    lag: float  # seconds


class Holder(msgspec.Struct, frozen=True):
    """A worker that is dead, silent or unknown."""

    name: str | None  # None: it has no row in the table of workers
    jobs: int  # running under this worker
    silent: float  # seconds since its lease ended; without a row, since its jobs last changed


class MissingLeases(msgspec.Struct, frozen=True):
    """A live worker that reports fewer jobs than run under its id in the store."""

    name: str
    reported: int
    jobs: int


def make_checkup(settings: Settings) -> Checkup:
    """The checkup of this database; no connection is opened yet."""
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


def check_schema(settings: Settings, current: int) -> Finding:
    needed = newest(dialect_of(settings.url))
    if current == 0:
        return problem("schema", f"{masked(settings.url)} has no Windlass schema yet", "windlass migrate")
    if current < needed:
        return problem("schema", f"number {current}; this program needs {needed}", "windlass migrate")
    if current > needed and fits(dialect_of(settings.url), current):
        return ok("schema", f"number {current}, one ahead of this program, which works with it until the next deploy")
    if current > needed:
        return problem(
            "schema",
            f"number {current}; this program knows {needed} and will not touch it",
            "upgrade Windlass here; in a clone: git pull && pip install .",
        )
    return ok("schema", f"number {current}, as this program needs")


def not_checked(check: str, error: BaseException) -> Finding:
    """The finding for a check that raised; the other checks still run."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if getattr(error, "sqlstate", None) == REFUSED:
        return warning(check, f"this user may not read it: {said}", GRANT)
    return warning(check, f"could not be checked: {said}")


def foreign_schema(where: str, said: str) -> Finding:
    """The finding for a schema of the same name that another program made, or that lost its tables."""
    return problem(
        "schema",
        f"{where} has a schema windlass that Windlass did not make, or that lost its tables: {said}",
        "name another database in WINDLASS_URL; or, if it is not needed: DROP SCHEMA windlass CASCADE, and then "
        "windlass migrate",
    )


def check_clock(ahead: float | None) -> Finding:
    """Whether the clock was set back: `ahead` is how many seconds the newest time in the store is ahead of it."""
    if ahead is None or ahead <= AHEAD:
        return ok("time", "no job was written in the clock's future")
    return warning(
        "time",
        f"the newest job was written {spell(round(ahead))} in the future: the database's clock was set back; what had "
        "been due stays due, and what was delayed comes so much later",
        "is the clock of the database's machine right now? timedatectl; then: windlass jobs retry state:failed",
    )


def check_rows(odd: int, example: str | None) -> Finding:
    """Rows that were written past the table's constraints: a claim skips them."""
    if not odd:
        return ok("rows", "every job can be read and claimed")
    return problem(
        "rows",
        f"{odd:,} with times outside the years 1 to 9999, or with a fence or an attempt at its maximum, are never "
        f"claimed; such as {example}",
        "correct them by hand (UPDATE jobs of the schema windlass); the table's constraints refuse such rows",
    )


def check_outbox(delivery: str | None, due: int, late: float | None) -> list[Finding]:
    """Rows of the outbox that no relay publishes; without a broker there is nothing to check."""
    if delivery is None:
        return []
    if late is None or late <= UNRELAYED:
        return [ok("outbox", "no row has been due for over a minute")]
    many = f"{due:,}{' or more' if due == COUNTED_ROWS else ''}"
    return [problem("outbox", f"{many} due, the oldest since {spell(round(late))}: no relay runs", "windlass relay")]


def check_types(unserved: Sequence[UnservedType]) -> list[Finding]:
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


def check_holders(settings: Settings, alive: int, gone: Sequence[Holder]) -> list[Finding]:
    """Jobs of dead or silent workers should be rescued within a sweep, and the workers' rows are deleted later."""
    findings = [_check_orphans(settings, alive, gone)]
    known = [holder for holder in gone if holder.name is not None]
    if known:
        names = ", ".join(f"{holder.name} (for {spell(round(holder.silent))})" for holder in known[:NAMED])
        more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
        findings.append(warning("workers", f"{alive} alive; dead or silent: {names}{more}", "windlass workers"))
    elif alive:
        findings.append(ok("workers", f"{alive} alive"))
    else:
        findings.append(warning("workers", "none is registered", "windlass worker app.py"))
    return findings


def check_leases(forgetful: Sequence[MissingLeases]) -> list[Finding]:
    """The jobs of live workers: as many in the store as the worker itself reports."""
    if not forgetful:
        return [ok("leases", "live workers know every job that they hold")]
    return [
        problem(
            "leases",
            f"{each.jobs:,} running under worker {each.name}, which knows of {each.reported:,}",
            f"restart worker {each.name}: its jobs are rescued a lease after its end",
        )
        for each in forgetful
    ]


def _check_orphans(settings: Settings, alive: int, gone: Sequence[Holder]) -> Finding:
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
        advice = "the live workers should have given them back; search for 'sweep' in their logs"
    else:
        advice = "a live worker gives them back: windlass worker app.py"
    return problem("orphans", f"{jobs:,} running under workers that are gone, for up to {longest}", advice)
