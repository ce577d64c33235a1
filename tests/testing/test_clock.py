"""The manual clock."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta

import pytest

from windlass.errors import ConfigError
from windlass.testing import ManualClock


def test_it_stands_until_it_is_moved_by_seconds_or_words() -> None:
    clock = ManualClock()
    start = clock.now()

    clock.advance(1.5)
    clock.advance("1h30m")
    clock.advance(timedelta(days=1))

    assert clock.now() - start == timedelta(days=1, hours=1, minutes=30, seconds=1.5)
    assert clock.monotonic() == 86_400 + 5_400 + 1.5


def test_it_moves_to_a_moment_and_never_back() -> None:
    clock = ManualClock()
    moment = clock.now() + timedelta(hours=1)

    clock.advance_to(moment)
    clock.advance_to(moment - timedelta(hours=5))

    assert clock.now() == moment
    with pytest.raises(ConfigError, match="negative"):
        clock.advance(-1)


async def test_whoever_waits_is_told_first_and_sleepers_wake_afterwards() -> None:
    told: list[datetime] = []
    clock = ManualClock(before=told.append)
    sleeper = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)

    threading.Thread(target=clock.advance, args=("9s",)).start()
    assert not (await asyncio.wait({sleeper}, timeout=0.05))[0]
    clock.advance(1)

    await sleeper
    assert told == [clock.now() - timedelta(seconds=1), clock.now()]
