"""The issue's own example, as a user writes it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import Context, State, Windlass, exponential
from windlass.errors import BlockingCall, JobNotFound, ResultTimeout

from .rig import PATIENCE, Database, ended, in_state, working


def declare(app: Windlass) -> tuple[Any, Any]:
    @app.job
    def add(a: int, b: int) -> int:
        return a + b

    @app.job(
        type="EMAIL_SEND",
        queue="mail",
        max_attempts=4,
        retry=exponential("10s", factor=2, jitter=0.1),
        timeout="5m",
    )
    async def send(ctx: Context, to: str, subject: str) -> dict[str, str]:
        return {"to": to, "subject": subject, "type": ctx.job.type, "queue": ctx.job.queue}

    return add, send


async def test_the_example_of_the_readme_works_as_written(app: Windlass) -> None:
    add, send = declare(app)

    async with app.worker(concurrency=100):
        first = await send.aenqueue("a@example.org", subject="hi")
        many = await app.aenqueue_many((add.call(i, i) for i in range(1_000)), conn=None)

        result = await first.aresult(timeout=5)
        assert result == {"to": "a@example.org", "subject": "hi", "type": "EMAIL_SEND", "queue": "mail"}
        assert [await job.aresult(timeout=PATIENCE) for job in many] == [2 * i for i in range(1_000)]

    assert await first.astatus() is State.SUCCEEDED
    assert (await app.acounts())[State.SUCCEEDED] == 1_001
    assert add(2, 3) == 5


async def test_every_call_works_from_a_thread_without_a_loop(app: Windlass) -> None:
    add, send = declare(app)

    def synchronous_program() -> list[Any]:
        job = add.enqueue(2, 3)
        one = job.result(timeout=5)
        jobs = app.enqueue_many(add.call(i, 1) for i in range(50))
        later = send.options(priority=5, delay="10m", tenant="acme", max_attempts=2).enqueue(
            "b@example.org", subject="x"
        )
        cancelled = later.cancel(), later.status()
        resumed = later.resume()
        return [
            one,
            [each.result(timeout=5) for each in jobs],
            cancelled,
            resumed,
            job.record().output,
            app.find(job.id),
        ]

    async with working(app):
        one, many, cancelled, resumed, output, found = await asyncio.to_thread(synchronous_program)

    assert (one, output, found.id is not None) == (5, "5", True)
    assert many == [i + 1 for i in range(50)]
    assert cancelled == (State.CANCELLED, State.CANCELLED)
    assert resumed is State.QUEUED


async def test_options_and_defaults_reach_the_record(app: Windlass) -> None:
    add, send = declare(app)
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

    plain = await (await add.aenqueue(1, 2)).arecord()
    chosen = await (
        await send.options(
            queue="bulk", priority=5, tenant="acme", max_attempts=2, run_at=soon, key="order-7"
        ).aenqueue("a@example.org", subject="hi")
    ).arecord()
    delayed = await (await add.options(delay="10m").options(priority=-1).aenqueue(1, 2)).arecord()

    assert (plain.type, plain.queue, plain.tenant, plain.priority, plain.max_attempts) == (
        "add",
        "default",
        "default",
        0,
        4,
    )
    assert (plain.status, plain.attempt, plain.input, plain.phase) == (State.QUEUED, 0, '{"a":1,"b":2}', "default")
    assert (chosen.type, chosen.queue, chosen.phase, chosen.tenant) == ("EMAIL_SEND", "bulk", "bulk", "acme")
    assert (chosen.priority, chosen.max_attempts, chosen.run_at, chosen.key) == (5, 2, soon, "order-7")
    assert (delayed.priority, delayed.run_at - delayed.created_at) == (-1, timedelta(minutes=10))


async def test_a_dead_job_is_replayed_under_its_own_id(app: Windlass) -> None:
    broken = True

    @app.job(max_attempts=1)
    async def fragile() -> str:
        if broken:
            raise RuntimeError("not yet")
        return "done"

    async with working(app):
        job = await fragile.aenqueue()
        dead = await ended(job)
        broken = False
        assert await job.areplay() is State.QUEUED
        assert await job.aresult(timeout=5) == "done"

    replayed = await job.arecord()
    assert (dead.status, dead.attempt, replayed.attempt) == (State.DEAD, 1, 1)
    assert replayed.fence > dead.fence


async def test_a_result_that_does_not_come_in_time_is_a_timeout_and_the_job_goes_on(app: Windlass) -> None:
    add, _ = declare(app)
    job = await add.aenqueue(1, 1)

    with pytest.raises(ResultTimeout, match=f"{job.id} has not ended within 0.01 s: no live worker serves"):
        await job.aresult(timeout=0.01)

    async with working(app):
        assert await job.aresult(timeout=5) == 2


async def test_a_blocking_call_on_a_loop_names_the_awaited_form_and_writes_nothing(
    app: Windlass, database: Database
) -> None:
    add, _ = declare(app)
    job = await add.aenqueue(1, 1)

    for call, async_name in [
        (lambda: add.enqueue(1, 2), r"await add\.aenqueue"),
        (lambda: app.enqueue_many([add.call(1, 2)]), r"await app\.aenqueue_many"),
        (job.status, r"await job\.astatus"),
        (job.record, r"await job\.arecord"),
        (job.result, r"await job\.aresult"),
        (job.cancel, r"await job\.acancel"),
        (job.replay, r"await job\.areplay"),
        (job.resume, r"await job\.aresume"),
        (job.retry, r"await job\.aretry"),
        (job.discard, r"await job\.adiscard"),
        (app.counts, r"await app\.acounts"),
        (app.workers, r"await app\.aworkers"),
        (app.migrate, r"await app\.amigrate"),
        (app.wake, r"await app\.awake"),
        (lambda: app.find(job.id), r"await app\.afind"),
    ]:
        with pytest.raises(BlockingCall, match=async_name):
            call()

    assert await database.jobs() == 1


async def test_the_same_app_serves_many_threads_and_loops_at_once(app: Windlass) -> None:
    add, _ = declare(app)
    sums: list[int] = []

    def on_a_loop_of_its_own(n: int) -> None:
        async def ask() -> None:
            sums.append(await (await add.aenqueue(n, n)).aresult(timeout=PATIENCE))

        asyncio.run(ask())

    threads = [threading.Thread(target=on_a_loop_of_its_own, args=(n,)) for n in range(8)]
    async with working(app):
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)

    assert sorted(sums) == [2 * n for n in range(8)]


def test_making_an_app_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDLASS_URL", raising=False)
    threads = threading.active_count()

    app = Windlass()
    add, _ = declare(app)

    assert add(2, 3) == 5
    assert app.settings.url == "sqlite:///windlass.db"
    assert (list(tmp_path.iterdir()), threading.active_count()) == ([], threads)


async def test_a_job_that_is_not_there_is_not_found(app: Windlass) -> None:
    stranger = "01890a5d-ac96-774b-bcce-b302099a8057"

    with pytest.raises(JobNotFound, match=stranger):
        await app.afind(stranger)


FORKING = """
import os, sys, warnings
warnings.simplefilter("ignore")
from windlass import Windlass

app = Windlass(sys.argv[1])

@app.job
def add(a: int, b: int) -> int:
    return a + b

before = add.enqueue(1, 1)
child = os.fork()
if child == 0:
    try:
        mine = add.enqueue(2, 2)
        assert mine.status().value == before.status().value == "queued"
        app.close()
    except BaseException as error:
        print("child:", repr(error), flush=True)
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
after = add.enqueue(3, 3)
print("child ended with", os.waitstatus_to_exitcode(status), "and", app.counts()["queued"], "jobs are there")
"""


async def test_after_a_fork_both_processes_enqueue(database: Database, tmp_path: Path) -> None:
    script = tmp_path / "forking.py"
    script.write_text(FORKING)

    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(script), database.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.stdout.strip() == "child ended with 0 and 3 jobs are there", done.stderr


async def test_a_failed_job_is_due_again_at_once_when_an_operator_says_so(app: Windlass) -> None:
    tries = 0

    @app.job(retry=exponential("1h"))
    async def second_time() -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("once")
        return tries

    async with working(app):
        job = await second_time.aenqueue()
        await in_state(job, State.FAILED)
        assert await job.aretry() is State.QUEUED
        assert await job.aresult(timeout=5) == 2
