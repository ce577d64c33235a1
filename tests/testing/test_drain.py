"""`drain()` and `run_one()`: a real worker, when the test says so."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest

from windlass import Dead, Retry, Snooze, State, SyncContext, Windlass
from windlass.config import Pace
from windlass.errors import JobNotFound, UnknownType
from windlass.model.job import Attempt
from windlass.model.outcome import Ending
from windlass.testing import AttemptFailed, Harness, NothingDue, harness, stepped_worker


def test_drain_runs_what_is_due_in_the_order_of_priority_and_enqueue(app: Windlass, bench: Harness) -> None:
    order: list[int] = []

    @app.job
    def note(n: int) -> None:
        order.append(n)

    for n in range(10):
        note.enqueue(n)
    note.options(priority=5).enqueue(99)

    ran = bench.drain()

    assert order == [99, *range(10)]
    assert len({job.created_at for job in bench.jobs()}) == 11
    assert [one.arguments["n"] for one in ran] == order
    assert {one.state for one in ran} == {State.SUCCEEDED}


def test_drain_runs_what_handlers_enqueue_as_well(app: Windlass, bench: Harness) -> None:
    @app.job
    async def parent(children: int) -> None:
        for n in range(children):
            await child.aenqueue(n)

    @app.job
    def child(n: int) -> int:
        return n * 10

    parent.enqueue(3)

    ran = bench.drain()

    assert [(one.type, one.output) for one in ran] == [("parent", None), ("child", 0), ("child", 10), ("child", 20)]
    assert bench.drain() == []


def test_an_error_is_recorded_as_in_production_and_the_retry_comes_with_the_clock(
    app: Windlass, bench: Harness
) -> None:
    @app.job
    def send(ctx: SyncContext, to: str) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("the mail server is away")
        return to

    job = send.enqueue("a@example.org")

    first = bench.run_one()

    assert (first.ending, first.state) == (Ending.RAISED, State.FAILED)
    assert isinstance(first.error, ConnectionError)
    assert "the mail server is away" in str(job.record().error)
    assert job.record().run_at == bench.clock.now() + timedelta(seconds=10)

    bench.clock.advance("9s")
    assert bench.drain() == []

    bench.clock.advance("1s")
    assert [one.ending for one in bench.drain()] == [Ending.SUCCEEDED]
    assert job.result() == "a@example.org"


def test_delays_and_moments_come_with_the_clock_to_the_microsecond(app: Windlass, bench: Harness) -> None:
    @app.job
    def later() -> None: ...

    delayed = later.options(delay="10m").enqueue()
    assert delayed.record().run_at == bench.clock.now() + timedelta(minutes=10)
    appointed = later.options(run_at=bench.clock.now().replace(year=bench.clock.now().year + 1)).enqueue()

    bench.clock.advance("9m59s")
    assert bench.drain() == []
    bench.clock.advance("1s")
    assert [one.id for one in bench.drain()] == [delayed.id]

    bench.clock.advance_to(appointed.record().run_at)
    assert [one.id for one in bench.drain()] == [appointed.id]


def test_a_lease_that_runs_out_is_rescued_and_the_job_runs_again(app: Windlass, bench: Harness) -> None:
    @app.job
    def build(n: int) -> int:
        return n

    job = build.enqueue(7)
    bench.crash_one(build)
    assert job.status() is State.RUNNING
    with pytest.raises(NothingDue, match="running"):
        bench.run_one(job)

    bench.clock.advance("31s")
    (ran,) = bench.drain()

    assert (ran.state, ran.job.crashes, ran.job.fence) == (State.SUCCEEDED, 1, 2)
    (crash,) = msgspec.json.decode(str(ran.job.attempts), type=list[Attempt])
    assert crash.outcome == "crashed"


def test_a_job_whose_workers_die_three_times_is_dead(app: Windlass, bench: Harness) -> None:
    @app.job
    def poison() -> None: ...

    @app.job
    def sweeping() -> None: ...

    job = poison.enqueue()
    for _ in range(3):
        bench.crash_one(job)
        bench.clock.advance("31s")
        with pytest.raises(NothingDue):
            bench.run_one(sweeping)

    assert (job.status(), job.record().reason) == (State.DEAD, "crashed")


def test_the_time_limit_counts_on_the_manual_clock(app: Windlass, bench: Harness) -> None:
    @app.job(timeout="5m", max_attempts=2)
    async def slow() -> None:
        bench.clock.advance("5m")
        await never()

    job = slow.enqueue()

    ran = bench.run_one(job)

    assert (ran.ending, ran.state) == (Ending.TIMED_OUT, State.FAILED)
    assert isinstance(ran.error, AttemptFailed)
    assert "the time limit of 5m has passed" in str(ran.error)


def test_a_processor_that_ran_out_of_time_is_used_again(
    app: Windlass, bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepped_worker, "PROCESSORS", 1)

    @app.job(timeout="1m", max_attempts=1)
    async def slow() -> None:
        bench.clock.advance("1m")
        await never()

    for _ in range(3):
        slow.enqueue()

    assert [one.ending for one in bench.drain()] == [Ending.TIMED_OUT] * 3


def test_a_clock_moved_by_years_under_a_handler_costs_it_nothing(app: Windlass, bench: Harness) -> None:
    @app.job
    def patient() -> str:
        bench.clock.advance("730d")
        sweeping = threading.Thread(target=bench.drain)
        sweeping.start()
        sweeping.join()
        return "done"

    job = patient.enqueue()

    assert [one.ending for one in bench.drain()] == [Ending.SUCCEEDED]
    assert (job.result(), job.record().fence) == ("done", 1)


def test_a_running_job_can_be_cancelled(app: Windlass, bench: Harness) -> None:
    @app.job
    async def sleeper() -> None:
        await job.acancel()
        await never()

    job = sleeper.enqueue()

    assert [(one.ending, one.state) for one in bench.drain()] == [(Ending.CANCELLED, State.CANCELLED)]


def test_the_words_of_a_handler_are_heeded(app: Windlass, bench: Harness) -> None:
    @app.job
    def moody(ctx: SyncContext, word: str) -> None:
        if ctx.attempt == 1 and not bench.jobs(moody, status="failed"):
            raise {"snooze": Snooze("30s"), "dead": Dead("enough"), "retry": Retry(after="5s")}[word]

    jobs = {word: moody.enqueue(word) for word in ("snooze", "dead", "retry")}

    assert [one.ending for one in bench.drain()] == [Ending.SNOOZED, Ending.DEAD, Ending.RETRY]
    assert {word: job.status() for word, job in jobs.items()} == {
        "snooze": State.QUEUED,
        "dead": State.DEAD,
        "retry": State.FAILED,
    }


def test_what_a_transaction_wrote_is_there_after_success_and_only_then(app: Windlass, bench: Harness) -> None:
    bench.execute("CREATE TABLE sent (recipient text NOT NULL)")

    @app.job(max_attempts=1)
    def send(ctx: SyncContext, to: str, *, fail: bool = False) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO sent (recipient) VALUES ($1)", to)
            again.enqueue(to)
            if fail:
                raise ValueError("after the insert")

    @app.job
    def again(to: str) -> None: ...

    send.enqueue("a@example.org")
    send.enqueue("b@example.org", fail=True)
    ran = bench.drain()

    assert bench.fetch("SELECT recipient FROM sent") == [{"recipient": "a@example.org"}]
    assert [(one.type, one.ending) for one in ran] == [
        ("send", Ending.SUCCEEDED),
        ("send", Ending.RAISED),
        ("again", Ending.SUCCEEDED),
    ]


def test_run_one_runs_a_certain_job_and_leaves_the_others_as_they_were(app: Windlass, bench: Harness) -> None:
    @app.job
    def work(n: int) -> int:
        return n

    @app.job
    def rest() -> None: ...

    rest.enqueue()
    jobs = [work.enqueue(n) for n in range(5)]

    assert bench.run_one(jobs[3]).output == 3
    assert bench.run_one(jobs[2].record()).output == 2
    assert bench.run_one(jobs[4].id).output == 4
    assert [job.record().attempt for job in jobs] == [0, 0, 1, 1, 1]
    assert bench.run_one(work).output == 0
    assert bench.run_one("work").output == 1
    assert bench.run_one().type == "rest"


def test_run_one_says_what_it_waits_for(app: Windlass, bench: Harness) -> None:
    @app.job
    def work(n: int) -> int:
        return n

    with pytest.raises(NothingDue, match="nothing is enqueued"):
        bench.run_one()

    job = work.options(delay="90s").enqueue(1)
    with pytest.raises(NothingDue, match=r"work\(n=1\): queued, due in 1m30s; .*advance\('1m30s'\)"):
        bench.run_one(work)

    bench.clock.advance("1m30s")
    bench.drain()
    with pytest.raises(NothingDue, match=r"work\(n=1\) cannot run now: it is succeeded"):
        bench.run_one(job)
    with pytest.raises(JobNotFound):
        bench.run_one(uuid4())
    with pytest.raises(UnknownType, match="did you mean 'work'"):
        bench.run_one("wrok")


def test_plain_handlers_run_on_the_thread_that_drains(app: Windlass, bench: Harness) -> None:
    threads: list[threading.Thread] = []

    @app.job
    def where() -> None:
        threads.append(threading.current_thread())

    where.enqueue()
    bench.drain()

    where.enqueue()
    elsewhere = threading.Thread(target=bench.drain)
    elsewhere.start()
    elsewhere.join()

    assert threads == [threading.current_thread(), elsewhere]


def test_drains_on_many_threads_share_the_work(app: Windlass, bench: Harness) -> None:
    done: list[int] = []

    @app.job
    def work(n: int) -> None:
        done.append(n)

    app.enqueue_many(work.call(n) for n in range(20))
    wanted = work.enqueue(20)
    threads = [threading.Thread(target=bench.drain) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(done) == list(range(21))
    assert wanted.status() is State.SUCCEEDED


def test_a_process_of_its_own_is_this_process_under_a_harness(app: Windlass, bench: Harness) -> None:
    seen: list[int] = []

    @app.job(isolation="process", memory="1G")
    def heavy(n: int) -> None:
        seen.append(n)

    heavy.enqueue(1)
    bench.drain()

    assert seen == [1]


@pytest.mark.parametrize("pace", [Pace.STEADY, Pace.POLITE])
def test_the_pace_costs_no_waiting(server: str | None, pace: Pace) -> None:
    app = Windlass("sqlite:////nowhere/jobs.db", pace=pace)

    @app.job
    def work(n: int) -> None: ...

    with harness(app, server) as bench:
        for n in range(15):
            work.enqueue(n)

        assert [one.arguments["n"] for one in bench.drain()] == list(range(15))


async def never() -> None:
    await asyncio.Event().wait()
