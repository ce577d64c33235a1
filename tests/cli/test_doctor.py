"""`windlass doctor`: healthy where all is well, and otherwise the finding, how bad it is, and the next command."""

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
from windlass.flow import Flow
from windlass.job import Edge, Wait
from windlass.state import Verb
from windlass.store.checkup import Finding, Holder, Level, judge_holders, judge_schema, make_checkup
from windlass.store.checkup_joins import Waiters, judge_joins

from .desk import Desk


def findings(desk: Desk, **environment: str) -> dict[str, tuple[str, str, str | None]]:
    """What was found by check: its level, its text, its advice. Of several about one thing, the first."""
    result = desk.run("doctor", "--json", **environment)
    told: dict[str, tuple[str, str, str | None]] = {}
    for each in json.loads(result.stdout)["findings"]:
        told.setdefault(each["check"], (each["level"], each["said"], each["advice"]))
    assert result.exit_code == (1 if any(level == "problem" for level, _, _ in told.values()) else 0)
    return told


def execute(desk: Desk, sql: str, *arguments: Any) -> None:
    """SQL past the store; `{}` stands before a table's name and `{n}` is its n-th parameter."""
    if desk.url.startswith("sqlite"):
        with closing(sqlite3.connect(desk.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(sql.format("windlass_", "?1"), [str(argument) for argument in arguments])
        return

    async def run() -> None:
        import asyncpg

        connection = await asyncpg.connect(desk.url)
        await connection.execute(sql.format("windlass.", "$1"), *arguments)
        await connection.close()

    asyncio.run(run())


def is_postgres(desk: Desk) -> bool:
    return desk.url.startswith("postgresql")


# What both stores are asked


def test_a_healthy_database_is_exit_0(desk: Desk) -> None:
    desk.register()
    desk.enqueue()

    told = findings(desk)

    assert {check for check, (level, _, _) in told.items() if level == "problem"} == set()
    for check in ("database", "schema", "plans", "types", "orphans", "workers", "joins"):
        assert told[check][0] == "ok", told[check]
    if is_postgres(desk):
        assert {told[check][0] for check in ("clock", "pooler", "snapshots", "history")} == {"ok"}
    else:
        assert {told[check][0] for check in ("rights", "integrity", "log")} == {"ok"}


def test_due_jobs_of_a_type_that_no_live_worker_knows_are_a_problem(desk: Desk) -> None:
    desk.register(queues=("mail",))
    desk.enqueue(type="send", queue="mail")
    desk.enqueue(3, type="send", queue="sms")
    desk.enqueue(type="later", delay=3600.0)

    level, said, advice = findings(desk)["types"]

    assert level == "problem"
    assert said.startswith("no live worker serves 'send' on queue 'sms': 3 due, the oldest since")
    assert advice == "windlass worker app.py --queue sms"
    assert "'later'" not in desk.run("doctor").stdout


def test_jobs_under_a_dead_worker_beyond_the_bound_are_orphans(desk: Desk) -> None:
    worker = desk.register(name="ship:9")
    desk.enqueue()
    desk.claim(worker)
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    value: Any = long_ago if is_postgres(desk) else int(long_ago.timestamp() * 1_000_000)

    assert findings(desk)["orphans"][0] == "ok"
    execute(desk, "UPDATE {0}workers SET alive_until = {1}", value)
    told = findings(desk)

    level, said, _ = told["orphans"]
    assert level == "problem"
    assert re.fullmatch(r"1 running under workers that are gone, for up to 5m(\d+s)?", said)
    assert told["orphans"][2] == "a live worker gives them back: windlass worker app.py"
    level, said, advice = told["workers"]
    assert (level, advice) == ("warning", "windlass workers")
    assert re.fullmatch(r"0 alive; dead or silent: ship:9 \(for 5m(\d+s)?\)", said)


def test_jobs_under_a_worker_that_nobody_knows_are_orphans_too(desk: Desk) -> None:
    worker = desk.register()
    desk.enqueue()
    desk.claim(worker)
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    value: Any = long_ago if is_postgres(desk) else int(long_ago.timestamp() * 1_000_000)

    execute(desk, "DELETE FROM {0}workers WHERE id = {1}", worker)
    assert findings(desk)["orphans"][0] == "ok", "a sweep has had no time yet"
    execute(desk, "UPDATE {0}jobs SET updated_at = {1}", value)

    assert findings(desk)["orphans"][0] == "problem"


def test_jobs_that_wait_are_counted(desk: Desk) -> None:
    assert findings(desk)["joins"][:2] == ("ok", "no job is waiting")
    (other,) = desk.enqueue(delay=600.0)
    desk.enqueue(wait=Wait(edges=(Edge(other),), need=1, signal="go", delay=60.0))
    desk.settle(Verb.WAIT, flow=Flow(wait=Wait(signal="approved")))
    desk.settle(Verb.WAIT, flow=Flow(wait=Wait(delay=1.0)))

    assert findings(desk)["joins"][:2] == ("ok", "3 waiting, and something will wake each of them")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM {0}waits", "1 waiting for nothing"),
        ("UPDATE {0}waits SET pending = 0", "1 waiting although what they need has come, or cannot come any more"),
        ("DELETE FROM {0}jobs WHERE queue = 'elsewhere'", "1 waiting for a job that has ended or is gone"),
        ("UPDATE {0}waits SET pending = 2", "1 waiting with a wrong count of the jobs that are to come"),
    ],
)
def test_a_join_that_hangs_is_a_problem_with_a_way_out(desk: Desk, damage: str, said: str) -> None:
    (other,) = desk.enqueue(queue="elsewhere")
    (job,) = desk.enqueue(wait=Wait(edges=(Edge(other),), need=1))

    execute(desk, damage)
    result = desk.run("doctor", "--json")

    joins = [each for each in json.loads(result.stdout)["findings"] if each["check"] == "joins"]
    assert result.exit_code == 1
    assert any(each["said"].startswith(said) and each["level"] == "problem" for each in joins), joins
    assert f"windlass jobs cancel {job} && windlass jobs resume {job}" in joins[0]["advice"]
    desk.run("jobs", "cancel", str(job))
    assert desk.run("jobs", "resume", str(job)).exit_code == 0
    assert findings(desk)["joins"][0] == "ok"


