"""`assert_enqueued` and `assert_not_enqueued`: what fits, and what they say when nothing does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from unittest.mock import ANY

import pytest

from windlass import Windlass
from windlass.testing import Harness, HarnessError


@dataclass
class Address:
    street: str
    number: int


def test_arguments_fit_by_subset_with_defaults_and_as_the_handler_sees_them(app: Windlass, bench: Harness) -> None:
    @app.job(type="mail.send")
    def send(to: str, subject: str = "hello", *, when: datetime | None = None, at: Address | None = None) -> None: ...

    moment = datetime(2026, 3, 1, tzinfo=UTC)
    job = send.enqueue("a@example.org", when=moment, at=Address("Quay", 1))

    assert [found.id for found in bench.assert_enqueued(send)] == [job.id]
    bench.assert_enqueued(send, to="a@example.org")
    bench.assert_enqueued(send, subject="hello", when=moment)
    bench.assert_enqueued(send, at=Address("Quay", 1))
    bench.assert_enqueued(send, at={"street": "Quay", "number": 1})
    bench.assert_enqueued("mail.send", to=ANY)
    bench.assert_enqueued(send.options(priority=3), count=1)
    bench.assert_not_enqueued(send, to="b@example.org")
    bench.assert_not_enqueued(send, at=Address("Quay", 2))
    bench.assert_not_enqueued("mail.sent")


def test_the_count_is_exact(app: Windlass, bench: Harness) -> None:
    @app.job
    def send(to: str) -> None: ...

    send.enqueue("a")
    send.enqueue("a")
    send.enqueue("b")

    assert len(bench.assert_enqueued(send, count=2, to="a")) == 2
    bench.assert_enqueued(send, count=0, to="c")
    with pytest.raises(AssertionError, match=r"expected 1 job instead of 2 of send\(to='a'\)"):
        bench.assert_enqueued(send, count=1, to="a")
    with pytest.raises(AssertionError, match="expected no job of send"):
        bench.assert_not_enqueued(send)


def test_a_job_that_failed_is_enqueued_and_one_that_ended_is_not(app: Windlass, bench: Harness) -> None:
    @app.job(max_attempts=2)
    def send() -> None:
        raise ValueError

    send.enqueue()
    bench.run_one()
    bench.assert_enqueued(send)

    bench.clock.advance("10s")
    bench.run_one()
    bench.assert_not_enqueued(send)


def test_the_message_shows_what_was_enqueued_instead(app: Windlass, bench: Harness) -> None:
    @app.job
    def send(to: str, subject: str = "hi") -> None: ...

    @app.job
    def resize(path: str) -> None: ...

    resize.enqueue("x.png")
    send.enqueue("done@example.org")
    bench.run_one(send)
    send.enqueue("b@example.org", subject="bye")
    send.enqueue("a@example.org", subject="bye")

    with pytest.raises(AssertionError) as caught:
        bench.assert_enqueued(send, to="a@example.org", subject="hi")

    assert str(caught.value).splitlines() == [
        "expected a job of send(to='a@example.org', subject='hi')",
        "enqueued are:",
        "  send(to='a@example.org', subject='bye')  queued",
        "    - subject='hi'",
        "    + subject='bye'",
        "  send(to='b@example.org', subject='bye')  queued",
        "    - to='a@example.org'",
        "    + to='b@example.org'",
        "    - subject='hi'",
        "    + subject='bye'",
        "  resize(path='x.png')  queued",
        "no longer enqueued:",
        "  send(to='done@example.org')  succeeded",
    ]


def test_a_misspelt_argument_is_no_pass(app: Windlass, bench: Harness) -> None:
    @app.job
    def send(to: str) -> None: ...

    with pytest.raises(HarnessError, match="send has no argument 'too'; did you mean 'to'"):
        bench.assert_not_enqueued(send, too="a@example.org")
    with pytest.raises(HarnessError, match="is no job type"):
        bench.assert_not_enqueued(print)  # type: ignore[arg-type]


def test_nothing_at_all_is_said_so(app: Windlass, bench: Harness) -> None:
    @app.job
    def send(to: str) -> None: ...

    with pytest.raises(AssertionError, match=r"expected a job of send\(to='a'\)\nnothing is enqueued"):
        bench.assert_enqueued(send, to="a")
