"""Sweeps and pruning: dead workers, their jobs, old rows. One transaction each, so that other writers get a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from windlass.model.state import CLAIMABLE, State, Verb
from windlass.store.parts.admission import release_slots
from windlass.store.parts.consequences import after_operation, bury_crashed
from windlass.store.parts.rescue import CRASH_FINGERPRINT
from windlass.store.protocol import RESCUES_PER_CRASH
from windlass.store.sql import query, query_parts
from windlass.store.sqlite.finish import add_end
from windlass.store.sqlite.operate import archive_cancelled
from windlass.store.sqlite.rows import SECOND, array, keys_of, named, numbered

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from windlass.store.parts.rescue import CrashRules
    from windlass.store.sqlite.session import Runner

DEAD_ROW_LIFE = 60 * SECOND
"""Microseconds for which the row of a dead worker is kept."""


def mark_workers_dead(connection: sqlite3.Connection, now: int) -> int:
    """Step one: a worker that is silent beyond its lease is dead, and stays dead. Returns the number of deaths."""
    seen, bury = query_parts("sqlite", "mark_workers_dead")
    connection.execute(seen, {"now": now})
    return connection.execute(bury, {"now": now}).rowcount


def rescue(
    runner: Runner,
    connection: sqlite3.Connection,
    now: int,
    rules: CrashRules,
    page: int,
    jobs: Collection[UUID],
    *,
    only: bool,
) -> list[State]:
    """Step two: rescue one page of orphans, of these jobs (`only`) or of all but these; returns their states now.

    What a job's death causes is written with it, and the slots that the orphans held are released.
    """
    parameters = {
        **rules._asdict(),
        "max_rescues": RESCUES_PER_CRASH * rules.max_crashes,
        "page": page,
        "jobs": array(jobs),
        "only": only,
        "fingerprint": CRASH_FINGERPRINT,
        "now": now,
    }
    rows = connection.execute(query("sqlite", "rescue"), parameters).fetchall()
    for ident, status, *_ in rows:
        if status == State.DEAD:
            add_end(connection, now, ident, State.DEAD)
    runner.execute(bury_crashed((UUID(ident), reason) for ident, status, _, reason in rows if status == State.DEAD))
    runner.execute(release_slots(keys_of(limits) for _, _, limits, _ in rows))
    return [State(status) for _, status, _, _ in rows]


def orphans(connection: sqlite3.Connection, page: int, but: Collection[UUID]) -> list[UUID]:
    """One page of the jobs of dead workers."""
    found = connection.execute(query("sqlite", "orphans"), {"page": page, "jobs": array(but)})
    return [UUID(ident) for (ident,) in found]


def rescue_bare(runner: Runner, connection: sqlite3.Connection, now: int, rules: CrashRules, job: UUID) -> list[State]:
    """Give back one orphan with the smallest possible write."""
    parameters = {"id": str(job), **rules._asdict(), "now": now}
    rows = connection.execute(query("sqlite", "rescue_bare"), parameters).fetchall()
    if any(status == State.DEAD for status, _ in rows):
        add_end(connection, now, job, State.DEAD)
    runner.execute(release_slots(keys_of(limits) for _, limits in rows))
    return [State(status) for status, _ in rows]


def cancel_forgotten(runner: Runner, connection: sqlite3.Connection, now: int, page: int) -> int:
    """End one page of jobs for which a cancel was requested and that are claimable again."""
    parameters = {"sources": array(CLAIMABLE), "page": page, "now": now}
    found = connection.execute(query("sqlite", "forgotten_cancels"), parameters).fetchall()
    for (ident,) in found:
        if archive_cancelled(connection, parameters | {"id": ident}):
            runner.execute(after_operation(Verb.CANCEL, UUID(ident), State.CANCELLED, None))
    return len(found)


def prune_workers(connection: sqlite3.Connection, now: int) -> None:
    connection.execute(query("sqlite", "prune_workers"), {"now": now, "kept": DEAD_ROW_LIFE})


def drop_audit(connection: sqlite3.Connection, now: int, audit: int, page: int) -> int:
    """Delete one page of rows older than `audit` microseconds."""
    return connection.execute(query("sqlite", "drop_audit"), {"now": now, "audit": audit, "page": page}).rowcount


def prune_flow(connection: sqlite3.Connection, now: int, history: int, page: int) -> int:
    """Delete one page of each kind of row that outlived its job; returns the size of the largest page."""
    return _prune(connection, "prune_flow", history, now, page)


def prune_admission(connection: sqlite3.Connection, now: int, history: int, page: int) -> int:
    """Delete one page of each kind of admission's old rows; returns the size of the largest page."""
    return _prune(connection, "prune_admission", history, now, page)


def prune_types(connection: sqlite3.Connection, now: int, history: int, page: int) -> int:
    """Delete one page of types that no worker announced for `history` microseconds, and that none runs."""
    return _prune(connection, "prune_types", history, now, page)


def _prune(connection: sqlite3.Connection, step: str, history: int, now: int, page: int) -> int:
    values = named((history, now, page))
    return max(connection.execute(numbered(each), values).rowcount for each in query_parts("sqlite", step))


def drop_history(connection: sqlite3.Connection, now: int, history: int, page: int) -> int:
    """Delete one page of rows older than `history` microseconds."""
    return connection.execute(query("sqlite", "drop_history"), {"now": now, "history": history, "page": page}).rowcount
