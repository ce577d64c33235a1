"""`windlass doctor`: each finding with its level and the next command, and no problem in a healthy database."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import pytest

from windlass.config import Settings
from windlass.model.flow import Flow
from windlass.model.job import Edge, Wait
from windlass.model.state import Verb
from windlass.store.doctor.checkup import Finding, Holder, Level, check_holders, check_schema, make_checkup
from windlass.store.doctor.joins import WaitingJobs, check_joins
from windlass.store.migrate import newest

from .cli_store import CliStore


def findings(cli_store: CliStore, **environment: str) -> dict[str, tuple[str, str, str | None]]:
    """The findings by check: level, text, advice. Of several findings of one check, the first."""
    # The doctor reads twice what may change by itself, with two polls between.
    result = cli_store.run("doctor", "--json", **{"WINDLASS_POLL": "50ms", **environment})
    found: dict[str, tuple[str, str, str | None]] = {}
    for each in json.loads(result.stdout)["findings"]:
        found.setdefault(each["check"], (each["level"], each["said"], each["advice"]))
    assert result.exit_code == (1 if any(level == "problem" for level, _, _ in found.values()) else 0)
    return found


def execute(cli_store: CliStore, sql: str, *arguments: Any) -> None:
    """Run SQL without the store; `{}` stands before a table's name and `{n}` is its n-th parameter."""
    if cli_store.url.startswith("sqlite"):
        with closing(sqlite3.connect(cli_store.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(sql.format("windlass_", "?1"), [str(argument) for argument in arguments])
        return

    async def run() -> None:
        import asyncpg

        connection = await asyncpg.connect(cli_store.url)
        await connection.execute(sql.format("windlass.", "$1"), *arguments)
        await connection.close()

    asyncio.run(run())


def is_postgres(cli_store: CliStore) -> bool:
    return cli_store.url.startswith("postgresql")


# Both stores


def test_a_healthy_database_is_exit_0(cli_store: CliStore) -> None:
    cli_store.register_worker()
    cli_store.enqueue()

    found = findings(cli_store)

    assert {check for check, (level, _, _) in found.items() if level == "problem"} == set()
    for check in ("database", "schema", "plans", "types", "orphans", "workers", "joins"):
        assert found[check][0] == "ok", found[check]
    if is_postgres(cli_store):
        assert {found[check][0] for check in ("clock", "pooler", "snapshots", "history")} == {"ok"}
    else:
        assert {found[check][0] for check in ("rights", "integrity", "log")} == {"ok"}


def test_due_jobs_of_a_type_that_no_live_worker_knows_are_a_problem(cli_store: CliStore) -> None:
    cli_store.register_worker(queues=("mail",))
    cli_store.enqueue(type="send", queue="mail")
    cli_store.enqueue(3, type="send", queue="sms")
    cli_store.enqueue(type="later", delay=3600.0)

    level, message, advice = findings(cli_store)["types"]

    assert level == "problem"
    assert message.startswith("no live worker serves 'send' on queue 'sms': 3 due, the oldest since")
    assert advice == "windlass worker app.py --queue sms"
    assert "'later'" not in cli_store.run("doctor").stdout


def test_rows_of_the_outbox_that_no_relay_publishes_are_a_problem(cli_store: CliStore) -> None:
    cli_store.enqueue()
    assert "outbox" not in findings(cli_store), "without a broker there is nothing to check"
    execute(cli_store, "UPDATE {0}installation SET delivery = {1}", "outbox")
    assert findings(cli_store)["outbox"][0] == "ok"
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    value: Any = long_ago if is_postgres(cli_store) else int(long_ago.timestamp() * 1_000_000)
    execute(cli_store, "INSERT INTO {0}outbox (job, deliver_at) SELECT id, {1} FROM {0}jobs", value)

    level, message, advice = findings(cli_store)["outbox"]

    assert (level, advice) == ("problem", "windlass relay")
    assert re.fullmatch(r"1 due, the oldest since 5m(\d+s)?: no relay runs", message)


def test_jobs_under_a_dead_worker_beyond_the_bound_are_orphans(cli_store: CliStore) -> None:
    worker = cli_store.register_worker(name="ship:9")
    cli_store.enqueue()
    cli_store.claim_one(worker)
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    value: Any = long_ago if is_postgres(cli_store) else int(long_ago.timestamp() * 1_000_000)

    assert findings(cli_store)["orphans"][0] == "ok"
    execute(cli_store, "UPDATE {0}workers SET alive_until = {1}", value)
    found = findings(cli_store)

    level, message, _ = found["orphans"]
    assert level == "problem"
    assert re.fullmatch(r"1 running under workers that are gone, for up to 5m(\d+s)?", message)
    assert found["orphans"][2] == "a live worker gives them back: windlass worker app.py"
    level, message, advice = found["workers"]
    assert (level, advice) == ("warning", "windlass workers")
    assert re.fullmatch(r"0 alive; dead or silent: ship:9 \(for 5m(\d+s)?\)", message)


def test_jobs_of_a_worker_without_a_row_are_orphans(cli_store: CliStore) -> None:
    worker = cli_store.register_worker()
    cli_store.enqueue()
    cli_store.claim_one(worker)
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    value: Any = long_ago if is_postgres(cli_store) else int(long_ago.timestamp() * 1_000_000)

    execute(cli_store, "DELETE FROM {0}workers WHERE id = {1}", worker)
    assert findings(cli_store)["orphans"][0] == "ok", "a sweep has had no time yet"
    execute(cli_store, "UPDATE {0}jobs SET updated_at = {1}", value)

    assert findings(cli_store)["orphans"][0] == "problem"


def test_jobs_that_wait_are_counted(cli_store: CliStore) -> None:
    assert findings(cli_store)["joins"][:2] == ("ok", "no job is waiting")
    (other,) = cli_store.enqueue(delay=600.0)
    cli_store.enqueue(wait=Wait(edges=(Edge(other),), need=1, signal="go", delay=60.0))
    cli_store.finish_job(Verb.WAIT, flow=Flow(wait=Wait(signal="approved")))
    cli_store.finish_job(Verb.WAIT, flow=Flow(wait=Wait(delay=1.0)))

    assert findings(cli_store)["joins"][:2] == ("ok", "3 waiting, and something will wake each of them")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM {0}waits", "1 waiting for nothing"),
        ("UPDATE {0}waits SET pending = 0", "1 waiting although what they need has come, or cannot come any more"),
        ("DELETE FROM {0}jobs WHERE queue = 'elsewhere'", "1 waiting for a job that has ended or no longer exists"),
        ("UPDATE {0}waits SET pending = 2", "1 waiting with a wrong count of the jobs that have yet to end"),
    ],
)
def test_a_join_that_hangs_is_a_problem_with_a_way_out(cli_store: CliStore, damage: str, message: str) -> None:
    (other,) = cli_store.enqueue(queue="elsewhere")
    (job,) = cli_store.enqueue(wait=Wait(edges=(Edge(other),), need=1))

    execute(cli_store, damage)
    result = cli_store.run("doctor", "--json")

    joins = [each for each in json.loads(result.stdout)["findings"] if each["check"] == "joins"]
    assert result.exit_code == 1
    assert any(each["said"].startswith(message) and each["level"] == "problem" for each in joins), joins
    assert f"windlass jobs cancel {job} && windlass jobs resume {job}" in joins[0]["advice"]
    cli_store.run("jobs", "cancel", str(job))
    assert cli_store.run("jobs", "resume", str(job)).exit_code == 0
    assert findings(cli_store)["joins"][0] == "ok"


