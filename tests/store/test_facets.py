"""Facets, due jobs, last changes and held keys: counted by both stores alike, and never a row per job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.model.audit import GATES
from windlass.model.filter import parse
from windlass.model.job import COLUMNS, Key
from windlass.model.rows import DueRow
from windlass.model.state import State, Verb
from windlass.store.parts.search import FACETS, MOST_FACETED, MOST_READ, POSTGRES, counting, listing
from windlass.store.sql import search_query

from .plans import DEEP, World, visiting
from .test_counts import add

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rig import Rig

FIELDS = ("state", "queue", "type", "tenant")
LATER = {"postgres": "now() + interval '100 years'", "sqlite": "9000000000000000"}
EARLIER = {"postgres": "'2000-01-01'", "sqlite": "0"}


async def one_of_each(rig: Rig) -> None:
    """A job in each state, in a queue of its own; the queue of the queued one also has a parked one."""
    for state in State:
        await rig.job_in(state, queue=f"of {state}", tenant="acme" if state is State.DEAD else "bolt")
    limits = "ARRAY['domain:a']" if rig.dialect == "postgres" else """'["domain:a"]'"""
    await add(rig, 1, queue="'of queued'", tenant="'acme'", limits=limits, parked_on="'domain:a'")


BY_FILTER = {
    "": {"queued": 2, "running": 1, "waiting": 1, "failed": 1, "succeeded": 1, "dead": 1, "cancelled": 1},
    "state:queued": {"queued": 2},
    "state:failed": {"failed": 1},
    "state:failed,queued": {"queued": 2, "failed": 1},
    "state:failed,dead": {"failed": 1, "dead": 1},
    "state:cancelled": {"cancelled": 1},
    "state:succeeded,cancelled": {"succeeded": 1, "cancelled": 1},
    "state:waiting,running": {"running": 1, "waiting": 1},
    "-state:queued,failed,waiting,dead,succeeded": {"running": 1, "cancelled": 1},
    "state:dead state:failed": {},
    "tenant:acme": {"queued": 1, "dead": 1},
    '-tenant:acme queue:"of queued","of failed"': {"queued": 1, "failed": 1},
    "queue:of*ed state:failed,succeeded,queued": {"queued": 2, "failed": 1, "succeeded": 1},
    "queue:nowhere": {},
    "type:nothing": {},
    "priority:0": {"queued": 2, "running": 1, "waiting": 1, "failed": 1, "succeeded": 1, "dead": 1, "cancelled": 1},
    "priority:0 state:dead,queued tenant:acme": {"queued": 1, "dead": 1},
}


@pytest.mark.parametrize("text", BY_FILTER)
async def test_each_matching_job_is_counted_once(rig: Rig, text: str) -> None:
    await one_of_each(rig)

    found = await rig.store.facets(parse(text), FIELDS)

    assert found["state"] == BY_FILTER[text]
    for field in FIELDS[1:]:
        assert sum(found[field].values()) == sum(found["state"].values())


async def test_a_tenant_counts_only_its_own_jobs(rig: Rig) -> None:
    await one_of_each(rig)

    for text in ("", "tenant:bolt", "attempt:0.."):
        found = await rig.store.facets(parse(text), FIELDS, tenant="acme")
        assert found["tenant"] == ({} if text == "tenant:bolt" else {"acme": 2})


async def test_values_are_the_most_frequent_first(rig: Rig) -> None:
    await add(rig, 3, queue="'mail'", type="'send'", status="'dead'", reason="'exhausted'", phase="'mail'")
    await add(rig, 5, queue="'site'", type="'visit'", status="'dead'", key="'k' || i", pipeline="'crawl'")
    error = """'{{"type": "HTTPStatusError", "message": "429\\nwait", "attempt": 1, "attemptedAt": "2026-01-01"}}'"""
    await add(rig, 1, queue="'site'", type="'visit'", status="'dead'", error=error)

    found = await rig.store.facets(parse("state:dead"), FACETS)

    assert list(found["queue"].items()) == [("site", 6), ("mail", 3)]
    assert list(found["type"].items()) == [("visit", 6), ("send", 3)]
    assert found["reason"] == {"exhausted": 3}
    assert found["pipeline"] == {"crawl": 5}
    assert found["key"] == {f"k{number}": 1 for number in range(1, 6)}
    assert found["error"] == {"HTTPStatusError: 429": 1}


@pytest.mark.parametrize("text", ["", "state:queued", "attempt:0.."])
async def test_beyond_the_bound_facets_say_more(rig: Rig, text: str) -> None:
    await add(rig, MOST_FACETED + 500, queue="'mail'")

    found = await rig.store.facets(parse(text), FIELDS)

    assert found["state"] == {"queued": MOST_FACETED}
    assert found["queue"] == {"mail": MOST_FACETED}


async def test_jobs_and_history_share_the_bound(rig: Rig) -> None:
    """Given more than the bound in both together, the newest of both are counted."""
    await add(rig, 8_000, queue="'mail'")
    id, then = ("gen_random_uuid()", "now()") if rig.dialect == "postgres" else ("lower(hex(randomblob(16)))", "0")
    changed = {"id": id, "status": "'succeeded'", "finished_at": then}
    kept = [column for column in COLUMNS if column not in ("parked_on", "followed")]
    values = ", ".join(changed.get(column, column) for column in kept)
    await rig.run(f"INSERT INTO {{0}}history ({', '.join(kept)}) SELECT {values} FROM {{0}}jobs")

    for text in ("", "priority:0"):
        found = await rig.store.facets(parse(text), FIELDS)
        assert sum(found["state"].values()) == MOST_FACETED
        assert found["queue"] == {"mail": MOST_FACETED}


async def test_a_job_that_is_named_is_counted_however_many_are_newer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more newer jobs than are read, then a whole id is found by its index, with other terms, too."""
    old = await rig.job_in(State.SUCCEEDED, queue="mail")
    for _ in range(5):
        await rig.job_in(State.SUCCEEDED, queue="mail")
    for dialect in ("postgres", "sqlite"):
        monkeypatch.setattr(f"windlass.store.{dialect}.reads.MOST_READ", 3)

    for text in (f"id:{old}", f"id:{old} state:succeeded", f"id:{old} queue:mail -id:000000"):
        found = await rig.store.facets(parse(text), FIELDS)
        assert found["state"] == {"succeeded": 1}, text


