"""Counts are bounded: lists of queues and tenants read no row per job, and say "more" beyond their bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.rows import COUNTED
from windlass.model.state import State, Verb

from .plans import DEEP, Plan, visiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

MANY = COUNTED + 500


async def add(rig: Rig, count: int, **columns: str) -> None:
    """Insert jobs past the store; `i` counts them."""
    values = {"type": "'mail.send'", "input": "'{{}}'"} | columns
    if rig.dialect == "postgres":
        made, id = f"generate_series(1, {count}) AS made (i)", "gen_random_uuid()"
    else:
        numbers = f"WITH RECURSIVE made (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM made LIMIT {count})"
        made = f"({numbers} SELECT i FROM made)"
        id = "lower(hex(randomblob(16)))"
        values = {"run_at": "0", "created_at": "0", "updated_at": "0"} | values
    await rig.run(
        f"INSERT INTO {{}}jobs (id, {', '.join(values)}) SELECT {id}, {', '.join(values.values())} FROM {made}"
    )


@pytest.mark.parametrize("state", ["queued", "failed", "waiting", "dead"])
async def test_beyond_the_bound_a_number_says_more(rig: Rig, state: str) -> None:
    await add(rig, MANY, status=f"'{state}'", queue="'mail'", tenant="'acme'")

    (row,) = await rig.store.queues()
    (tenant,) = await rig.store.tenants()

    assert (await rig.store.counts())[State(state)] == COUNTED + 1
    assert {name: getattr(row, name) for name in ("queued", "running", "failed", "waiting", "dead")} == {
        **dict.fromkeys(("queued", "running", "failed", "waiting", "dead"), 0),
        state: COUNTED + 1,
    }
    assert (row.queue, row.counted, tenant.name) == ("mail", COUNTED, "acme")
    assert tenant.queued == (COUNTED + 1 if state in ("queued", "failed") else 0)


async def test_parked_jobs_count_in_their_queue_and_for_their_tenant(rig: Rig) -> None:
    limits = "ARRAY['domain:a']" if rig.dialect == "postgres" else """'["domain:a"]'"""
    for queue, count in (("mail", 3), ("report", 5)):
        await add(rig, count, queue=f"'{queue}'", tenant="'acme'", limits=limits, parked_on="'domain:a'")
    await add(rig, 2, queue="'mail'", tenant="'acme'", limits=limits, parked_on="'domain:a'", status="'failed'")

    rows = {row.queue: (row.queued, row.failed, row.lag is not None) for row in await rig.store.queues()}
    (tenant,) = await rig.store.tenants()

    assert rows == {"mail": (3, 2, True), "report": (5, 0, True)}
    assert (tenant.queued, tenant.parked) == (10, 10)
    assert (await rig.store.counts())[State.QUEUED] == 8


async def test_many_names_share_what_is_counted(rig: Rig) -> None:
    await add(rig, 20_000, queue="'queue ' || (i % 200)", tenant="'tenant ' || (i % 2000)")

    queues, tenants = await rig.store.queues(), await rig.store.tenants()

    assert len(queues) == 200
    assert {(row.queued, row.counted) for row in queues} == {(51, 50)}
    assert len(tenants) == 2_000
    assert {(row.queued, row.counted) for row in tenants} == {(10, 10)}


async def test_the_ends_of_jobs_are_counted_by_state(rig: Rig) -> None:
    for verb, times in ((Verb.SUCCEED, 3), (Verb.STOP, 2), (Verb.BURY, 1)):
        for _ in range(times):
            await rig.write((await rig.held()).lease, verb)

    counts = await rig.store.counts()

    assert {state: n for state, n in counts.items() if n} == {
        State.SUCCEEDED: 3,
        State.CANCELLED: 2,
        State.DEAD: 1,
    }


@pytest.fixture
def full(databases: Callable[[int, bool], str]) -> str:
    """Not async: the database is made on a loop of its own."""
    return databases(DEEP, True)


@pytest.mark.postgres
async def test_a_list_reads_as_much_in_a_full_table_as_its_bound(full: str) -> None:
    """40,000 jobs in a queue: no list reads them all. Every scan of the jobs is a scan of an index."""
    async with visiting(full, "force_generic_plan") as world:
        await world.connection.execute(
            "BEGIN; INSERT INTO windlass.jobs (id, type, input, status, queue)"
            " SELECT gen_random_uuid(), 'usual', '{}', 'dead', 'mail' FROM generate_series(1, 40000);"
            "INSERT INTO windlass.jobs (id, type, input, queue, pipeline, phase, phase_rank)"
            " SELECT gen_random_uuid(), 'usual', '{}', 'pipes', 'site', 'ask', 1 FROM generate_series(1, 40000)"
        )
        for name in ("count_by_state", "queues", "tenants", "phases"):
            check_bound(await world.explain_once(name))


def check_bound(plan: Plan) -> None:
    known = {"jobs_claim", "jobs_aside", "jobs_parked_in", "jobs_parked", "jobs_running", "jobs_in_phases"}
    assert plan.indexes("jobs") <= known
    # four queues and seven tenants: at most 10,001 rows for each number
    assert plan.rows_read("jobs") <= 9 * (COUNTED + 1) + 10_000
    dead = [read for read in plan.reads("jobs") if read.get("Index Name") == "jobs_aside"]
    assert all(read["Actual Rows"] <= COUNTED + 1 for read in dead)
