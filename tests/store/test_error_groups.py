"""Error groups: what belongs together, what became of it, where it is; and what the list reads for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import servers
from servers import administer
from windlass.methods.error_groups import MOST_GROUPS, read_errors
from windlass.model.filter import parse
from windlass.model.reports.error_groups import POINTS, ErrorShare
from windlass.model.rows import COUNTED
from windlass.model.state import State, Verb
from windlass.policy.fingerprint import fingerprint
from windlass.store.parts.search import POSTGRES, SQLITE, where
from windlass.store.sql import errors_query, query, search_query
from windlass.store.sqlite.connections.file import connect as open_file
from windlass.store.sqlite.migrator import SqliteMigrator
from windlass.store.sqlite.rows import named, numbered

from .errors import HOUR, fail
from .plans import MOST_BUFFERS, USUAL, World, visiting
from .test_counts import add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .rig import Rig

MANY = COUNTED + 500


async def test_the_largest_group_comes_first_with_what_became_of_its_jobs(rig: Rig) -> None:
    first = await fail(rig, "no such user 1", queue="mail", tenant="acme")
    await rig.advance(60)
    await fail(rig, "no such user 2", queue="mail", tenant="other", verb=Verb.BURY)
    went_on = await fail(rig, "no such user 3", delay=0.0, queue="report", tenant="acme")
    await rig.write((await rig.take(went_on)).lease, Verb.SUCCEED)
    await rig.advance(60)
    last = await fail(rig, "no such user 4", queue="mail", tenant="acme")
    alone = await fail(rig, "no such user 5", type="KeyError", queue="mail")

    group, other = await read_errors(rig.store, HOUR)

    assert (other.type, other.message, other.count, other.newest) == ("KeyError", "no such user …", 1, alone)
    assert (group.type, group.message, group.count) == ("ValueError", "no such user …", 4)
    assert group.fingerprint == fingerprint("ValueError", "no such user 77")
    assert group.states == {State.FAILED: 2, State.DEAD: 1, State.SUCCEEDED: 1}
    assert group.queues == (ErrorShare("mail", 3), ErrorShare("report", 1))
    assert group.tenants == (ErrorShare("acme", 3), ErrorShare("other", 1))
    assert group.types == (ErrorShare("mail.send", 4),)
    assert group.workers == (ErrorShare("host:1", 4),)
    assert (group.last - group.first).total_seconds() == 120
    assert (group.newest, group.more, group.counted) == (last, False, COUNTED)
    assert (await rig.find(first)).error is not None


async def test_failures_are_counted_in_thirtieths_of_the_range(rig: Rig) -> None:
    """Of an hour: in the oldest two minutes, in the middle, now, and one that is out of the range."""
    for ago_of_next in (62, 28 * 60, 30 * 60 + 59, 0):
        await fail(rig, "no such user 7")
        await rig.advance(ago_of_next)

    (group,) = await read_errors(rig.store, HOUR)
    expected = [0] * POINTS
    expected[0], expected[14], expected[29] = 1, 1, 1

    assert (list(group.points), group.count) == (expected, 3)
    (newest,) = await read_errors(rig.store, 30.0)
    assert (newest.count, newest.newest, newest.points) == (1, group.newest, (*[0] * (POINTS - 1), 1))


async def test_a_clock_that_was_set_back_counts_in_the_last_part(rig: Rig) -> None:
    await fail(rig, "no such user 7")
    later = "interval '10 minutes'" if rig.dialect == "postgres" else "600000000"
    await rig.run(f"UPDATE {{}}jobs SET error_at = error_at + {later}")

    (group,) = await read_errors(rig.store, HOUR)

    assert (group.count, group.points[-1]) == (1, 1)


async def test_one_queue_and_one_tenant_are_chosen(rig: Rig) -> None:
    for queue, tenant in (("mail", "acme"), ("mail", "other"), ("report", "acme")):
        await fail(rig, f"{queue} of {tenant}", queue=queue, tenant=tenant)

    async def messages(**chosen: str) -> set[str]:
        return {group.message for group in await read_errors(rig.store, HOUR, **chosen)}

    assert await messages(queue="mail") == {"mail of acme", "mail of other"}
    assert await messages(tenant="acme") == {"mail of acme", "report of acme"}
    assert await messages(queue="mail", tenant="acme") == {"mail of acme"}
    assert await messages(queue="mail", tenant="' OR true --") == set()


async def test_fifty_groups_are_listed_and_five_names_of_each(rig: Rig) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    for number in range(MOST_GROUPS + 2):
        await fail(rig, f"{letters[number // 26]}{letters[number % 26]}")
    for queue in "abcdefg":
        await fail(rig, "of many queues", queue=queue)

    groups = await read_errors(rig.store, HOUR)

    assert len(groups) == MOST_GROUPS
    assert (groups[0].count, len(groups[0].queues)) == (7, 5)


async def test_beyond_the_bound_every_group_says_more(rig: Rig) -> None:
    old = await rig.store.now()
    at = f"'{old}'::timestamptz" if rig.dialect == "postgres" else str(round(old.timestamp() * 1_000_000))
    failed = {"status": "'dead'", "error_at": at, "error": """'{{"type": "E", "message": "no"}}'"""}
    await add(rig, MANY, fingerprint="'aaaaaaaaaaaa'", **failed)
    await rig.advance(1)
    await fail(rig, "the newest")

    groups = await read_errors(rig.store, HOUR)

    assert [(group.count, group.more) for group in groups] == [(COUNTED - 1, True), (1, True)]
    assert len(await rig.store.errors(since=HOUR)) == COUNTED + 1


async def test_an_error_that_windlass_did_not_write_is_a_group_as_well(rig: Rig) -> None:
    job = await fail(rig, "no")
    await rig.run("""UPDATE {}jobs SET error = '["what", "is", "this"]'""")

    (group,) = await read_errors(rig.store, HOUR)

    assert (group.type, group.message, group.count, group.newest) == ("unreadable", "", 1, job)


async def test_a_job_that_is_gone_since_the_list_was_read_leaves_its_group(rig: Rig) -> None:
    """The list and the texts are two reads: an operator may discard the job between them."""
    job = await fail(rig, "no", verb=Verb.BURY)
    texts = rig.store.error_texts

    async def late(jobs: Any) -> Any:
        await rig.store.operate(Verb.DISCARD, job)
        return await texts(jobs)

    rig.store.error_texts = late  # type: ignore[method-assign]
    (group,) = await read_errors(rig.store, HOUR)

    assert (group.type, group.count) == ("unreadable", 1)
    assert await read_errors(rig.store, HOUR) == []


# Plans


FAILURES = (
    "INSERT INTO windlass.jobs (id, type, input, status, queue, tenant, fingerprint, error_at)"
    " SELECT gen_random_uuid(), 'usual', '{}', 'dead', CASE WHEN i % 100 = 0 THEN 'rare' ELSE 'mail' END, 'acme',"
    " lpad(to_hex(i % 1000), 12, '0'), now() - i * interval '10 ms' FROM generate_series(1, 30000) AS i;"
    "INSERT INTO windlass.history (id, type, input, status, queue, tenant, fingerprint, error_at, finished_at)"
    " SELECT gen_random_uuid(), 'usual', '{}', 'succeeded', 'mail', 'acme',"
    " lpad(to_hex(i % 1000), 12, '0'), now() - i * interval '10 ms', now() FROM generate_series(1, 30000) AS i"
)


@pytest.fixture(scope="module")
def failures(databases: Callable[[int, bool], str]) -> Iterator[str]:
    """60,000 failures among 100,000 jobs; statistics were taken before the failures came."""
    name = f"windlass_plans_{uuid4().hex[:12]}"
    administer(f"CREATE DATABASE {name} TEMPLATE {databases(USUAL, True)}")
    administer(FAILURES, servers.named(name))
    yield name
    administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.postgres
async def test_a_list_of_errors_reads_its_bound_in_a_full_table(failures: str) -> None:
    for analyse in ("SELECT 1", "ANALYZE windlass.jobs", "ANALYZE windlass.history"):
        administer(analyse, servers.named(failures))
        for planning in ("force_generic_plan", "force_custom_plan"):
            async with visiting(failures, planning) as world:
                await check_errors(world, None, COUNTED + 1)
                await check_errors(world, "rare", 300)


async def check_errors(world: World, queue: str | None, most: int) -> None:
    sql, given = errors_query("postgres", queue=queue, tenant=None)

    plan = await world.explain("errors", (24 * HOUR, COUNTED + 1, *given), sql=sql)

    assert plan.indexes("jobs") == {"jobs_errors"}
    assert all("error_at" in index for index in plan.indexes("history"))
    assert plan.rows_read("jobs") <= most
    assert plan.rows_read("history") <= (most + 10 if queue is None else 0)


@pytest.mark.postgres
async def test_the_jobs_of_a_group_are_found_by_their_index(failures: str) -> None:
    condition, values = where(parse("fingerprint:000000000007"), POSTGRES, 3)
    administer("ANALYZE windlass.jobs; ANALYZE windlass.history", servers.named(failures))
    async with visiting(failures, "force_generic_plan") as world:
        for name in ("search", "search_ids"):
            plan = await world.explain(name, (50, None, *values), sql=search_query("postgres", name, condition))

            assert plan.indexes("jobs") == {"jobs_fingerprint"}
            assert plan.rows_read("jobs") + plan.rows_read("history") <= 60


@pytest.mark.postgres
async def test_the_text_of_an_error_is_found_by_id(failures: str) -> None:
    async with visiting(failures, "force_generic_plan") as world:
        job = await world.connection.fetchval("SELECT id FROM windlass.jobs LIMIT 1")
        plan = await world.explain("error_texts", ([job],))

    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.buffers <= MOST_BUFFERS


async def test_on_a_file_errors_are_read_by_their_indexes(tmp_path: Path) -> None:
    await SqliteMigrator(f"sqlite:///{tmp_path}/jobs.db").migrate()
    condition, values = where(parse("fingerprint:000000000007"), SQLITE, 4)
    errors, given = errors_query("sqlite", queue="mail", tenant="acme")
    searched = search_query("sqlite", "search_ids", condition)

    with closing(open_file(tmp_path / "jobs.db")) as file:
        listed = steps(file, numbered(errors), named((0, 10, *given)))
        found = steps(file, numbered(searched), named((0, 10, None, *values)))
        texts = steps(file, query("sqlite", "error_texts"), {"ids": "[]"})

    for table in ("jobs", "history"):
        assert any(
            f"SEARCH windlass_{table} USING INDEX windlass_{table}_errors (error_at>?" in step for step in listed
        )
        assert any(f"INDEX windlass_{table}_fingerprint (fingerprint=? AND id<?)" in step for step in found)
    assert not [step for step in [*listed, *found, *texts] if "SCAN windlass_" in step]


def steps(file: sqlite3.Connection, sql: str, values: dict[str, Any]) -> list[str]:
    return [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
