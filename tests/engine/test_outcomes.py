"""What a handler returns or raises, and what becomes of its job."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from windlass import Context, Dead, Retry, Snooze, State, Windlass, delays, exponential, fixed
from windlass.errors import JobDead
from windlass.model.job import attempts_in
from windlass.model.outcome import Ending
from windlass.policy.retry import RetryPolicy
from windlass.store.protocol import Claim, Claimed

from .rig import PATIENCE, Database, attempts, ended, failure, in_state, stores_of, working
from .stopped_clock import StoppedClock

LEEWAY = timedelta(seconds=5)  # between the handler's end and the moment its transition is written


async def test_a_silent_first_success_leaves_no_attempt_behind(app: Windlass) -> None:
    @app.job
    async def quiet() -> str:
        return "ok"

    @app.job
    async def talkative(ctx: Context) -> str:
        ctx.log.info("one of %d", 2)
        return "ok"

    async with working(app) as (worker, _):
        silent, spoken = await ended(await quiet.aenqueue()), await ended(await talkative.aenqueue())
        incarnation = worker.state.worker

    assert (silent.status, silent.attempts, silent.error, silent.attempt) == (State.SUCCEEDED, None, None, 1)
    assert silent.started_at is not None
    assert silent.finished_at is not None
    assert silent.created_at <= silent.started_at <= silent.finished_at
    (only,) = attempts(spoken)
    assert (only.outcome, only.worker, only.attempt, only.fence) == ("succeeded", incarnation, 1, spoken.fence)
    assert only.log == ["INFO one of 2"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (exponential("10m", factor=3), [600, 1800]),
        (delays("5m", "30m"), [300, 1800]),
        (fixed("7m"), [420, 420]),
        (None, [10, 20]),
    ],
    ids=["exponential", "delays", "fixed", "default"],
)
async def test_a_failed_attempt_waits_as_its_policy_says(
    app: Windlass, policy: RetryPolicy | None, expected: list[int]
) -> None:
    @app.job(retry=policy, max_attempts=3)
    async def fails() -> None:
        raise RuntimeError("no")

    async with working(app) as (_, events):
        job = await fails.aenqueue()
        waited = []
        for fence in (1, 2):
            record = await in_state(job, State.FAILED)
            waited.append(record.run_at - record.updated_at)
            assert (record.attempt, record.fence, len(attempts(record))) == (fence, fence, fence)
            await job.aretry()
            await events.ended(job, Ending.RAISED)
            events.recorded.clear()
        dead = await ended(job)

    assert waited == [timedelta(seconds=seconds) for seconds in expected]
    assert (dead.status, dead.reason, dead.attempt) == (State.DEAD, "exhausted", 3)
    assert [(each.attempt, each.outcome, each.error is not None) for each in attempts(dead)] == [
        (n, "raised", True) for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Dead("the address is blocked"), r"is dead \(the address is blocked\); start it over"),
        (RuntimeError(), r"is dead \(exhausted\): RuntimeError; start it over"),
        (asyncio.CancelledError(), r"is dead \(exhausted\): asyncio\.exceptions\.CancelledError; start it over"),
    ],
)
async def test_the_error_of_a_dead_job_says_its_reason_once(app: Windlass, error: BaseException, text: str) -> None:
    @app.job(max_attempts=1)
    async def fails() -> None:
        raise error

    async with working(app):
        with pytest.raises(JobDead, match=text):
            await (await fails.aenqueue()).aresult(timeout=PATIENCE)


async def test_exhausted_attempts_are_told_one_by_one(app: Windlass) -> None:
    @app.job(max_attempts=2, retry=fixed(0))
    async def fails(ctx: Context) -> None:
        ctx.log.warning("attempt %d", ctx.attempt)
        raise RuntimeError(f"broken rope {ctx.attempt}")

    async with working(app) as (worker, _):
        job = await fails.aenqueue()
        with pytest.raises(JobDead, match=rf"{job.id} \(fails\) is dead \(exhausted\): RuntimeError: broken rope 2"):
            await job.aresult(timeout=PATIENCE)
        incarnation = worker.state.worker

    record = await job.arecord()
    first, second = attempts(record)
    assert [first.worker, second.worker] == [incarnation, incarnation]
    assert [first.log, second.log] == [["WARNING attempt 1"], ["WARNING attempt 2"]]
    assert first.started_at is not None
    assert first.started_at <= first.finished_at
    assert first.error is not None
    assert (first.error.type, first.error.message, first.error.attempt) == ("RuntimeError", "broken rope 1", 1)
    assert first.error.traceback is not None
    assert "in fails" in first.error.traceback
    assert failure(record).message == "broken rope 2"


async def test_a_handler_chooses_when_to_be_retried(app: Windlass) -> None:
    @app.job(max_attempts=2)
    async def busy() -> None:
        raise Retry("429", after="42m")

    async with working(app):
        record = await in_state(await busy.aenqueue(), State.FAILED)

    assert record.run_at - record.updated_at == timedelta(minutes=42)
    assert (record.attempt, failure(record).message) == (1, "429")


async def test_the_last_attempt_cannot_be_retried(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def busy() -> None:
        raise Retry(after="1s")

    async with working(app):
        assert (await ended(await busy.aenqueue())).reason == "exhausted"


async def test_a_snooze_burns_no_attempt(app: Windlass) -> None:
    seen: list[tuple[int, int]] = []

    @app.job(max_attempts=1)
    async def sleepy(ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.fence))
        if len(seen) < 4:
            raise Snooze(0)
        return "awake"

    @app.job(max_attempts=1)
    async def long() -> None:
        raise Snooze("3h")

    async with working(app) as (_, events):
        assert await (await sleepy.aenqueue()).aresult(timeout=PATIENCE) == "awake"
        job = await long.aenqueue()
        await events.ended(job, Ending.SNOOZED)
        resting = await in_state(job, State.QUEUED)

    assert seen == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert (resting.attempt, resting.error) == (0, None)
    assert resting.run_at - resting.updated_at == timedelta(hours=3)


async def test_a_returned_directive_does_what_a_raised_one_does(app: Windlass) -> None:
    @app.job(max_attempts=2)
    async def busy() -> Retry:
        return Retry("429", after="42m")

    @app.job(max_attempts=1)
    def sleepy() -> Snooze:
        return Snooze("3h")

    @app.job(max_attempts=9)
    def hopeless() -> Dead:
        return Dead("no such customer")

    async with working(app) as (_, events):
        failed = await in_state(await busy.aenqueue(), State.FAILED)
        job = await sleepy.aenqueue()
        await events.ended(job, Ending.SNOOZED)
        resting = await in_state(job, State.QUEUED)
        dead = await ended(await hopeless.aenqueue())

    assert (failed.run_at - failed.updated_at, failure(failed).message) == (timedelta(minutes=42), "429")
    assert (resting.run_at - resting.updated_at, resting.attempt) == (timedelta(hours=3), 0)
    assert (dead.status, dead.reason, dead.output) == (State.DEAD, "no such customer", None)


async def test_a_directive_that_a_module_keeps_does_not_grow(app: Windlass) -> None:
    """A raised one would collect the frames of every run, and with them each job's arguments."""
    later, runs = Snooze(0), []

    @app.job
    async def work() -> int | Snooze:
        runs.append(1)
        return later if len(runs) < 3 else 7

    async with working(app):
        assert await (await work.aenqueue()).aresult(timeout=PATIENCE) == 7

    assert later.__traceback__ is None