@pytest.mark.parametrize(("poll", "level"), [("1s", Level.PROBLEM), ("1m", Level.WARNING)])
def test_a_wait_that_is_met_may_be_on_its_way(poll: str, level: Level) -> None:
    settings = Settings.load({}, url="sqlite:///x.db", poll=poll)

    (finding,) = judge_joins(settings, [Waiters("waiting", 3, "a"), Waiters("met", 1, "b")])

    assert finding.level is level
    assert finding.said == "1 waiting although what they need has come, or cannot come any more; such as b"
    assert f"a live worker wakes them within {poll}" in (finding.advice or "")


def test_a_signal_that_woke_nobody_is_a_problem(desk: Desk) -> None:
    job = desk.settle(Verb.WAIT, flow=Flow(wait=Wait(signal="approved")))
    value = "now()" if is_postgres(desk) else "0"

    execute(desk, f"INSERT INTO {{0}}signals (job, name, payload, at) VALUES ({{1}}, 'approved', '1', {value})", job)

    assert findings(desk)["joins"][:2] == ("problem", f"1 waiting for a signal that was sent to them; such as {job}")


def test_a_timer_that_nobody_heeds_is_a_problem(desk: Desk) -> None:
    job = desk.settle(Verb.WAIT, flow=Flow(wait=Wait(delay=60.0)))
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    value: Any = long_ago if is_postgres(desk) else int(long_ago.timestamp() * 1_000_000)

    execute(desk, "UPDATE {0}waits SET wake_at = {1}", value)

    level, said, advice = findings(desk)["joins"]
    assert (level, said) == ("problem", f"1 waiting although their time is up; such as {job}")
    assert advice is not None
    assert "windlass worker app.py" in advice


def test_a_claim_without_its_index_is_a_problem(desk: Desk) -> None:
    execute(desk, "DROP INDEX {0}jobs_claim")

    told = findings(desk)

    assert told["plans"][0] == "problem"
    if is_postgres(desk):
        assert told["indexes"][:2] == ("problem", "missing or invalid: jobs_claim")


def test_a_missing_schema_names_the_command_with_the_program(here: Path, desk: Desk) -> None:
    table = "windlass.migrations" if is_postgres(desk) else "windlass_migrations"
    execute(desk, f"DELETE FROM {table}")

    result = desk.run("doctor", "app.py")

    assert result.exit_code == 1
    assert result.stdout.startswith("problem\tschema\t")
    assert result.stdout.splitlines()[0].endswith("windlass migrate app.py")


@pytest.mark.parametrize(("current", "said"), [(0, "no Windlass schema yet"), (999, "will not touch it")])
def test_a_schema_that_is_not_ours_is_a_problem(current: int, said: str) -> None:
    finding = judge_schema(Settings.load({}, url="sqlite:///x.db"), current)

    assert finding.level is Level.PROBLEM
    assert said in finding.said


def test_live_workers_that_do_not_rescue_are_blamed() -> None:
    settings = Settings.load({}, url="sqlite:///x.db")

    orphans, workers = judge_holders(settings, 2, [Holder("ship:1", 3, 60.0), Holder("ship:2", 0, 9000.0)])

    assert orphans.level is Level.PROBLEM
    assert "the live workers should have given them back" in (orphans.advice or "")
    assert workers.said == "2 alive; dead or silent: ship:1 (for 1m), ship:2 (for 2h30m)"


