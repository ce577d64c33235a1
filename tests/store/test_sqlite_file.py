"""What is true of a file only: how it is opened, shared between processes, and let go."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.clock import SystemClock
from windlass.errors import ConfigError, SchemaMissing, StoreCorrupt, StoreError, StoreUnavailable
from windlass.model.job import new_id
from windlass.model.state import State, Verb
from windlass.store.migrate import migrations
from windlass.store.parts.encoding import encode_jobs
from windlass.store.parts.messages import cancel_message
from windlass.store.sql import ordered_query, query
from windlass.store.sqlite.connections.file import locate
from windlass.store.sqlite.migrator import SqliteMigrator
from windlass.store.sqlite.rows import micros, named, numbered
from windlass.store.sqlite.store import SqliteStore

from .rig import new_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .rig import Rig

PATIENCE = 10.0  # seconds for a signal that comes in milliseconds
NOBODY = 65_534

PRODUCER = """
import asyncio, sys
from windlass.clock import SystemClock
from windlass.model.job import NewJob, new_id
from windlass.model.outcome import Transition
from windlass.model.state import Verb
from windlass.store.protocol import Claim, NewWorker
from windlass.store.sqlite.store import SqliteStore

async def main(url, count):
    store = SqliteStore(url, clock=SystemClock())
    await store.open()
    worker = NewWorker(id=new_id(), name="one of eight", lease=60, queues=None, types=("t",), concurrency=1)
    await store.register(worker)
    for _ in range(count):
        await store.enqueue([NewJob(id=new_id(), type="t", input="{}")])
        claimed = await store.claim(Claim(worker=worker.id, room=1, types=("t",)))
        await store.finish([Transition(lease=job.lease, verb=Verb.SUCCEED) for job in claimed.jobs])
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:////", "sqlite:///:memory:", "jobs.db"])
def test_a_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite:///"):
        locate(url)


def test_a_url_is_relative_with_three_slashes_and_absolute_with_four(tmp_path: Path) -> None:
    assert locate("sqlite:///a%20b.db") == Path.cwd() / "a b.db"
    assert locate(f"sqlite:///{tmp_path}/jobs.db") == tmp_path / "jobs.db"


async def test_a_missing_file_has_no_schema_and_stays_missing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    with pytest.raises(SchemaMissing, match="windlass migrate"):
        await SqliteStore(url_of(path), clock=SystemClock()).open()

    assert await SqliteMigrator(url_of(path)).current() == 0
    assert os.listdir(tmp_path) == []


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    url = url_of(tmp_path / "nowhere" / "jobs.db")

    for step in (SqliteStore(url, clock=SystemClock()).open(), SqliteMigrator(url).migrate()):
        with pytest.raises(StoreUnavailable, match="mkdir -p"):
            await step


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk, and a windlass\n" * 50)

    for step in (
        SqliteStore(url_of(path), clock=SystemClock()).open(),
        SqliteMigrator(url_of(path)).migrate(),
    ):
        with pytest.raises(StoreCorrupt, match="not a SQLite database"):
            await step

    assert path.read_text().startswith("buy milk")


async def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreCorrupt, match="is a directory"):
        await SqliteStore(url_of(tmp_path), clock=SystemClock()).open()


@pytest.mark.parametrize("what", ["file", "directory"])
async def test_a_read_only_file_or_directory_is_refused_with_the_fix(what: str) -> None:
    with open_folder() as folder:
        path = folder / "jobs.db"
        await SqliteMigrator(url_of(path)).migrate()
        os.chmod(path, 0o444 if what == "file" else 0o666)
        os.chmod(folder, 0o777 if what == "file" else 0o555)

        with without_privileges(), pytest.raises(StoreCorrupt, match="chmod"):
            await SqliteStore(url_of(path), clock=SystemClock()).open()


async def test_a_closed_store_leaves_no_thread_and_says_so(file_rig: Rig) -> None:
    def ours() -> list[str]:
        return [name for name in windlass_threads() if name != "windlass-portal"]  # of apps in other stories

    async with file_rig.store.wakeups(), file_rig.store.transaction(limit=5):
        assert ours() != []
    await file_rig.enqueue()
    await file_rig.store.counts()

    await file_rig.store.close()
    await file_rig.store.close()

    assert ours() == []
    with pytest.raises(StoreUnavailable, match="not open"):
        await file_rig.store.counts()