@pytest.mark.parametrize(("poll", "level"), [("1s", Level.PROBLEM), ("1m", Level.WARNING)])
def test_a_wait_that_is_met_may_be_on_its_way(poll: str, level: Level) -> None:
    settings = Settings.load({}, url="sqlite:///x.db", poll=poll)

    (finding,) = check_joins(settings, [WaitingJobs("waiting", 3, "a"), WaitingJobs("met", 1, "b")])

    assert finding.level is level
    assert finding.said == "1 waiting although what they need has come, or cannot come any more; such as b"
    assert f"a live worker wakes them within {poll}" in (finding.advice or "")


def test_a_signal_that_woke_no_job_is_a_problem(cli_store: CliStore) -> None:
    job = cli_store.finish_job(Verb.WAIT, flow=Flow(wait=Wait(signal="approved")))
    value = "now()" if is_postgres(cli_store) else "0"

    execute(
        cli_store, f"INSERT INTO {{0}}signals (job, name, payload, at) VALUES ({{1}}, 'approved', '1', {value})", job
    )

    assert findings(cli_store)["joins"][:2] == (
        "problem",
        f"1 waiting for a signal that was sent to them; such as {job}",
    )


def test_a_timer_that_no_worker_handles_is_a_problem(cli_store: CliStore) -> None:
    job = cli_store.finish_job(Verb.WAIT, flow=Flow(wait=Wait(delay=60.0)))
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    value: Any = long_ago if is_postgres(cli_store) else int(long_ago.timestamp() * 1_000_000)

    execute(cli_store, "UPDATE {0}waits SET wake_at = {1}", value)

    level, message, advice = findings(cli_store)["joins"]
    assert (level, message) == ("problem", f"1 waiting although their time is up; such as {job}")
    assert advice is not None
    assert "windlass worker app.py" in advice