def test_a_database_that_does_not_answer_is_a_problem_and_not_an_error(file_desk: Desk) -> None:
    result = file_desk.run("doctor", "--url", "postgresql://ann:hunter2@127.0.0.1:1/nowhere")

    assert result.exit_code == 1
    assert result.stdout.startswith("problem\tdatabase\tpostgresql://ann:…@127.0.0.1:1/nowhere does not answer")
    assert "hunter2" not in result.output


def test_the_worst_comes_first_on_a_terminal_and_lines_stay_inside(file_desk: Desk) -> None:
    file_desk.enqueue(type="a-type-with-a-name-that-goes-on", queue="a-queue-whose-name-is-long")

    seen, code = file_desk.terminal("doctor", width=80, NO_COLOR="1")

    lines = seen.splitlines()
    assert code == 1
    assert lines[0].startswith("problem  types      no live worker serves")
    assert max(map(len, lines[:4])) <= 80
    assert lines[1].startswith(" " * 20)
    assert lines[-1] == "1 problem, 1 warning"


# SQLite


def test_a_file_that_everybody_may_write_is_a_warning(here: Path, file_desk: Desk) -> None:
    (here / "jobs.db").chmod(0o666)

    assert findings(file_desk)["rights"][0] == "warning"


def test_a_file_that_is_not_there_stays_so(here: Path, file_desk: Desk) -> None:
    result = file_desk.run("doctor", "--url", "sqlite:///other.db")

    assert result.exit_code == 1
    assert "other.db does not exist" in result.stdout
    assert not (here / "other.db").exists()


def test_a_file_that_is_no_database_is_a_problem(here: Path, file_desk: Desk) -> None:
    (here / "junk.db").write_bytes(b"junk" * 1_000)

    result = file_desk.run("doctor", "--url", "sqlite:///junk.db")

    assert result.exit_code == 1
    assert "is not a SQLite database" in result.stdout


# PostgreSQL


def test_an_old_transaction_is_named_with_its_owner_and_its_end(
    server_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.postgres.checkup.HELD", 0.0)

    async def hold() -> list[Finding]:
        import asyncpg

        reporter = await asyncpg.connect(server_desk.url, server_settings={"application_name": "report"})
        await reporter.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        try:
            return await make_checkup(server_desk.settings).examine()
        finally:
            await reporter.close()

    (found,) = [each for each in asyncio.run(hold()) if each.check == "snapshots"]

    assert found.level is Level.WARNING
    assert "(report) is in one transaction since" in found.said
    assert "idle in transaction: BEGIN ISOLATION LEVEL REPEATABLE READ" in found.said
    assert "SELECT pg_terminate_backend(" in (found.advice or "")


def test_autovacuum_that_is_off_is_a_problem(server_desk: Desk) -> None:
    execute(server_desk, "ALTER TABLE {0}jobs SET (autovacuum_enabled = false)")

    assert findings(server_desk)["vacuum"] == (
        "problem",
        "autovacuum is off for windlass.jobs",
        "ALTER TABLE windlass.jobs RESET (autovacuum_enabled)",
    )


def test_history_in_the_default_partition_is_a_warning(server_desk: Desk) -> None:
    columns, values = "id, type, input, status, finished_at", "{1}, 't', '{{}}', 'succeeded', '2020-01-01Z'"
    execute(server_desk, f"INSERT INTO {{0}}history ({columns}) VALUES ({values})", UUID(int=1))

    assert findings(server_desk)["history"][0] == "warning"


def test_a_pooler_in_front_is_seen(server_desk: Desk) -> None:
    async def examine(**settings: Any) -> Finding:
        async with pooler(server_desk.url) as url:
            given = Settings.load({}, url=url, **settings)
            (found,) = [each for each in await make_checkup(given).examine() if each.check == "pooler"]
            return found

    unknown = asyncio.run(examine())
    polling = asyncio.run(examine(pooler="transaction"))
    direct = asyncio.run(examine(pooler="transaction", direct_url=server_desk.url))

    assert unknown.level is Level.PROBLEM
    assert "WINDLASS_POOLER=transaction" in (unknown.advice or "")
    assert (polling.level, direct.level) == (Level.WARNING, Level.OK)


def test_a_pooler_that_is_set_and_not_there_is_a_warning(server_desk: Desk) -> None:
    assert findings(server_desk, WINDLASS_POOLER="transaction")["pooler"][0] == "warning"


def test_a_direct_url_to_other_jobs_is_a_problem(server_desk: Desk) -> None:
    elsewhere = urlunsplit(urlsplit(server_desk.url)._replace(path="/postgres"))

    async def examine() -> Finding:
        async with pooler(server_desk.url) as url:
            given = Settings.load({}, url=url, pooler="transaction", direct_url=elsewhere)
            (found,) = [each for each in await make_checkup(given).examine() if each.check == "pooler"]
            return found

    assert asyncio.run(examine()).level is Level.PROBLEM


@asynccontextmanager
async def pooler(url: str) -> AsyncIterator[str]:
    """What a client can see of a pooler: the key it was given is not that of the server's process."""
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
