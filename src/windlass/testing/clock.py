"""A clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from windlass.clock import Duration, seconds

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class ManualClock:
    """Stands still until `advance`. Sleepers may sit on several event loops, in several threads.

    `before` is called with the new time before any sleeper wakes: a database with a time of its own follows.
    """

    def __init__(self, start: datetime = START, *, before: Callable[[datetime], None] | None = None) -> None:
        self._start = start
        self._before = before
        self._elapsed = timedelta()
        self._sleepers: dict[asyncio.Future[None], timedelta] = {}
        self._lock = threading.Lock()
        self._moving = threading.Lock()

    def now(self) -> datetime:
        """The time of this clock, in UTC."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """The seconds by which the clock was moved so far."""
        return self._elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced so far."""
        woken = asyncio.get_running_loop().create_future()
        with self._lock:
            due = self._elapsed + timedelta(seconds=seconds)
            if due > self._elapsed:
                self._sleepers[woken] = due
            else:
                woken.set_result(None)
        try:
            await woken
        finally:
            with self._lock:
                self._sleepers.pop(woken, None)

    def advance(self, duration: Duration) -> None:
        """Move on by `10`, `"10s"` or `"1h30m"`, and wake the sleepers that are due. From any thread."""
        step = timedelta(seconds=seconds(duration, what="advance(…)"))
        with self._moving:
            if self._before is not None:
                self._before(self.now() + step)
            self._move(step)

    def advance_to(self, moment: datetime) -> None:
        """Move on to a moment, such as a job's `run_at`; the past stays where it is."""
        self.advance(max(moment - self.now(), timedelta()))

    def _move(self, step: timedelta) -> None:
        """The earliest sleeper wakes first."""
        with self._lock:
            self._elapsed += step
            due = sorted((when, place) for place, when in enumerate(self._sleepers.values()) if when <= self._elapsed)
            sleepers = list(self._sleepers)
            for _, place in due:
                woken = sleepers[place]
                woken.get_loop().call_soon_threadsafe(_wake, woken)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
