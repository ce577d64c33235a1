"""A checkup of PostgreSQL: version, clock, pooler, plans, snapshots, vacuum, partitions, and what both stores share.

The connection is opened as a pooler requires it, without settings at its start, so that the checkup works where a
misconfigured worker does not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from windlass.clock import spell
from windlass.errors import StoreError
from windlass.store import masked
from windlass.store.doctor.checkup import (
    ANSWER,
    COUNTED_ROWS,
    GRANT,
    NAMED,
    Finding,
    Holder,
    Level,
    MissingLeases,
    UnservedType,
    check_clock,
    check_holders,
    check_leases,
    check_outbox,
    check_rows,
    check_schema,
    check_types,
    foreign_schema,
    not_checked,
    ok,
    problem,
    warning,
)
from windlass.store.migrate import fits
from windlass.store.postgres.connections.pool import BEGIN, connect
from windlass.store.postgres.floors import BEGINNING
from windlass.store.postgres.migrator import current
from windlass.store.sql import ordered_query, query

if TYPE_CHECKING:
    from windlass.config import Settings

OLDEST = 130_000  # PostgreSQL 13, as server_version_num reports it
SKEW = 1.0  # seconds between the clocks before it is reported
HELD = 60.0  # seconds a transaction may take before it is reported
SLOT_BEHIND = 1_000_000  # transactions a replication slot may lag behind before it is reported
DEAD_ROWS = 100_000  # of the jobs table: more are reported if they also outnumber the live rows
NO_WORKER = UUID(int=0)

Check = Callable[[Any], Awaitable[list[Finding]]]


class PostgresCheckup:
    """Implements `store.checkup.Checkup`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server: Any = None

    async def examine(self) -> list[Finding]:
        try:
            connection = await connect(self._settings.url, pooler=True)
        except StoreError as error:
            return [problem("database", str(error))]
        try:
            findings = await self._try(self._check_server, connection, "database")
            findings += await self._try(self._schema, connection, "schema")
            if findings[-1].level is Level.OK:
                for check in (
                    self._plans,
                    self._snapshots,
                    self._tables,
                    self._types,
                    self._holders,
                    self._leases,
                    self._outbox,
                    self._rows,
                ):
                    findings += await self._try(check, connection, check.__name__.strip("_"))
            return findings
        finally:
            await connection.close()

    async def _try(self, check: Check, connection: Any, name: str) -> list[Finding]:
        """Run one check. If this user may not run it, that is a warning, and the other checks still run."""
        try:
            return await check(connection)
        except (asyncpg.PostgresError, OverflowError) as error:
            return [not_checked(name, error)]

    async def _schema(self, connection: Any) -> list[Finding]:
        """Check the schema's number, and that the schema of that name is Windlass's."""
        where = masked(self._settings.url)
        try:
            number = await current(connection)
            found = await connection.fetchval(query("postgres", "doctor_schema"))
        except (asyncpg.UndefinedColumnError, asyncpg.WrongObjectTypeError, asyncpg.DatatypeMismatchError) as error:
            return [foreign_schema(where, str(error))]
        except asyncpg.InsufficientPrivilegeError as error:
            return [problem("schema", f"this user may not read it: {error}", GRANT)]
        if number == 0 and found:
            return [foreign_schema(where, f"it has {', '.join(found[:NAMED])} and no table of migrations")]
        if fits("postgres", number) and not {"jobs", "history", "workers", "installation"} <= set(found):
            return [foreign_schema(where, "jobs, history, workers or installation is missing")]
        return [check_schema(self._settings, number)]

    # The server

    async def _check_server(self, connection: Any) -> list[Finding]:
        await connection.execute("SELECT")  # the first round trip pays for the connection, not for the clock
        before = time.time()
        server = self._server = await connection.fetchrow(query("postgres", "doctor_server"))
        middle, half = (before + time.time()) / 2, (time.time() - before) / 2
        return [
            self._version(server),
            self._clock(server["clock"] - middle, half),
            await self._pooler(connection, pooled=connection.get_server_pid() != server["pid"]),
            *self._durability(server),
        ]

    def _version(self, server: Any) -> Finding:
        where = masked(self._settings.url)
        if server["number"] < OLDEST:
            return problem(
                "database", f"PostgreSQL {server['version']}; Windlass needs 13 or newer", f"upgrade {where}"
            )
        if server["standby"]:
            return problem("database", f"{where} is a standby, and jobs have to be written", "name the primary")
        return ok("database", f"PostgreSQL {server['version']} at {where}")

    def _clock(self, skew: float, half: float) -> Finding:
        """Compare the clocks. The database's decides about jobs; this machine's only affects what commands print."""
        if abs(skew) - half <= SKEW:
            return ok("clock", f"within {spell(max(abs(skew), 0.001))} of the database's")
        direction = "behind" if skew > 0 else "ahead of"
        return warning("clock", f"this machine is {spell(abs(skew))} {direction} the database", "timedatectl")

    async def _pooler(self, connection: Any, *, pooled: bool) -> Finding:
        """Compare the settings with the connection. `pooled`: its key is a pooler's own and not the server's."""
        settings = self._settings
        if not pooled:
            if settings.pooler is None:
                return ok("pooler", "none in front")
            return warning(
                "pooler",
                f"pooler={settings.pooler} costs round trips, and there is none in front",
                "unset WINDLASS_POOLER",
            )
        if settings.pooler is None:
            return problem(
                "pooler",
                "one is in front of the database; if it pools transactions, workers will fail in odd ways",
                "set WINDLASS_POOLER=transaction, and WINDLASS_DIRECT_URL to the database behind it",
            )
        if settings.direct_url is None:
            return warning(
                "pooler",
                f"in front; without a direct URL no session can LISTEN; jobs are found every {spell(settings.poll)}",
                "set WINDLASS_DIRECT_URL to the database behind it",
            )
        return await self._direct(connection, settings.direct_url)

    async def _direct(self, connection: Any, url: str) -> Finding:
        """Check that the direct URL leads past the pooler, and to the same jobs."""
        which = query("postgres", "installation")
        try:
            direct = await connect(url)
        except StoreError as error:
            return problem("pooler", f"WINDLASS_DIRECT_URL: {error}")
        try:
            pooled = direct.get_server_pid() != await direct.fetchval("SELECT pg_backend_pid()")
            same = await direct.fetchval(which) == await connection.fetchval(which)
        except asyncpg.PostgresError as error:
            return problem("pooler", f"WINDLASS_DIRECT_URL: {error}")
        finally:
            await direct.close()
        if not same:
            return problem("pooler", f"WINDLASS_DIRECT_URL ({masked(url)}) leads to other jobs than WINDLASS_URL")
        if pooled:
            return problem("pooler", f"WINDLASS_DIRECT_URL ({masked(url)}) leads through a pooler, too")
        return ok("pooler", f"in front; LISTEN and the beat go to {masked(url)}")

    def _durability(self, server: Any) -> Iterator[Finding]:
        off = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if server[name] == "off"]
        if off:
            yield warning("durability", f"{', '.join(off)} off: a crash of the server can lose accepted jobs")
        if server["autovacuum"] == "off":
            yield problem("vacuum", "autovacuum is off", "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()")

    # Plans and tables

    async def _plans(self, connection: Any) -> list[Finding]:
        """Check that the engine's claim reads jobs by its own index."""
        await connection.execute(BEGIN)
        try:
            lane = await connection.fetchrow(query("postgres", "lanes"), [])
            lanes = [[value] for value in (lane[:5] if lane is not None else ("default", 0, 0, "default", False))]
            plan = await connection.fetchval(
                f"EXPLAIN (FORMAT JSON) {ordered_query('postgres', 'claim', 'run_at')}",
                *(NO_WORKER, 100, NO_WORKER, ["?"], 0, "with", 0.0, *lanes, [100]),
                *([BEGINNING.run_at], [BEGINNING.id], [None], False, None, 0.0),
            )
        finally:
            await connection.execute("ROLLBACK")
        nodes = list(_walk(json.loads(plan)[0]["Plan"]))
        scans = [
            node["Node Type"] for node in nodes if node.get("Relation Name") == "jobs" and "Seq" in node["Node Type"]
        ]
        if scans or not any(node.get("Index Name") == "jobs_claim" for node in nodes):
            return [problem("plans", "a claim does not use the index jobs_claim", "ANALYZE windlass.jobs")]
        return [ok("plans", "a claim enters jobs by its index")]

    async def _snapshots(self, connection: Any) -> list[Finding]:
        held = await connection.fetch(query("postgres", "doctor_snapshots"), HELD, SLOT_BEHIND)
        findings = [_holder(row) for row in held]
        if not findings:
            blind = "" if self._server is not None and self._server["sees_all"] else ", as far as this user may see"
            findings.append(ok("snapshots", f"no transaction is older than {spell(HELD)}{blind}"))
        return findings

    async def _tables(self, connection: Any) -> list[Finding]:
        row = await connection.fetchrow(query("postgres", "doctor_tables"))
        findings: list[Finding] = []
        if row["broken_indexes"]:
            names = ", ".join(row["broken_indexes"])
            findings.append(problem("indexes", f"missing or invalid: {names}", "REINDEX SCHEMA CONCURRENTLY windlass"))
        if row["autovacuum_off"]:
            advice = "ALTER TABLE windlass.jobs RESET (autovacuum_enabled)"
            findings.append(problem("vacuum", "autovacuum is off for windlass.jobs", advice))
        elif (row["dead_rows"] or 0) > max(DEAD_ROWS, row["live_rows"] or 0):
            findings.append(warning("vacuum", f"{row['dead_rows']:,} dead rows in jobs", "VACUUM windlass.jobs"))
        if row["default_used"]:
            findings.append(
                warning("history", "finished jobs went into the default partition: their day had no partition")
            )
        elif not row["prepared"] and row["alive"]:
            findings.append(warning("history", "tomorrow has no partition yet; a live worker should have prepared it"))
        else:
            findings.append(ok("history", "each day has its partition"))
        return findings

    # Checks of both stores

    async def _types(self, connection: Any) -> list[Finding]:
        rows = await connection.fetch(query("postgres", "doctor_types"))
        return check_types([UnservedType(*row) for row in rows])

    async def _holders(self, connection: Any) -> list[Finding]:
        silent = [Holder(*row) for row in await connection.fetch(query("postgres", "doctor_holders"))]
        alive = (await connection.fetchrow(query("postgres", "doctor_tables")))["alive"]
        return check_holders(self._settings, alive, silent)

    async def _outbox(self, connection: Any) -> list[Finding]:
        mode = await connection.fetchval(query("postgres", "delivery"))
        return check_outbox(mode, *await connection.fetchrow(query("postgres", "outbox_size"), COUNTED_ROWS))

    async def _rows(self, connection: Any) -> list[Finding]:
        row = await connection.fetchrow(query("postgres", "doctor_rows"))
        return [check_rows(row["odd"], row["example"]), check_clock(row["ahead"])]

    async def _leases(self, connection: Any) -> list[Finding]:
        rows = await connection.fetch(query("postgres", "doctor_forgotten"), ANSWER)
        return check_leases([MissingLeases(*row) for row in rows])


def _holder(row: Any) -> Finding:
    """What holds a snapshot, and the statement that ends it."""
    if row["kind"] == "slot":
        return warning(
            "snapshots",
            f"replication slot {row['name']} ({row['state']}) is {row['age']:,.0f} transactions behind",
            f"if no replica needs it: SELECT pg_drop_replication_slot('{row['name']}')",
        )
    age = spell(round(row["age"]))
    if row["kind"] == "prepared":
        return warning(
            "snapshots",
            f"a prepared transaction of {row['owner']} has waited for {age}: {row['name']}",
            f"ROLLBACK PREPARED '{row['name']}'",
        )
    owner = f"{row['owner']} ({row['application_name']})" if row["application_name"] else row["owner"]
    return warning(
        "snapshots",
        f"{owner} has been in one transaction for {age}, {row['state']}: {' '.join((row['query'] or '').split())}",
        f"if it may end: SELECT pg_terminate_backend({row['name']})",
    )


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)
