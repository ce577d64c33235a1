"""`windlass doctor` at ailments of rows, of files and of servers: each is planted, and found with its advice."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from servers import postgres_database
from windlass.config import Settings
from windlass.store.doctor.checkup import Level, make_checkup
from windlass.store.postgres.doctor import PostgresCheckup
from with_postgres import private_postgres

from .cli_store import CliStore
from .test_doctor import execute, findings, is_postgres, pooler


def at(cli_store: CliStore, moment: datetime) -> Any:
    return moment if is_postgres(cli_store) else int(moment.timestamp() * 1_000_000)


def test_each_ailment_of_the_rows_is_found_with_a_way_out(cli_store: CliStore) -> None:
    """Given a worker that forgot a job, a clock that went back, and a row past its constraints, each in its turn."""
    now = datetime.now(UTC)
    worker = cli_store.register_worker(name="ship:9")
    cli_store.enqueue()
    cli_store.claim_one(worker)
    well = findings(cli_store)
    assert {well[check][0] for check in ("leases", "time", "rows")} == {"ok"}

    execute(cli_store, "UPDATE {0}jobs SET claimed_at = {1}", at(cli_store, now - timedelta(minutes=5)))
    execute(cli_store, "UPDATE {0}workers SET held = 0, held_at = {1}", at(cli_store, now))
    assert findings(cli_store)["leases"] == (
        "problem",
        "1 running under worker ship:9, which knows of 0",
        "restart worker ship:9: its jobs are rescued a lease after its end",
    )
    execute(cli_store, "UPDATE {0}workers SET held = 1")
    assert findings(cli_store)["leases"][0] == "ok"

    execute(cli_store, "UPDATE {0}jobs SET updated_at = {1}", at(cli_store, now + timedelta(hours=2)))
    level, said, advice = findings(cli_store)["time"]
    assert level == "warning"
    assert "in the future: the database's clock was set back" in said
    assert "timedatectl" in (advice or "")
    execute(cli_store, "UPDATE {0}jobs SET updated_at = {1}", at(cli_store, now))

    (odd,) = cli_store.enqueue()
    spoil(cli_store, odd)
    level, said, advice = findings(cli_store)["rows"]
    assert level == "problem"
    assert said.endswith(f"are never claimed; such as {odd}")
    assert "correct them by hand" in (advice or "")


def spoil(cli_store: CliStore, job: Any) -> None:
    """Write a fence at its maximum, which the table's constraints and triggers refuse."""
    if is_postgres(cli_store):
        execute(
            cli_store,
            "DO $do$ DECLARE name text; BEGIN FOR name IN SELECT conname FROM pg_constraint "
            "WHERE conrelid = 'windlass.jobs'::regclass AND contype = 'c' "
            "LOOP EXECUTE format('ALTER TABLE windlass.jobs DROP CONSTRAINT %I', name); END LOOP; END $do$",
        )
        execute(cli_store, "UPDATE {0}jobs SET fence = 9223372036854775807 WHERE id = {1}", job)
        return
    with closing(sqlite3.connect(cli_store.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DROP TRIGGER windlass_jobs_sound_when_changed")
        connection.execute("UPDATE windlass_jobs SET fence = 9223372036854775807 WHERE id = ?", (str(job),))


def test_each_ailment_of_a_file_is_found(
    program_dir: Path, file_cli_store: CliStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program_dir / "jobs.db"
    with monkeypatch.context() as patched:
        patched.setattr("windlass.store.sqlite.doctor.LITTLE_ROOM", 1 << 60)
        patched.setattr("windlass.store.sqlite.doctor.LARGE_LOG", -1)
        found = findings(file_cli_store)
        assert found["disk"][0] == found["log"][0] == "warning"
        assert "a program reads in one long transaction" in found["log"][1]

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    assert findings(file_cli_store)["log"] == (
        "warning",
        "journal mode delete: readers and the writer wait for each other",
        "windlass migrate",
    )

    file_cli_store.enqueue(2_000)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'windlass_jobs'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:  # the pages to which the table's root points, but not the root
        file.seek(page * size)
        file.write(b"\x00" * size * 40)
    found = findings(file_cli_store)
    damaged = [check for check, (level, _, _) in found.items() if level == "problem"]
    assert damaged, "a damaged file is a problem, whichever check meets it"


def test_each_ailment_of_a_server_is_found(server_cli_store: CliStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a server that may lose commits, and a clock that is off."""
    cli_store = server_cli_store
    execute(
        cli_store,
        "DO $do$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $do$",
    )
    monkeypatch.setattr("windlass.store.postgres.doctor.SKEW", -60.0)
    found = findings(cli_store)

    assert found["durability"][0] == "warning"
    assert "synchronous_commit off: a crash of the server can lose accepted jobs" in found["durability"][1]
    assert found["clock"][0] == "warning"
    assert found["clock"][2] == "timedatectl"


def test_each_ailment_of_a_servers_tables_is_found(server_cli_store: CliStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given dead rows, a day without a partition, tables that this user may not read, and none at all, in turn."""
    cli_store = server_cli_store
    cli_store.register_worker()
    cli_store.enqueue(20)
    monkeypatch.setattr("windlass.store.postgres.doctor.DEAD_ROWS", 0)
    execute(cli_store, "DELETE FROM {0}jobs")
    assert until(cli_store, "vacuum")[2] == "VACUUM windlass.jobs"

    tomorrow = (
        "format('DROP TABLE windlass.history_%s', to_char(windlass.now() AT TIME ZONE 'UTC' + '1 day', 'YYYYMMDD'))"
    )
    execute(cli_store, f"DO $do$ BEGIN EXECUTE {tomorrow}; END $do$")
    assert findings(cli_store)["history"][1].startswith("tomorrow has no partition yet")

    reader = f"reader_{uuid4().hex}"
    execute(cli_store, f"CREATE ROLE {reader} LOGIN")
    parts = urlsplit(cli_store.url)
    theirs = CliStore(urlunsplit(parts._replace(netloc=f"{reader}@{parts.netloc.rpartition('@')[2]}")))
    try:
        level, said, advice = findings(theirs)["schema"]
        assert (level, "this user may not read it" in said) == ("problem", True)
        execute(cli_store, f"GRANT USAGE ON SCHEMA windlass TO {reader}")
        execute(cli_store, f"GRANT SELECT ON {{0}}migrations, {{0}}installation TO {reader}")
        level, said, advice = findings(theirs)["types"]
        assert (level, "this user may not read it" in said) == ("warning", True)
        assert "GRANT" in (advice or "")
    finally:
        execute(cli_store, f"DROP OWNED BY {reader}")
        execute(cli_store, f"DROP ROLE {reader}")

    execute(cli_store, "ALTER TABLE {0}history RENAME TO other")
    assert findings(cli_store)["schema"][1].endswith("jobs, history, workers or installation is missing")
    execute(cli_store, "DROP TABLE {0}migrations")
    assert "no table of migrations" in findings(cli_store)["schema"][1]


def until(cli_store: CliStore, check: str) -> tuple[str, str, str | None]:
    """The warning of this check: PostgreSQL counts dead rows when the session that left them has ended."""
    ends = time.monotonic() + 60.0
    while check not in (found := findings(cli_store)):
        assert time.monotonic() < ends, found
    return found[check]


@pytest.mark.slow
def test_what_a_server_keeps_for_clients_that_are_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a server without autovacuum, with a prepared transaction and a replication slot, each is a finding."""
    monkeypatch.setattr("windlass.store.postgres.doctor.HELD", 0.0)
    monkeypatch.setattr("windlass.store.postgres.doctor.SLOT_BEHIND", 0)
    with private_postgres(autovacuum="off", max_prepared_transactions="1", wal_level="logical") as url:
        cli_store = CliStore(url)
        assert cli_store.run("migrate").exit_code == 0
        execute(cli_store, "SELECT pg_create_logical_replication_slot('gone', 'test_decoding')")
        cli_store.enqueue(2)
        execute(cli_store, "BEGIN; CREATE TABLE left_over (); PREPARE TRANSACTION 'left'")
        found = json.loads(cli_store.run("doctor", "--json").stdout)["findings"]
        advice = {each["advice"] for each in found if each["check"] in ("snapshots", "vacuum")}

    assert "ROLLBACK PREPARED 'left'" in advice
    assert "if no replica needs it: SELECT pg_drop_replication_slot('gone')" in advice
    assert "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()" in advice


def test_a_server_that_cannot_have_jobs_is_a_problem() -> None:
    checkup = PostgresCheckup(Settings.load({}, url="postgresql://db.example/jobs"))

    old = checkup._version({"number": 120_019, "version": "12.19", "standby": False})
    standby = checkup._version({"number": 150_000, "version": "15", "standby": True})

    assert (old.level, old.said) == (Level.PROBLEM, "PostgreSQL 12.19; Windlass needs 13 or newer")
    assert (standby.level, standby.advice) == (Level.PROBLEM, "name the primary")


def test_a_direct_url_that_leads_elsewhere_or_nowhere_is_a_problem(server_cli_store: CliStore) -> None:
    with postgres_database() as other:
        parts = urlsplit(server_cli_store.url)
        urls = {
            "leads to other jobs": other.url,
            "does not exist": urlunsplit(parts._replace(path="/nowhere")),
        }

        async def examine(direct: str | None) -> str:
            async with pooler(server_cli_store.url) as url:
                given = Settings.load({}, url=url, pooler="transaction", direct_url=direct or url)
                (found,) = [each for each in await make_checkup(given).examine() if each.check == "pooler"]
                assert found.level is Level.PROBLEM
                return found.said

        for said, url in urls.items():
            assert said in asyncio.run(examine(url))
        assert "leads through a pooler, too" in asyncio.run(examine(None))


def test_a_file_that_this_user_may_not_write_is_a_problem(
    file_cli_store: CliStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: set[str] = set()
    monkeypatch.setattr("windlass.store.sqlite.doctor.os.access", lambda path, mode: Path(path).name not in refused)

    refused.add("jobs.db")
    assert findings(file_cli_store)["rights"][:2] == (
        "problem",
        f"this user may not read and write {path_of(file_cli_store)}",
    )
    refused.clear()
    refused.add(path_of(file_cli_store).parent.name)
    assert "SQLite writes two files beside it" in findings(file_cli_store)["rights"][1]
    monkeypatch.setattr("windlass.store.sqlite.doctor.OLDEST_SQLITE", (9, 9, 9))
    assert "Windlass needs 9.9.9 or newer" in findings(file_cli_store)["database"][1]


def path_of(cli_store: CliStore) -> Path:
    return Path(cli_store.url.removeprefix("sqlite:///"))