async def test_the_file_is_set_to_survive_a_power_cut(file_rig: Rig) -> None:
    async with file_rig.store.transaction(limit=5) as transaction:
        modes = [await transaction.fetch(f"PRAGMA {name}") for name in ("journal_mode", "synchronous", "foreign_keys")]

    assert modes == [[{"journal_mode": "wal"}], [{"synchronous": 2}], [{"foreign_keys": 1}]]


async def test_a_forgotten_transaction_stops_the_writers_no_longer_than_its_limit(file_rig: Rig) -> None:
    await file_rig.run("CREATE TABLE effects (word text)")

    async with file_rig.store.transaction(limit=0.05) as transaction, asyncio.timeout(PATIENCE):
        await transaction.execute("INSERT INTO effects VALUES ('half')")
        job = await file_rig.enqueue()  # waits for the file's lock, which the limit frees
        with pytest.raises(StoreError, match="longer than"):
            await transaction.execute("INSERT INTO effects VALUES ('more')")
        with pytest.raises(StoreError, match="longer than"):
            await transaction.commit()

    assert await file_rig.status(job) is State.QUEUED
    assert await file_rig.run("SELECT word FROM effects") == []


async def test_the_limit_ends_a_statement_that_runs(file_rig: Rig) -> None:
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

    async with file_rig.store.transaction(limit=0.05) as transaction, asyncio.timeout(PATIENCE):
        with pytest.raises(StoreError, match="interrupted"):
            await transaction.fetch(endless)


async def test_a_commit_in_the_middle_cannot_lead_to_writes_outside(file_rig: Rig) -> None:
    await file_rig.run("CREATE TABLE effects (word text)")

    async with file_rig.store.transaction(limit=5) as transaction:
        await transaction.execute("COMMIT")
        with pytest.raises(StoreError, match="ended by a statement"):
            await transaction.execute("INSERT INTO effects VALUES ('stray')")

    assert await file_rig.run("SELECT word FROM effects") == []


async def test_a_locked_file_is_waited_for(file_rig: Rig, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        enqueue = asyncio.create_task(file_rig.enqueue())
        found = await file_rig.store.counts()  # a reader does not wait
        other.execute("COMMIT")

        assert found[State.QUEUED] == 0
        assert await file_rig.status(await enqueue) is State.QUEUED


async def test_a_lock_that_stays_is_unavailability(file_rig: Rig, tmp_path: Path) -> None:
    heartbeat = file_rig.store.heartbeat()

    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await heartbeat.beat(file_rig.worker, 0.0)
    await heartbeat.close()


async def test_other_processes_on_the_file_wake_this_one(file_rig: Rig, tmp_path: Path) -> None:
    async with file_rig.store.wakeups() as wakeups, asyncio.timeout(PATIENCE):
        enqueue_by_hand(tmp_path / "jobs.db")

        assert await anext(wakeups) == "*"


async def test_beats_claims_and_idle_marks_are_no_wake_ups(file_rig: Rig) -> None:
    await file_rig.enqueue()
    before = await file_rig.run("SELECT wakes FROM windlass_installation")

    await file_rig.store.set_idle(file_rig.worker, idle=True)
    (job,) = await file_rig.claim()
    await file_rig.write(job.lease, Verb.SUCCEED)
    heartbeat = file_rig.store.heartbeat()
    await heartbeat.beat(file_rig.worker, 30)
    await heartbeat.close()

    assert await file_rig.run("SELECT wakes FROM windlass_installation") == before


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.REPLAY, Verb.RESUME])
async def test_a_job_that_comes_back_wakes_listeners(file_rig: Rig, verb: Verb) -> None:
    state = {Verb.RETRY: State.FAILED, Verb.REPLAY: State.DEAD, Verb.RESUME: State.CANCELLED}[verb]
    job = await file_rig.job_in(state)

    async with file_rig.store.wakeups() as wakeups, asyncio.timeout(PATIENCE):
        await file_rig.store.operate(verb, job)

        assert await anext(wakeups) == "*"