def test_a_claim_without_its_index_is_a_problem(cli_store: CliStore) -> None:
    execute(cli_store, "DROP INDEX {0}jobs_claim")

    found = findings(cli_store)

    assert found["plans"][0] == "problem"
    if is_postgres(cli_store):
        assert found["indexes"][:2] == ("problem", "missing or invalid: jobs_claim")


def test_a_missing_schema_names_the_command_with_the_program(program_dir: Path, cli_store: CliStore) -> None:
    table = "windlass.migrations" if is_postgres(cli_store) else "windlass_migrations"
    execute(cli_store, f"DELETE FROM {table}")

    result = cli_store.run("doctor", "app.py")

    assert result.exit_code == 1
    assert result.stdout.startswith("problem\tschema\t")
    assert result.stdout.splitlines()[0].endswith("windlass migrate app.py")


@pytest.mark.parametrize(("current", "message"), [(0, "no Windlass schema yet"), (999, "will not touch it")])
def test_a_schema_that_is_not_ours_is_a_problem(current: int, message: str) -> None:
    finding = check_schema(Settings.load({}, url="sqlite:///x.db"), current)

    assert finding.level is Level.PROBLEM
    assert message in finding.said


def test_a_schema_that_is_one_ahead_is_fine() -> None:
    finding = check_schema(Settings.load({}, url="sqlite:///x.db"), newest("sqlite") + 1)

    assert (finding.level, "one ahead of this program" in finding.said) == (Level.OK, True)


def test_live_workers_that_do_not_rescue_are_blamed() -> None:
    settings = Settings.load({}, url="sqlite:///x.db")

    orphans, workers = check_holders(settings, 2, [Holder("ship:1", 3, 60.0), Holder("ship:2", 0, 9000.0)])

    assert orphans.level is Level.PROBLEM
    assert "the live workers should have given them back" in (orphans.advice or "")
    assert workers.said == "2 alive; dead or silent: ship:1 (for 1m), ship:2 (for 2h30m)"


def test_a_database_that_does_not_answer_is_a_problem_and_not_an_error(file_cli_store: CliStore) -> None:
    result = file_cli_store.run("doctor", "--url", "postgresql://ann:hunter2@127.0.0.1:1/nowhere")

    assert result.exit_code == 1
    assert result.stdout.startswith("problem\tdatabase\tpostgresql://ann:…@127.0.0.1:1/nowhere does not answer")
    assert "hunter2" not in result.output


def test_the_worst_comes_first_on_a_terminal_and_lines_stay_inside(file_cli_store: CliStore) -> None:
    file_cli_store.enqueue(type="a-type-with-a-name-that-goes-on", queue="a-queue-whose-name-is-long")

    seen, code = file_cli_store.run_in_terminal("doctor", width=80, NO_COLOR="1")

    lines = seen.splitlines()
    assert code == 1
    assert lines[0].startswith("problem  types      no live worker serves")
    assert max(map(len, lines[:4])) <= 80
    assert lines[1].startswith(" " * 20)
    assert lines[-1] == "1 problem, 1 warning"


# SQLite


def test_a_file_that_every_user_may_write_is_a_warning(program_dir: Path, file_cli_store: CliStore) -> None:
    (program_dir / "jobs.db").chmod(0o666)

    assert findings(file_cli_store)["rights"][0] == "warning"


def test_a_file_that_is_not_there_stays_so(program_dir: Path, file_cli_store: CliStore) -> None:
    result = file_cli_store.run("doctor", "--url", "sqlite:///other.db")

    assert result.exit_code == 1
    assert "other.db does not exist" in result.stdout
    assert not (program_dir / "other.db").exists()


