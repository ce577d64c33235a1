"""Many jobs at once from a program: `app.choose` counts them, `app.bulk` and `app.abulk` change exactly these."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from servers import url_of
from windlass import BulkProgress, Chosen, JobType, State, Windlass
from windlass.errors import BlockingCall, FilterError
from windlass.methods.bulk import BulkChange
from windlass.testing import Harness, harness


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", actor="ann")


@pytest.fixture
def send(app: Windlass) -> JobType[[str], None]:
    @app.job(queue="mail", max_attempts=1)
    def send(to: str) -> None:
        raise ValueError(f"{to} is no address")

    return send


@pytest.fixture(params=["sqlite", "postgres"], autouse=True)
def bench(request: pytest.FixtureRequest, app: Windlass, send: JobType[[str], None]) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


def enqueue(send: JobType[[str], None], count: int, tenant: str = "default") -> list[Any]:
    return [send.options(tenant=tenant).enqueue(str(number)).id for number in range(count)]


def state_of(app: Windlass, id: Any) -> State:
    return app.states([id])[id].state


# Choose


def test_a_dry_run_counts_exactly_and_changes_nothing(
    app: Windlass, send: JobType[[str], None], bench: Harness
) -> None:
    dead = enqueue(send, 3)
    bench.drain()
    queued = enqueue(send, 2)

    chosen, cancelled = app.choose("replay", "queue:mail"), asyncio.run(app.achoose("cancel"))

    assert (chosen.count, chosen.by_type(), chosen.by_state()) == (3, {"send": 3}, {State.DEAD: 3})
    assert {job.id for job in chosen.jobs} == set(dead)
    assert {job.id for job in cancelled.jobs} == set(queued)
    assert app.counts()[State.DEAD] == 3
    assert not any(row.actor == "ann" for row in app.audit())


def test_a_filter_that_names_a_state_is_not_narrowed(app: Windlass, send: JobType[[str], None]) -> None:
    (job,) = enqueue(send, 1)

    assert app.choose("replay", "state:queued").count == 1
    assert app.bulk("replay", "state:queued").refusals == ((job, State.QUEUED),)


# Change


def test_each_chosen_job_is_changed_and_audited(app: Windlass, send: JobType[[str], None], bench: Harness) -> None:
    jobs = enqueue(send, 3)
    bench.drain()

    result = app.bulk("replay", "queue:mail")

    assert (result.matched, result.changed, result.refused, result.done) == (3, 3, 0, True)
    assert all(state_of(app, job) is State.QUEUED for job in jobs)
    audited = [row.job for row in app.audit(action="JOB_REPLAYED") if row.actor == "ann"]
    assert (len(audited), set(audited)) == (3, set(jobs))


def test_jobs_after_the_choice_are_left_and_changed_ones_are_refused(app: Windlass, send: JobType[[str], None]) -> None:
    """The race of an operator who reads the count and then says yes."""
    first, second, third = enqueue(send, 3)
    chosen = app.choose("cancel", "queue:mail")
    (late,) = enqueue(send, 1)
    app.find(first).cancel()

    result = app.bulk("cancel", chosen)

    assert (result.matched, result.changed, result.refusals) == (3, 2, ((first, State.CANCELLED),))
    assert [state_of(app, job) for job in (second, third, late)] == [State.CANCELLED, State.CANCELLED, State.QUEUED]


def test_a_job_that_is_gone_is_refused_without_a_state(
    app: Windlass, send: JobType[[str], None], bench: Harness
) -> None:
    (job,) = enqueue(send, 1)
    bench.drain()
    chosen = app.choose("discard", "queue:mail")
    app.find(job).discard()

    assert app.bulk("discard", chosen).refusals == ((job, None),)


# Reports


def test_reports_come_page_by_page_and_a_closed_iterator_stops(
    app: Windlass, send: JobType[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.methods.bulk.PAGE", 2)
    jobs = enqueue(send, 5)

    async def begin_and_leave() -> BulkProgress:
        reports = app.abulk("cancel", "queue:mail")
        first = await anext(reports)
        await reports.aclose()  # type: ignore[attr-defined]
        return first

    async def finish() -> list[BulkProgress]:
        return [progress async for progress in app.abulk("cancel", "queue:mail")]

    first = asyncio.run(begin_and_leave())
    assert (first.matched, first.changed, first.done) == (5, 2, False)
    assert sum(state_of(app, job) is State.CANCELLED for job in jobs) == 2
    rest = asyncio.run(finish())
    assert [(each.changed, each.done) for each in rest] == [(2, False), (3, True)]


def test_a_cancelled_task_begins_no_further_job(
    app: Windlass, send: JobType[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of a request went away: the statement under way is finished, and no other job is begun."""
    monkeypatch.setattr("windlass.methods.bulk.AT_ONCE", 1)
    jobs = enqueue(send, 5)
    store = app._client.ask(_the_store)
    operate, change_page = store.operate, BulkChange.change_page
    begun, ended, gone = asyncio.Event(), asyncio.Event(), threading.Event()

    async def cancel_in_between() -> None:
        loop = asyncio.get_running_loop()

        async def slow(*arguments: Any, **options: Any) -> Any:
            loop.call_soon_threadsafe(begun.set)
            await asyncio.to_thread(gone.wait)
            return await operate(*arguments, **options)

        async def watched(change: BulkChange, store: Any) -> bool:
            try:
                return await change_page(change, store)
            finally:
                loop.call_soon_threadsafe(ended.set)

        monkeypatch.setattr(BulkChange, "change_page", watched)
        monkeypatch.setattr(store, "operate", slow)
        task = loop.create_task(_exhaust(app.abulk("cancel", "queue:mail")))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gone.set()
        await ended.wait()

    asyncio.run(cancel_in_between())
    monkeypatch.setattr(store, "operate", operate)

    assert sum(state_of(app, job) is State.CANCELLED for job in jobs) == 1


