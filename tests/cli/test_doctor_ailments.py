"""`windlass doctor` at ailments of rows, of files and of servers: each is planted, and found with its advice."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from .cli_store import CliStore
from .test_doctor import execute, findings, is_postgres


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