def test_a_file_that_is_no_database_is_a_problem(program_dir: Path, file_cli_store: CliStore) -> None:
    (program_dir / "junk.db").write_bytes(b"junk" * 1_000)

    result = file_cli_store.run("doctor", "--url", "sqlite:///junk.db")

    assert result.exit_code == 1
    assert "is not a SQLite database" in result.stdout


# PostgreSQL


def test_an_old_transaction_is_named_with_its_owner_and_its_end(
    server_cli_store: CliStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.postgres.doctor.HELD", 0.0)

    async def hold() -> list[Finding]:
        import asyncpg

        reporter = await asyncpg.connect(server_cli_store.url, server_settings={"application_name": "report"})
        await reporter.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        try:
            return await make_checkup(server_cli_store.settings).examine()
        finally:
            await reporter.close()

    (found,) = [each for each in asyncio.run(hold()) if each.check == "snapshots"]

    assert found.level is Level.WARNING
    assert "(report) has been in one transaction for" in found.said
    assert "idle in transaction: BEGIN ISOLATION LEVEL REPEATABLE READ" in found.said
    assert "SELECT pg_terminate_backend(" in (found.advice or "")


def test_autovacuum_that_is_off_is_a_problem(server_cli_store: CliStore) -> None:
    execute(server_cli_store, "ALTER TABLE {0}jobs SET (autovacuum_enabled = false)")

    assert findings(server_cli_store)["vacuum"] == (
        "problem",
        "autovacuum is off for windlass.jobs",
        "ALTER TABLE windlass.jobs RESET (autovacuum_enabled)",
    )


def test_history_in_the_default_partition_is_a_warning(server_cli_store: CliStore) -> None:
    columns, values = "id, type, input, status, finished_at", "{1}, 't', '{{}}', 'succeeded', '2020-01-01Z'"
    execute(server_cli_store, f"INSERT INTO {{0}}history ({columns}) VALUES ({values})", UUID(int=1))

    assert findings(server_cli_store)["history"][0] == "warning"


def test_a_pooler_in_front_is_seen(server_cli_store: CliStore) -> None:
    async def examine(**settings: Any) -> Finding:
        async with pooler(server_cli_store.url) as url:
            given = Settings.load({}, url=url, **settings)
            (found,) = [each for each in await make_checkup(given).examine() if each.check == "pooler"]
            return found

    unknown = asyncio.run(examine())
    polling = asyncio.run(examine(pooler="transaction"))
    direct = asyncio.run(examine(pooler="transaction", direct_url=server_cli_store.url))

    assert unknown.level is Level.PROBLEM
    assert "WINDLASS_POOLER=transaction" in (unknown.advice or "")
    assert (polling.level, direct.level) == (Level.WARNING, Level.OK)


def test_a_pooler_that_is_set_and_not_there_is_a_warning(server_cli_store: CliStore) -> None:
    assert findings(server_cli_store, WINDLASS_POOLER="transaction")["pooler"][0] == "warning"


def test_a_direct_url_to_other_jobs_is_a_problem(server_cli_store: CliStore) -> None:
    elsewhere = urlunsplit(urlsplit(server_cli_store.url)._replace(path="/postgres"))

    async def examine() -> Finding:
        async with pooler(server_cli_store.url) as url:
            given = Settings.load({}, url=url, pooler="transaction", direct_url=elsewhere)
            (found,) = [each for each in await make_checkup(given).examine() if each.check == "pooler"]
            return found

    assert asyncio.run(examine()).level is Level.PROBLEM


@asynccontextmanager
async def pooler(url: str) -> AsyncIterator[str]:
    """How a client detects a pooler: its key is not that of the server's process."""
    parts = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(parts.hostname, parts.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, up_writer, rewrite=False))
            group.create_task(_copy(up_reader, writer, rewrite=True))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = f"{parts.username}@" if parts.username else ""
    yield urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
    server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, rewrite: bool) -> None:
    while piece := await reader.read(65_536):
        key = piece.find(b"K\x00\x00\x00\x0c") if rewrite else -1
        if key >= 0:  # BackendKeyData: process id, secret
            piece, rewrite = piece[: key + 5] + b"\x00\x00\x00\x01" + piece[key + 9 :], False
        writer.write(piece)
    writer.close()