async def _the_store(store: Any) -> Any:
    return store


async def _exhaust(reports: Any) -> None:
    async for _ in reports:
        pass


def test_no_chosen_job_is_one_report_that_is_done(app: Windlass) -> None:
    result = app.bulk("cancel", "queue:nothing")

    assert (result.matched, result.changed, result.done) == (0, 0, True)


# The scope of a tenant


def test_a_bulk_action_in_a_tenants_scope_changes_only_its_jobs(app: Windlass, send: JobType[[str], None]) -> None:
    (own,), (foreign,) = enqueue(send, 1, "acme"), enqueue(send, 1, "other")

    assert app.choose("cancel", "tenant:*", tenant="acme").count == 1
    assert app.bulk("cancel", "-tenant:acme", tenant="acme").matched == 0
    assert app.bulk("cancel", f"id:{own},{foreign}", tenant="acme").changed == 1
    assert (state_of(app, own), state_of(app, foreign)) == (State.CANCELLED, State.QUEUED)


def test_a_choice_of_another_scope_is_refused(app: Windlass, send: JobType[[str], None]) -> None:
    (foreign,) = enqueue(send, 1, "other")

    for chosen in (app.choose("cancel"), app.choose("cancel", tenant="other")):
        with pytest.raises(FilterError, match="chosen outside of tenant acme"):
            app.bulk("cancel", chosen, tenant="acme")
    assert state_of(app, foreign) is State.QUEUED


# Mistakes


def test_a_wrong_verb_names_the_right_one(app: Windlass) -> None:
    with pytest.raises(FilterError, match="'cancle' is no verb for jobs; did you mean 'cancel'"):
        app.bulk("cancle", "queue:mail")
    with pytest.raises(FilterError, match="'claim' is no verb"):
        app.choose("claim")
    with pytest.raises(FilterError, match="chosen for cancel; choose again"):
        app.bulk("replay", Chosen(verb=app.choose("cancel").verb, filter=""))


def test_a_blocking_change_on_a_loop_is_refused(app: Windlass) -> None:
    async def call() -> None:
        with pytest.raises(BlockingCall, match=r"use: async for progress in app\.abulk\(…\)$"):
            app.bulk("cancel", "queue:mail")

    asyncio.run(call())