async def test_due_jobs_are_counted_and_later_ones_are_not(rig: Rig) -> None:
    limits = "ARRAY['domain:a']" if rig.dialect == "postgres" else """'["domain:a"]'"""
    early, late = EARLIER[rig.dialect], LATER[rig.dialect]
    for tenant, priority in (("acme", 0), ("bolt", 5)):
        await add(rig, 2, queue="'mail'", tenant=f"'{tenant}'", priority=str(priority), run_at=early)
    await add(rig, 3, queue="'mail'", limits=limits, run_at=early)
    await add(rig, 4, queue="'mail'", limits=limits, parked_on="'domain:a'", run_at=early)
    await add(rig, 1, queue="'mail'", status="'failed'", run_at=early)
    await add(rig, 9, queue="'mail'", run_at=late)
    await add(rig, 9, queue="'mail'", limits=limits, parked_on="'domain:a'", run_at=late)
    await add(rig, 9, queue="'mail'", status="'dead'", run_at=early)
    await add(rig, 9, queue="'later'", run_at=late)
    await add(rig, MOST_FACETED + 9, queue="'full'", run_at=early)

    found = {row.queue: row for row in await rig.store.count_due()}
    assert found.keys() == {"mail", "full"}
    assert (found["mail"].due, found["mail"].counted) == (12, 10_000)
    assert found["full"].due > found["full"].counted  # more than four lanes share what is counted


async def test_beyond_the_bound_more_jobs_are_due(rig: Rig) -> None:
    await add(rig, MOST_FACETED + 9, queue="'full'", run_at=EARLIER[rig.dialect])

    assert await rig.store.count_due() == [DueRow("full", 10_001, 10_000)]


async def test_changes_are_what_operators_did(rig: Rig) -> None:
    dead = await rig.job_in(State.DEAD)
    await rig.store.operate(Verb.REPLAY, dead, actor="ann")
    await rig.store.operate(Verb.CANCEL, dead)
    assert await rig.store.changes(page=1) != []
    await rig.store.operate(Verb.RESUME, dead, actor="bob")

    changes = await rig.store.changes(page=5)

    assert [(row.actor, row.action, row.job) for row in changes] == [
        ("bob", "JOB_RESUMED", dead),
        ("ann", "JOB_REPLAYED", dead),
    ]
    assert [row.actor for row in await rig.store.changes(page=1)] == ["bob"]
    assert set(GATES.values()).isdisjoint(row.action for row in changes)


async def test_a_key_is_held_as_long_as_it_refuses(rig: Rig) -> None:
    """Given a key that a queued job holds for an hour, it is held, until the job ended or the hour is over."""
    key = Key(scope="unique", key="mail-771", states=("queued", "running"))
    hourly = Key(scope="unique", key="hourly", states=None, window=3_600.0)
    job = await rig.enqueue(unique=key, queue="mail", key=key.key)
    other = await rig.enqueue(unique=hourly, queue="mail", key=hourly.key)
    free = Key(scope="unique", key="nobody has it", states=None)

    held = await rig.store.held_keys([key, hourly, free])
    assert held == {("unique", "mail-771"): job, ("unique", "hourly"): other}

    await rig.store.operate(Verb.CANCEL, job)
    await rig.advance(3_601)
    assert await rig.store.held_keys([key, hourly]) == {}
    again = await rig.enqueue(unique=hourly, queue="mail", key=hourly.key)
    assert await rig.store.held_keys([hourly]) == {("unique", "hourly"): again}


