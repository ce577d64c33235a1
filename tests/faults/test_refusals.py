"""The database refuses what a worker writes: for a while, for one job, or for a reason that the engine does not know.

A refusal of the database is no fault of a job: what could not be written waits, and is written when it is over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest

from engine.rig import Database, come, eventually, failure, in_state, working
from windlass import Context, JobHandle, State, Windlass
from windlass.model.outcome import Transition
from windlass.runtime import refused_transitions
from windlass.runtime.worker import Worker
from windlass.store.doctor.checkup import Finding, Level, make_checkup

from .rig import FaultLab

LIMIT = 30.0  # seconds until a story gives up

TRIGGERS = {
    "postgres": """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {when} RETURN NEW; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON {{}}history FOR EACH ROW EXECUTE FUNCTION refuse()
    """,
    "sqlite": """
        CREATE TRIGGER refuse BEFORE INSERT ON {{}}history {when} BEGIN SELECT RAISE(ABORT, 'not now'); END
    """,
}
ALWAYS = {"postgres": "RAISE EXCEPTION 'not now';", "sqlite": ""}
THREES = {
    "postgres": "IF NEW.output::text = '3' THEN RAISE EXCEPTION 'not now'; END IF;",
    "sqlite": "WHEN NEW.output = '3'",
}
RELENT = {"postgres": "DROP TRIGGER refuse ON {}history", "sqlite": "DROP TRIGGER refuse"}


@pytest.fixture
async def database(lab: FaultLab) -> AsyncIterator[Database]:
    database = Database(url=lab.url, dialect=dialect(lab))
    yield database
    await database.close()


def dialect(lab: FaultLab) -> str:
    return "sqlite" if lab.url.startswith("sqlite") else "postgres"


def refuse(lab: FaultLab, when: dict[str, str]) -> None:
    lab.sql(TRIGGERS[dialect(lab)].format(when=when[dialect(lab)]))


async def sql(lab: FaultLab, statement: str) -> None:
    """Beside the loop of the workers here: what this waits for may need their answer."""
    await asyncio.to_thread(lab.sql, statement)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patience with a single refused job, shortened."""
    monkeypatch.setattr(refused_transitions, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(refused_transitions, "LEAST_TRIES", 2)
    monkeypatch.setattr(refused_transitions, "LONGEST_PAUSE_SECONDS", 0.3)


class Numbers:
    """Jobs that return their number, and how often each of them ran."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.runs: Counter[int] = Counter()

        @app.job
        async def number(n: int) -> int:
            self.runs[n] += 1
            return n

        self.number = number

    async def enqueue(self, *numbers: int) -> list[JobHandle[int]]:
        return await self.app.aenqueue_many(self.number.call(n) for n in numbers)

    async def until_run(self, count: int) -> None:
        async def ran() -> int:
            return self.runs.total()

        await eventually(ran, lambda runs: runs >= count, timeout=LIMIT)


async def until_refused(worker: Worker, count: int) -> None:
    """Until so many ended jobs wait to be written."""

    async def waiting() -> int:
        return worker.parts.completer.backlog

    await eventually(waiting, lambda backlog: backlog >= count, timeout=LIMIT)


async def running(database: Database) -> int:
    return int((await database.run("SELECT count(*) FROM {}jobs WHERE status = 'running'"))[0][0])


# The database's


async def test_a_trigger_that_raises_for_a_while_costs_no_job(lab: FaultLab, database: Database) -> None:
    jobs = Numbers(database.app())
    refuse(lab, ALWAYS)
    handles = await jobs.enqueue(*range(60))

    async with working(jobs.app, concurrency=5) as (worker, _):
        await jobs.until_run(5)
        await eventually(lambda: settled_rounds(worker), lambda rounds: rounds >= 5, timeout=LIMIT)
        held = await running(database)
        ran = jobs.runs.total()
        # Nothing new is claimed while something waits, and what waits is still held.
        assert (held, ran) == (len(worker.state.leases), held)
        assert worker.parts.completer.is_overwhelmed
        assert not await database.run("SELECT id FROM {}jobs WHERE status = 'dead'")

        await sql(lab, RELENT[database.dialect])
        assert [await handle.aresult(timeout=LIMIT) for handle in handles] == list(range(60))

    assert set(jobs.runs.values()) == {1}


async def settled_rounds(worker: Worker) -> int:
    return worker.parts.completer._refused.rounds


async def test_a_table_that_is_away_for_a_while_costs_no_job(lab: FaultLab, database: Database) -> None:
    jobs = Numbers(database.app())
    prefix = "windlass_" if database.dialect == "sqlite" else ""

    async with working(jobs.app, concurrency=5) as (worker, _):
        await sql(lab, f"ALTER TABLE {{}}audit RENAME TO {prefix}elsewhere")
        handles = await jobs.enqueue(*range(20))
        await until_refused(worker, 5)

        await sql(lab, f"ALTER TABLE {{}}elsewhere RENAME TO {prefix}audit")
        assert [await handle.aresult(timeout=LIMIT) for handle in handles] == list(range(20))

    assert set(jobs.runs.values()) == {1}


async def test_a_grant_that_is_missing_for_a_while_costs_no_job(postgres_lab: FaultLab) -> None:
    lab, role = postgres_lab, f"worker_{uuid4().hex[:8]}"
    lab.sql(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA windlass TO {role}")
    lab.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA windlass TO {role}")
    lab.sql(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA windlass TO {role}")
    database = Database(url=lab.url.replace("//windlass@", f"//{role}@"), dialect="postgres")
    assert database.url != lab.url
    try:
        jobs = Numbers(database.app())
        async with working(jobs.app, concurrency=5) as (worker, _):
            await sql(lab, f"REVOKE INSERT ON windlass.audit FROM {role}")
            handles = await jobs.enqueue(*range(20))
            await until_refused(worker, 5)
            await eventually(lambda: running(database), lambda held: held == len(worker.state.leases), timeout=LIMIT)

            await sql(lab, f"GRANT INSERT ON windlass.audit TO {role}")
            assert [await handle.aresult(timeout=LIMIT) for handle in handles] == list(range(20))
        assert set(jobs.runs.values()) == {1}
    finally:
        await database.close()
        await sql(lab, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_handler_that_forgets_all_statements_of_its_connection_harms_nobody(postgres_lab: FaultLab) -> None:
    database = Database(url=postgres_lab.url, dialect="postgres")
    app = database.app()

    @app.job
    async def rude(ctx: Context, n: int) -> int:
        async with ctx.transaction() as tx:
            await tx.execute("DEALLOCATE ALL")
        return n

    jobs = Numbers(app)
    async with working(app, concurrency=5):
        rudes = await app.aenqueue_many(rude.call(n) for n in range(2))
        handles = await jobs.enqueue(*range(50))
        assert [await handle.aresult(timeout=LIMIT) for handle in (*rudes, *handles)] == [*range(2), *range(50)]
        assert {(await handle.arecord()).attempt for handle in (*rudes, *handles)} == {1}
    assert set(jobs.runs.values()) == {1}
    await database.close()


# The job's


async def test_a_value_that_breaks_a_constraint_buries_its_job_with_the_verdict(
    lab: FaultLab, database: Database
) -> None:
    if database.dialect == "postgres":
        lab.sql("ALTER TABLE {}history ADD CHECK (output::text <> '3')")
    else:
        lab.sql("CREATE UNIQUE INDEX one_three ON windlass_history (output) WHERE output = '3'")
    jobs = Numbers(database.app())

    async with working(jobs.app) as (_, _):
        if database.dialect == "sqlite":
            await (await jobs.enqueue(3))[0].aresult(timeout=LIMIT)
        handles = await jobs.enqueue(*range(6))
        for n in (0, 1, 2, 4, 5):
            assert await handles[n].aresult(timeout=LIMIT) == n
        record = await in_state(handles[3], State.DEAD)

    assert record.reason == "succeeded, could not be stored"
    assert "refused a value" in failure(record).message


async def test_one_refused_job_stops_no_other_and_is_buried_in_the_end(
    lab: FaultLab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    refuse(lab, THREES)
    jobs = Numbers(database.app())

    async with working(jobs.app, concurrency=4) as (worker, _):
        handles = await jobs.enqueue(*range(10))
        for n in (0, 1, 2, 4, 5, 6, 7, 8, 9):
            assert await handles[n].aresult(timeout=LIMIT) == n
        later = await jobs.enqueue(10, 11)
        assert [await handle.aresult(timeout=LIMIT) for handle in later] == [10, 11]
        record = await in_state(handles[3], State.DEAD, timeout=LIMIT)

        async def held() -> int:
            return len(worker.state.leases)

        # The commit is visible before the worker has its answer and drops the lease.
        assert await eventually(held, lambda count: count == 0, timeout=LIMIT) == 0

    assert record.reason == "succeeded, could not be stored"
    assert "not now" in failure(record).message
    assert set(jobs.runs.values()) == {1}


async def test_a_refused_job_that_is_alone_lets_others_show_that_the_database_takes_them(
    lab: FaultLab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(refused_transitions, "FIRST_PROBE_SECONDS", 0.5)
    refuse(lab, THREES)
    jobs = Numbers(database.app())

    async with working(jobs.app, concurrency=4) as (worker, _):
        (three,) = await jobs.enqueue(3)
        await until_refused(worker, 1)
        later = await jobs.enqueue(10, 11, 12)
        assert [await handle.aresult(timeout=LIMIT) for handle in later] == [10, 11, 12]
        assert (await in_state(three, State.DEAD, timeout=LIMIT)).reason == "succeeded, could not be stored"


# Unknown reasons


async def test_a_finish_that_raises_something_unforeseen_keeps_no_other_waiting(
    lab: FaultLab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    jobs = Numbers(database.app())

    async with working(jobs.app, concurrency=4) as (worker, _):
        spoil(worker, lambda each: each.output == "3")
        handles = await jobs.enqueue(*range(10))
        for n in (0, 1, 2, 4, 5, 6, 7, 8, 9):
            assert await handles[n].aresult(timeout=LIMIT) == n
        record = await in_state(handles[3], State.DEAD, timeout=LIMIT)

    assert record.reason == "succeeded, could not be stored"
    assert "ZeroDivisionError" in failure(record).type


async def test_a_job_that_cannot_even_be_buried_is_put_aside(
    lab: FaultLab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    jobs = Numbers(database.app())

    async with working(jobs.app, concurrency=4) as (worker, _):
        spoil(worker, lambda each: each.output == "3" or each.reason == "succeeded, could not be stored")
        handles = await jobs.enqueue(*range(4))
        record = await in_state(handles[3], State.DEAD, timeout=LIMIT)
        assert [await handle.aresult(timeout=LIMIT) for handle in handles[:3]] == [0, 1, 2]

    assert record.reason == "succeeded, could not be stored"
    assert (record.token, record.worker, record.error) == (None, None, None)


def spoil(worker: Worker, odd: Callable[[Transition], bool]) -> None:
    """Whatever is written of such a transition raises what no store raises."""
    store: Any = worker.state.store
    settle = store.finish

    async def surprising(transitions: list[Transition]) -> Any:
        if any(map(odd, transitions)):
            raise ZeroDivisionError("a fault that was not foreseen")
        return await settle(transitions)

    store.finish = surprising


# What doctor sees


async def test_doctor_names_a_worker_that_does_not_know_what_it_holds(lab: FaultLab, database: Database) -> None:
    app = database.app(beat="0.1s")
    started, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def held() -> None:
        started.set()
        await go.wait()

    async with working(app) as (worker, _):
        await held.aenqueue()
        await come(started)
        hour = {"sqlite": "3600000000", "postgres": "interval '1 hour'"}[database.dialect]
        await sql(lab, f"UPDATE {{}}jobs SET claimed_at = claimed_at - {hour}")
        await eventually(lambda: finding(app), lambda found: found.level is Level.OK, timeout=LIMIT)

        known = dict(worker.state.leases._claimed)
        worker.state.leases._claimed.clear()  # a fault of the engine: nothing else makes a worker forget
        found = await eventually(lambda: finding(app), lambda found: found.level is Level.PROBLEM, timeout=LIMIT)
        assert found.said == f"1 running under worker {worker.name}, which knows of 0"

        worker.state.leases._claimed.update(known)
        await eventually(lambda: finding(app), lambda found: found.level is Level.OK, timeout=LIMIT)
        go.set()


async def finding(app: Windlass) -> Finding:
    return next(found for found in await make_checkup(app.settings).examine() if found.check == "leases")
