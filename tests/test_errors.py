"""`app.errors()` of a program whose jobs really fail: by an exception, in a child process, in a phase; both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servers import url_of
from windlass import Dead, JobType, Retry, State, Windlass, fixed
from windlass.errors import ConfigError, FilterError
from windlass.policy.fingerprint import fingerprint
from windlass.testing import Harness, harness

Read = Callable[..., Any]


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", actor="ann")


@pytest.fixture
def send(app: Windlass) -> JobType[[str], str]:
    @app.job(queue="mail", retry=fixed("1m"), max_attempts=2)
    def send(to: str) -> str:
        if to.startswith("dead"):
            raise Dead(f"{to!r} is blocked")
        if to.startswith("retry"):
            raise Retry(f"busy: {len(to)} in line")
        if to.startswith("user"):
            raise ValueError(f"{to} has no address\nlook it up")
        return f"sent to {to}"

    return send


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, send: JobType[[str], str]) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


@pytest.fixture(params=["blocking", "async"])
def errors(request: pytest.FixtureRequest, app: Windlass) -> Read:
    """The call that waits, and the one that is awaited."""
    return (
        app.errors if request.param == "blocking" else lambda *given, **more: asyncio.run(app.aerrors(*given, **more))
    )


def test_each_kind_of_failure_is_a_group_of_its_own(bench: Harness, send: JobType[[str], str], errors: Read) -> None:
    for name in ("ann", "user 1", "user 22", "dead", "dead too", "retry"):
        send.enqueue(name)
    bench.drain(raise_errors=False)

    groups = {(group.type, group.message): dict(group.states) for group in errors()}

    assert groups == {
        ("ValueError", "user … has no address"): {State.FAILED: 2},
        ("windlass.Dead", "… is blocked"): {State.DEAD: 2},
        ("windlass.Retry", "busy: … in line"): {State.FAILED: 1},
    }
    bench.clock.advance("1m")
    bench.drain(raise_errors=False)
    assert {group.type: dict(group.states) for group in errors("10m")}["ValueError"] == {State.DEAD: 2}
    assert errors("10m", queue="report") == errors("10m", tenant="acme") == []


def test_a_job_that_went_on_stays_in_its_group(bench: Harness, app: Windlass, errors: Read) -> None:
    attempts: list[int] = []

    @app.job(queue="flaky", retry=fixed("1m"))
    def flaky() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError(5, "out of rope")

    job = flaky.enqueue()
    bench.drain(raise_errors=False)
    bench.clock.advance("1m")
    bench.drain()

    (group,) = errors(queue="flaky")

    assert (group.states, group.newest) == ({State.SUCCEEDED: 1}, job.id)
    assert job.record().fingerprint == group.fingerprint == fingerprint("OSError", "[Errno 5] out of rope")


def test_a_message_that_no_database_can_store_has_a_group(bench: Harness, app: Windlass, errors: Read) -> None:
    @app.job(queue="odd", max_attempts=1)
    def odd() -> None:
        raise ValueError("a\0b \udc00 " + "x" * 1_000_000)

    job = odd.enqueue()
    bench.drain(raise_errors=False)

    (group,) = errors(queue="odd")

    stored = job.record().failure()
    assert stored is not None
    assert group.fingerprint == fingerprint(stored.type, stored.message)
    assert (group.type, len(group.message)) == ("ValueError", 300)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"since": "soon"}, ConfigError),
        ({"since": -1}, ConfigError),
        ({"queue": ""}, FilterError),
        ({"tenant": "a\nb"}, FilterError),
    ],
)
def test_a_wrong_argument_is_refused(app: Windlass, given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(given))):
        app.errors(**given)


def test_a_range_of_nothing_is_the_last_second(bench: Harness, send: JobType[[str], str], errors: Read) -> None:
    send.enqueue("user 1")
    bench.drain(raise_errors=False)

    (group,) = errors(0)

    assert group.points[-1] == 1
