"""What goes wrong under `drain()`: errors of handlers, jobs without an end, handlers that wait for ever."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from windlass import State, Windlass
from windlass.errors import ResultTimeout
from windlass.testing import AttemptFailed, EndlessDrain, HandlerStuck, Harness, harness


def test_a_handlers_own_exception_is_raised_on_demand_with_its_traceback(app: Windlass, bench: Harness) -> None:
    @app.job
    def broken(n: int) -> float:
        return 1 / n

    @app.job
    async def broken_too(n: int) -> float:
        return 1 / n

    for kind in (broken, broken_too):
        job, rest = kind.enqueue(0), kind.enqueue(1)

        with pytest.raises(ZeroDivisionError) as caught:
            bench.drain(raise_errors=True)

        assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "return 1 / n"
        assert (job.status(), rest.status()) == (State.FAILED, State.QUEUED)
        bench.clock.advance("10s")
        with pytest.raises(ZeroDivisionError):
            bench.run_one(job, raise_errors=True)
        bench.drain()


def test_a_strict_harness_raises_without_being_asked(app: Windlass, server: str | None) -> None:
    @app.job
    def broken() -> None:
        raise LookupError("gone")

    with harness(app, server, raise_errors=True) as strict:
        broken.enqueue()
        with pytest.raises(LookupError, match="gone"):
            strict.drain()

        strict.clock.advance("10s")
        assert strict.run_one(raise_errors=False).failed


def test_an_input_that_no_longer_fits_fails_without_an_exception_of_the_handlers(app: Windlass, bench: Harness) -> None:
    @app.job
    def resize(width: int) -> None: ...

    table = "windlass_jobs" if bench.url.startswith("sqlite") else "windlass.jobs"
    resize.enqueue(3)
    bench.execute(f"""UPDATE {table} SET input = '{{"width": "wide"}}'""")

    with pytest.raises(AttemptFailed, match=r"resize .*InvalidInput"):
        bench.drain(raise_errors=True)


class Verdict(BaseException):
    """As pytest.fail() raises it."""


@pytest.mark.parametrize("error", [Verdict, KeyboardInterrupt])
def test_what_is_meant_for_the_test_reaches_it(app: Windlass, bench: Harness, error: type[BaseException]) -> None:
    @app.job
    def checking() -> None:
        raise error

    checking.enqueue()

    with pytest.raises(error):
        bench.drain()


def test_a_job_that_enqueues_itself_for_ever_is_stopped_and_named(app: Windlass, bench: Harness) -> None:
    @app.job
    async def echo(n: int) -> None:
        await echo.aenqueue(n + 1)

    @app.job
    def other() -> None: ...

    other.enqueue()
    echo.enqueue(0)

    with pytest.raises(EndlessDrain, match=r"ran 10 attempts and echo\(n=9\) is still due; 'echo' ran 9 times"):
        bench.drain(limit=10)


def test_a_limit_that_is_just_enough_is_no_error(app: Windlass, bench: Harness) -> None:
    @app.job
    def once() -> None: ...

    for _ in range(3):
        once.enqueue()
    once.options(delay="1s").enqueue()

    assert len(bench.drain(limit=3)) == 3


def test_a_handler_that_does_not_end_is_named_and_its_job_given_back(app: Windlass, server: str | None) -> None:
    @app.job
    async def stuck() -> None:
        await never()

    with harness(app, server, patience="100ms") as bench:
        job = stuck.enqueue()

        with pytest.raises(HandlerStuck, match=r"stuck .* has not ended after 100ms"):
            bench.drain()

        assert (job.status(), job.record().attempt) == (State.QUEUED, 0)


def test_a_handler_that_waits_for_a_later_job_is_told_so(app: Windlass, server: str | None) -> None:
    @app.job
    def first() -> None:
        second.enqueue().result()

    @app.job
    def second() -> None: ...

    @app.job
    def knows_better() -> str:
        with pytest.raises(ResultTimeout):
            second.enqueue().result(timeout=0)
        return "knew"

    with harness(app, server, patience="1s") as bench:
        first.enqueue()
        with pytest.raises(HandlerStuck, match="waits for another job"):
            bench.drain()

        job = knows_better.enqueue()
        bench.drain()
        assert job.result() == "knew"


async def never() -> None:
    await asyncio.Event().wait()