async def test_a_key_of_a_job_that_left_its_states_is_free(rig: Rig) -> None:
    key = Key(scope="unique", key="once queued", states=("queued",))
    job = await rig.enqueue(unique=key, key=key.key)
    assert await rig.store.held_keys([key]) == {("unique", key.key): job}

    await rig.take(job)

    assert await rig.store.held_keys([key]) == {}


async def test_depths_in_steps_are_the_last_sample_of_each(rig: Rig) -> None:
    for _ in range(12):
        await rig.enqueue(queue="mail")
        await rig.store.sample_depths()
        await rig.advance(10)

    all_of_them = await rig.store.depths(since=600.0)
    minutes = await rig.store.depths(since=600.0, step=60.0)

    assert [row.queued for row in all_of_them] == list(range(1, 13))
    last = {int(row.at.timestamp() // 60): row for row in all_of_them}
    assert minutes == list(last.values())


# Plans


@pytest.fixture
def full(databases: Callable[[int, bool], str]) -> str:
    """Not async: the database is made on a loop of its own."""
    return databases(DEEP, True)


@pytest.mark.postgres
async def test_a_filter_of_names_reads_only_what_may_match(full: str) -> None:
    for planning in ("force_custom_plan", "force_generic_plan"):
        async with visiting(full, planning) as world:
            await check_facets(world, "state:dead", 100)  # of 40,000 jobs
            await check_facets(world, "state:running", 2 * 400)
            await check_facets(world, "queue:nowhere", 400)
            await check_facets(world, "state:dead,failed queue:crawl", 100)
            await check_facets(world, "type:rare state:queued", 2 * MOST_READ)


async def check_facets(world: World, text: str, most: int) -> None:
    filter = parse(text)
    name, condition, names, chosen, values = counting(filter, POSTGRES, 4, None)
    sql = search_query("postgres", name, condition, names)
    dead = (
        "INSERT INTO windlass.jobs (id, type, input, status, queue)"
        " SELECT gen_random_uuid(), 'usual', '{}', 'dead', 'mail' FROM generate_series(1, 10)"
    )

    plan = await world.explain_text(sql, (MOST_FACETED, FIELDS, MOST_READ, *chosen, *values), given=dead)

    assert plan.rows_read("jobs") <= most
    assert "Seq Scan" not in plan.indexes("jobs") or chosen[0]


@pytest.mark.postgres
async def test_due_jobs_are_counted_by_the_index_of_claims(full: str) -> None:
    async with visiting(full, "force_generic_plan") as world:
        plan = await world.explain("count_due")

    assert plan.indexes("jobs") <= {"jobs_claim", "jobs_parked_in", "jobs_parked"}
    assert plan.rows_read("jobs") <= 2 * DEEP


@pytest.mark.postgres
async def test_a_page_of_jobs_reads_what_may_match(full: str) -> None:
    """Given ten dead jobs, the oldest of 40,000, and few jobs of a queue, their lists read neither table by id."""
    oldest = (
        "INSERT INTO windlass.jobs (id, type, input, status, queue)"
        " SELECT lpad(i::text, 32, '0')::uuid, 'usual', '{}', 'dead', 'mail' FROM generate_series(1, 10) AS i"
    )
    for planning in ("force_custom_plan", "force_generic_plan"):
        async with visiting(full, planning) as world:
            for text, most in (
                ("state:dead", 50),
                ("state:dead,failed,waiting", 50),
                ("state:running", 2 * 400),
                ("state:cancelled", 50),
                ("state:dead queue:mail", 50),
                ("state:queued queue:nowhere", 50),
            ):
                name, condition, names, values = listing(parse(text), POSTGRES, 3, None)
                sql = search_query("postgres", name, condition, names)
                plan = await world.explain_text(sql, (50, None, *values), given=oldest)
                assert plan.rows_read("jobs") + plan.rows_read("history") <= most, text


async def test_a_list_by_state_is_the_list_by_id(rig: Rig) -> None:
    """Whichever statement reads it, a page has the same jobs in the same order, and the next one goes on below it."""
    await one_of_each(rig)
    await one_of_each(rig)
    every = await rig.store.search(parse(""))

    for text, states in BY_FILTER.items():
        wanted = [job.id for job in every if job.status in states] if text.startswith(("state:", "-state:")) else None
        found = await rig.store.search(parse(text))
        pages = await rig.store.search(parse(text), page=1)
        while len(pages) < len(found):
            pages += await rig.store.search(parse(text), page=1, below=pages[-1].id)
        assert [job.id for job in pages] == [job.id for job in found]
        assert len(found) == 2 * sum(states.values())
        assert wanted in (None, [job.id for job in found])
