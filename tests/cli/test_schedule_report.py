"""The times in the report of a schedule."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from windlass.cli.show.schedule_report import format_moment, format_relative
from windlass.model.schedule import Timing

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NIGHTLY = Timing(cron="0 3 * * *", tz="Asia/Tokyo")


def test_times_are_shown_in_the_schedules_zone_and_in_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        tick = datetime(2026, 3, 1, 18, tzinfo=UTC)
        assert format_moment(tick, NIGHTLY) == "Mon 2026-03-02 03:00:00 JST  (Sun 13:00 EST here)"
        assert format_moment(tick, Timing(every=900.0)) == "Sun 2026-03-01 13:00:00 EST"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_how_far_away() -> None:
    assert format_relative(NOW + timedelta(hours=14), NOW) == "in 14h"
    assert format_relative(NOW, NOW) == "now"
    assert format_relative(NOW - timedelta(minutes=5), NOW) == "5m ago"
