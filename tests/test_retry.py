"""How long a failed attempt waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import Retry, Snooze, delays, exponential, fixed
from windlass.errors import ConfigError
from windlass.policy.retry import LONGEST_DELAY


def test_the_policies_of_the_seeds() -> None:
    assert [exponential("10s", factor=2).delay(n) for n in (1, 2, 3, 4)] == [10, 20, 40, 80]
    assert [delays("5s", "30s").delay(n) for n in (1, 2, 3, 9)] == [5, 30, 30, 30]
    assert [fixed("5m").delay(n) for n in (1, 2, 9)] == [300, 300, 300]


def test_doubling_is_bounded() -> None:
    assert exponential("10s").delay(5_000) == LONGEST_DELAY
    assert exponential("10s", most="1m").delay(7) == 60


@given(st.integers(1, 100), st.floats(0, 1), st.integers(1, 3))
def test_jitter_stays_within_its_share(attempt: int, jitter: float, factor: int) -> None:
    plain = exponential("10s", factor=factor).delay(attempt)
    spread = exponential("10s", factor=factor, jitter=jitter).delay(attempt)

    assert plain * (1 - jitter) - 1e-6 <= spread <= plain * (1 + jitter) + 1e-6


def test_jitter_spreads() -> None:
    for policy in (exponential("10s", jitter=0.5), delays("10s", jitter=0.5), fixed("10s", jitter=0.5)):
        waits = {policy.delay(1) for _ in range(50)}
        assert len(waits) > 40
        assert min(waits) < 9
        assert max(waits) > 11


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: exponential("10s", factor=0.5),
        lambda: exponential("10s", factor=float("nan")),
        lambda: exponential("never"),
        lambda: exponential("10s", jitter=2),
        lambda: delays("5s", "-1s"),
        lambda: fixed("5m", jitter=-0.1),
        lambda: Retry(after=-1),
        lambda: Snooze("yesterday"),
    ],
)
def test_an_impossible_policy_is_refused_when_it_is_written(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()


def test_directives_hold_their_delays() -> None:
    assert (Retry("busy", after="2m").after, Retry().after) == (120.0, None)
    assert (Snooze("1h").delay, str(Snooze(90))) == (3600.0, "snoozed for 90 s")


def test_a_retry_after_header_may_be_seconds_or_an_http_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)

    assert Retry(after="120").after == 120
    assert Retry(after=soon).after == pytest.approx(120, abs=5)
    assert Snooze(soon).delay == pytest.approx(120, abs=5)
    assert Retry(after="Wed, 21 Oct 2015 07:28:00 GMT").after == 0
    with pytest.raises(ConfigError, match="neither a duration nor an HTTP date"):
        Retry(after="Wed, never")