async def test_what_was_meant_to_be_raised_or_called_is_no_result(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def forgets(what: str) -> object:
        return {"class": Dead, "error": ValueError("no such customer")}[what]

    async with working(app):
        ends = [failure(await ended(await forgets.aenqueue(what))).message for what in ("class", "error")]

    assert ends == [
        "the handler returned the class Dead; return a value of it: Dead(…)",
        "the handler returned an exception, ValueError, and did not raise it; write: raise ValueError(…)",
    ]


@pytest.mark.parametrize("wrong", ["300ms", "1h30m", 5])
def test_a_time_is_no_message_of_a_retry(wrong: Any) -> None:
    with pytest.raises(ValueError, match=rf"a time is Retry\(after={wrong!r}\)"):
        Retry(wrong)


async def test_a_handler_buries_its_job_with_a_reason(app: Windlass) -> None:
    @app.job(max_attempts=9)
    async def hopeless() -> None:
        raise Dead("no such customer")

    async with working(app):
        record = await ended(await hopeless.aenqueue())

    assert (record.status, record.reason, record.attempt) == (State.DEAD, "no such customer", 1)
    assert attempts(record)[0].outcome == "dead"


class Rude(LookupError):
    """Nearer to LookupError than to Exception."""


async def test_the_nearest_listed_class_decides_whether_an_error_is_permanent(app: Windlass) -> None:
    @app.job(permanent=[LookupError], transient=[Rude, OSError])
    async def fails(kind: str) -> None:
        raise {"key": KeyError, "rude": Rude, "value": ValueError, "os": ConnectionError}[kind]("x")

    async with working(app):
        jobs = {kind: await fails.aenqueue(kind) for kind in ("key", "rude", "value", "os")}
        dead = await ended(jobs["key"])
        others = [await in_state(jobs[kind], State.FAILED) for kind in ("rude", "value", "os")]

    assert (dead.status, dead.reason, dead.attempt) == (State.DEAD, "permanent", 1)
    assert [record.attempt for record in others] == [1, 1, 1]


async def test_an_input_that_no_longer_fits_fails_the_attempt_and_not_the_worker(
    app: Windlass, database: Database
) -> None:
    @app.job(max_attempts=1)
    async def greet(name: str) -> str:
        return name

    job = await greet.aenqueue("Ada")
    await database.run("UPDATE {}jobs SET input = ? WHERE queue = 'default'", '{"nome": 1}')

    async with working(app):
        record = await ended(job)
        assert await (await greet.aenqueue("Bob")).aresult(timeout=PATIENCE) == "Bob"

    assert record.status is State.DEAD
    assert "nome" in failure(record).message


# What cannot be stored as it is


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("you shall not read me")


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError("nor me")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\0b\ud800c", "a�b�c"),
        ([math.nan, math.inf], [None, None]),
        (2**70, str(2**70)),
        ({"deep": {1, 2}}, None),
        (Opaque(), None),
        ("x" * 1_000_000, None),
        ({1: object()}, None),
    ],
    ids=["text", "floats", "integer", "set", "opaque", "megabyte", "object"],
)
async def test_whatever_a_handler_returns_its_job_succeeds(app: Windlass, value: Any, expected: Any) -> None:
    @app.job(max_attempts=1)
    async def returns() -> Any:
        return value

    async with working(app):
        record = await ended(await returns.aenqueue())

    assert record.status is State.SUCCEEDED
    assert record.output is not None
    assert len(record.output) <= 256 * 1024
    if expected is not None:
        assert json.loads(record.output) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hostile(), "whose str() raised RuntimeError"),
        (lambda: ValueError("nul \0 and half \ud800"), "nul � and half �"),
        (lambda: ValueError("y" * 100_000_000), "characters cut"),
        (lambda: Dead("z\0" * 50_000), "characters cut"),
    ],
    ids=["hostile", "unstorable", "hundred-megabytes", "reason"],
)
async def test_whatever_a_handler_raises_its_job_ends(
    app: Windlass, make: Callable[[], Exception], message: str
) -> None:
    @app.job(max_attempts=1)
    async def raises() -> None:
        raise make()

    @app.job(max_attempts=1)
    def raises_in_a_thread() -> None:
        raise make()

    async with working(app):
        records = [await ended(await kind.aenqueue()) for kind in (raises, raises_in_a_thread)]

    for record in records:
        assert record.status is State.DEAD
        assert message in failure(record).message
        assert len(failure(record).message.encode()) <= 8 * 1024