async def test_a_request_to_cancel_reaches_the_worker_in_this_process(file_rig: Rig) -> None:
    job = await file_rig.held()

    async with file_rig.store.wakeups() as wakeups, asyncio.timeout(PATIENCE):
        await file_rig.store.operate(Verb.CANCEL, job.id)

        assert await anext(wakeups) == cancel_message(job.id)


async def test_jobs_enqueued_on_a_callers_connection_are_jobs_like_others(file_rig: Rig, tmp_path: Path) -> None:
    ours, theirs = new_job(input='{"a":[1.0]}', delay=1.5), new_job(input='{"a":[1.0]}', delay=1.5)
    await file_rig.store.enqueue([ours])

    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute(
            numbered(query("sqlite", "enqueue")), named((encode_jobs([theirs]), micros(file_rig.clock.now())))
        )

    expected = await file_rig.find(ours.id)
    found = await file_rig.find(theirs.id)
    assert (found.input, found.run_at, found.created_at) == (
        expected.input,
        expected.run_at,
        expected.created_at,
    )


async def test_eight_processes_share_one_file(tmp_path: Path) -> None:
    url = url_of(tmp_path / "jobs.db")
    await SqliteMigrator(url).migrate()
    command = [sys.executable, "-c", PRODUCER, url, "10"]

    processes = [await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE) for _ in range(8)]
    errors = [(await process.communicate())[1] for process in processes]

    assert errors == [b""] * 8
    store = SqliteStore(url, clock=SystemClock())
    await store.open()
    assert (await store.counts())[State.SUCCEEDED] == 80
    await store.close()


async def test_migrators_of_several_processes_make_one_schema(tmp_path: Path) -> None:
    url = url_of(tmp_path / "jobs.db")

    applied = await asyncio.gather(*[SqliteMigrator(url).migrate() for _ in range(6)])

    assert sorted(map(len, applied)) == [0, 0, 0, 0, 0, len(migrations("sqlite"))]


def test_parameters_are_rewritten_and_nothing_else() -> None:
    sql = """SELECT $1, '$2 '' $3', "$4", a$5, `$6`, [$7], $12 -- $8 '
             /* $9 ' */ FROM t WHERE x = $2"""

    assert numbered(sql) == sql.replace("SELECT $1", "SELECT :p1").replace("$12", ":p12").replace("= $2", "= :p2")


async def test_the_claim_walks_its_index_and_never_sorts(file_rig: Rig, tmp_path: Path) -> None:
    lane = {"queue": "q", "phase_rank": 0, "priority": 0, "tenant": "t", "limited": False}
    values = {"types": "[]", "suspects": "with", "untouched": 0, "now": 0, "until": 0, "limit": 1}
    begin = {"after_at": 0, "after_id": "", "full": None}

    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        statement = ordered_query("sqlite", "due_jobs", "run_at")
        due = connection.execute(f"EXPLAIN QUERY PLAN {statement}", lane | values | begin).fetchall()
        lanes = connection.execute(
            f"EXPLAIN QUERY PLAN {query('sqlite', 'lanes')}", {"queues": None, "now": 0}
        ).fetchall()

    steps = [row[3] for row in due]
    bounds = "queue=? AND phase_rank=? AND priority=? AND tenant=? AND <expr>=? AND (run_at,id)>(?,?) AND run_at<?"
    assert any(f"windlass_jobs_claim ({bounds})" in step for step in steps)
    assert not any("TEMP B-TREE" in step for step in steps)
    assert not any("SCAN windlass_jobs" in row[3] and "INDEX windlass_jobs_claim" not in row[3] for row in lanes)


def enqueue_by_hand(path: Path) -> None:
    """As another process would, with no Windlass in sight."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO windlass_jobs (id, type, input, run_at, created_at, updated_at) "
            "VALUES (?, 't', '{}', 0, 0, 0)",
            (str(new_id()),),
        )


def windlass_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("windlass-")]


@contextmanager
def open_folder() -> Iterator[Path]:
    """Outside pytest's own, which only its owner may enter."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write everything; the test needs a user who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