async def test_sys_exit_ends_the_attempt_and_not_the_worker(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def leaves() -> None:
        sys.exit(3)

    @app.job(max_attempts=1)
    def leaves_a_thread() -> None:
        sys.exit(3)

    async with working(app):
        records = [await ended(await kind.aenqueue()) for kind in (leaves, leaves_a_thread)]

    assert [(record.status, failure(record).type) for record in records] == [(State.DEAD, "SystemExit")] * 2


async def test_a_cancellation_that_nobody_asked_for_fails_the_attempt(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def awaits_a_cancelled_task() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    async with working(app, concurrency=1):
        record = await ended(await awaits_a_cancelled_task.aenqueue())
        again = await ended(await awaits_a_cancelled_task.aenqueue())

    assert (record.status, again.status) == (State.DEAD, State.DEAD)
    assert failure(record).type.endswith("CancelledError")


async def test_a_retry_policy_that_raises_does_not_lose_the_processor(app: Windlass) -> None:
    class Broken:
        def delay(self, attempt: int) -> float:
            raise ZeroDivisionError("my own policy")

    @app.job(retry=Broken(), max_attempts=2)
    async def fails() -> None:
        raise RuntimeError("x")

    @app.job
    async def fine() -> int:
        return 1

    async with working(app, concurrency=1):
        await in_state(await fails.aenqueue(), State.FAILED, State.DEAD)
        assert await (await fine.aenqueue()).aresult(timeout=PATIENCE) == 1


async def test_an_attempt_starts_after_its_claim_and_never_ends_after_its_job(stopped_clock: StoppedClock) -> None:
    """The claim is on its way to the database for five seconds, and the handler runs for two."""
    claimed_at: list[Any] = []

    @stopped_clock.app.job(max_attempts=1)
    async def work() -> None:
        await stopped_clock.moves(2)
        raise ValueError("no")

    async with stopped_clock.working() as (worker, events):
        store = stores_of(worker)
        claim = store.claim

        async def slow(wanted: Claim) -> Claimed:
            await stopped_clock.moves(5)
            answer: Claimed = await claim(wanted)
            claimed_at.extend(job.claimed_at for job in answer.jobs)
            return answer

        store.claim = slow
        job = await work.aenqueue()
        await events.ended(job, Ending.RAISED)
        record = await in_state(job, State.DEAD)

    [attempt] = attempts_in(record.attempts)
    assert [attempt.started_at] == claimed_at
    assert attempt.finished_at == claimed_at[0] + timedelta(seconds=2)
    assert record.finished_at is not None
    assert attempt.finished_at <= record.finished_at
